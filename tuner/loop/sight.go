package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/view"
)

// What policies ask of containers' GPUs takes the road of `trimtab gpu hide` and `show`, so
// that whatever brings those back brings these back. It is guard's goroutine that walks it:
// a container's files may hang, and nothing that is urgent may wait behind them.

// sightOrder is one order of the core for guard's goroutine.
type sightOrder struct {
	control.Order
	undo bool
}

// seeAll reads what the watched containers that hold a GPU see, for the core. Where NVML
// tells of no device none could be judged, and to look would take the containers' files.
func (l *Loop) seeAll(ctx context.Context) {
	var cs []runtime.Container
	_ = l.do(ctx, func() {
		told := len(uuids(l.host.Devices)) > 0
		for _, key := range l.keys() {
			if t := l.containers[key]; told && len(t.c.GPUs) > 0 && t.watched && t.enrolment.Mode != policies.ModeOff && !t.c.Kubernetes {
				cs = append(cs, t.c)
			} else {
				t.sights = nil
			}
		}
	})
	for _, c := range cs {
		l.lookAgain(ctx, c)
	}
}

// lookAgain tells the core what a container sees; nobody changes it in between.
func (l *Loop) lookAgain(ctx context.Context, c runtime.Container) {
	l.sighting.Lock()
	defer l.sighting.Unlock()
	sights, known := l.see(ctx, c)
	l.reply(ctx, func() {
		if t := l.containers[c.Key()]; t != nil {
			t.noteSights(sights, known)
		}
	})
}

// see reads what a container sees now; known is false where that cannot be read.
func (l *Loop) see(ctx context.Context, c runtime.Container) (sights []runtime.GPUSight, known bool) {
	var devices []probes.Device
	_ = l.do(ctx, func() { devices = l.host.Devices })
	sights, err := l.o.Sights.See(ctx, c, runtime.GPUView{UUIDs: uuids(devices)})
	return sights, err == nil
}

// noteSights keeps what was granted, as the core is told of it.
func (t *tracked) noteSights(all []runtime.GPUSight, known bool) {
	if t.sights = nil; !known {
		return
	}
	for _, s := range all {
		if !s.Granted {
			continue
		}
		of := control.Sight{Minor: s.Minor, UUID: s.UUID, Visible: s.Visible}
		if s.Hidden {
			of.Hidden = policies.HiddenByPerson
		}
		if s.Hidden && s.ByPolicy {
			of.Hidden = policies.HiddenByPolicy
		}
		t.sights = append(t.sights, of)
	}
}

// elastic: see policies.Job.
func (l *Loop) elastic(t *tracked) bool {
	if len(t.sights) == 0 || !l.settings.GPUSignal {
		return false
	}
	_, ok := signalOf(t.c)
	return ok
}

// orderSight hands an order of the core to guard.
func (l *Loop) orderSight(o control.Order) {
	if o.DryRun {
		return // the core has weighed all that can be known without writing
	}
	if !l.sendSight(sightOrder{Order: o}) {
		l.results = append(l.results, control.Result{Kind: control.ResultApply, Plan: o.Plan, Text: "trimtab is behind with its writes"})
	}
}

// undoSight hands guard the way back of an order; one that finds no room is tried again
// at the next tick.
func (l *Loop) undoSight(o control.Order) {
	if len(l.present(o).Changes) == 0 { // it ended, and all went with it
		delete(l.undoing, o.Plan)
		return
	}
	if l.sendSight(sightOrder{Order: o, undo: true}) {
		l.queued[o.Plan] = true
	}
}

func (l *Loop) sendSight(o sightOrder) bool {
	if l.o.Sights == nil {
		return false
	}
	select {
	case l.sights <- o:
		return true
	default:
		return false
	}
}

// carryOut works off the core's orders until guard's next round; false at the end.
func (l *Loop) carryOut(ctx context.Context, round <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-round:
			return true
		case o := <-l.sights:
			l.carry(ctx, o)
		}
	}
}

