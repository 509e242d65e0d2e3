package control

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestNodesComeToRest: on random nodes whose CPUs are shared by weight, by either objective, no
// container is left below what it has a right to and would use, no quota stands below its
// owner's or above the node's, loans never exceed what is there, and writes come to an end.
func TestNodesComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNode(rapid.IntRange(1, 8).Draw(t, "cpus"))
		for i := range rapid.IntRange(2, 5).Draw(t, "jobs") {
			quota := rapid.SampledFrom([]float64{0, 0, 0.3, 0.6, 1}).Draw(t, "quota")
			knee, rate := rapid.Float64Range(0.35, 3).Draw(t, "knee"), rapid.Float64Range(5, 20).Draw(t, "rate")
			j := n.sized(fmt.Sprint("job", i), knee, rate, quota)
			if rapid.IntRange(0, 3).Draw(t, "uncounted") == 0 {
				n.jobs = n.jobs[:len(n.jobs)-1]
				j = n.addProgram(fmt.Sprint("job", i), quota, knee, 1e6)
			}
			j.c.Enrolment.Importance = rapid.SampledFrom([]int{1, 5, 5, 10}).Draw(t, "importance")
			j.c.Enrolment.CPU.Max = rapid.SampledFrom([]float64{0, 0, 2}).Draw(t, "max")
		}
		if rapid.Bool().Draw(t, "spinner") {
			n.addSpinner("noise", rapid.Float64Range(0.1, 4).Draw(t, "spin"))
		}
		cfg := Defaults()
		cfg.Objective = rapid.SampledFrom(policies.Objectives()).Draw(t, "objective")
		cfg.ReserveCPUs = rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "reserve")
		c := New(cfg, builtin, "t")
		originals := map[string]runtime.Values{}
		for _, j := range n.jobs {
			originals[j.c.Key()] = j.c.Now.Clone()
		}
		const seconds = 300
		var orders []int // seconds at which something was written
		below, written, late := map[string]int{}, map[string][]int{}, map[string]map[string]bool{}
		run(c, n, seconds, func(i int, d Decision) {
			for _, o := range slices.Concat(d.Apply, d.Rollback) {
				orders = append(orders, i)
				for _, ch := range o.Changes {
					what := ch.Name + " " + string(ch.Knob)
					if written[what] = append(written[what], i); late[what] == nil {
						late[what] = map[string]bool{}
					}
					if i >= seconds*3/4 {
						late[what][o.Plan] = true
					}
				}
			}
			for _, o := range d.Apply {
				for _, ch := range o.Changes {
					lawful(t, c, n, originals[ch.Key], ch)
				}
			}
			for _, j := range n.jobs {
				// By how much shares that are read from a busy node's noisy means miss.
				if due := min(c.containers[j.c.Key()].rights.entitled, j.demand()); i > 10 && j.lastCPUsUsed > 0 && j.lastCPUsUsed < 0.95*due {
					below[j.c.Name]++
				}
			}
		})
		for what, at := range written {
			for k := 3; k < len(at); k++ { // a loan, its recall, and a trial may be close once
				if at[k]-at[k-3] < 5 {
					t.Fatalf("%s is written four times within 5 s: %v", what, at)
				}
			}
			if n := len(late[what]); n > 2 { // a trial is one, however often it goes back and forth until it can tell
				t.Fatalf("%s is still written, %d times: %v", what, n, at)
			}
		}
		for name, ticks := range below {
			if ticks > 30 {
				t.Fatalf("%s was below its right for %d of %d s: writes at %v", name, ticks, seconds, orders)
			}
		}
	})
}

