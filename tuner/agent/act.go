package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/state"
)

// act hands the core's orders to the worker.
func (l *Agent) act(d control.Decision) {
	for _, o := range d.Apply {
		if o.IsVisibility() {
			l.orderVisibility(o)
			continue
		}
		items := l.items(o)
		if items == nil || !l.enqueue(func(ctx context.Context) { l.apply(ctx, o, items) }) {
			l.results = append(l.results, control.Result{Kind: control.ResultApply, Plan: o.Plan, Text: "trimtab is behind with its writes"})
			continue
		}
		l.setBusy(items, true)
	}
	for _, o := range d.Rollback {
		w := &wayBack{order: o}
		l.undoing[o.Plan] = w
		l.undo(w)
	}
}

// wayBack is a rollback that is not carried out yet.
type wayBack struct {
	order  control.Order
	queued bool   // with the worker, or with guard
	said   string // why hidden GPUs are not shown yet, told once
}

// undo queues a rollback.
func (l *Agent) undo(w *wayBack) {
	o := w.order
	if o.IsVisibility() {
		l.undoVisibility(w)
		return
	}
	items := l.items(l.present(o))
	if items == nil { // the containers ended, and the values with them
		delete(l.undoing, o.Plan)
		return
	}
	w.queued = true
	l.setBusy(items, true)
	l.mustDo("", func(ctx context.Context) { l.rollback(ctx, o, items) })
}

// undoAgain queues what is to be tried again.
func (l *Agent) undoAgain() {
	for _, plan := range slices.Sorted(maps.Keys(l.undoing)) {
		if w := l.undoing[plan]; !w.queued {
			l.undo(w)
		}
	}
}

func (l *Agent) setBusy(items []actuator.Item, busy bool) {
	for _, item := range items {
		if t := l.containers[item.Container.Key()]; t != nil {
			t.busy, t.stale = busy, true
		}
	}
}

// present is an order without its containers that ended: the values went with them.
func (l *Agent) present(o control.Order) control.Order {
	o.Changes = slices.DeleteFunc(slices.Clone(o.Changes), func(ch policies.Change) bool { return l.containers[ch.Key] == nil })
	return o
}

// items groups an order's changes by container; nil if one is gone.
func (l *Agent) items(o control.Order) []actuator.Item {
	var items []actuator.Item
	at := map[string]int{}
	for _, ch := range o.Changes {
		t := l.containers[ch.Key]
		if t == nil {
			return nil
		}
		i, ok := at[ch.Key]
		if !ok {
			i = len(items)
			at[ch.Key] = i
			items = append(items, actuator.Item{Container: t.c, Enrolment: t.enrolment})
		}
		items[i].Changes = append(items[i].Changes, ch)
	}
	return items
}

// apply runs in the worker.
func (l *Agent) apply(ctx context.Context, o control.Order, items []actuator.Item) {
	if why := l.frozen(items); why != "" && !o.DryRun {
		l.reply(ctx, func() {
			l.setBusy(items, false)
			l.results = append(l.results, control.Result{Kind: control.ResultApply, Plan: o.Plan, Text: why})
		})
		return
	}
	r := l.o.Actuator.Apply(ctx, actuator.Order{Items: items, DryRun: o.DryRun})
	for _, res := range r.Changes {
		if res.Outcome == actuator.Yielded && !o.DryRun {
			l.o.Holds.AddYield(res.Change.Key, res.Change.Knob)
		}
	}
	_ = l.save() // which logs; of a yield that a crash loses here the foreign value counts as the owner's
	l.reply(ctx, func() { l.applied(o, items, r) })
}

// frozen says what a person froze while an order waited for its turn.
func (l *Agent) frozen(items []actuator.Item) string {
	if l.o.Holds.Paused() {
		return "paused"
	}
	if slices.ContainsFunc(items, func(item actuator.Item) bool { return l.o.Holds.Held(item.Container.Key()) }) {
		return "held since restore"
	}
	return ""
}