// carry carries out one order, and tells the core what came of it in one go with what
// stands then.
func (l *Loop) carry(ctx context.Context, o sightOrder) {
	ch := o.Changes[0]
	l.sighting.Lock() // before it is asked whether it may be: that must hold until it is done
	defer l.sighting.Unlock()
	var c runtime.Container
	var devices []probes.Device
	why, found := "it ended in the meantime", false
	if l.do(ctx, func() {
		if t := l.containers[ch.Key]; t != nil {
			c, devices, why, found = t.c, l.host.Devices, l.mayNotCarry(t, o), true
		}
	}) != nil {
		return
	}
	began := time.Now()
	var did sightMoved
	var err error
	if why != "" {
		err = errors.New(why)
	} else if did, err = l.moveSight(ctx, c, devices, o); len(did.moved) > 0 && err == nil {
		did.notes = append(did.notes, l.signal(ctx, c)...)
	}
	took := time.Since(began)
	var sights []runtime.GPUSight
	known := false
	if found {
		sights, known = l.see(ctx, c)
	}
	l.reply(ctx, func() {
		if t := l.containers[ch.Key]; t != nil {
			t.noteSights(sights, known)
			t.checkedAt = time.Time{} // its preflight is another one now
		}
		if o.undo {
			l.sightUndone(o.Order, did, err)
		} else {
			l.sightApplied(o.Order, did, err, took)
		}
	})
}

// mayNotCarry says what came between an order and its turn; "" if nothing did. A way back
// to what the owner granted is open whatever was frozen.
func (l *Loop) mayNotCarry(t *tracked, o sightOrder) string {
	hide := o.Changes[0].Take != o.undo
	switch yielded := slices.Contains(l.o.Holds.Yielded(t.key), runtime.KnobGPU); {
	case o.undo && !hide:
		return ""
	case yielded:
		return "a person decided on its GPUs meanwhile"
	case !t.enrolment.Allows(runtime.KnobGPU):
		return "knob gpu is no longer allowed (trimtab.knobs)"
	}
	return l.mayNotSee(t, true)
}

// moveSight makes the difference between an order's two values. Only what a policy hid is
// shown, whatever the order says: what people hid is theirs.
func (l *Loop) moveSight(ctx context.Context, c runtime.Container, devices []probes.Device, o sightOrder) (did sightMoved, err error) {
	ch := o.Changes[0]
	hide := ch.Take != o.undo
	known := runtime.GPUView{UUIDs: uuids(devices)}
	sights, err := l.o.Sights.See(ctx, c, known)
	if err != nil {
		return did, err
	}
	more, less := strings.Split(string(ch.From), ","), strings.Split(string(ch.To), ",")
	if !ch.Take {
		more, less = less, more
	}
	var minors []int
	left := 0
	for _, s := range sights {
		switch moves := s.UUID != "" && slices.Contains(more, s.UUID) && !slices.Contains(less, s.UUID); {
		case moves && hide == s.Visible && (hide || s.ByPolicy):
			minors = append(minors, s.Minor)
		case s.Visible:
			left++
		}
	}
	if hide && left == 0 {
		return did, errors.New("it would see no device any more")
	}
	return l.setSight(ctx, sightChange{c: c, known: known, devices: devices, sights: sights, minors: minors, hide: hide, by: policies.HiddenByPolicy})
}

// sightChange is what is to be hidden or shown, and what is known around it.
type sightChange struct {
	c       runtime.Container
	known   runtime.GPUView
	devices []probes.Device
	sights  []runtime.GPUSight
	minors  []int
	hide    bool
	by      policies.Hider
}

// sightMoved is what became of one.
type sightMoved struct {
	moved []int
	notes []string
}

func (m sightMoved) text(hide bool) string {
	if hide {
		return "hidden: " + deviceNames(m.moved)
	}
	return "shown: " + deviceNames(m.moved)
}

// setSight hides or shows what was picked; the caller holds l.sighting, since the new
// set is made of the one that was read. What a person asks for is no longer a policy's,
// also where it stands already. It needs nothing of Run's, so that it works after it.
func (l *Loop) setSight(ctx context.Context, s sightChange) (did sightMoved, err error) {
	known := s.known
	owners := 0 // devices that are hidden and change hands
	for _, at := range s.sights {
		if !at.Hidden {
			continue
		}
		known.Hidden = append(known.Hidden, at.Minor)
		switch picked := slices.Contains(s.minors, at.Minor); {
		case at.ByPolicy && picked && s.hide && s.by == policies.HiddenByPerson:
			owners++
		case at.ByPolicy:
			known.ByPolicy = append(known.ByPolicy, at.Minor)
		}
	}
	for _, minor := range s.minors {
		if slices.Contains(known.Hidden, minor) == s.hide {
			continue // it is already
		}
		if pids := users(s.devices, s.c.Key(), minor); s.hide && len(pids) > 0 {
			return did, fmt.Errorf("%s is in use: NVML lists process %d of this container on it; a device in use is never hidden", deviceName(minor), pids[0])
		}
		did.moved = append(did.moved, minor)
	}
	if len(did.moved)+owners == 0 {
		return did, nil
	}
	if s.hide {
		known.Hidden = slices.Concat(known.Hidden, did.moved)
		if s.by == policies.HiddenByPolicy {
			known.ByPolicy = slices.Concat(known.ByPolicy, did.moved)
		}
	} else {
		gone := func(minor int) bool { return slices.Contains(did.moved, minor) }
		known.Hidden, known.ByPolicy = slices.DeleteFunc(slices.Clone(known.Hidden), gone), slices.DeleteFunc(slices.Clone(known.ByPolicy), gone)
	}
	did.notes, err = l.o.Sights.Hide(ctx, s.c, known)
	return did, err
}

