package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/state"
)

// program is training by a library that nobody here wrote, under a quota that starves it.
type program struct {
	name, why string
	needs     string // the Python package without which it is left out
	cpus      float64
}

// programs of programs.py.
//
//trimtab:table the programs and their quotas
var programs = []program{
	{"hf", "transformers' Trainer, text tokenized by four loaders", "transformers", 1},
	{"lightning", "Lightning's Trainer, JPEGs decoded by four loaders", "lightning", 1},
	{"timm", "timm's loader and RandAugment", "timm", 1},
	{"pyg", "PyTorch Geometric, batches put together by four loaders", "torch_geometric", 1},
	{"jax", "JAX and Optax, one thread augments", "optax", 0.4},
}

// rateTolerance of a rate that is shown, against the program's own steps.
const rateTolerance = 0.03

// others tunes programs that nobody here wrote, and holds their rate against what no quota gives.
func (c *check) others(ctx context.Context) error {
	if c.node != nil {
		c.report.row(note, "programs", "other people's programs", "", "not tried: on the virtual GPU nothing is computed")
		return nil
	}
	for _, p := range programs {
		if !c.wanted(p.name) {
			continue
		}
		w := script()
		if out, err := exec.CommandContext(ctx, w.args[0], "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))", p.needs).CombinedOutput(); err != nil {
			c.report.row(note, "programs", p.name, "", fmt.Sprintf("left out: python3 has no %s %s", p.needs, out))
			continue
		}
		w.args = []string{w.args[0], insideDir + "/programs.py", p.name}
		w.cpus = p.cpus
		if err := c.other(ctx, p, w); err != nil {
			c.report.row(bad, "programs", p.name+" runs to its end", "", err.Error()) // the others still tell
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

func (c *check) other(ctx context.Context, p program, w work) (err error) {
	c.report.say("program %s: %s; %g CPUs", p.name, p.why, p.cpus)
	j, err := c.stepping(ctx, p.name, w, 10)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, j.stop()) }()
	const length = 8 * time.Second
	before, err := j.rateFor(ctx, length)
	if err != nil {
		return err
	}
	d, err := c.launch(ctx, j, settings{mode: policies.ModeTune, dir: j.dir, record: p.name})
	if err != nil {
		return err
	}
	after, errTuned := c.helped(ctx, d, j, p, length)
	if err := errors.Join(errTuned, d.restore(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	free := runtime.Values{runtime.KnobCPUQuota: runtime.Quota(-1, 100_000)}
	if err := errors.Join(c.site.engine.Apply(ctx, j.c, free), workload.Sleep(ctx, 4*time.Second)); err != nil {
		return err
	}
	without, err := j.rateFor(ctx, length)
	if err != nil {
		return err
	}
	c.report.judge(after >= 0.95*without, "programs", p.name+", steps/s by its own log", fmt.Sprintf("%.2f with its quota, %.2f with none", before, without),
		fmt.Sprintf("%.2f: %+.0f %%, %.3f of what no quota gives", after, 100*(after/before-1), after/without))
	return nil
}

// helped waits for the loan and until it settles, and judges what is shown of it.
func (c *check) helped(ctx context.Context, d *daemon, j *job, p program, length time.Duration) (after float64, err error) {
	began := time.Now()
	v, err := c.await(ctx, d, 40*time.Second, func(v state.Container) bool { return len(v.Changed) > 0 })
	c.report.judge(err == nil, "programs", p.name+", its quota is raised", fmt.Sprintf("%g CPUs", p.cpus),
		fmt.Sprintf("%s after %.0f s%s", v.Now[runtime.KnobCPUQuota], time.Since(began).Seconds(), v.WhyNot))
	if err := workload.Sleep(ctx, 15*time.Second); err != nil { // until what is not used is given back
		return 0, err
	}
	seen, err := verdicts(ctx, d, length)
	if err != nil {
		return 0, err
	}
	if after, err = j.rateLast(length); err != nil {
		return 0, err
	}
	v, _ = d.view()
	c.report.row(note, "programs", p.name+", verdict", "", fmt.Sprintf("%v; %s", seen, v.Verdict.Why))
	switch {
	case !v.Rate.Steps:
		c.report.row(note, "programs", p.name+", rate shown", fmt.Sprintf("%.2f steps/s", after), fmt.Sprintf("none: %s (%.2f of %s)", v.RateWhy, v.Rate.PerSecond, v.Rate.Source))
	default:
		own := after
		if v.Rate.ToNs > v.Rate.FromNs { // of the very time that the shown rate is of
			own = j.rateBetween(time.Duration(v.Rate.FromNs), time.Duration(v.Rate.ToNs))
		}
		off := v.Rate.PerSecond/own - 1
		c.report.judge(math.Abs(off) <= rateTolerance, "programs", p.name+", rate shown", fmt.Sprintf("%.2f steps/s", own),
			fmt.Sprintf("%.2f by %s, %+.1f %%", v.Rate.PerSecond, v.Rate.Source, 100*off))
	}
	c.report.say("         knee %.2f, used %.2f CPUs, now %s, %s", v.Knee, v.UsedCPUs, v.Now[runtime.KnobCPUQuota], v.Tuning)
	for _, r := range d.tap.activities() {
		c.report.say("         %s", r)
	}
	return after, nil
}
