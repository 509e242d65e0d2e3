package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// tracked is what the agent knows of one container.
type tracked struct {
	c            runtime.Container
	start        *profiles.Start // what it is known by
	key          string
	enrolment    policies.Enrolment
	settledFor   *enrolment.Host // what the enrolment follows from, besides the container; nil: settle it again
	watched      bool
	reading      map[string]bool // by probe
	unread       map[string]bool // by probe: it refused the container, and that was said
	now          runtime.Values
	standing     actuator.Standing
	preflight    string
	above        enrolment.AncestorLimit
	aboveAt      time.Time
	visibilities []control.GPUVisibility // nil: it holds no GPU, or what it sees could not be read
	gpuLost      string                  // what is known of access to its GPU that it has lost; "" if it has it
	readAt       time.Time
	stale        bool    // read again at the next tick
	seenSet      setting // of the latest reading
	checkedAt    time.Time
	busy         bool // an order for it is with the worker: no drift check until it is back
	yielding     bool // its originals are to forget a knob that somebody else wrote: likewise
	listed       bool // seen since the engine's latest connection
}

// engineState is one engine and how it fares.
type engineState struct {
	engine    runtime.Engine
	part      state.Part
	recovered bool     // what an earlier daemon left has been settled
	unseen    []string // containers that may run, and that its latest full listing did not tell of
}

// mayRun: the key may be that of a container that the engine does not tell of.
func (e *engineState) mayRun(key string) bool {
	return slices.ContainsFunc(e.unseen, func(id string) bool {
		return runtime.ID{Engine: e.engine.Name(), Container: id}.SameContainer(key)
	})
}

// event takes in one observation of an engine.
func (l *Agent) event(ev runtime.Event) {
	e := l.engines[ev.Engine]
	if e == nil {
		return
	}
	switch ev.Kind {
	case runtime.EventSeen, runtime.EventUpdate:
		e.unseen = slices.DeleteFunc(slices.Clone(e.unseen), func(id string) bool { return id == ev.Container.ID.Container }) // others read the old one
		l.seen(ev.Container)
	case runtime.EventGone:
		l.gone(ev.Container.Key())
	case runtime.EventLost:
		l.setEngine(e, false, ev.Reason)
		for _, t := range l.containers {
			if t.c.ID.Engine == ev.Engine {
				t.listed = false
			}
		}
	case runtime.EventSynced:
		e.unseen = ev.Unseen
		l.synced(e)
	}
}

func (l *Agent) seen(c runtime.Container) {
	t := l.containers[c.Key()]
	if t == nil {
		t = &tracked{reading: map[string]bool{}, unread: map[string]bool{}}
		l.containers[c.Key()], l.sorted = t, nil
		l.placeStarted(c)
	}
	if t.start == nil && l.o.Identify != nil {
		t.start = l.o.Identify(c)
	}
	c.Start = nil // it may hold secrets, and nothing else needs it
	t.c, t.key, t.stale, t.listed, t.settledFor = c, c.Key(), true, true, nil
	if len(c.GPUs) > 0 {
		l.lookSoon() // what it can reach is to be known before somebody takes it away
	}
}

func (l *Agent) gone(key string) {
	t := l.containers[key]
	if t == nil {
		return
	}
	for _, p := range l.o.Probes {
		if t.reading[p.Name()] {
			p.Unwatch(key)
		}
	}
	delete(l.containers, key)
	l.sorted = nil
	delete(l.logged, key)
	delete(l.pendingSaid, key)
	l.endedTeams[key] = t.enrolment.Team
	id := t.c.ID
	l.mustDo("", func(ctx context.Context) {
		results, err := l.o.Actuator.Gone(ctx, id)
		if err != nil {
			l.o.Log.Warn("originals of an ended container stay on disk; they are removed at the next start", "error", err)
		}
		l.reply(ctx, func() {
			l.restored(results, "its engine had stored them for its next start")
			delete(l.endedTeams, key) // what was ordered before has been told too
		})
	})
}

