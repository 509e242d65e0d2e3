package control

import (
	"math"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestLoanSettlesToANumberThatAnOwnerCanCopy: the knee and a margin, in twentieths of a CPU.
func TestLoanSettlesToANumberThatAnOwnerCanCopy(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	c := started()
	settled := -1
	run(c, n, 120, func(i int, _ Decision) {
		if settled < 0 && i > 5 && j.quota() < 3 {
			settled = i
		}
	})
	if settled < 0 || settled > 20 {
		t.Errorf("settled at tick %d", settled)
	}
	if cpus := j.quota(); cpus < j.knee() || cpus > 1.2*j.knee() {
		t.Errorf("settled at %.2f CPUs for a knee of %.2f", cpus, j.knee())
	}
	v := shownAs(t, c, j)
	if v.Tuning != string(StateSettled) || !v.Loan.Settled || !v.HasGain || v.Gain < 1.5 {
		t.Errorf("%s, %+v, gain %v %.2f", v.Tuning, v.Loan, v.HasGain, v.Gain)
	}
}

// TestOnlyItsOwnUseIsEnough: where the whole host is lent, and after a part was called in, what stands is what
// the host and others leave, and no number to copy.
func TestOnlyItsOwnUseIsEnough(t *testing.T) {
	n := newNode(4)
	n.weighted = false
	j := n.addProgram("borrower", 0.4, 4, 1e6)
	other := n.addProgram("neighbour", 0, 0.01, 1e6)
	other.c.Now[runtime.KnobCPUWeight] = "3072"
	c := started()
	run(c, n, 30, nil)
	if l := shownAs(t, c, j).Loan; l == nil || !l.Whole || l.Enough() {
		t.Errorf("with the whole host: %+v", l)
	}
	other.spin = 3.2 // three are its right, and shared evenly it has two
	for range 3 {
		other.threads = append(other.threads, other.threads[0])
		other.threads[len(other.threads)-1].TID += 7
	}
	recalled, told := 0, 0
	run(c, n, 60, func(i int, _ Decision) {
		if l := shownAs(t, c, j).Loan; l != nil && c.containers[j.c.Key()].loan.recallNs > c.containers[j.c.Key()].loan.givenNs {
			if recalled++; l.Settled {
				told++
			}
		}
	})
	if recalled < 10 || told > 0 {
		t.Errorf("in %d of %d ticks what others left is called settled", told, recalled)
	}
}

// TestSettlesWhereWritesAreRare: on v1 by systemd the next write waits longer than it takes to tell
// what is enough. Nothing is called settled before that is written.
func TestSettlesWhereWritesAreRare(t *testing.T) {
	n := newNode(4)
	j := n.addJob("train", 0.4, tune())
	j.c.Cgroup = runtime.Cgroup{Mode: runtime.CgroupV1, V1: map[string]string{"cpu": "/sys/fs/cgroup/cpu/docker-1.scope"}}
	c := started()
	run(c, n, 40, func(i int, _ Decision) {
		if v := shownAs(t, c, j); v.Loan != nil && v.Loan.Settled && j.quota() > 2 || i > 30 && j.quota() > 2 {
			t.Fatalf("tick %d: %s with %.2f CPUs for a knee of %.2f", i, v.Tuning, j.quota(), j.knee())
		}
	})
}

// TestLentAnewAsMuchAsWasEnough: a loan that had settled and was called in comes back as it
// was, and grows again once that stops the job.
func TestLentAnewAsMuchAsWasEnough(t *testing.T) {
	n := newNode(2)
	n.weighted = false
	j := n.addJob("train", 0.4, tune())
	other := n.addSpinner("neighbour", 0.01)
	other.c.Now[runtime.KnobCPUQuota] = "180000 100000"
	c := started()
	run(c, n, 60, nil)
	settled := j.quota()
	if settled < j.knee() || settled > 1.2*j.knee() {
		t.Fatalf("settled at %.2f CPUs for a knee of %.2f", settled, j.knee())
	}
	other.spin = 2
	called := false
	run(c, n, 20, func(int, Decision) { called = called || j.quota() < settled })
	if !called {
		t.Fatalf("its loan was not called in: %.2f CPUs", j.quota())
	}
	other.spin = 0.01
	most := 0.0
	run(c, n, 60, func(int, Decision) { most = max(most, j.quota()) })
	if most != settled {
		t.Errorf("lent %.2f CPUs anew, and had settled at %.2f", most, settled)
	}
	j.loaderCPU *= 1.4
	run(c, n, 60, func(int, Decision) { most = max(most, j.quota()) })
	if j.quota() < j.knee() || j.quota() > 1.25*j.knee() {
		t.Errorf("its knee rose to %.2f CPUs, and it has %.2f", j.knee(), j.quota())
	}
}

// TestTooLittleEndsWithItsJob: that a settled loan was too little, and trials told nothing, tells nothing of another
// job in the container.
func TestTooLittleEndsWithItsJob(t *testing.T) {
	n := newNode(2)
	j := n.addJob("train", 0.4, tune())
	c := started()
	run(c, n, 60, nil)
	j.loaderCPU *= 1.4
	run(c, n, 60, nil)
	s := c.containers[j.c.Key()]
	if s.loan.tooLittle == 0 || s.loan.doubled(c.k()) < 2 {
		t.Fatalf("what it settled to was enough: %+v", s.loan)
	}
	s.retries = 2
	j.anew(n)
	began := n.nowNs
	run(c, n, 6, nil)
	if from := c.baselineFrom(s); from < began {
		t.Errorf("a trial would hold it against a job that ended, %.0f s before it began", float64(began-from)/1e9)
	}
	run(c, n, 54, nil)
	if s.loan.tooLittle != 0 || s.loan.doubled(c.k()) != 1 || s.retries != 0 {
		t.Errorf("another job begins with %d settled loans that were too little, and %d trials that told nothing", s.loan.tooLittle, s.retries)
	}
}

// anew starts all processes of a job anew: another job runs in the container.
func (j *simJob) anew(n *node) {
	for i := range j.threads {
		th := &j.threads[i]
		th.TID, th.TGID, th.StartNs = th.TID+500, th.TGID+500, uint64(n.nowNs)
		if th.PPID > 1 {
			th.PPID += 500
		}
	}
	j.ticks.TGID += 500
}

// TestProofEndsWithItsJob: what a trial proves of a job's weight holds for no other job in the container: its
// owner's weight comes back, and a trial that is open tells nothing.
func TestProofEndsWithItsJob(t *testing.T) {
	for name, open := range map[string]bool{"kept": false, "open": true} {
		t.Run(name, func(t *testing.T) {
			n, j, _ := floored()
			c := started()
			for i := 0; j.weight() == 1024 || !open && c.containers[j.c.Key()].plan != ""; i++ {
				if run(c, n, 1, nil); i == 90 {
					t.Fatal("no trial, or none that ends")
				}
			}
			j.anew(n)
			back := false
			got := outcomes(run(c, n, 15, func(int, Decision) { back = back || j.weight() == 1024 }))
			if !back || open != slices.Equal(got, []state.Outcome{state.OutcomeAborted}) {
				t.Errorf("its owner's weight came back: %v; trials %v", back, got)
			}
		})
	}
}

// TestUsualWaitEndsWithItsJob: a job that always waited is followed by one in the same container. That one has its
// right back within seconds, however long the first waited.
func TestUsualWaitEndsWithItsJob(t *testing.T) {
	n := newNode(2)
	n.weighted = false
	j := n.sized("train", 1.9, 10, 0)
	borrower := n.addProgram("borrower", 0.5, 0.5, 1e6)
	other := n.addSpinner("other", 2)
	c := started()
	run(c, n, 120, nil)
	if usual := c.containers[j.c.Key()].rights.calmWaiting; usual < 0.4 {
		t.Fatalf("it waited %.2f of the time", usual)
	}
	other.spin = 0.01
	j.anew(n)
	work := j.loaderCPU
	j.loaderCPU = 0
	borrower.spin = 2
	run(c, n, 20, nil)
	if borrower.quota() < 1 {
		t.Fatalf("nothing is lent: %.2f", borrower.quota())
	}
	j.loaderCPU = work
	run(c, n, 10, nil)
	if right := c.containers[j.c.Key()].rights.entitled; j.lastCPUsUsed < 0.95*min(right, j.knee()) {
		t.Errorf("it has %.2f of its %.2f CPUs: its neighbour's quota is %.2f", j.lastCPUsUsed, right, borrower.quota())
	}
}

// TestTooLittleCountsWhatHadSettled: a loan that rises in parts, as others leave them, was too little once. Of bursts
// each step may be.
func TestTooLittleCountsWhatHadSettled(t *testing.T) {
	for bursts, want := range map[bool]int{false: 1, true: 3} {
		n := newNode(8)
		j := n.addJob("train", 0.4, tune())
		c := started()
		run(c, n, 60, nil)
		s := c.containers[j.c.Key()]
		if s.loan.known == 0 || s.loan.tooLittle != 0 {
			t.Fatalf("its loan has not settled: %+v", s.loan)
		}
		if bursts {
			s.loan.stopped = s.loan.known
		}
		from := s.loan.known
		for i, to := range []float64{2, 2.6, 3.1} {
			o := Order{Plan: string(rune('a' + i)), Changes: []policies.Change{{Key: s.key, Knob: runtime.KnobCPUQuota, From: runtime.QuotaFromCPUs(from, 100000), To: runtime.QuotaFromCPUs(to, 100000)}}}
			c.lentWritten(pendingOrder{Order: o, atNs: c.now()})
			from = to
		}
		if s.loan.tooLittle != want {
			t.Errorf("bursts %v: after three raises a settled loan was %d times too little, want %d", bursts, s.loan.tooLittle, want)
		}
	}
}

// TestWhatOthersLeaveIsNotEnough: a trial proves a quota where CPUs are scarce. What its container used
// while it waited, or while nobody can tell whether it did, is no measure of it; it settles all the same.
func TestWhatOthersLeaveIsNotEnough(t *testing.T) {
	k := policies.DefaultConstants()
	for name, c := range map[string]struct {
		use    observe.Use
		proven float64
		want   float64
	}{
		"it waits for none":   {observe.Use{HasPSI: true}, 1, 0.315},
		"it waits":            {observe.Use{HasPSI: true, Waiting: 0.3}, 1, 0},
		"nobody can tell":     {observe.Use{}, 1, 0},
		"it waits, of a loan": {observe.Use{HasPSI: true, Waiting: 0.3}, 0, 0.315},
	} {
		s := newContainer("x")
		s.state, s.loan.proven = StateSettled, c.proven
		s.c.Now = runtime.Values{runtime.KnobCPUQuota: "100000 100000"}
		s.c.Original = runtime.Values{runtime.KnobCPUQuota: "20000 100000"}
		for i := range int64(80) {
			c.use.StartNs, c.use.EndNs, c.use.CPUs, c.use.Wanted, c.use.Quota = i*second, (i+1)*second, 0.3, 0.3, 1
			s.obs.Uses = append(s.obs.Uses, c.use)
		}
		if cpus, free := s.enough(k); math.Abs(cpus-c.want) > 1e-9 || free < k.UnusedSeconds {
			t.Errorf("%s: %.3f CPUs are enough by %g readings, want %.3f", name, cpus, free, c.want)
		}
	}
}

// TestFilesOfABatch: a program of which each file is a process of its own. What the loan does for it is told
// by the CPU that it uses beyond its owner's quota, whatever process runs; nothing is called work done.
func TestFilesOfABatch(t *testing.T) {
	n := newNode(2)
	j := n.addProgram("batch", 0.4, 2, 1e6)
	c := started()
	run(c, n, 20, nil)
	if !c.containers[j.c.Key()].lent(c.k()) {
		t.Fatalf("nothing is lent: %.2f", j.quota())
	}
	for range 4 {
		j.anew(n)
		run(c, n, 8, nil)
	}
	if root := c.containers[j.c.Key()].known.root; root != j.threads[0].TGID {
		t.Fatalf("process %d trains, and %d is thought to", j.threads[0].TGID, root)
	}
	if v := shownAs(t, c, j); v.Work == nil || v.Work.CPUs < 4 || v.Work.CPUs > 5 || v.Work.Ratio > 0 || v.HasGain {
		t.Errorf("with %.2f CPUs it shows %+v, a gain %v", j.lastCPUsUsed, v.Work, v.HasGain)
	}
	j.spin = 0.1 // the next file takes less than its owner gave: no loss
	j.anew(n)
	run(c, n, 12, nil)
	if v := shownAs(t, c, j); len(v.Changed) > 0 && (v.Work == nil || v.Work.CPUs != 1) {
		t.Errorf("with %.2f CPUs it shows %+v", j.lastCPUsUsed, v.Work)
	}
}
