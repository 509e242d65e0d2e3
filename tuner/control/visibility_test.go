package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/trial"
)

// gpuNode is a node with devices: who is on each, and what each container was granted.
type gpuNode struct {
	*node
	on   map[string][]*simJob // by UUID
	lost map[string]bool
}

func newGPUNode() *gpuNode {
	return &gpuNode{node: newNode(8), on: map[string][]*simJob{}, lost: map[string]bool{}}
}

func allowGPU() policies.Enrolment {
	e := tune()
	e.Knobs = []string{"gpu"}
	return e
}

// grant gives a job devices, which it sees.
func (n *gpuNode) grant(j *simJob, uuids ...string) {
	for i, uuid := range uuids {
		j.c.GPUVisibility = append(j.c.GPUVisibility, GPUVisibility{Minor: i, UUID: uuid, Visible: true})
		if n.on[uuid] == nil {
			n.on[uuid] = []*simJob{}
		}
	}
	j.c.Elastic = true
}

func (n *gpuNode) tick() Input {
	in := n.node.tick()
	for i, uuid := range slices.Sorted(maps.Keys(n.on)) {
		d := probes.Device{Index: i, Minor: i, UUID: uuid, AtNs: n.nowNs}
		if n.lost[uuid] {
			d.Lost = "no answer"
		}
		for _, j := range n.on[uuid] {
			d.Processes = append(d.Processes, probes.DeviceProcess{PID: j.threads[0].TGID, Container: j.c.Key()})
			d.Duty = append(d.Duty[:0], probes.DutySample{AtNs: n.nowNs - second/2, Share: 1}, probes.DutySample{AtNs: n.nowNs - second/4, Share: 1}, probes.DutySample{AtNs: n.nowNs, Share: 1})
		}
		in.Host.Devices = append(in.Host.Devices, d)
	}
	return in
}

func (j *simJob) visibility(uuid string) *GPUVisibility {
	for i := range j.c.GPUVisibility {
		if j.c.GPUVisibility[i].UUID == uuid {
			return &j.c.GPUVisibility[i]
		}
	}
	return nil
}

// apply carries out what the agent would, a device in use aside.
func (n *gpuNode) apply(d Decision) (out []Result) {
	set := func(o Order, back bool) {
		ch := o.Changes[0]
		to := string(ch.To)
		if back {
			to = string(ch.From)
		}
		for _, j := range n.jobs {
			if j.c.Key() != ch.Key || o.DryRun {
				continue
			}
			j.c.GPUVisibility = slices.Clone(j.c.GPUVisibility)
			for i := range j.c.GPUVisibility {
				s := &j.c.GPUVisibility[i]
				switch visible := slices.Contains(strings.Split(to, ","), s.UUID); {
				case visible && s.Hidden == policies.HiddenByPolicy:
					s.Visible, s.Hidden = true, ""
				case !visible && s.Visible:
					s.Visible, s.Hidden = false, policies.HiddenByPolicy
				}
			}
		}
	}
	for _, o := range d.Apply {
		if set(o, false); !o.DryRun {
			out = append(out, Result{Kind: ResultApply, Plan: o.Plan, OK: true})
		}
	}
	for _, o := range d.Rollback {
		set(o, true)
		out = append(out, Result{Kind: ResultRollback, Plan: o.Plan, OK: true})
	}
	return out
}

// hider asks to hide or show what a test wants, at each tick.
type hider struct {
	want func(j policies.Job) []policies.GPUVisibility
}

func (hider) Name() string { return "hider" }

func (s hider) Propose(_ policies.Node, jobs []policies.Job) (out policies.Proposal) {
	for _, j := range jobs {
		out.GPUVisibility = append(out.GPUVisibility, s.want(j)...)
	}
	return out
}

func hideOf(uuid string) policies.Policy {
	return hider{func(j policies.Job) []policies.GPUVisibility {
		return []policies.GPUVisibility{{Policy: "hider", Key: j.Key, Device: uuid, Hide: true, Reason: "the test wants it"}}
	}}
}