// synced settles what an earlier daemon left, once for each connection, now
// that the listing is complete.
func (l *Agent) synced(e *engineState) {
	l.setEngine(e, true, "")
	name := e.engine.Name()
	for _, key := range l.keys() {
		if t := l.containers[key]; t.c.ID.Engine == name && !t.listed {
			l.gone(key)
		}
	}
	l.settleEngine(e)
	alive := func(key string) bool { // or it is not known: its engine has not told of it, or of nothing
		engine, _, _ := strings.Cut(key, "-")
		e := l.engines[engine]
		return l.containers[key] != nil || e != nil && (!e.part.OK || e.mayRun(key))
	}
	l.o.Manuals.Prune(now(), alive)
	l.o.Holds.Prune(alive)
	l.saveLater()
}

// settleEngine queues the recovery that follows a full listing.
func (l *Agent) settleEngine(e *engineState) {
	name := e.engine.Name()
	var running []runtime.Container
	for _, key := range l.keys() {
		if t := l.containers[key]; t.c.ID.Engine == name && t.listed {
			running = append(running, t.c)
		}
	}
	first := !e.recovered
	r := actuator.Recovery{Running: running, Synced: []string{name}, Handover: l.o.Handover || !first}
	l.mustDo("recover "+name, func(ctx context.Context) {
		results, err := l.o.Actuator.Recover(ctx, r)
		l.reply(ctx, func() {
			if err != nil {
				l.o.Log.Error("originals of an earlier run", "error", err)
			}
			l.restored(results, "left by an earlier run of trimtab")
			e.recovered = true
			for _, t := range l.containers {
				t.stale = true
			}
		})
	})
}

func (l *Agent) setEngine(e *engineState, ok bool, lost string) {
	l.setPart(&e.part, ok, lost, "engine", "engine reached", "engine lost")
}

// setPart says once that a part is there, or why it is not.
func (l *Agent) setPart(p *state.Part, ok bool, lost, kind, back, gone string) {
	if p.OK != ok {
		p.Since = time.Now().UnixNano()
		if ok {
			l.o.Log.Info(back, kind, p.Name)
		} else {
			l.o.Log.Warn(gone, kind, p.Name, "why", lost)
		}
	}
	p.OK, p.Lost = ok, lost
}

// keys lists the containers in order; it is made anew when one comes or goes.
func (l *Agent) keys() []string {
	if l.sorted == nil {
		l.sorted = slices.Sorted(maps.Keys(l.containers))
	}
	return l.sorted
}

// now is what ends records of trimtab enable.
func now() enrolment.Now {
	var boot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) // exists on every Linux; the call cannot fail
	return enrolment.Now{UnixNs: time.Now().UnixNano(), BootNs: boot.Nano()}
}

// settle renews a container's enrolment and what the probes read of it.
func (l *Agent) settle(t *tracked) {
	host := l.settings.EnrolHost(float64(l.host.CPUs), l.host.MemTotal)
	host.AncestorLimit = t.above
	manual := l.o.Manuals.Get(t.key, now())
	if manual == nil && t.settledFor != nil && *t.settledFor == host {
		l.settledAgain(t)
		return
	}
	if t.settledFor = &host; manual != nil {
		t.settledFor = nil // a record of trimtab enable may end at any time
	}
	before := t.enrolment
	t.enrolment = enrolment.Settle(t.c, l.settings.Rules, manual, host)
	t.watched = enrolment.Watched(t.c, l.settings.Rules, t.enrolment)
	for _, problem := range t.enrolment.Problems {
		if !slices.Contains(before.Problems, problem) {
			l.logRecord(state.Record{UnixNs: time.Now().UnixNano(), Kind: state.RecordEnrol, Key: t.c.Key(), Name: t.c.Name, Text: "enrolment: " + problem})
		}
	}
	l.settledAgain(t)
}

// settledAgain does what follows from an enrolment, until it is done.
func (l *Agent) settledAgain(t *tracked) {
	if e := l.engines[t.c.ID.Engine]; e.recovered && t.standing.Pending == "" {
		if why := enrolment.Withdrawn(t.enrolment, t.standing.Original); why != "" {
			l.restoreLater(t, why)
		}
	}
	l.watch(t)
	l.renewAbove(t)
}

