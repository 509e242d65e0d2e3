package control

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// spoil runs a starved job and a neighbour, spoils some inputs, and says how the job ended.
func spoil(t *testing.T, seconds int, bad func(i int, in *Input)) (c *Controller, j *simJob) {
	t.Helper()
	n := newNode(4)
	j = n.addJob("train", 0.4, tune())
	n.addSpinner("noise", 0.5)
	c = started()
	for i := range seconds {
		in := n.tick()
		in.Results, n.results = n.results, nil
		bad(i, &in)
		d := c.Step(in)
		checkSane(t, c, d)
		n.results = n.apply(d)
	}
	return c, j
}

// checkSane: whatever comes in, what goes out is numbers, within the node.
func checkSane(t *testing.T, c *Controller, d Decision) {
	t.Helper()
	for _, o := range slices.Concat(d.Apply, d.Rollback) {
		for _, ch := range o.Changes {
			to := ch.To.Quantity()
			if ch.Knob == runtime.KnobCPUQuota && (!(to >= 0.4) || to > 4.001) || math.IsNaN(ch.Gain) || math.IsNaN(ch.RateAfter) {
				t.Fatalf("%+v", ch)
			}
		}
	}
	var s state.Snapshot
	c.Show(&s)
	for _, v := range s.Containers {
		if math.IsNaN(v.Gain) || math.IsNaN(v.Rate.PerSecond) || v.Rate.PerSecond < 0 || v.UsedCPUs < 0 || v.HasGain && v.Gain <= -1 {
			t.Fatalf("shown: rate %v, gain %v, %v CPUs used", v.Rate, v.Gain, v.UsedCPUs)
		}
	}
}

// TestBadReadings: one that is missing, late, negative, duplicated or of before a restart costs
// itself and nothing else: the job is helped as ever, and stays so.
func TestBadReadings(t *testing.T) {
	every := func(n int, spoil func(in *Input)) func(int, *Input) {
		return func(i int, in *Input) {
			if i > 0 && i%n == 0 {
				spoil(in)
			}
		}
	}
	var before Input
	for name, bad := range map[string]func(i int, in *Input){
		"no sample at all":            every(4, func(in *Input) { in.Samples = nil }),
		"without the kernel's part":   every(4, func(in *Input) { in.Samples[1].Kernel = nil }),
		"without the cgroup's part":   every(4, func(in *Input) { in.Samples[1].Cgroup = nil }),
		"without the host's part":     every(4, func(in *Input) { in.Host = probes.Host{AtNs: in.Host.AtNs, CPUs: 4} }),
		"a sample twice":              every(3, func(in *Input) { in.Samples = append(in.Samples, in.Samples...) }),
		"a sample of nobody":          every(3, func(in *Input) { in.Samples = append(in.Samples, probes.Sample{Container: "nobody"}) }),
		"the input of a tick again":   func(i int, in *Input) { again(i, in, &before) },
		"counters that fell":          every(5, fallen),
		"counters near their end":     every(7, func(in *Input) { in.Samples[1].Cgroup.CPUUsageNs = math.MaxUint64 - 5 }),
		"a rate that no job can have": every(5, func(in *Input) { in.Samples[1].Kernel.Ticks[0].Count += 1 << 40 }),
		"a container without values":  every(5, func(in *Input) { in.Containers[1].Now = nil }),
		"values that cannot be read": every(5, func(in *Input) {
			in.Containers[1].Now = runtime.Values{runtime.KnobCPUQuota: "much", runtime.KnobCPUWeight: "-3"}
		}),
		"results of nobody's plans": every(2, func(in *Input) {
			in.Results = append(in.Results, Result{Kind: ResultApply, Plan: "x", OK: true}, Result{Kind: ResultRollback, Plan: "y"}, Result{Kind: ResultEnded, Key: "z"}, Result{Kind: "?"})
		}),
	} {
		t.Run(name, func(t *testing.T) {
			before = Input{}
			_, j := spoil(t, 90, bad)
			if q := j.quota(); q < 0.95*j.knee() {
				t.Errorf("%.2f CPUs for a knee of %.2f", q, j.knee())
			}
		})
	}
}

// again gives every fourth tick the input of the one before: nothing has passed.
func again(i int, in *Input, before *Input) {
	if i%4 == 3 {
		results := in.Results
		*in = *before
		in.Results = results
		return
	}
	*before = *in
}