// applied takes in what became of an order.
func (l *Agent) applied(o control.Order, items []actuator.Item, r actuator.Result) {
	l.setBusy(items, false)
	if len(r.GPULost) > 0 {
		l.lookSoon() // found, counted and repaired there
	}
	if o.DryRun {
		return
	}
	answer := control.Result{Kind: control.ResultApply, Plan: o.Plan, OK: r.Applied}
	answer.Key, answer.Text, answer.Refused = r.Failure()
	now := time.Now().UnixNano()
	var records []state.Record
	for _, res := range r.Changes {
		l.edge.change(o.Policy, res)
		records = append(records, ChangeRecord(now, o, res))
		if res.Outcome == actuator.Yielded {
			l.edge.foreign++
		}
	}
	for _, key := range r.Pending {
		if t := l.containers[key]; t != nil {
			records = append(records, state.Record{UnixNs: now, Kind: state.RecordPending, Key: key, Name: t.c.Name, Plan: o.Plan,
				Policy: o.Policy, Text: "the plan could not be undone here: restoring the container's own values is pending, and nothing else is changed until they are back"})
		}
	}
	l.results = append(l.results, answer)
	l.keep(records)
	l.restand(items)
}

// restand renews what stands on containers that were just written, so that the
// core never decides on values from before a write.
func (l *Agent) restand(items []actuator.Item) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, item := range items {
		if t := l.containers[item.Container.Key()]; t != nil {
			t.stale = true
			l.refresh(ctx, t)
		}
	}
}

// ChangeRecord is what the history keeps of one change of an order, at an instant in unix ns.
func ChangeRecord(now int64, o control.Order, res actuator.ChangeResult) state.Record {
	ch := res.Change
	rec := state.Record{UnixNs: now, Kind: state.RecordChange, Key: ch.Key, Name: ch.Name, Plan: o.Plan, Policy: o.Policy,
		Knob: ch.Knob, From: ch.From, To: ch.To, Actual: res.Actual, Gain: ch.Gain}
	switch o.Kind {
	case policies.KindLoan, policies.KindReturn:
		rec.Kind, rec.Text = state.RecordLoan, fmt.Sprintf("%s: %s", ch.Knob.Text(ch.From, ch.To), ch.Reason)
	default:
		rec.Text = fmt.Sprintf("%s: %s (%s)", ch.Knob.Text(ch.From, ch.To), ch.Reason, ch.Expected())
	}
	switch res.Outcome {
	case actuator.Applied:
	case actuator.Yielded:
		rec.Kind, rec.Text = state.RecordYield, fmt.Sprintf("%s left alone: %s", ch.Knob, res.Text)
	default:
		rec.Kind, rec.Text = state.RecordRefused, fmt.Sprintf("%s not made (%s): %s", ch.Knob.Text(ch.From, ch.To), res.Outcome, res.Text)
	}
	return rec
}

// rollback runs in the worker.
func (l *Agent) rollback(ctx context.Context, o control.Order, items []actuator.Item) {
	results := l.o.Actuator.Rollback(ctx, items)
	l.reply(ctx, func() {
		delete(l.undoing, o.Plan)
		l.setBusy(items, false)
		l.undone(results, state.RecordRollback, cmp.Or(o.Why, "reverted by its trial"), o)
		l.results = append(l.results, rolledBack(o, results))
		l.restand(items)
	})
}

// rolledBack is the answer to the core.
func rolledBack(o control.Order, results []actuator.RestoreResult) control.Result {
	answer := control.Result{Kind: control.ResultRollback, Plan: o.Plan, OK: true}
	for _, r := range results {
		if r.Outcome != actuator.Restored {
			answer.OK, answer.Text = false, fmt.Sprintf("%s: %s", r.Name, r.Outcome)
		}
	}
	return answer
}

// undone records what went back.
func (l *Agent) undone(results []actuator.RestoreResult, kind state.RecordKind, why string, o control.Order) {
	now := time.Now().UnixNano()
	var records []state.Record
	for _, r := range results {
		if kind == state.RecordRestore {
			l.edge.restore(r)
		}
		for _, k := range r.Knobs {
			if kind == state.RecordRestore && k.AsItWas() {
				continue
			}
			rec := state.Record{UnixNs: now, Kind: kind, Key: r.Key, Name: r.Name, Plan: o.Plan, Policy: o.Policy,
				Knob: k.Knob, From: k.Before, To: k.Target, Actual: k.Actual}
			rec.Text = fmt.Sprintf("%s: %s", k.Knob.Text(k.Before, k.Actual), why)
			switch k.Outcome {
			case actuator.Restored:
			case actuator.Yielded:
				rec.Kind, rec.Text = state.RecordYield, fmt.Sprintf("%s stays at %s, which trimtab did not write", k.Knob, k.Actual)
				if l.containers[r.Key] != nil {
					l.o.Holds.AddYield(r.Key, k.Knob)
					l.saveLater()
				}
			case actuator.Gone:
				continue
			default:
				rec.Kind, rec.Text = state.RecordPending, fmt.Sprintf("%s %s is not restored yet: %s", k.Knob, k.Original, k.Text)
			}
			records = append(records, rec)
		}
		if r.Err != nil {
			l.o.Log.Error("restore", "container", r.Name, "error", r.Err)
		}
	}
	l.keep(records)
}