// aboveEvery is how often what bounds the groups above a container is read again.
const aboveEvery = 30 * time.Second

// renewAbove reads it of what may be tuned; what is only observed is told the same.
func (l *Agent) renewAbove(t *tracked) {
	if l.o.Above == nil || t.enrolment.Mode == policies.ModeOff || !t.watched || time.Since(t.aboveAt) < aboveEvery {
		return
	}
	t.above, t.aboveAt = l.o.Above(t.c), time.Now()
}

// watch turns readings on and off.
func (l *Agent) watch(t *tracked) {
	for _, p := range l.o.Probes {
		want := p.All || t.watched
		switch have := t.reading[p.Name()]; {
		case want && !have:
			if err := p.Watch(Target(t.c)); err != nil {
				if !t.unread[p.Name()] {
					l.o.Log.Warn("a container cannot be read", "container", t.c.Name, "probe", p.Name(), "error", err)
				}
				t.unread[p.Name()] = true
				continue
			}
			t.reading[p.Name()], t.unread[p.Name()] = true, false
		case !want && have:
			p.Unwatch(t.key)
			t.reading[p.Name()] = false
		}
	}
}

// Target is a container as probes see it.
func Target(c runtime.Container) probes.Target {
	return probes.Target{Key: c.Key(), CgroupID: c.Cgroup.ID, InitPID: c.InitPID, Dir: c.Cgroup.Dir, Unified: c.Cgroup.Unified, V2: c.Cgroup.Mode == runtime.CgroupV2,
		ContainerID: c.ID.Container, RateLog: c.Labels[enrolment.LabelRateLog]}
}

func (l *Agent) setProbe(name string, ok bool, lost string) {
	if p := l.probeState[name]; p != nil {
		l.setPart(p, ok, lost, "probe", "probe reads again", "probe fails")
	}
}

// How often what stands is read back, to notice foreign writes that no event
// told of, and a GPU's preflight is renewed. Where nothing of trimtab's stands nor
// may come to, only the core's picture of the container hangs on it, and of that the
// cgroup probe's readings tell too.
const (
	rereadEvery     = 5 * time.Second
	rereadIdleEvery = 30 * time.Second
	preflightEvery  = 30 * time.Second
)

// atStake: a foreign write to the container is to be noticed soon.
func (t *tracked) atStake() bool {
	return len(t.standing.Original) > 0 || t.watched && t.enrolment.Mode == policies.ModeTune
}

// setting is what the cgroup probe reads of the knobs.
type setting struct {
	quotaUs, periodUs, memory int64
	weight                    uint64
	cpuset                    string
}

// noteSetting has a container read again at the next tick whose sample says that
// somebody set something.
func (t *tracked) noteSetting(g *probes.Cgroup) {
	if g == nil {
		return
	}
	now := setting{memory: g.MemoryLimit, weight: g.CPUWeight, cpuset: g.Cpuset}
	if len(g.Throttling) > 0 {
		now.quotaUs, now.periodUs = g.Throttling[0].QuotaUs, g.Throttling[0].PeriodUs
	}
	if now != t.seenSet {
		t.stale = t.stale || t.seenSet != setting{}
		t.seenSet = now
	}
}