// loaded is a job that waits for its loaders, on the first of two devices.
func (n *gpuNode) loaded(name string, e policies.Enrolment) *simJob {
	j := n.addJob(name, 0, e)
	j.loaderCPU = 0.3
	n.grant(j, "GPU-a", "GPU-b")
	n.on["GPU-a"] = append(n.on["GPU-a"], j)
	return j
}

// waiting is a job that waits for its device.
func (n *gpuNode) waiting(name, uuid string) *simJob {
	j := n.addJob(name, 0, tune())
	j.trainerCPU, j.loaderCPU, j.device = 0.005, 0.005, 0.100
	n.grant(j, uuid)
	n.on[uuid] = append(n.on[uuid], j)
	return j
}

// quick is a controller that hides and shows after a minute.
func quick() *Controller {
	cfg := Defaults()
	cfg.Constants.HideUnused, cfg.Constants.ShowFree = 60, 60
	return New(cfg, builtin, "t")
}

// asked is a controller with one policy alone.
func asked(p policies.Policy) *Controller {
	return New(Defaults(), func(*policies.Constants) []policies.Policy { return []policies.Policy{p} }, "t")
}

// TestKneeHidesAndShows: what one job left alone and another is bound by is hidden, proved,
// kept, and shown again once nobody uses it.
func TestKneeHidesAndShows(t *testing.T) {
	n := newGPUNode()
	j := n.loaded("left", allowGPU())
	n.waiting("needs", "GPU-b")
	c := quick()
	records := run(c, n, 240, nil)
	if s := j.visibility("GPU-b"); s.Visible || s.Hidden != policies.HiddenByPolicy || !j.visibility("GPU-a").Visible {
		t.Fatalf("visibility %+v\n%+v", j.c.GPUVisibility, records)
	}
	if got := outcomes(records); len(got) != 1 || got[0] != state.OutcomeKept {
		t.Errorf("trials %v, want one kept", got)
	}
	var s state.Snapshot
	c.Show(&s)
	if v := s.Containers[0]; !slices.Contains(v.Changed, runtime.KnobGPU) || v.Original[runtime.KnobGPU] != "GPU-a,GPU-b" || v.Now[runtime.KnobGPU] != "GPU-a" || v.Deciders[runtime.KnobGPU] != "trimtab (default)" {
		t.Errorf("shown %+v", v)
	}
	n.on["GPU-b"] = nil
	records = run(c, n, 200, nil)
	if got := outcomes(records); len(got) != 1 || got[0] != state.OutcomeKept || !j.visibility("GPU-b").Visible {
		t.Errorf("trials %v and visibility %+v once nobody uses it, want it shown and kept", got, j.c.GPUVisibility)
	}
}

// TestHideIsGuarded: what no policy may hide, whatever it asks.
func TestHideIsGuarded(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(n *gpuNode, j *simJob)
		device string
		why    string
	}{
		"in use":        {device: "GPU-a", why: "in use"},
		"never granted": {device: "GPU-x", why: "not granted"},
		"not told":      {change: func(n *gpuNode, _ *simJob) { n.lost["GPU-b"] = true }, why: "cannot be told"},
		"the last":      {change: func(_ *gpuNode, j *simJob) { j.c.GPUVisibility = j.c.GPUVisibility[1:] }, why: "the last device"},
		"a person's hide": {change: func(_ *gpuNode, j *simJob) {
			j.c.GPUVisibility[0].Visible, j.c.GPUVisibility[0].Hidden = false, policies.HiddenByPerson
		}, why: "by hand"},
		"a person's word":      {change: func(_ *gpuNode, j *simJob) { j.c.Yielded = []runtime.Knob{runtime.KnobGPU} }, why: "somebody else"},
		"knob not allowed":     {change: func(_ *gpuNode, j *simJob) { j.c.Enrolment.Knobs = []string{"cpu"} }, why: "not allowed"},
		"held":                 {change: func(_ *gpuNode, j *simJob) { j.c.Held = true }, why: "held"},
		"no green preflight":   {change: func(_ *gpuNode, j *simJob) { j.c.Preflight = "at risk" }, why: "preflight"},
		"short of devices":     {change: func(_ *gpuNode, j *simJob) { j.loaderCPU, j.device = 0.005, 0.1 }, why: "short of devices"},
		"somebody else's rule": {change: func(_ *gpuNode, j *simJob) { j.c.GPUVisibility[1].Visible = false }, why: "nothing to gain"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newGPUNode()
			j := n.loaded("left", allowGPU())
			if tc.change != nil {
				tc.change(n, j)
			}
			device := tc.device
			if device == "" {
				device = "GPU-b"
			}
			c := asked(hideOf(device))
			run(c, n, 90, func(i int, d Decision) {
				if len(d.Apply) > 0 {
					t.Fatalf("tick %d: %+v", i, d.Apply)
				}
			})
			if why := c.containers[j.c.Key()].refused.Text; !strings.Contains(why, tc.why) {
				t.Errorf("why not: %q, want %q", why, tc.why)
			}
		})
	}
}

