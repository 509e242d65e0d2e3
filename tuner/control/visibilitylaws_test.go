package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// TestVisibilityIsHeldToTheLaws: whatever a policy asks for, at whatever time, and whatever
// people do meanwhile.
func TestVisibilityIsHeldToTheLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newGPUNode()
		uuids := []string{"GPU-a", "GPU-b", "GPU-c"}
		for i := range rapid.IntRange(1, 3).Draw(t, "jobs") {
			e := allowGPU()
			e.Mode = rapid.SampledFrom([]policies.Mode{policies.ModeObserve, policies.ModeTune, policies.ModeTune}).Draw(t, "mode")
			e.Knobs = rapid.SampledFrom([][]string{{"cpu"}, {"gpu"}, {"gpu"}, {"cpu", "gpu"}}).Draw(t, "knobs")
			j := n.addJob(fmt.Sprint("job", i), 0, e)
			j.loaderCPU = rapid.Float64Range(0.01, 0.4).Draw(t, "Cl")
			n.grant(j, uuids[:rapid.IntRange(1, 3).Draw(t, "granted")]...)
		}
		asked := rapid.Custom(func(t *rapid.T) policies.GPUVisibility {
			return policies.GPUVisibility{Key: rapid.SampledFrom(n.jobs).Draw(t, "of").c.Key(), Device: rapid.SampledFrom(append(uuids, "", "GPU-x")).Draw(t, "device"), Hide: rapid.Bool().Draw(t, "hide")}
		})
		cfg := Defaults()
		cfg.Idle.AfterNs = 5 * second
		var wants []policies.GPUVisibility
		c := New(cfg, func(*policies.Constants) []policies.Policy {
			return []policies.Policy{hider{func(policies.Job) []policies.GPUVisibility { return wants }}}
		}, "t")
		var results []Result
		for range rapid.IntRange(30, 120).Draw(t, "seconds") {
			wants = rapid.SliceOfN(asked, 0, 3).Draw(t, "wants")
			in := n.tick()
			in.Results = results
			if rapid.IntRange(0, 9).Draw(t, "frozen") == 0 {
				in.Frozen = "paused"
			}
			d := c.Step(in)
			for _, o := range d.Apply {
				checkVisibility(t, c, n, in, o)
			}
			results = n.apply(d)
			j := rapid.SampledFrom(n.jobs).Draw(t, "who")
			uuid := rapid.SampledFrom(uuids).Draw(t, "where")
			s := j.visibility(uuid)
			switch rapid.IntRange(0, 19).Draw(t, "event") {
			case 0: // it comes to use a device, where it may
				if s != nil && s.Visible && !slices.Contains(n.on[uuid], j) {
					n.on[uuid] = append(n.on[uuid], j)
				}
			case 1:
				n.on[uuid] = []*simJob{}
			case 2: // people hide, or show
				if s != nil && !slices.Contains(n.on[uuid], j) {
					j.c.GPUVisibility, j.c.Yielded = slices.Clone(j.c.GPUVisibility), []runtime.Knob{runtime.KnobGPU}
					if s = j.visibility(uuid); s.Visible {
						s.Visible, s.Hidden = false, policies.HiddenByPerson
					} else {
						s.Visible, s.Hidden = true, ""
					}
				}
			case 3:
				n.lost[uuid] = !n.lost[uuid]
			}
		}
		// At the end of what was allowed all that a policy hid comes back by itself.
		wants = nil
		for _, j := range n.jobs {
			j.c.Enrolment.Knobs = []string{"cpu"}
		}
		for range 10 {
			in := n.tick()
			in.Results, in.Frozen = results, rapid.SampledFrom([]string{"", "paused"}).Draw(t, "frozen at the end")
			results = n.apply(c.Step(in))
		}
		for _, j := range n.jobs {
			if slices.ContainsFunc(j.c.GPUVisibility, func(s GPUVisibility) bool { return s.Hidden == policies.HiddenByPolicy }) && j.c.Enrolment.Mode == policies.ModeTune {
				t.Fatalf("%s: %+v is left", j.c.Name, j.c.GPUVisibility)
			}
		}
	})
}

func checkVisibility(t *rapid.T, c *Controller, n *gpuNode, in Input, o Order) {
	ch := o.Changes[0]
	var j *simJob
	for _, other := range n.jobs {
		if other.c.Key() == ch.Key {
			j = other
		}
	}
	switch {
	case ch.Knob != runtime.KnobGPU:
		return
	case len(o.Changes) != 1 || !j.c.Enrolment.Allows(ch.Knob) || j.c.Enrolment.Mode != policies.ModeTune && !o.DryRun || in.Frozen != "":
		t.Fatalf("%+v is not allowed to %+v (frozen %q)", ch, j.c.Enrolment, in.Frozen)
	case len(j.c.Yielded) > 0 || slices.ContainsFunc(j.c.GPUVisibility, func(s GPUVisibility) bool { return s.Hidden == policies.HiddenByPerson }):
		t.Fatalf("%+v, where a person decided: %+v", ch, j.c.GPUVisibility)
	case ch.To == "":
		t.Fatalf("%+v hides the last device", ch)
	case trialsOf(c, ch.Key) > 1:
		t.Fatalf("%d trials", trialsOf(c, ch.Key))
	}
	for _, s := range j.c.GPUVisibility {
		to := slices.Contains(strings.Split(string(ch.To), ","), s.UUID)
		if s.Visible && !to && (slices.Contains(n.on[s.UUID], j) || n.lost[s.UUID]) {
			t.Fatalf("%+v hides %s, which is in use, or of which that is not known", ch, s.UUID)
		}
		if !s.Visible && to && s.Hidden != policies.HiddenByPolicy {
			t.Fatalf("%+v shows what it did not hide", ch)
		}
	}
}

func trialsOf(c *Controller, key string) (n int) {
	for _, o := range c.Open() {
		if o.touches(key) {
			n++
		}
	}
	return n
}
