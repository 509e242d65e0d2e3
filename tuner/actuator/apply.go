package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
)

// part is the work on one item of an order.
type part struct {
	item    Item
	engine  Engine
	file    originals.File
	now     runtime.Values
	results []*ChangeResult
	began   bool // an engine write was sent
	stored  bool // the engine keeps what is written beyond the container's life
}

// Apply carries out a plan: all of it, or, where a container yields, refuses or
// fails, none of it; what was written until then goes back. With DryRun nothing
// is written. A context that ends in the middle also undoes the plan.
func (a *Actuator) Apply(ctx context.Context, o Order) Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	var r Result
	parts := newParts(o, &r)
	switch {
	case !o.DryRun && a.o.Disabled():
		for i := range r.Changes {
			r.Changes[i].Outcome, r.Changes[i].Text = Refused, "trimtab is disabled on this host"
		}
	case !a.checkAll(ctx, parts, o.DryRun):
		skipRest(parts)
	case o.DryRun:
		for i := range r.Changes {
			r.Changes[i].Outcome = Would
		}
		r.Applied = true
	default:
		r.Applied = a.writeAll(ctx, parts, &r)
	}
	return r
}

func newParts(o Order, r *Result) []*part {
	for _, item := range o.Items {
		for _, ch := range item.Changes {
			r.Changes = append(r.Changes, ChangeResult{Change: ch})
		}
	}
	var parts []*part
	next := 0
	for _, item := range o.Items {
		p := &part{item: item}
		for range item.Changes {
			p.results = append(p.results, &r.Changes[next])
			next++
		}
		parts = append(parts, p)
	}
	return parts
}

func (a *Actuator) checkAll(ctx context.Context, parts []*part, dryRun bool) bool {
	good := true
	seen := map[string]bool{}
	for _, p := range parts {
		key := p.item.Container.Key()
		if seen[key] {
			p.fail(Refused, "the plan names the container twice", nil)
			good = false
			continue
		}
		seen[key] = true
		good = a.check(ctx, p, dryRun) && good
	}
	return good
}

func (a *Actuator) writeAll(ctx context.Context, parts []*part, r *Result) bool {
	for i, p := range parts {
		// What was read before the first write may be old by the time of a later one.
		if (i == 0 || a.check(ctx, p, false)) && a.write(ctx, p, r) {
			continue
		}
		a.undo(ctx, parts[:i+1], r)
		skipRest(parts)
		return false
	}
	return true
}

// write carries out one container's part; false means that the plan must be undone.
func (a *Actuator) write(ctx context.Context, p *part, r *Result) bool {
	if err := ctx.Err(); err != nil {
		p.fail(Failed, "trimtab is stopping", err)
		return false
	}
	ctx, cancel := a.begun(ctx)
	defer cancel()
	start := a.o.Now()
	set := p.intend()
	if err := a.save(p.file); err != nil {
		p.fail(Failed, "the original could not be saved", err)
		return false
	}
	// The sync took time: whoever wrote in it wins.
	if !a.verify(ctx, p) {
		return false
	}
	p.began = true
	err := a.send(ctx, p.engine, p.item.Container, set)
	good := a.settle(ctx, p, err)
	latency := a.o.Now().Sub(start)
	for _, res := range p.results {
		res.Latency = latency
	}
	if lost := a.checkGPU(ctx, p.item.Container); lost != nil {
		r.GPULost = append(r.GPULost, p.item.Container.Key())
		p.fail(Failed, "GPU access was lost in the write", lost)
		return false
	}
	return good
}

// intend records what is about to be written, and returns it.
func (p *part) intend() runtime.Values {
	set := runtime.Values{}
	p.file.Carry(p.now)
	for _, ch := range p.item.Changes {
		k, ok := p.file.Knobs[ch.Knob]
		if !ok {
			k = originals.Knob{Original: p.now[ch.Knob]}
		}
		k.Writing = ch.To
		if p.stored && k.Stored == "" {
			k.Stored = k.Original // from now on its record is to be looked at
		}
		p.file.Knobs[ch.Knob] = k
		set[ch.Knob] = ch.To
	}
	return set
}

// verify reads again, right before the write.
func (a *Actuator) verify(ctx context.Context, p *part) bool {
	now, err := p.engine.Read(ctx, p.item.Container)
	if err != nil {
		p.fail(outcomeOf(err), "could not be read", err)
		a.withdraw(p, err)
		return false
	}
	good := true
	for _, res := range p.results {
		ch := res.Change
		res.Actual = now[ch.Knob]
		if k := p.file.Knobs[ch.Knob]; now[ch.Knob] != p.now[ch.Knob] {
			good = false
			res.yield(fmt.Sprintf("it was set to %s in between", now[ch.Knob]))
			k.Written = "" // the intent is withdrawn below, and with it the knob
			p.file.Knobs[ch.Knob] = k
		}
	}
	if !good {
		a.withdraw(p, nil)
	}
	return good
}