// TestHideGoesBack: at the first sign that it is missed, on trial and long after, also
// while all is frozen; and when it may not stand any more.
func TestHideGoesBack(t *testing.T) {
	slower := func(j *simJob) { j.loaderCPU = 0.6 }
	short := func(j *simJob) { j.loaderCPU, j.device = 0.005, 0.1 }
	hangs := func(j *simJob) { j.device = 1e6 }
	for name, tc := range map[string]struct {
		after  int // seconds since it was hidden
		frozen string
		change func(j *simJob)
		says   string
	}{
		"on trial, slower":              {5, "", slower, "rate fell"},
		"on trial, short of devices":    {5, "", short, "short of devices"},
		"kept, slower":                  {100, "", slower, "rate fell"},
		"kept, short of devices":        {100, "", short, "short of devices"},
		"while frozen, on trial":        {5, "paused", short, "short of devices"},
		"while frozen, kept":            {100, "paused", short, "short of devices"},
		"on trial, hangs":               {5, "", hangs, "not seen after it"},
		"kept, hangs":                   {100, "", hangs, "not seen any more"},
		"a person decides":              {100, "", func(j *simJob) { j.c.Yielded = []runtime.Knob{runtime.KnobGPU} }, "a person's"},
		"the knob is no longer allowed": {100, "", func(j *simJob) { j.c.Enrolment.Knobs = []string{"cpu"} }, "no longer allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newGPUNode()
			j := n.loaded("left", allowGPU())
			c := asked(hideOf("GPU-b"))
			hidden, results := -1, []Result(nil)
			var records []state.Record
			hides := 0
			for i := range 400 {
				in := n.tick()
				in.Results = results
				if hidden >= 0 && i == hidden+tc.after {
					tc.change(j)
					in = n.tick()
				}
				if hidden >= 0 && i >= hidden+tc.after {
					in.Frozen = tc.frozen
				}
				d := c.Step(in)
				if len(d.Apply) > 0 {
					hides++
					if hidden < 0 {
						hidden = i
					}
				}
				results = n.apply(d)
				records = append(records, d.Records...)
			}
			if hidden < 0 || !j.visibility("GPU-b").Visible || hides != 1 {
				t.Fatalf("hidden at %d, %d times, visibility %+v\n%+v", hidden, hides, j.c.GPUVisibility, records)
			}
			if !slices.ContainsFunc(records, func(r state.Record) bool {
				return slices.Contains([]state.Outcome{state.OutcomeRolledBack, state.OutcomeInconclusive, state.OutcomeWithdrawn}, r.Outcome) && strings.Contains(r.Text, tc.says)
			}) {
				t.Errorf("no record says %q: %+v", tc.says, records)
			}
			for _, shown := range c.containers[j.c.Key()].trials {
				if shown.Outcome == state.OutcomeKept {
					t.Errorf("it went back, and is shown as kept: %+v", shown)
				}
			}
		})
	}
}

