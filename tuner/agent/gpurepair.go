package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/repair"
	"github.com/trimtab/trimtab/tuner/state"
)

// GPUAccess looks at containers' access to their GPUs, and repairs it. Look tells the
// rules that stand, each proved, and which of those that the container had are lost;
// Repair puts back the lost ones and no others, and says how. Repair is called for one
// container at a time, and never after Run has returned.
type GPUAccess interface {
	Look(ctx context.Context, c runtime.Container, had []runtime.DeviceRule) (stands, lost []runtime.DeviceRule, err error)
	Repair(ctx context.Context, c runtime.Container, had []runtime.DeviceRule) (how string, err error)
	Forget(key string)
}

// GPUMemory keeps over restarts which rules were proved to stand, by container.
type GPUMemory interface {
	Load() (map[string][]runtime.DeviceRule, error)
	Save(all map[string][]runtime.DeviceRule) error
}

// accessEvery is how often access is looked at, whatever the tick: lost access is to be
// found within five seconds, also on a machine that is slow for a while.
const accessEvery = time.Second

// repairTimeout bounds one repair; it is two questions to systemd and some writes.
const repairTimeout = 12 * time.Second

// repairer finds and repairs lost access to GPUs (law: GPU access). Its goroutine owns it; each
// repair has one of its own, so that one that hangs delays no other container.
type repairer struct {
	l       *Agent
	started time.Time
	had     map[string][]runtime.DeviceRule
	unsaved bool
	saveNs  int64 // not before
	states  map[string]*repairState
	repairs sync.WaitGroup
}

// repairState is one container that holds a GPU.
type repairState struct {
	backoff repair.Backoff
	sinceNs int64         // first looked at
	result  chan repaired // of the repair that is under way; nil: none
	unread  string        // why it could not be looked at; told once
}

type repaired struct {
	how string
	err error
}

// repairTarget is what the agent tells the repairer about a container.
type repairTarget struct {
	c      runtime.Container
	team   string
	mayNot string // why lost access is not to be repaired; "" if it is
}

// repairAccess runs until ctx ends, and ends with all its repairs.
func (l *Agent) repairAccess(ctx context.Context) {
	h := &repairer{l: l, started: time.Now(), states: map[string]*repairState{}}
	var err error
	if h.had, err = l.o.GPUMemory.Load(); err != nil {
		l.o.Log.Error("what containers could reach of their GPUs before is not known: only access that is lost from now on is repaired", "error", err)
	}
	if h.had == nil {
		h.had = map[string][]runtime.DeviceRule{}
	}
	defer h.repairs.Wait()
	ticker := time.NewTicker(accessEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-l.repairNow:
		}
		h.round(ctx)
	}
}

// lookSoon has access looked at without waiting for the next round.
func (l *Agent) lookSoon() {
	select {
	case l.repairNow <- struct{}{}:
	default: // that is coming already
	}
}

// round looks at every container once.
func (h *repairer) round(ctx context.Context) {
	var targets []repairTarget
	var running func(key string) bool // nil: not all are listed
	if h.l.do(ctx, func() { targets, running = h.l.targets(), h.l.listing() }) != nil {
		return
	}
	for _, w := range targets {
		if ctx.Err() != nil {
			return
		}
		h.attend(ctx, w)
	}
	h.forget(running)
	h.save()
}

// targets are the containers whose access is looked at: watched ones that hold a GPU.
func (l *Agent) targets() []repairTarget {
	var out []repairTarget
	for _, key := range l.keys() {
		if t := l.containers[key]; len(t.c.GPUs) > 0 && t.watched {
			out = append(out, repairTarget{c: t.c, team: t.enrolment.Team, mayNot: l.mayNotRepair(t)})
		}
	}
	return out
}

