package core

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

// kneeOf is the CPUs that a curve says to be enough.
func kneeOf(c policies.Curve) float64 {
	x, _ := c.Reach(0.985 * c.Best())
	return x
}

// TestCurvesOfJobsThatMisbehave: what is learnt of a job outlives its hangs, and is
// learnt anew where the job does something else or is counted by something else.
func TestCurvesOfJobsThatMisbehave(t *testing.T) {
	for name, tc := range map[string]struct {
		edit  func(j *simJob)
		other bool // its rate is counted by another source then
		kept  bool // what was learnt before stands
	}{
		"it hangs":                            {func(j *simJob) { j.device = 1e6 }, false, true},
		"it does dearer work":                 {func(j *simJob) { j.loaderCPU *= 3 }, false, false},
		"it does lighter work":                {func(j *simJob) { j.loaderCPU /= 4 }, false, false},
		"its rate is of another source":       {func(j *simJob) { j.ticks.Source = "graph launches" }, true, false},
		"it goes slow on purpose, and sleeps": {func(j *simJob) { j.device *= 10 }, false, false},
	} {
		n := newNode(4)
		j := n.addJob("train", 0, tune())
		c := New(Defaults(), script{func(policies.Job) []policies.Change { return nil }}, "t")
		run(c, n, 60, nil)
		core := c.jobs[j.c.Key()]
		before := core.curve
		if miss := kneeOf(before)/j.knee() - 1; math.Abs(miss) > 0.1 {
			t.Fatalf("%s: learnt a knee of %.2f, it is %.2f", name, kneeOf(before), j.knee())
		}
		tc.edit(j)
		run(c, n, 120, nil)
		want := j.knee()
		if tc.kept {
			want = kneeOf(before)
		}
		if got := kneeOf(core.curve); math.Abs(got/want-1) > 0.15 || (core.response.Source != "torch.backward") != tc.other {
			t.Errorf("%s: a knee of %.2f by %q, want %.2f", name, got, core.response.Source, want)
		}
	}
}

// TestHostWithNothingToGive: a host that tells of no CPU, or of no memory, gets no plan of
// it, and every number that is shown is one.
func TestHostWithNothingToGive(t *testing.T) {
	for name, nothing := range map[string]func(in *Input){
		"no CPU":    func(in *Input) { in.Host.CPUs = 0 },
		"no memory": func(in *Input) { in.Host.MemTotal, in.Host.MemAvail = 0, 0 },
	} {
		n := newNode(4)
		n.weighted = true
		starved := n.addJob("starved", 0.4, tune())
		grows := n.limited("grows", 500, 300, allowMemory())
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		given := map[runtime.Knob]int{}
		for i := range 40 {
			grows.hold(min(300+10*int64(i), 480))
			in := n.tick()
			nothing(&in)
			d := c.Step(in)
			for _, o := range d.Apply {
				for _, ch := range o.Changes {
					given[ch.Knob]++
				}
			}
			var s view.Snapshot
			c.Show(&s)
			if _, err := json.Marshal(s); err != nil { // NaN and infinity have no JSON
				t.Fatalf("%s, tick %d: %v", name, i, err)
			}
		}
		if name == "no memory" && given[runtime.KnobMemoryLimit] > 0 || name != "no memory" && given[runtime.KnobCPUQuota]+given[runtime.KnobCPUWeight] > 0 {
			t.Errorf("%s: %v; %s, %s", name, given, c.jobs[starved.c.Key()].whyNot, c.jobs[grows.c.Key()].whyNot)
		}
	}
}