// TestExcessStealIsNoSilence: a job whose readings are no evidence for what the hypervisor took,
// just as its trial is judged, does not hang: its steps are seen all the same.
func TestExcessStealIsNoSilence(t *testing.T) {
	for name, stolen := range map[string]func(at int) bool{
		"in the last seconds": func(at int) bool { return at >= 25 && at < 33 },
		"by turns":            func(at int) bool { return at >= 10 && at < 14 || at >= 28 && at < 33 },
	} {
		t.Run(name, func(t *testing.T) {
			n := newGPUNode()
			j := n.loaded("left", allowGPU())
			c := asked(hideOf("GPU-b"))
			hidden := -1
			records := run(c, n, 200, func(i int, d Decision) {
				if len(d.Apply) > 0 && hidden < 0 {
					hidden = i
				}
				if n.steal = 0; hidden >= 0 && stolen(i-hidden) {
					n.steal = 0.08
				}
			})
			if got := outcomes(records); len(got) != 1 || got[0] != state.OutcomeKept || j.visibility("GPU-b").Visible {
				t.Errorf("trials %v, visibility %+v\n%+v", got, j.c.GPUVisibility, records)
			}
		})
	}
}

// TestShowThatSlowsGoesBack: and is not tried again while nothing has changed.
func TestShowThatSlowsGoesBack(t *testing.T) {
	n := newGPUNode()
	j := n.loaded("left", allowGPU())
	j.c.GPUVisibility[1].Visible, j.c.GPUVisibility[1].Hidden = false, policies.HiddenByPolicy
	c := asked(hider{func(j policies.Job) []policies.GPUVisibility {
		return []policies.GPUVisibility{{Policy: "hider", Key: j.Key, Device: "GPU-b", Reason: "the test wants it"}}
	}})
	shows := 0
	run(c, n, 300, func(_ int, d Decision) {
		if shows += len(d.Apply); len(d.Apply) > 0 {
			j.loaderCPU = 0.4
		}
		if len(d.Rollback) > 0 {
			j.loaderCPU = 0.3
		}
	})
	if shows != 1 || j.visibility("GPU-b").Visible {
		t.Errorf("shown %d times, visibility %+v", shows, j.c.GPUVisibility)
	}
}

// TestVisibilityOfOthersEndsTheTrial: what a person shows while a hide is on trial stays shown.
func TestVisibilityOfOthersEndsTheTrial(t *testing.T) {
	n := newGPUNode()
	j := n.loaded("left", allowGPU())
	c := asked(hideOf("GPU-b"))
	at := -1
	records := run(c, n, 120, func(i int, d Decision) {
		if len(d.Apply) > 0 && at < 0 {
			at = i
		}
		if at >= 0 && i == at+5 {
			j.c.GPUVisibility = slices.Clone(j.c.GPUVisibility)
			j.c.GPUVisibility[1].Visible, j.c.GPUVisibility[1].Hidden, j.c.Yielded = true, "", []runtime.Knob{runtime.KnobGPU}
		}
	})
	if got := outcomes(records); len(got) != 1 || got[0] != state.OutcomeAborted || !j.visibility("GPU-b").Visible {
		t.Errorf("outcomes %v, visibility %+v", got, j.c.GPUVisibility)
	}
}

// TestObservedVisibilityIsToldOnce: in observe mode, what would have been.
func TestObservedVisibilityIsToldOnce(t *testing.T) {
	n := newGPUNode()
	e := allowGPU()
	e.Mode, e.WhyNot = policies.ModeObserve, "host mode: observe"
	j := n.loaded("left", e)
	n.waiting("needs", "GPU-b")
	c := quick()
	would := 0
	for _, r := range run(c, n, 200, nil) {
		if r.Kind == state.RecordWould && r.Knob == runtime.KnobGPU {
			would++
		}
	}
	if would != 1 || !j.visibility("GPU-b").Visible {
		t.Errorf("told %d times, visibility %+v", would, j.c.GPUVisibility)
	}
}