// fallen makes all counters of the job those of a moment after its start.
func fallen(in *Input) {
	s := &in.Samples[1]
	s.Cgroup = &probes.Cgroup{AtNs: s.Cgroup.AtNs, CPUUsageNs: 5, MemoryLimit: -1, HasPSI: true}
	threads := slices.Clone(s.Kernel.Threads)
	for i := range threads {
		threads[i].Ns = [probes.NumStates]uint64{}
	}
	s.Kernel = &probes.Kernel{Threads: threads, Ticks: []probes.Ticks{{Source: "torch.backward", TGID: s.Kernel.Ticks[0].TGID, Count: 3, LastNs: s.Cgroup.AtNs}}}
}

// TestRestartIsAnotherContainer: the same name with another start begins anew, and what was
// said to the old one is no answer to it.
func TestRestartIsAnotherContainer(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	c := started()
	run(c, n, 30, nil)
	j.c.ID.StartTick++
	j.c.Now, j.c.Original = runtime.Values{runtime.KnobCPUWeight: "1024", runtime.KnobCPUQuota: "40000 100000"}, nil
	j.threads, j.ticks.Count, j.cgroup = slices.Clone(j.threads), 0, probes.Cgroup{}
	for i := range j.threads {
		j.threads[i].SinceNs, j.threads[i].AtNs, j.threads[i].Ns = n.nowNs, n.nowNs, [probes.NumStates]uint64{}
		j.threads[i].Edges = nil
		j.threads[i].StartNs++
	}
	lent := -1
	run(c, n, 30, func(i int, _ Decision) {
		if lent < 0 && j.quota() > 0.4 {
			lent = i
		}
	})
	if lent < 0 || lent > 3 {
		t.Errorf("the container that began anew is lent to at tick %d", lent)
	}
	if v := shownAs(t, c, j); v.Baseline > 12 {
		t.Errorf("its rate before is said to be %.1f: the old one's", v.Baseline)
	}
}

// TestClockSteps: the wall clock may be set; the kernel's does not go back, and what says so is
// not believed.
func TestClockSteps(t *testing.T) {
	plain, _ := spoil(t, 60, func(int, *Input) {})
	wall, j := spoil(t, 60, func(i int, in *Input) { in.UnixNs += int64(i%5) * 3600e9 })
	if j.quota() < 1 || len(wall.all) != len(plain.all) || wall.all[1].state != plain.all[1].state {
		t.Errorf("%.2f CPUs, state %s: the wall clock decides", j.quota(), wall.all[1].state)
	}
	_, j = spoil(t, 60, func(i int, in *Input) {
		if i%6 == 5 {
			in.Host.AtNs -= 3 * second
		}
	})
	if j.quota() < 1 {
		t.Errorf("%.2f CPUs: a clock that went back for once stops everything", j.quota())
	}
	_, j = spoil(t, 60, func(i int, in *Input) { // suspended for an hour, and back
		if i >= 30 {
			in.Host.AtNs += 3600 * second
		}
	})
	if j.quota() < 1 {
		t.Errorf("%.2f CPUs after an hour of sleep", j.quota())
	}
}

// TestAnythingAtAll: random inputs, in random order, never end the daemon.
func TestAnythingAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNode(rapid.IntRange(1, 4).Draw(t, "cpus"))
		for i := range rapid.IntRange(1, 3).Draw(t, "jobs") {
			n.addJob(string(rune('a'+i)), rapid.SampledFrom([]float64{0, 0.05, 0.4, 9}).Draw(t, "quota"), tune())
		}
		c := started()
		var earlier []Input
		for range rapid.IntRange(5, 40).Draw(t, "ticks") {
			in := n.tick()
			in.Results, n.results = n.results, nil
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				in.Samples = in.Samples[:rapid.IntRange(0, len(in.Samples)).Draw(t, "samples")]
			case 1:
				in.Containers = in.Containers[:rapid.IntRange(0, len(in.Containers)).Draw(t, "containers")]
			case 2:
				in.Host.AtNs += rapid.Int64Range(-5*second, 100*second).Draw(t, "clock")
			case 3:
				if len(earlier) > 0 {
					in = rapid.SampledFrom(earlier).Draw(t, "earlier")
				}
			case 4:
				in.Frozen = "paused"
			case 5:
				in.Results = append(in.Results, Result{Kind: rapid.SampledFrom([]ResultKind{ResultApply, ResultRollback, ResultEnded}).Draw(t, "kind"), Plan: "?", Key: in.Containers[0].Key(), OK: rapid.Bool().Draw(t, "ok")})
			}
			earlier = append(earlier, in)
			n.results = n.apply(c.Step(in))
			if rapid.IntRange(0, 4).Draw(t, "lost") == 0 {
				n.results = nil // nobody answers
			}
			var s state.Snapshot
			c.Show(&s)
		}
	})
}