// TestKeptTrialsStand: three jobs on two CPUs. A trial proves a quota, another deals weights, by which the
// first gets half of what was proven. What is left to it is not what is enough for it: nothing moves again.
// Nobody left it unused, and that is not told.
func TestKeptTrialsStand(t *testing.T) {
	n := newNode(2)
	for _, j := range []struct {
		name              string
		knee, rate, quota float64
		importance        int
	}{{"large", 1.17, 11, 0, 10}, {"short", 0.69, 5, 0.3, 1}, {"small", 0.92, 8, 0, 10}} {
		n.sized(j.name, j.knee, j.rate, j.quota).c.Enrolment.Importance = j.importance
	}
	cfg := Defaults()
	cfg.Objective, cfg.ReserveCPUs = policies.ObjectiveMaxMin, 0.1
	written, c := map[runtime.Knob][]int{}, New(cfg, builtin, "t")
	note := func(i int, d Decision) {
		for _, o := range slices.Concat(d.Apply, d.Rollback) {
			for _, ch := range o.Changes {
				written[ch.Knob] = append(written[ch.Knob], i)
			}
		}
	}
	run(c, n, 600, note)
	for _, knob := range []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCPUWeight} {
		if at := written[knob]; len(at) == 0 || at[len(at)-1] > 60 {
			t.Errorf("%s is written at %v s, want by trials in the first minute and no more", knob, at)
		}
	}
	if a := shownAs(t, c, n.jobs[1]).Allocation; a == nil || !strings.Contains(a.Why, "a trial gave it") {
		t.Errorf("of its quota that a trial proved: %+v", a)
	}
	// Once nothing of it may be moved for a while, it settles again, to what stands.
	s, at := c.containers[n.jobs[1].c.Key()], len(written[runtime.KnobCPUQuota])
	for _, n.jobs[1].c.Held = range []bool{true, false} {
		run(c, n, 100, note)
	}
	if s.state != StateSettled || len(written[runtime.KnobCPUQuota]) > at {
		t.Errorf("after it was held: %s, %v", s.state, written)
	}
	s.loan.proven -= 0.005 // what stands is rounded
	if a := shownAs(t, c, n.jobs[1]).Allocation; !strings.Contains(a.Why, "a trial gave it") {
		t.Errorf("of a quota that was rounded: %+v", a)
	}
	s.loan.proven -= 0.095 // what stands above it is lent
	if a := shownAs(t, c, n.jobs[1]).Allocation; a == nil || !strings.Contains(a.Why, "was lent 0.10 that nobody used, and a trial gave it") {
		t.Errorf("of a loan above what a trial proved: %+v", a)
	}
}

// TestWhatFailedUnderALoanIsRemembered: a neighbour comes, and weights that a trial dealt are called
// in, since one is short. The same is not tried again for that, and again.
func TestWhatFailedUnderALoanIsRemembered(t *testing.T) {
	n := newNode(4)
	n.sized("fast", 2.1, 19, 0).c.Enrolment.Importance = 5
	n.sized("large", 3, 11, 0).c.Enrolment.Importance = 10
	n.addProgram("small", 0, 0.4, 1e6)
	noise := n.addSpinner("noise", 0.05)
	cfg := Defaults()
	cfg.Objective, cfg.ReserveCPUs = policies.ObjectiveMaxMin, 0.1
	c := New(cfg, builtin, "t")
	dealt, calledIn := map[string]bool{}, 0 // trials since
	run(c, n, 300, func(i int, d Decision) {
		if i == 120 {
			noise.spin = 1
		}
		for _, o := range d.Apply {
			for _, ch := range o.Changes {
				switch {
				case ch.Knob != runtime.KnobCPUWeight:
				case ch.Reason == "somebody is short of what it has a right to":
					calledIn++
				case o.Policy == "share" && calledIn > 0:
					dealt[o.Plan] = true
				}
			}
		}
	})
	if calledIn == 0 || len(dealt) > 1 {
		t.Errorf("weights were called in %d times, then dealt %d times", calledIn, len(dealt))
	}
}