// TestDevicesOfAJob: what a policy is told of them.
func TestDevicesOfAJob(t *testing.T) {
	n := newGPUNode()
	n.loaded("left", allowGPU())
	needs := n.waiting("needs", "GPU-b")
	var last policies.Job
	c := asked(hider{func(j policies.Job) []policies.GPUVisibility {
		if j.Name == "left" {
			last = j
		}
		return nil
	}})
	run(c, n, 40, nil)
	if len(last.Devices) != 2 || !last.Elastic {
		t.Fatalf("%+v", last.Devices)
	}
	a, b := last.Devices[0], last.Devices[1]
	if a.UnusedSeconds != 0 || a.FreeSeconds != 0 || len(a.Others) != 0 || !a.Visible {
		t.Errorf("its own: %+v", a)
	}
	if b.UnusedSeconds != 39 || b.FreeSeconds != 0 || len(b.Others) != 1 || b.Others[0].Key != needs.c.Key() || !b.Others[0].Verdict.WantsDevice() {
		t.Errorf("the other's: %+v", b)
	}
}

// TestVisibilityReplay: inputs that went through a recording's text lead to the same orders.
func TestVisibilityReplay(t *testing.T) {
	n := newGPUNode()
	n.loaded("left", allowGPU())
	n.waiting("needs", "GPU-b")
	first, again := quick(), quick()
	orders := 0
	var results []Result
	for i := range 500 {
		in := n.tick()
		in.Results = results
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		d := first.Step(in)
		replayed, err := again.Replay(raw)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, replayed.Decision); diff != "" {
			t.Fatalf("tick %d (-first +again):\n%s", i, diff)
		}
		results = n.apply(d)
		orders += len(d.Apply)
		if i == 250 {
			n.on["GPU-b"] = nil
		}
	}
	if orders != 2 {
		t.Errorf("%d orders, want a hide and a show", orders)
	}
}

// TestChangesPerMinuteCountsWhatIsOrdered: plans of one tick, on CPUs of their own, share the limit.
func TestChangesPerMinuteCountsWhatIsOrdered(t *testing.T) {
	n := newGPUNode()
	for i, cpus := range []runtime.Value{"0-3", "4-7"} {
		j := n.addJob(fmt.Sprint("job", i), 0, allowGPU())
		j.loaderCPU = 0.3
		j.c.Now = j.c.Now.Clone()
		j.c.Now[runtime.KnobCpuset] = cpus
		of := fmt.Sprint("GPU-", i)
		n.grant(j, of, "GPU-b")
		n.on[of] = append(n.on[of], j)
	}
	c := asked(hideOf("GPU-b"))
	cfg := Defaults()
	cfg.ChangesPerMinute = 1
	c.SetConfig(cfg)
	plans, opened := map[string]bool{}, []int{}
	run(c, n, 300, func(i int, d Decision) {
		for _, o := range d.Apply {
			if !plans[o.Plan] {
				plans[o.Plan] = true
				opened = append(opened, i)
			}
		}
	})
	if len(opened) != 2 || opened[1]-opened[0] < 60 {
		t.Errorf("opened at seconds %v, want two with a minute between", opened)
	}
}

// TestHideEndsWithItsJob: what one job never used another may want. It has its device back, and time to use it.
func TestHideEndsWithItsJob(t *testing.T) {
	n := newGPUNode()
	j := n.loaded("left", allowGPU())
	c := asked(hideOf("GPU-b"))
	for i := 0; c.containers[j.c.Key()] == nil || c.containers[j.c.Key()].gpu.hide == nil; i++ {
		if run(c, n, 1, nil); i == 200 {
			t.Fatal("nothing is hidden")
		}
	}
	j.anew(n.node)
	back := -1
	records := run(c, n, 60, func(i int, _ Decision) {
		if visible := j.visibility("GPU-b").Visible; visible && back < 0 {
			back = i
		} else if !visible && back >= 0 && int64(i-back)*second < c.cfg.Idle.AfterNs-10*second {
			t.Fatalf("hidden again %d s after it went back", i-back)
		}
	})
	if says := func(r state.Record) bool { return strings.Contains(r.Text, "another job runs in it") }; back < 0 || back > 20 || !slices.ContainsFunc(records, says) {
		t.Errorf("it went back after %d s: %+v", back, records)
	}
	// Nothing failed: from the new job the same may be hidden in its turn.
	if s := c.containers[j.c.Key()]; s.failures.Blocks(c.k(), runtime.KnobGPU, true, trial.Conditions{Value: s.c.Now[runtime.KnobGPU]}) {
		t.Error("what was hidden from the job before passes for a failure of this one")
	}
}
