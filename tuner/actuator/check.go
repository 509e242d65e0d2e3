package actuator

import (
	"context"
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
)

// check reads what stands and holds every change of a part against it. False:
// the results say why not, and nothing may be written.
func (a *Actuator) check(ctx context.Context, p *part, dryRun bool) bool {
	c := p.item.Container
	if why := a.gate(ctx, p.item, dryRun); why != "" {
		p.fail(Refused, why, nil)
		return false
	}
	var err error
	if p.engine, err = a.engine(c); err == nil {
		p.now, err = p.engine.Read(ctx, c)
	}
	if err != nil {
		p.fail(outcomeOf(err), "could not be read", err)
		return false
	}
	if p.file, err = a.fileOf(c); err != nil {
		p.fail(Refused, "its originals are unreadable", err)
		return false
	}
	if why := a.unsettled(p.file); why != "" {
		p.fail(Refused, "a restore is pending: "+why, nil)
		return false
	}
	if !dryRun {
		if err := a.earlier(ctx, c); err != nil {
			p.fail(Refused, err.Error(), nil)
			return false
		}
		if err := a.storable(ctx, p); err != nil {
			p.fail(outcomeOf(err), err.Error(), nil)
			return false
		}
	}
	good, dropped := true, false
	seen := map[runtime.Knob]bool{}
	for _, res := range p.results {
		res.Actual = p.now[res.Change.Knob]
		res.Outcome, res.Text = a.judge(ctx, p, res.Change, seen[res.Change.Knob])
		seen[res.Change.Knob] = true
		good = good && res.Outcome == ""
		if res.Outcome == Yielded && !dryRun {
			delete(p.file.Knobs, res.Change.Knob)
			dropped = true
		}
	}
	if dropped {
		if err := a.save(p.file); err != nil {
			a.log.Warn("a yielded knob stays on disk; its value is left alone all the same", "error", err)
		}
	}
	return good
}

// gate holds the laws that look at the container alone.
func (a *Actuator) gate(ctx context.Context, item Item, dryRun bool) string {
	c := item.Container
	switch {
	case len(item.Changes) == 0:
		return "no change asked"
	case c.Kubernetes:
		return "below Kubernetes' cgroups: observed only"
	case item.Enrolment.Mode != policies.ModeTune && !(dryRun && item.Enrolment.Mode == policies.ModeObserve):
		return fmt.Sprintf("mode is %q", item.Enrolment.Mode)
	case dryRun:
		return "" // observing needs no GPU preflight
	case a.o.Preflight == nil && len(c.GPUs) > 0:
		return "preflight: none is available for a container that holds a GPU"
	}
	if a.o.Preflight != nil {
		if ok, why := a.o.Preflight(ctx, c); !ok {
			return "preflight: " + why
		}
	}
	if err := a.checkGPU(ctx, c); err != nil {
		return fmt.Sprintf("GPU access is lost already: %v", err)
	}
	return ""
}

func (a *Actuator) checkGPU(ctx context.Context, c runtime.Container) error {
	if a.o.CheckGPU == nil || len(c.GPUs) == 0 {
		return nil
	}
	return a.o.CheckGPU(ctx, c)
}

// fileOf loads a container's originals, or starts them.
func (a *Actuator) fileOf(c runtime.Container) (originals.File, error) {
	f, ok, err := a.o.Store.Load(c.ID)
	if err != nil {
		return originals.File{}, err
	}
	if !ok {
		f = originals.For(c)
	}
	return f, nil
}

func (a *Actuator) unsettled(f originals.File) string {
	if why, ok := a.pending[f.ID.Key()]; ok {
		return why
	}
	return f.Unsettled()
}

// judge holds one change against what stands; "" lets it pass.
func (a *Actuator) judge(ctx context.Context, p *part, ch policies.Change, twice bool) (Outcome, string) {
	stands, present := p.now[ch.Knob]
	k, changed := p.file.Knobs[ch.Knob]
	switch {
	case twice:
		return Refused, "the plan names the knob twice"
	case !p.item.Enrolment.Allows(ch.Knob):
		return Refused, fmt.Sprintf("knob family %q is not enrolled", ch.Knob.Family())
	case !present:
		return Refused, "this host has no such knob"
	case changed && !k.Ours(ch.Knob, stands):
		return Yielded, fmt.Sprintf("it reads %s, which trimtab did not write", stands)
	case !changed && ch.Knob.Same(ch.To, stands): // a way back that was under way when it was planned
		return Refused, fmt.Sprintf("it reads %s already", stands)
	case !changed && !ch.Knob.Same(ch.From, stands):
		return Yielded, fmt.Sprintf("it reads %s instead of %s", stands, ch.From)
	case !ch.Knob.Same(ch.From, stands):
		return Refused, fmt.Sprintf("the plan is stale: it reads %s, which trimtab wrote since", stands)
	}
	if ch.To == stands {
		return Refused, fmt.Sprintf("it reads %s already", stands)
	}
	original := stands
	if changed {
		original = k.Original
	}
	if err := imposes(ch.Knob, original, ch.To, p.item.Enrolment.BestEffort); err != nil {
		return Refused, err.Error()
	}
	if err := a.endangers(ctx, p, ch, stands); err != nil {
		return Refused, err.Error()
	}
	return "", ""
}

// imposes holds the law "nothing imposed": no quota and no memory limit where the owner set none, and
// none below the owner's, unless the container is best-effort. Weights and cpusets may go
// either way: they share, they do not bound.
func imposes(knob runtime.Knob, original, to runtime.Value, bestEffort bool) error {
	asked, err := amount(knob, to)
	if err != nil {
		return err
	}
	switch knob {
	case runtime.KnobCPUWeight, runtime.KnobCpuset:
		return nil
	}
	owner, err := amount(knob, original)
	if err != nil {
		return fmt.Errorf("original: %w", err)
	}
	if bestEffort || asked >= owner {
		return nil
	}
	if owner == unlimited {
		return fmt.Errorf("never impose: the owner set no %s", knob)
	}
	return fmt.Errorf("never impose: %s is below the owner's %s", to, original)
}

// amount reads a knob's value as a number to compare; unlimited for no limit.
func amount(knob runtime.Knob, v runtime.Value) (float64, error) {
	switch knob {
	case runtime.KnobCPUQuota:
		quotaUs, periodUs, err := runtime.ParseQuota(v)
		if err != nil {
			return 0, err
		}
		if quotaUs < 0 {
			return unlimited, nil
		}
		return float64(quotaUs) / float64(periodUs), nil
	case runtime.KnobCpuset:
		cpus, err := runtime.ParseCPUList(string(v))
		if err == nil && len(cpus) == 0 {
			err = errors.New("an empty cpuset")
		}
		return float64(len(cpus)), err
	}
	if v == runtime.ValueMax {
		return unlimited, nil
	}
	n, ok := v.Int()
	if !ok || n < 0 {
		return 0, fmt.Errorf("%s %q is not a number", knob, v)
	}
	return float64(n), nil
}