// refresh reads what stands, and yields what somebody else wrote.
func (l *Agent) refresh(ctx context.Context, t *tracked) {
	every := rereadIdleEvery
	if t.atStake() {
		every = rereadEvery
	}
	if t.busy || t.yielding || !t.stale && time.Since(t.readAt) < every {
		return
	}
	e := l.engines[t.c.ID.Engine]
	// While the actuator is at work both answer ErrBusy: the next tick reads again.
	gone := false
	now, drifts, err := l.o.Actuator.Drift(t.c, func() (runtime.Values, error) {
		now, err := e.engine.Read(ctx, t.c)
		gone = err != nil
		return now, err
	})
	if gone {
		return // most likely: the engine's event says so
	}
	var standing actuator.Standing
	if err == nil {
		standing, err = l.o.Actuator.Standing(t.c.ID)
	}
	switch {
	case errors.Is(err, actuator.ErrBusy):
		t.stale = true
		return
	case err != nil: // nothing is written to it, and others' rights are reckoned beside what stands
		standing = actuator.Standing{Original: t.standing.Original, Written: t.standing.Written, Pending: err.Error()}
		if t.standing.Pending == "" {
			l.o.Log.Error("a container's originals cannot be read: its values are changed no more", "container", t.c.Name, "error", err)
		}
	}
	t.now, t.standing, t.readAt, t.stale = now, standing, time.Now(), false
	if len(drifts) > 0 {
		l.yield(t, drifts)
	}
	if l.o.Preflight != nil && len(t.c.GPUs) > 0 && time.Since(t.checkedAt) >= preflightEvery {
		t.checkedAt = time.Now()
		c := t.c
		l.enqueue(func(ctx context.Context) {
			why := l.o.Preflight(ctx, c)
			l.reply(ctx, func() {
				if t := l.containers[c.Key()]; t != nil {
					t.preflight = why
				}
			})
		})
	}
}

// yield leaves knobs to whoever wrote them (law: yield). That is in force at once; the worker makes it
// durable, so that no disk delays a tick. After a crash before that the originals still name the
// knob, and the next daemon finds by compare-and-swap that what stands is another's.
func (l *Agent) yield(t *tracked, drifts []actuator.Drift) {
	var knobs []runtime.Knob
	for _, d := range drifts {
		knobs = append(knobs, d.Knob)
		// v1 counts memory and swap together: a swap of the owner's that is less than the limit that
		// somebody else has set since cannot go back, and stays as it stands.
		if swap, ours := t.standing.Original[runtime.KnobMemorySwap]; ours && d.Knob == runtime.KnobMemoryLimit && swap.Below(d.Actual) {
			knobs = append(knobs, runtime.KnobMemorySwap)
		}
		if !slices.Contains(l.o.Holds.Yielded(t.key), d.Knob) { // else said before, and not yet on disk
			l.yielded(t, d)
		}
	}
	for _, knob := range knobs {
		if !slices.Contains(l.o.Holds.Yielded(t.key), knob) {
			l.edge.foreign++
			l.o.Holds.AddYield(t.key, knob)
		}
	}
	c := t.c
	t.stale, t.yielding = true, true // read again once it is done
	l.mustDo("", func(ctx context.Context) {
		err := l.save() // first: what the originals have forgotten nobody finds again
		if err == nil {
			err = l.o.Actuator.Yield(c, knobs...)
		}
		l.reply(ctx, func() {
			disk := err != nil && !errors.Is(err, actuator.ErrBusy) // tried again with the next regular reading
			if t := l.containers[c.Key()]; t != nil {
				t.yielding, t.stale = false, !disk
			}
			if disk {
				l.o.Log.Error("a foreign write could not be noted", "container", c.Name, "error", err)
			}
		})
	})
}

// yielded tells the core, the history and the log of a foreign write.
func (l *Agent) yielded(t *tracked, d actuator.Drift) {
	l.results = append(l.results, control.Result{Kind: control.ResultEnded, Key: t.c.Key(), Text: fmt.Sprintf("%s was set to %s by somebody else", d.Knob, d.Actual)})
	l.keep([]state.Record{{UnixNs: time.Now().UnixNano(), Kind: state.RecordYield, Key: t.c.Key(), Name: t.c.Name,
		Knob: d.Knob, From: d.Written, To: d.Actual, Actual: d.Actual,
		Text: fmt.Sprintf("%s was set to %s by somebody else (trimtab had %s): left alone from now on", d.Knob, d.Actual, d.Written)}})
}

// saveLater has the worker save what people and others said.
func (l *Agent) saveLater() { l.mustDo("save", func(context.Context) { _ = l.save() }) } // which logs

// save makes durable what is in force of records and holds. It waits for the disk: never
// call it in Run's goroutine.
func (l *Agent) save() error {
	err := errors.Join(l.o.Manuals.Save(), l.o.Holds.Save())
	if err != nil {
		l.o.Log.Error("yielded knobs are remembered only until the daemon ends, records of ended containers stay on disk", "error", err)
	}
	return err
}
