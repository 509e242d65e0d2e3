package control

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
)

// claiming is a node on which a job says itself how many steps it made.
type claiming struct {
	*node
	job   *simJob
	claim func(cpus float64) float64 // steps in a second on so many CPUs

	steps, used float64
}

func (w *claiming) tick() Input {
	in := w.node.tick()
	used := float64(w.job.cgroup.CPUUsageNs) / 1e9
	w.steps, w.used = w.steps+w.claim(used-w.used), used
	for i, s := range in.Samples {
		if s.Container == w.job.c.Key() {
			in.Samples[i].Kernel.Ticks = []probes.Ticks{{Source: probes.SourceLog, TGID: w.job.threads[0].TGID, Count: uint64(w.steps), LastNs: w.nowNs, Steps: true}}
		}
	}
	return in
}

// TestOwnersQuotaChangesTheVerdict: what is shown of a job whose owner set another quota is what
// its windows say since.
func TestOwnersQuotaChangesTheVerdict(t *testing.T) {
	n := newNode(4)
	j := n.addProgram("train", 3, 1, 1e6)
	j.c.Enrolment.Mode = policies.ModeObserve
	c := started()
	run(c, n, 60, nil)
	before := shownAs(t, c, j).Verdict
	j.c.Now[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(0.3, 100000)
	run(c, n, 8, nil)
	if v := shownAs(t, c, j).Verdict; before.Relief == policies.ReliefQuota || v.Relief != policies.ReliefQuota {
		t.Errorf("8 s after its owner's quota fell to 0.3 CPUs: %+v; before: %+v", v, before)
	}
}

// TestRecalledBorrowerIsNotToldOfAWeight: a job whose loan was called in by those whose CPUs they
// are has what its owner gave it. That it queues for more is no matter of its weight.
func TestRecalledBorrowerIsNotToldOfAWeight(t *testing.T) {
	n := newNode(2)
	j := n.addProgram("borrower", 0.4, 2, 1e6)
	late := n.addSpinner("late", 0.01)
	c := started()
	run(c, n, 60, nil)
	late.spin = 2
	queued := 0
	run(c, n, 60, func(int, Decision) {
		v := shownAs(t, c, j)
		if v.Verdict.Relief == policies.ReliefWeight && v.UsedCPUs >= v.Entitled {
			t.Fatalf("it has %.2f of its %.2f CPUs, and %s; %s", v.UsedCPUs, v.Entitled, v.Verdict.Relief, v.Verdict.Why)
		}
		if v.Verdict.Relief == policies.ReliefGrant {
			queued++
		}
	})
	if queued == 0 {
		t.Errorf("it never queued for more than its own: %+v", shownAs(t, c, j).Verdict)
	}
}

// TestClaimAgainstWorkDone: what a job says of its own steps is doubted where the work that it
// does tells another gain, and nowhere else.
func TestClaimAgainstWorkDone(t *testing.T) {
	for name, tc := range map[string]struct {
		claim func(cpus float64) float64
		doubt bool
	}{
		"as much as it does":   {func(cpus float64) float64 { return 50 * cpus }, false},
		"no more than before":  {func(float64) float64 { return 20 }, true},
		"more than it does":    {func(cpus float64) float64 { return 100 * cpus * cpus }, true},
		"a part is not scaled": {func(cpus float64) float64 { return 40*cpus + 5 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(4)
			j := n.addProgram("train", 0.5, 2, 1e6)
			c := started()
			w := &claiming{node: n, job: j, claim: tc.claim}
			j.c.Enrolment.Mode = policies.ModeObserve // its pace before is known when the loan comes
			run(c, w, 20, nil)
			j.c.Enrolment.Mode = policies.ModeTune
			run(c, w, 70, nil)
			v := shownAs(t, c, j)
			if !v.HasGain || v.Work == nil || math.Abs(v.Work.Ratio-4) > 0.8 {
				t.Fatalf("gain %v (%v), work %+v; want a count, and four times the work", v.Gain, v.HasGain, v.Work)
			}
			if v.Doubt != tc.doubt {
				t.Errorf("in doubt: %v, want %v; gain %.2f, work %+v", v.Doubt, tc.doubt, v.Gain, v.Work)
			}
			// What is doubted is not put among the known jobs, and the verdict is half as sure.
			s := c.containers[j.c.Container.Key()]
			if sure := s.verdicts.Shown().Confidence; sure <= 0 || v.Verdict.Confidence != map[bool]float64{true: sure / 2, false: sure}[tc.doubt] {
				t.Errorf("confidence %.2f of %.2f, in doubt: %v", v.Verdict.Confidence, sure, tc.doubt)
			}
			if taught := s.known.taughtNs > s.obs.ChangedNs(); taught == tc.doubt {
				t.Errorf("the known jobs were told of it: %v, in doubt: %v", taught, tc.doubt)
			}
		})
	}
}

// TestFloorOfWhoIsOnlyObserved takes nothing from the rights of others.
func TestFloorOfWhoIsOnlyObserved(t *testing.T) {
	for mode, want := range map[policies.Mode][2]float64{policies.ModeTune: {3, 1}, policies.ModeObserve: {2, 2}} {
		n := newNode(4)
		asks, other := n.addSpinner("asks", 4), n.addSpinner("other", 4)
		asks.c.Enrolment.Mode, asks.c.Enrolment.CPU.Min = mode, 3
		c := started()
		run(c, n, 20, nil)
		if got := [2]float64{shownAs(t, c, asks).Entitled, shownAs(t, c, other).Entitled}; math.Abs(got[0]-want[0]) > 0.01 || math.Abs(got[1]-want[1]) > 0.01 {
			t.Errorf("%s: who asks for 3 CPUs is entitled to %.2f, the other to %.2f; want %v", mode, got[0], got[1], want)
		}
	}
}

// TestWordsBesideTheHostsOwnProcesses: who has less than its right for what runs outside of
// containers is told so, and not that it could use no more.
func TestWordsBesideTheHostsOwnProcesses(t *testing.T) {
	for name, tt := range map[string]struct {
		host float64
		want string
	}{
		"a host full of them": {1.8, "it is entitled to 0.40 CPUs, and the host's own processes leave all containers 0.20"},
		"a host without":      {0, "it can use 0.40 CPUs under its quota and is entitled to 0.40"},
	} {
		n := newNode(2)
		n.host = tt.host
		j := n.addProgram("render", 0.4, 2, 0)
		j.c.Enrolment.Loans = policies.LoansOff
		c := started()
		run(c, n, 20, nil)
		if got := shownAs(t, c, j); got.Allocation == nil || got.Allocation.Why != tt.want {
			t.Errorf("%s: %+v, want %q", name, got.Allocation, tt.want)
		}
	}
}

// TestWordsOfWhatItCanUseBesideANeighbour: a program whose steps nobody counts can use what it has and what its
// threads queue for, each for itself. The share of time in which some thread waits tells less.
func TestWordsOfWhatItCanUseBesideANeighbour(t *testing.T) {
	n := newNode(2)
	j := n.addProgram("render", 0, 2, 0)
	j.patient = true
	n.addSpinner("other", 2)
	c := started()
	run(c, n, 20, nil)
	if got := shownAs(t, c, j).Allocation; got == nil || got.Why != "it can use 2.00 CPUs and is entitled to 1.00" || math.Abs(got.Need-2) > 0.01 || math.Abs(got.CPUs-1) > 0.05 {
		t.Errorf("%+v, with %.2f CPUs", got, j.lastCPUsUsed)
	}
}
