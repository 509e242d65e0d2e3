package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

// What policies ask of containers' GPUs takes the road of `trimtab gpu hide` and `show`, so
// that whatever brings those back brings these back. It is guard's goroutine that walks it:
// a container's files may hang, and nothing that is urgent may wait behind them.

// visibilityOrder is one order of the core for guard's goroutine.
type visibilityOrder struct {
	control.Order
	undo bool
}

// seeAll reads what the watched containers that hold a GPU see, for the core. Where NVML
// tells of no device none could be judged, and to look would take the containers' files.
func (l *Agent) seeAll(ctx context.Context) {
	var cs []runtime.Container
	var known runtime.GPUView
	_ = l.do(ctx, func() {
		known.UUIDs = actuator.GPUs(l.host.Devices).UUIDs()
		told := len(known.UUIDs) > 0
		for _, key := range l.keys() {
			if t := l.containers[key]; told && len(t.c.GPUs) > 0 && t.watched && t.enrolment.Mode != policies.ModeOff && !t.c.Kubernetes {
				cs = append(cs, t.c)
			} else {
				t.visibilities = nil
			}
		}
	})
	for _, c := range cs {
		l.lookAgain(ctx, c, known)
	}
}

// lookAgain tells the core what a container sees; nobody changes it in between.
func (l *Agent) lookAgain(ctx context.Context, c runtime.Container, known runtime.GPUView) {
	l.o.Visibility.Lock()
	defer l.o.Visibility.Unlock()
	visibilities, _ := l.o.Visibility.See(ctx, c, known) // nothing where that cannot be read
	l.reply(ctx, func() {
		if t := l.containers[c.Key()]; t != nil {
			t.noteVisibility(visibilities)
		}
	})
}

// noteVisibility keeps what was granted, as the core is told of it.
func (t *tracked) noteVisibility(all []runtime.GPUVisibility) {
	t.visibilities = nil
	for _, s := range all {
		if !s.Granted {
			continue
		}
		of := control.GPUVisibility{Minor: s.Minor, UUID: s.UUID, Visible: s.Visible}
		if s.Hidden {
			of.Hidden = policies.HiddenByPerson
		}
		if s.Hidden && s.ByPolicy {
			of.Hidden = policies.HiddenByPolicy
		}
		t.visibilities = append(t.visibilities, of)
	}
}

// elastic: see policies.Job.
func (l *Agent) elastic(t *tracked) bool {
	if len(t.visibilities) == 0 || !l.settings.GPUSignal {
		return false
	}
	name, err := enrolment.GPUSignal(t.c.Labels)
	return name != "" && err == nil
}

// orderVisibility hands an order of the core to guard.
func (l *Agent) orderVisibility(o control.Order) {
	if o.DryRun {
		return // the core has weighed all that can be known without writing
	}
	if !l.sendVisibility(visibilityOrder{Order: o}) {
		l.results = append(l.results, control.Result{Kind: control.ResultApply, Plan: o.Plan, Text: "trimtab is behind with its writes"})
	}
}

// undoVisibility hands guard the way back of an order; one that finds no room is tried again
// at the next tick.
func (l *Agent) undoVisibility(w *wayBack) {
	if len(l.present(w.order).Changes) == 0 { // it ended, and all went with it
		delete(l.undoing, w.order.Plan)
		return
	}
	w.queued = l.sendVisibility(visibilityOrder{Order: w.order, undo: true})
}

func (l *Agent) sendVisibility(o visibilityOrder) bool {
	if l.o.Visibility == nil {
		return false
	}
	select {
	case l.visibilities <- o:
		return true
	default:
		return false
	}
}

// carryOut works off the core's orders until guard's next round; false at the end.
func (l *Agent) carryOut(ctx context.Context, round <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-round:
			return true
		case o := <-l.visibilities:
			l.carry(ctx, o)
		}
	}
}

// carry carries out one order, and tells the core what came of it in one go with what
// stands then.
func (l *Agent) carry(ctx context.Context, o visibilityOrder) {
	ch := o.Changes[0]
	l.o.Visibility.Lock() // before it is asked whether it may be: that must hold until it is done
	defer l.o.Visibility.Unlock()
	var c runtime.Container
	var devices actuator.GPUs
	why := "it ended in the meantime"
	if l.do(ctx, func() {
		if t := l.containers[ch.Key]; t != nil {
			c, devices, why = t.c, l.host.Devices, l.mayNotCarry(t, o)
		}
	}) != nil {
		return
	}
	began := time.Now()
	var did actuator.VisibilityMoved
	var err error
	if why != "" {
		err = errors.New(why)
	} else if did, err = l.o.Visibility.Apply(ctx, c, devices, ch, o.undo); len(did.Minors) > 0 && err == nil {
		did.Notes = append(did.Notes, l.signal(ctx, ch.Key)...)
	}
	took := time.Since(began)
	visibilities, _ := l.o.Visibility.See(ctx, c, runtime.GPUView{UUIDs: devices.UUIDs()}) // nothing where that cannot be read
	l.reply(ctx, func() {
		if t := l.containers[ch.Key]; t != nil {
			t.noteVisibility(visibilities)
			t.checkedAt = time.Time{} // its preflight is another one now
		}
		if o.undo {
			l.visibilityUndone(o.Order, did, err)
		} else {
			l.visibilityApplied(o.Order, did, err, took)
		}
	})
}