// TestNothingIsWantedNothingIsDone: where every job has the CPUs that it can use, and keeps them,
// nothing is written and no trial begins in 300 s, and what is said of a job is said once.
func TestNothingIsWantedNothingIsDone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNode(rapid.IntRange(2, 8).Draw(t, "cpus"))
		left := 0.8 * float64(n.cpus)
		for i := range rapid.IntRange(1, 5).Draw(t, "jobs") {
			knee := rapid.Float64Range(0.35, 3).Draw(t, "knee")
			if left -= knee; left < 0 {
				break
			}
			quota, name := knee*rapid.SampledFrom([]float64{0, 1.2, 2}).Draw(t, "room"), fmt.Sprint("job", i)
			var j *simJob
			if rapid.Bool().Draw(t, "counted") {
				j = n.sized(name, knee, rapid.Float64Range(5, 20).Draw(t, "rate"), quota)
			} else {
				j = n.addProgram(name, quota, knee, rapid.SampledFrom([]float64{0, 1e6}).Draw(t, "yield"))
			}
			j.c.Enrolment.Importance = rapid.SampledFrom([]int{1, 5, 10}).Draw(t, "importance")
		}
		cfg := Defaults()
		cfg.Objective = rapid.SampledFrom(policies.Objectives()).Draw(t, "objective")
		c := New(cfg, builtin, "t")
		told := map[string]string{}
		run(c, n, 300, func(i int, d Decision) {
			if len(d.Apply)+len(d.Rollback)+len(c.Open()) > 0 {
				t.Fatalf("second %d: %+v, open: %+v", i, d, c.Open())
			}
			for _, r := range d.Records {
				if before, ok := told[r.Key]; ok || r.Kind != state.RecordVerdict {
					t.Fatalf("second %d: after %q: %+v", i, before, r)
				}
				told[r.Key] = r.Text
			}
		})
	})
}

// lawful holds one change to the laws that no policy can skip.
func lawful(t rapid.TB, c *Controller, n *node, original runtime.Values, ch policies.Change) {
	s := c.containers[ch.Key]
	if s.c.Enrolment.Mode != policies.ModeTune || !s.c.Enrolment.Allows(ch.Knob) {
		t.Fatalf("%+v is not allowed by %+v", ch, s.c.Enrolment)
	}
	if ch.Knob != runtime.KnobCPUQuota {
		return
	}
	own, limited := original[ch.Knob].CPUs()
	to, ok := ch.To.CPUs()
	switch most := float64(n.cpus) - math.Floor(c.cfg.ReserveCPUs); {
	case !limited || !ok:
		t.Fatalf("%+v imposes a quota, or takes one away", ch)
	case to < own-1e-9:
		t.Fatalf("%+v goes below the owner's %.2f", ch, own)
	case to > max(own, most)+0.011:
		t.Fatalf("%+v goes above the node's %.2f", ch, most)
	case s.c.Enrolment.CPU.Max > 0 && to > max(own, s.c.Enrolment.CPU.Max)+0.011:
		t.Fatalf("%+v goes above the label's %.2f", ch, s.c.Enrolment.CPU.Max)
	}
}

// TestCurveOutlivesItsContainer: another container of the same job begins with what the first
// one's curve was, held loosely.
func TestCurveOutlivesItsContainer(t *testing.T) {
	n := newNode(4)
	n.sized("first", 1.2, 10, 0.4)
	c := started()
	c.Remember(profiles.NewStore())
	run(c, n, 90, nil)
	if c.Profiles().Len() == 0 {
		t.Fatal("nothing learned")
	}
	again := newNode(4)
	j := again.sized("second", 1.2, 10, 0.4)
	later := started()
	later.Remember(c.Profiles())
	taken := false
	run(later, again, 20, func(int, Decision) {
		taken = taken || slices.Contains(later.containers[j.c.Key()].known.taken, "its rate by CPUs")
	})
	if v := shownAs(t, later, j); !taken || v.Similar == nil {
		t.Errorf("taken over %v; shown %+v", taken, v.Similar)
	}
}

// TestTeamsKeepTheirCounters: teams that come after the hundredth are counted together, and
// the first ones go on.
func TestTeamsKeepTheirCounters(t *testing.T) {
	all := newTotals()
	for round := range 2 {
		for i := range 2 * maxTeams {
			all.window(fmt.Sprintf("team%03d", i), policies.Verdict{Class: policies.ClassBalanced}, policies.Breakdown{})
		}
		got := map[string]float64{}
		for _, c := range state.Counts(all.teamVerdicts) {
			got[c.Team] = c.Value
		}
		if n := float64(round + 1); got["team000"] != n || got["team099"] != n || got["(others)"] != maxTeams*n || len(got) != maxTeams+1 {
			t.Errorf("round %d: first %v, hundredth %v, others %v, %d teams", round, got["team000"], got["team099"], got["(others)"], len(got))
		}
	}
}