// withdraw takes the intent back: nothing was sent.
func (a *Actuator) withdraw(p *part, cause error) {
	for _, ch := range p.item.Changes {
		k := p.file.Knobs[ch.Knob]
		k.Writing = ""
		p.file.Knobs[ch.Knob] = k
		if k.Written == "" {
			delete(p.file.Knobs, ch.Knob)
		}
	}
	if outcomeOf(cause) == Gone && !p.file.Stored() {
		clear(p.file.Knobs)
	}
	if err := a.save(p.file); err != nil {
		a.log.Warn("an intent stays on disk that was not carried out; it restores to what stands", "error", err)
	}
}

// settle reads back what an engine write left, whatever the engine said of it,
// and records it.
func (a *Actuator) settle(ctx context.Context, p *part, acknowledged error) bool {
	now, err := p.engine.Read(ctx, p.item.Container)
	if outcomeOf(err) == Gone || outcomeOf(acknowledged) == Gone {
		p.fail(Gone, "the container ended", err)
		p.began = false
		if p.file.Stored() { // Gone settles what its engine stored
			return false
		}
		clear(p.file.Knobs)
	} else if err != nil {
		p.fail(Unavailable, "could not be read back", err)
		return false // the intent stays on disk: undo, or RestorePending, settles it
	}
	good := acknowledged == nil
	for _, res := range p.results {
		if res.Outcome == Gone {
			good = false
			continue
		}
		res.Actual, res.Err = now[res.Change.Knob], acknowledged
		good = settleKnob(p.file, res, p.stored) && good
	}
	if err := a.save(p.file); err != nil {
		p.fail(Failed, "what was written could not be recorded", err)
		return false
	}
	return good
}

// settleKnob compares one knob's read-back with what was asked.
func settleKnob(f originals.File, res *ChangeResult, stored bool) bool {
	name, k := res.Change.Knob, f.Knobs[res.Change.Knob]
	switch {
	case name.Same(k.Writing, res.Actual):
		k.Written, k.Writing = k.Writing, ""
		if stored {
			k.Stored = k.Written
		}
		f.Knobs[name] = k
		res.Outcome = Applied
		if res.Err != nil {
			res.Outcome, res.Text = outcomeOf(res.Err), res.Err.Error()
		}
	case res.Err != nil && name.Same(res.Change.From, res.Actual):
		// It may still land: the intent stays until undo has written behind it.
		res.Outcome, res.Text = outcomeOf(res.Err), res.Err.Error()
	case name.Same(res.Change.From, res.Actual):
		res.Outcome, res.Text = Failed, "acknowledged, and still reads "+string(res.Actual)
	case res.Err != nil && !errors.Is(res.Err, runtime.ErrRefused):
		// Likewise: undo puts what somebody else set behind it.
		res.Outcome, res.Text = outcomeOf(res.Err), fmt.Sprintf("it reads %s; %v", res.Actual, res.Err)
	default:
		delete(f.Knobs, name)
		res.yield(fmt.Sprintf("it reads %s, which trimtab did not write", res.Actual))
	}
	return res.Outcome == Applied
}

// fail marks all of a part's changes that have no worse outcome yet.
func (p *part) fail(o Outcome, text string, err error) {
	for _, res := range p.results {
		if res.Outcome != "" && res.Outcome != Applied {
			continue
		}
		res.Outcome, res.Text = o, text
		if err != nil {
			res.Err, res.Text = err, fmt.Sprintf("%s: %v", text, err)
		}
	}
}

func (r *ChangeResult) yield(text string) { r.Outcome, r.Text = Yielded, text }

func skipRest(parts []*part) {
	for _, p := range parts {
		for _, res := range p.results {
			if res.Outcome == "" {
				res.Outcome, res.Text = Skipped, "another part of the plan could not be carried out"
			}
		}
	}
}

// undo takes back, latest first, what a plan has written so far.
func (a *Actuator) undo(ctx context.Context, parts []*part, r *Result) {
	hung := map[string]error{}
	for i := len(parts) - 1; i >= 0; i-- {
		p := parts[i]
		if !p.began {
			continue
		}
		back := a.rewind(ctx, p.item, hung)
		for j, res := range p.results {
			knob := back.knob(p.item.Changes[j].Knob)
			res.Actual = cmp.Or(knob.Actual, res.Actual)
			switch {
			case knob.Outcome == Yielded && knob.Knob == res.Change.Knob:
				res.yield(knob.Text)
			case res.Outcome == Applied && knob.Outcome == Restored:
				res.Outcome, res.Text = Undone, "another part of the plan could not be carried out"
			case res.Outcome == Applied:
				res.Outcome, res.Text = Failed, "could not be undone: "+knob.Text
			}
		}
		if back.Outcome == Failed || back.Outcome == Unavailable || back.Outcome == Pending {
			r.Pending = append(r.Pending, p.item.Container.Key())
		}
	}
}