// listing tells the keys of containers that run, or may, for any goroutine; nil while an engine has yet
// to list its own.
func (l *Agent) listing() func(key string) bool {
	running := map[string]bool{}
	var unseen []engineState
	for _, e := range l.engines {
		if !e.part.OK || !e.recovered {
			return nil
		}
		unseen = append(unseen, *e)
	}
	for key := range l.containers {
		running[key] = true
	}
	return func(key string) bool {
		return running[key] || slices.ContainsFunc(unseen, func(e engineState) bool { return e.mayRun(key) })
	}
}

// mayNotRepair says why a container's lost access is only told; "" if it is repaired:
// enrolled containers, and named ones where the config says repairGPUAccess: true.
func (l *Agent) mayNotRepair(t *tracked) string {
	switch {
	case t.c.Kubernetes:
		return "not repaired: below Kubernetes' cgroups trimtab only observes"
	case l.o.Disabled != nil && l.o.Disabled():
		return "not repaired: trimtab is disabled on this host"
	case l.o.Holds.Paused():
		return "not repaired: trimtab is paused"
	case l.o.Holds.Held(t.c.Key()):
		return "not repaired: held since restore"
	case !enrolment.Named(t.c, l.settings.Rules, t.enrolment):
		return "not repaired: neither enrolled nor named in the config"
	case t.enrolment.Mode == policies.ModeTune, l.settings.RepairGPUAccess:
		return ""
	}
	return "not repaired: it is observed only (" + t.enrolment.WhyNot + "); repairGPUAccess: true in the config allows repairs"
}

// attend looks at one container, and begins or ends a repair.
func (h *repairer) attend(ctx context.Context, w repairTarget) {
	key := w.c.Key()
	p := h.states[key]
	if p == nil {
		p = &repairState{sinceNs: h.now()}
		h.states[key] = p
	}
	if p.result != nil && !h.collect(ctx, w, p) {
		return
	}
	stands, lost, err := h.l.o.GPU.Look(ctx, w.c, h.had[key])
	if err != nil {
		h.unread(w, p, err)
		return
	}
	p.unread = ""
	if all, changed := repair.Remember(h.had[key], stands); changed {
		h.had[key], h.unsaved = all, true
	}
	gone, mayNot := len(lost) > 0, w.mayNot
	if len(h.had[key]) == 0 {
		gone = h.now()-p.sinceNs >= repair.UnknownAfterNs
		mayNot = "not repaired: trimtab never saw it with access, so there is nothing that it may put back; restart the container"
	}
	h.follow(ctx, w, p, lost, p.backoff.See(h.now(), gone, mayNot))
}

func (h *repairer) now() int64 { return time.Since(h.started).Nanoseconds() + 1 }

func (h *repairer) unread(w repairTarget, p *repairState, err error) {
	if errors.Is(err, runtime.ErrGone) || errors.Is(err, runtime.ErrBusy) || p.unread == err.Error() {
		return
	}
	p.unread = err.Error()
	h.l.o.Log.Warn("access to a GPU cannot be looked at, so a loss would not be found", "container", w.c.Name, "error", err)
}

// follow carries out a step.
func (h *repairer) follow(ctx context.Context, w repairTarget, p *repairState, lost []runtime.DeviceRule, s repair.Step) {
	if s.Found {
		text := "GPU access lost"
		if len(lost) > 0 {
			text += ": " + repair.Names(lost)
		}
		if s.Standing != "" {
			text += "; " + s.Standing
		}
		h.tell(ctx, w, p, text, "", true)
	}
	if s.Returned {
		h.tell(ctx, w, p, "GPU access is back, and not by trimtab", "", false)
	}
	if s.Obstacle != "" {
		h.tell(ctx, w, p, "GPU access "+s.Obstacle, resultLeft, false)
	}
	if !s.Repair {
		return
	}
	result := make(chan repaired, 1)
	p.result = result
	h.save() // what is put back is on disk first: a restart knows it too
	had := slices.Clone(h.had[w.c.Key()])
	h.repairs.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, repairTimeout)
		defer cancel()
		how, err := h.l.o.GPU.Repair(ctx, w.c, had)
		result <- repaired{how, err}
		h.l.lookSoon()
	})
}