// sightApplied takes in what became of an order.
func (l *Loop) sightApplied(o control.Order, did sightMoved, err error, took time.Duration) {
	ch := o.Changes[0]
	if err == nil && len(did.moved) == 0 {
		err = errors.New("what it sees changed in the meantime")
	}
	res := actuator.ChangeResult{Change: ch, Outcome: actuator.Applied, Latency: took}
	rec := l.sightRecord(view.RecordGPUView, o)
	answer := control.Result{Kind: control.ResultApply, Plan: o.Plan, OK: err == nil}
	if err != nil {
		res.Outcome, answer.Key, answer.Text, answer.Refused = actuator.Refused, ch.Key, err.Error(), true
		rec.Kind, rec.Text = view.RecordRefused, fmt.Sprintf("%s not made: %v", knobText(ch), err)
	} else {
		rec.Text = fmt.Sprintf("GPUs %s by policy %s: %s%s", did.text(ch.Take), o.Policy, ch.Reason, noted(did.notes))
	}
	l.edge.change(o.Policy, res)
	l.results = append(l.results, answer)
	l.keep([]view.Record{rec})
}

// sightUndone takes in what became of a way back. Showing again is tried until it is done,
// and what stands in its way is told once; what may not be hidden again stays in sight.
func (l *Loop) sightUndone(o control.Order, did sightMoved, err error) {
	ch := o.Changes[0]
	delete(l.queued, o.Plan)
	rec := l.sightRecord(view.RecordRollback, o)
	rec.From, rec.To = ch.To, ch.From
	switch {
	case err != nil && ch.Take:
		if l.sightSaid[o.Plan] != err.Error() {
			l.sightSaid[o.Plan] = err.Error()
			rec.Kind, rec.Text = view.RecordOwed, "hidden GPUs are not shown again yet: "+err.Error()
			l.keep([]view.Record{rec})
		}
		return
	case err != nil:
		rec.Kind, rec.Text = view.RecordRefused, "GPUs stay in sight: "+err.Error()
	case len(did.moved) > 0:
		rec.Text = fmt.Sprintf("GPUs %s: %s%s", did.text(!ch.Take), orElse(o.Why, "taken back by its trial"), noted(did.notes))
	}
	delete(l.undoing, o.Plan)
	delete(l.sightSaid, o.Plan)
	l.results = append(l.results, control.Result{Kind: control.ResultRollback, Plan: o.Plan, OK: err == nil})
	if rec.Text != "" {
		l.keep([]view.Record{rec})
	}
}

func (l *Loop) sightRecord(kind view.RecordKind, o control.Order) view.Record {
	ch := o.Changes[0]
	rec := view.Record{UnixNs: time.Now().UnixNano(), Kind: kind, Key: ch.Key, Name: ch.Name, Plan: o.Plan, Policy: o.Policy, Knob: ch.Knob, From: ch.From, To: ch.To}
	if t := l.containers[ch.Key]; t != nil {
		rec.Team = t.enrolment.Team
	}
	return rec
}

// unproveSight takes back, at a handover, a hide that was not proved; what was shown on
// trial is the owner's grant and stays. Run has returned: nobody is told by a signal, as at
// any end of the daemon.
func (l *Loop) unproveSight(ctx context.Context, o control.Order) error {
	t := l.containers[o.Changes[0].Key]
	if t == nil || l.o.Sights == nil || !o.Changes[0].Take {
		return nil
	}
	did, err := l.moveSight(ctx, t.c, l.host.Devices, sightOrder{Order: o, undo: true})
	if err != nil {
		return fmt.Errorf("container %q: GPUs that were hidden on trial are not shown again: %w", t.c.Name, err)
	}
	if len(did.moved) > 0 {
		rec := l.sightRecord(view.RecordRollback, o)
		rec.Text = "GPUs " + did.text(false) + ": not proved when trimtab was restarted"
		l.keep([]view.Record{rec})
	}
	return nil
}

func orElse(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}