// thousand is a node of 1,000 measured containers of which 300 want more than they have.
func thousand() (*Controller, *node) {
	n := newNode(128)
	for i := range 1000 {
		quota := 0.0
		if i%10 < 3 {
			quota = 0.06
		}
		n.addProgram(fmt.Sprint("job", i), quota, 0.1, 1e6)
	}
	return started(), n
}

// BenchmarkPlan1000 makes the plan of a node of 1,000 containers with 300 wants: what policies
// are told, what they ask, what is allocated and guarded. Of a tick of a second it is so much.
func BenchmarkPlan1000(b *testing.B) {
	c, n := thousand()
	var in Input
	for range 5 { // read, and nothing lent yet
		in = n.tick()
		in.Frozen = "paused"
		c.Step(in)
	}
	in.Frozen = ""
	asked := 0
	for b.Loop() {
		var d Decision
		clear(c.pending)
		for _, s := range c.all {
			s.answers = 0
		}
		c.balance()
		c.propose(in, &d)
		asked = len(d.Apply)
	}
	b.ReportMetric(float64(asked), "orders")
	b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N), "%tick")
}

// BenchmarkStep1000 is a whole tick of the same node: reading, judging, planning.
func BenchmarkStep1000(b *testing.B) {
	c, n := thousand()
	run(c, n, 5, nil)
	for b.Loop() {
		b.StopTimer()
		in := n.tick()
		in.Results, n.results = n.results, nil
		b.StartTimer()
		n.results = n.apply(c.Step(in))
	}
	b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N), "%tick")
}

// BenchmarkIdle1000 is a second of a node of 1,000 watched containers in each of which a
// process sleeps: what is made of their samples, and what is shown.
func BenchmarkIdle1000(b *testing.B) {
	c := started()
	at := second
	in := func() Input {
		in := Input{Host: probes.Host{AtNs: at, CPUs: 64, IdleNs: uint64(64 * at)}}
		for i := range 1000 {
			id := runtime.ID{Engine: "docker", Container: fmt.Sprintf("%012x%052x", i, i)}
			in.Containers = append(in.Containers, Container{Container: runtime.Container{ID: id, Name: fmt.Sprint("box-", i), State: runtime.StateRunning}, Watched: true,
				Enrolment: policies.Enrolment{Mode: policies.ModeObserve}, Now: runtime.Values{runtime.KnobCPUWeight: "1024"}})
			tid := int32(1000 + i)
			in.Samples = append(in.Samples, probes.Sample{Container: id.Key(),
				Kernel: &probes.Kernel{Threads: []probes.Thread{{TID: tid, TGID: tid, PPID: 1, StartNs: 1, Comm: "sleep",
					Ns: [probes.NumStates]uint64{probes.StateTimer: uint64(at)}}}},
				Cgroup: &probes.Cgroup{AtNs: at, CPUUsageNs: 1000, MemoryBytes: 1 << 20, MemoryLimit: -1, HasPSI: true}})
		}
		return in
	}
	b.ReportAllocs()
	for range b.N {
		b.StopTimer()
		at += second
		next := in()
		b.StartTimer()
		c.Step(next)
		var s state.Snapshot
		c.Show(&s)
	}
}

// TestConfigOutlivesARecording: also where something of it is zero, and not by default.
func TestConfigOutlivesARecording(t *testing.T) {
	want, got := Config{Constants: *policies.DefaultConstants(), Objective: policies.ObjectiveSum}, Defaults()
	raw, err := json.Marshal(want)
	if err == nil {
		err = json.Unmarshal(raw, &got)
	}
	if err != nil || got != want {
		t.Errorf("%v: %+v, want %+v", err, got, want)
	}
}

// TestNoTrialWithoutProgressIsTold: on a full host only a trial could give more. Who shows no progress
// gets none, and is not told for ever that it is being measured.
func TestNoTrialWithoutProgressIsTold(t *testing.T) {
	n := newNode(2)
	n.host = 1.2
	j := n.addProgram("computes", 0.1, 2, 0)
	n.addSpinner("other", 2)
	c := started()
	run(c, n, 90, nil)
	if got := c.containers[j.c.Key()].refused.Text; !strings.Contains(got, "shows nowhere") {
		t.Errorf("after 90 s: %q", got)
	}
}