// Results of a repair, in metrics.
const (
	resultRepaired = "repaired"
	resultFailed   = "failed"
	resultLeft     = "left" // not trimtab's to repair, or not now
)

// collect takes in a repair that ended; false if it has not.
func (h *repairer) collect(ctx context.Context, w repairTarget, p *repairState) bool {
	var m repaired
	select {
	case m = <-p.result:
	default:
		return false
	}
	p.result = nil
	failure := ""
	if m.err != nil {
		failure = m.err.Error()
	}
	if errors.Is(m.err, runtime.ErrGone) {
		return true
	}
	switch o := p.backoff.Done(h.now(), failure); {
	case o.Repaired && m.how == "":
		h.tell(ctx, w, p, "GPU access is back, and not by trimtab", "", false)
	case o.Repaired:
		h.tell(ctx, w, p, fmt.Sprintf("GPU access repaired by %s, %s after it was found lost", m.how, time.Duration(o.TookNs).Round(time.Millisecond)), resultRepaired, false)
	case o.Obstacle != "":
		h.tell(ctx, w, p, "GPU access not repaired, tried again with growing pauses: "+o.Obstacle, resultFailed, false)
	default:
		h.l.reply(ctx, func() { h.l.edge.repairs[state.Count{Result: resultFailed}]++ })
	}
	return true
}

// tell records what happened, counts it, and has the agent show what is lost now.
func (h *repairer) tell(ctx context.Context, w repairTarget, p *repairState, text, result string, found bool) {
	kind := state.RecordGPULost
	if result == resultRepaired {
		kind = state.RecordGPURepair
	}
	shown := ""
	if p.backoff.Lost() {
		shown = text
	}
	h.l.reply(ctx, func() {
		if found {
			h.l.edge.gpuLost++
		}
		if result != "" {
			h.l.edge.repairs[state.Count{Result: result}]++
		}
		if t := h.l.containers[w.c.Key()]; t != nil {
			t.gpuLost = shown
		}
		h.l.keep([]state.Record{{UnixNs: time.Now().UnixNano(), Kind: kind, Key: w.c.Key(), Name: w.c.Name, Team: w.team, Text: text}})
	})
}

// forget drops containers that ended.
func (h *repairer) forget(running func(key string) bool) {
	if running == nil {
		return
	}
	for key, p := range h.states {
		if !running(key) && (p.result == nil || len(p.result) > 0) {
			delete(h.states, key)
			h.l.o.GPU.Forget(key)
		}
	}
	for key := range h.had {
		if !running(key) {
			delete(h.had, key)
			h.unsaved = true
		}
	}
}

// saveAgainNs is how long a save that failed is left alone.
const saveAgainNs = 30 * int64(time.Second)

// save makes durable what is known: without it a restart would not know what to put back.
func (h *repairer) save() {
	if !h.unsaved || h.now() < h.saveNs {
		return
	}
	if err := h.l.o.GPUMemory.Save(maps.Clone(h.had)); err != nil {
		if h.saveNs == 0 {
			h.l.o.Log.Error("what containers may reach of their GPUs is known only until the daemon ends", "error", err)
		}
		h.saveNs = h.now() + saveAgainNs
		return
	}
	h.unsaved, h.saveNs = false, 0
}

// whyNotReady is what keeps a container from being tuned as far as its GPU goes.
func (t *tracked) whyNotReady() string { return cmp.Or(t.gpuLost, t.preflight) }

// showGPULost adds to a snapshot what the core does not know.
func (l *Agent) showGPULost(s *state.Snapshot) {
	for i, c := range s.Containers {
		if t := l.containers[c.Key]; t != nil {
			s.Containers[i].GPULost = t.gpuLost
		}
	}
}