// mayNotCarry says what came between an order and its turn; "" if nothing did. A way back
// to what the owner granted is open whatever was frozen.
func (l *Agent) mayNotCarry(t *tracked, o visibilityOrder) string {
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

// visibilityApplied takes in what became of an order.
func (l *Agent) visibilityApplied(o control.Order, did actuator.VisibilityMoved, err error, took time.Duration) {
	ch := o.Changes[0]
	if err == nil && len(did.Minors) == 0 {
		err = errors.New("what it sees changed in the meantime")
	}
	res := actuator.ChangeResult{Change: ch, Outcome: actuator.Applied, Latency: took}
	rec := visibilityRecord(state.RecordGPUView, o)
	answer := control.Result{Kind: control.ResultApply, Plan: o.Plan, OK: err == nil}
	if err != nil {
		res.Outcome, answer.Key, answer.Text, answer.Refused = actuator.Refused, ch.Key, err.Error(), true
		rec.Kind, rec.Text = state.RecordRefused, fmt.Sprintf("%s not made: %v", ch.Knob.Text(ch.From, ch.To), err)
	} else {
		rec.Text = fmt.Sprintf("GPUs %s by policy %s: %s%s", did.Text(ch.Take), o.Policy, ch.Reason, noted(did.Notes))
	}
	l.edge.change(o.Policy, res)
	l.results = append(l.results, answer)
	l.keep([]state.Record{rec})
}

// visibilityUndone takes in what became of a way back. Showing again is tried until it is done,
// and what stands in its way is told once; what may not be hidden again stays in sight.
func (l *Agent) visibilityUndone(o control.Order, did actuator.VisibilityMoved, err error) {
	ch := o.Changes[0]
	w := cmp.Or(l.undoing[o.Plan], &wayBack{})
	w.queued = false
	rec := visibilityRecord(state.RecordRollback, o)
	rec.From, rec.To = ch.To, ch.From
	switch {
	case err != nil && ch.Take:
		if w.said != err.Error() {
			w.said = err.Error()
			rec.Kind, rec.Text = state.RecordPending, "hidden GPUs are not shown again yet: "+err.Error()
			l.keep([]state.Record{rec})
		}
		return
	case err != nil:
		rec.Kind, rec.Text = state.RecordRefused, "GPUs stay in sight: "+err.Error()
	case len(did.Minors) > 0:
		rec.Text = fmt.Sprintf("GPUs %s: %s%s", did.Text(!ch.Take), cmp.Or(o.Why, "taken back by its trial"), noted(did.Notes))
	}
	delete(l.undoing, o.Plan)
	l.results = append(l.results, control.Result{Kind: control.ResultRollback, Plan: o.Plan, OK: err == nil})
	if rec.Text != "" {
		l.keep([]state.Record{rec})
	}
}

func visibilityRecord(kind state.RecordKind, o control.Order) state.Record {
	ch := o.Changes[0]
	return state.Record{UnixNs: time.Now().UnixNano(), Kind: kind, Key: ch.Key, Name: ch.Name, Plan: o.Plan, Policy: o.Policy, Knob: ch.Knob, From: ch.From, To: ch.To}
}

// unproveVisibility takes back, at a handover, a hide that was not proved; what was shown on
// trial is the owner's grant and stays. Run has returned: nobody is told by a signal, as at
// any end of the daemon.
func (l *Agent) unproveVisibility(ctx context.Context, o control.Order) error {
	t := l.containers[o.Changes[0].Key]
	if t == nil || l.o.Visibility == nil || !o.Changes[0].Take {
		return nil
	}
	did, err := l.o.Visibility.Apply(ctx, t.c, l.host.Devices, o.Changes[0], true)
	if err != nil {
		return fmt.Errorf("container %q: GPUs that were hidden on trial are not shown again: %w", t.c.Name, err)
	}
	if len(did.Minors) > 0 {
		rec := visibilityRecord(state.RecordRollback, o)
		rec.Text = "GPUs " + did.Text(false) + ": not proved when trimtab was restarted"
		l.keep([]state.Record{rec})
	}
	return nil
}
