package loop

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
	"github.com/trimtab/trimtab/tuner/enrol"
	"github.com/trimtab/trimtab/tuner/heal"
	"github.com/trimtab/trimtab/tuner/view"
)

// GPUAccess looks at containers' access to their GPUs, and mends it. Look tells the
// rules that stand, each proved, and which of those that the container had are lost;
// Mend puts back the lost ones and no others, and says how. Mend is called for one
// container at a time, and never after Run has returned.
type GPUAccess interface {
	Look(ctx context.Context, c runtime.Container, had []runtime.DeviceRule) (stands, lost []runtime.DeviceRule, err error)
	Mend(ctx context.Context, c runtime.Container, had []runtime.DeviceRule) (how string, err error)
	Forget(key string)
}

// GPUMemory keeps over restarts which rules were proved to stand, by container.
type GPUMemory interface {
	Load() (map[string][]runtime.DeviceRule, error)
	Save(all map[string][]runtime.DeviceRule) error
}

// healEvery is how often access is looked at, whatever the tick: lost access is to be
// found within five seconds, also on a machine that is slow for a while.
const healEvery = time.Second

// mendTimeout bounds one mend; it is two questions to systemd and some writes.
const mendTimeout = 12 * time.Second

// healer finds and mends lost access to GPUs (law: GPU access). Its goroutine owns it; each
// mend has one of its own, so that one that hangs delays no other container.
type healer struct {
	l        *Loop
	started  time.Time
	had      map[string][]runtime.DeviceRule
	unsaved  bool
	saveNs   int64 // not before
	patients map[string]*patient
	mends    sync.WaitGroup
}

// patient is one container that holds a GPU.
type patient struct {
	course  heal.Course
	sinceNs int64 // first looked at
	result  chan mended
	mending bool
	unread  string // why it could not be looked at; told once
}

type mended struct {
	how string
	err error
}

// ward is what the loop tells the healer about a container.
type ward struct {
	c      runtime.Container
	team   string
	mayNot string // why lost access is not to be mended; "" if it is
}

// heal runs until ctx ends, and ends with all its mends.
func (l *Loop) heal(ctx context.Context) {
	h := &healer{l: l, started: time.Now(), patients: map[string]*patient{}}
	var err error
	if h.had, err = l.o.GPUMemory.Load(); err != nil {
		l.o.Log.Error("what containers could reach of their GPUs before is not known: only access that is lost from now on is repaired", "error", err)
	}
	if h.had == nil {
		h.had = map[string][]runtime.DeviceRule{}
	}
	defer h.mends.Wait()
	ticker := time.NewTicker(healEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-l.healNow:
		}
		h.round(ctx)
	}
}

// lookSoon has access looked at without waiting for the next round.
func (l *Loop) lookSoon() {
	select {
	case l.healNow <- struct{}{}:
	default: // that is coming already
	}
}

// round looks at every container once.
func (h *healer) round(ctx context.Context) {
	var wards []ward
	var running map[string]bool // nil: not all are listed
	if h.l.do(ctx, func() { wards, running = h.l.wards(), h.l.listing() }) != nil {
		return
	}
	for _, w := range wards {
		if ctx.Err() != nil {
			return
		}
		h.attend(ctx, w)
	}
	h.forget(running)
	h.save()
}

// wards are the containers whose access is looked at: watched ones that hold a GPU.
func (l *Loop) wards() []ward {
	var out []ward
	for _, key := range l.keys() {
		if t := l.containers[key]; len(t.c.GPUs) > 0 && t.watched {
			out = append(out, ward{c: t.c, team: t.enrolment.Team, mayNot: l.mayNotHeal(t)})
		}
	}
	return out
}

// listing is every running container's key, nil while an engine has yet to list its own.
func (l *Loop) listing() map[string]bool {
	running := map[string]bool{}
	for _, e := range l.engines {
		if !e.part.OK || !e.recovered {
			return nil
		}
	}
	for key := range l.containers {
		running[key] = true
	}
	return running
}

// mayNotHeal says why a container's lost access is only told; "" if it is repaired:
// enrolled containers, and named ones where the config says heal: true.
func (l *Loop) mayNotHeal(t *tracked) string {
	switch {
	case t.c.Kubernetes:
		return "not repaired: below Kubernetes' cgroups trimtab only observes"
	case l.o.Disabled != nil && l.o.Disabled():
		return "not repaired: trimtab is disabled on this host"
	case l.o.Holds.Paused():
		return "not repaired: trimtab is paused"
	case l.o.Holds.Held(t.c.Key()):
		return "not repaired: held since restore"
	case !enrol.Named(t.c, l.settings.Rules, t.enrolment):
		return "not repaired: neither enrolled nor named in the config"
	case t.enrolment.Mode == policies.ModeTune, l.settings.Heal:
		return ""
	}
	return "not repaired: it is observed only (" + t.enrolment.WhyNot + "); heal: true in the config allows repairs"
}