// restored takes in restores, whoever asked for them.
func (l *Agent) restored(results []actuator.RestoreResult, why string) {
	l.undone(results, state.RecordRestore, why, control.Order{})
	for _, r := range results {
		if t := l.containers[r.Key]; t != nil {
			t.stale, t.busy = true, false
		}
		if len(r.Knobs) > 0 {
			l.results = append(l.results, control.Result{Kind: control.ResultEnded, Key: r.Key, Text: why})
		}
	}
}

// restoreLater restores one container through the worker.
func (l *Agent) restoreLater(t *tracked, why string) {
	if t.busy {
		return // asked again at the next tick, when the write before it is in
	}
	c := t.c
	t.busy = true
	l.mustDo("", func(ctx context.Context) {
		r := l.o.Actuator.Restore(ctx, c, why)
		l.reply(ctx, func() { l.restored([]actuator.RestoreResult{r}, why) })
	})
}

// Shutdown puts everything back, or, where handover is true, only what has not
// been proved: open trials are undone, what was kept stands for the next daemon.
// It is called after Run has returned, with a bounded context.
func (l *Agent) Shutdown(ctx context.Context, handover bool) error {
	lookup := func(id runtime.ID) (runtime.Container, bool) {
		for _, t := range l.containers {
			if t.c.ID == id {
				return t.c, true
			}
		}
		return runtime.Container{}, false
	}
	defer l.flushLast(ctx)
	defer l.keepLast()
	defer func() { _ = l.save() }() // what the worker did not get to
	if handover {
		return l.undoUnproved(ctx)
	}
	results, err := l.o.Actuator.RestoreAll(ctx, lookup, "trimtab stops")
	l.undone(results, state.RecordRestore, "trimtab stops", control.Order{})
	for _, r := range results {
		err = errors.Join(err, r.NotBack())
	}
	if l.o.Visibility != nil { // after the limits: it reaches into containers, which may hang
		err = errors.Join(err, l.o.Visibility.RestoreAll(ctx, func(key, name string, did bool, notes []string, err error) {
			l.visibilityRestored(key, name, did, notes, err, "trimtab stops")
		}))
	}
	return err
}

// lastCheck bounds the wait for a history that is still being checked when everything is back.
const lastCheck = 5 * time.Second

// flushLast writes the records that are left; those that find the check not through are lost,
// and the log says so.
func (l *Agent) flushLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastCheck)
	defer cancel()
	l.checkHistory(ctx)
	l.flush()
	l.flushAccounts()
}

// undoUnproved takes back what of open trials stands, and carries out the
// rollbacks that the worker did not get to. Rolling back what does not stand
// does nothing. It ends at the first that fails: all is restored then, many at a
// time, and an engine that hangs would cost its patience for each container before.
func (l *Agent) undoUnproved(ctx context.Context) error {
	orders := map[string]control.Order{}
	for plan, w := range l.undoing {
		orders[plan] = w.order
	}
	for _, o := range l.control.Open() {
		orders[o.Plan] = o
	}
	for _, plan := range slices.Sorted(maps.Keys(orders)) {
		o := orders[plan]
		if o.IsVisibility() {
			if err := l.unproveVisibility(ctx, o); err != nil {
				return err
			}
			continue
		}
		for _, item := range slices.Backward(l.items(l.present(o))) {
			if err := l.unprove(ctx, o, item); err != nil {
				return err
			}
		}
	}
	return nil
}

// unprove takes back one container's part of an order.
func (l *Agent) unprove(ctx context.Context, o control.Order, item actuator.Item) error {
	if ctx.Err() != nil {
		return fmt.Errorf("container %q: a change that was not proved was not taken back: %w", item.Container.Name, ctx.Err())
	}
	results := l.o.Actuator.Rollback(ctx, []actuator.Item{item})
	l.undone(results, state.RecordRollback, "not proved when trimtab was restarted", o)
	for _, r := range results {
		if r.Outcome == actuator.Failed || r.Outcome == actuator.Unavailable {
			return fmt.Errorf("container %q: a change that was not proved could not be taken back: %s", r.Name, r.Text())
		}
	}
	return nil
}