// attend looks at one container, and begins or ends a mend.
func (h *healer) attend(ctx context.Context, w ward) {
	key := w.c.Key()
	p := h.patients[key]
	if p == nil {
		p = &patient{sinceNs: h.now(), result: make(chan mended, 1)}
		h.patients[key] = p
	}
	if p.mending && !h.collect(ctx, w, p) {
		return
	}
	stands, lost, err := h.l.o.GPU.Look(ctx, w.c, h.had[key])
	if err != nil {
		h.unread(w, p, err)
		return
	}
	p.unread = ""
	if all, changed := heal.Remember(h.had[key], stands); changed {
		h.had[key], h.unsaved = all, true
	}
	gone, mayNot := len(lost) > 0, w.mayNot
	if len(h.had[key]) == 0 {
		gone = h.now()-p.sinceNs >= heal.UnknownAfterNs
		mayNot = "not repaired: trimtab never saw it with access, so there is nothing that it may put back; restart the container"
	}
	h.follow(ctx, w, p, lost, p.course.See(h.now(), gone, mayNot))
}

func (h *healer) now() int64 { return time.Since(h.started).Nanoseconds() + 1 }

func (h *healer) unread(w ward, p *patient, err error) {
	if errors.Is(err, runtime.ErrGone) || errors.Is(err, runtime.ErrBusy) || p.unread == err.Error() {
		return
	}
	p.unread = err.Error()
	h.l.o.Log.Warn("access to a GPU cannot be looked at, so a loss would not be found", "container", w.c.Name, "error", err)
}

// follow carries out a step.
func (h *healer) follow(ctx context.Context, w ward, p *patient, lost []runtime.DeviceRule, s heal.Step) {
	if s.Found {
		text := "GPU access lost"
		if len(lost) > 0 {
			text += ": " + heal.Names(lost)
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
	if !s.Mend {
		return
	}
	p.mending = true
	h.save() // what is put back is on disk first: a restart knows it too
	had := slices.Clone(h.had[w.c.Key()])
	h.mends.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, mendTimeout)
		defer cancel()
		how, err := h.l.o.GPU.Mend(ctx, w.c, had)
		p.result <- mended{how, err}
		h.l.lookSoon()
	})
}

// Results of a mend, in metrics.
const (
	resultRepaired = "repaired"
	resultFailed   = "failed"
	resultLeft     = "left" // not trimtab's to mend, or not now
)

// collect takes in a mend that ended; false if it has not.
func (h *healer) collect(ctx context.Context, w ward, p *patient) bool {
	var m mended
	select {
	case m = <-p.result:
	default:
		return false
	}
	p.mending = false
	failure := ""
	if m.err != nil {
		failure = m.err.Error()
	}
	if errors.Is(m.err, runtime.ErrGone) {
		return true
	}
	switch o := p.course.Done(h.now(), failure); {
	case o.Repaired && m.how == "":
		h.tell(ctx, w, p, "GPU access is back, and not by trimtab", "", false)
	case o.Repaired:
		h.tell(ctx, w, p, fmt.Sprintf("GPU access repaired by %s, %s after it was found lost", m.how, time.Duration(o.TookNs).Round(time.Millisecond)), resultRepaired, false)
	case o.Obstacle != "":
		h.tell(ctx, w, p, "GPU access not repaired, tried again with growing pauses: "+o.Obstacle, resultFailed, false)
	default:
		h.count(ctx, resultFailed)
	}
	return true
}

// tell records what happened, counts it, and has the loop show what is lost now.
func (h *healer) tell(ctx context.Context, w ward, p *patient, text, result string, found bool) {
	kind := view.RecordGPULost
	if result == resultRepaired {
		kind = view.RecordHeal
	}
	shown := ""
	if p.course.Lost() {
		shown = text
	}
	h.l.reply(ctx, func() {
		if found {
			h.l.edge.gpuLost++
		}
		if result != "" {
			h.l.edge.heals[view.Count{Result: result}]++
		}
		if t := h.l.containers[w.c.Key()]; t != nil {
			t.gpuLost = shown
		}
		h.l.keep([]view.Record{{UnixNs: time.Now().UnixNano(), Kind: kind, Key: w.c.Key(), Name: w.c.Name, Team: w.team, Text: text}})
	})
}

func (h *healer) count(ctx context.Context, result string) {
	h.l.reply(ctx, func() { h.l.edge.heals[view.Count{Result: result}]++ })
}

// forget drops containers that ended.
func (h *healer) forget(running map[string]bool) {
	if running == nil {
		return
	}
	for key, p := range h.patients {
		if !running[key] && (!p.mending || len(p.result) > 0) {
			delete(h.patients, key)
			h.l.o.GPU.Forget(key)
		}
	}
	for key := range h.had {
		if !running[key] {
			delete(h.had, key)
			h.unsaved = true
		}
	}
}

// saveAgainNs is how long a save that failed is left alone.
const saveAgainNs = 30 * int64(time.Second)

// save makes durable what is known: without it a restart would not know what to put back.
func (h *healer) save() {
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
func (l *Loop) showGPULost(s *view.Snapshot) {
	for i, c := range s.Containers {
		if t := l.containers[c.Key]; t != nil {
			s.Containers[i].GPULost = t.gpuLost
		}
	}
}
