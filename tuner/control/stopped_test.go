package control

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestStoppedTimeIsNoRate: of a container that its engine paused, or a job that a signal stopped,
// that time counts into no rate, neither before a change nor after it, however long a step takes.
func TestStoppedTimeIsNoRate(t *testing.T) {
	for slow, spread := range map[float64]float64{1: 0.1, 20: 0.3} { // a reading of slow steps has few of them
		usual := mean(gainsAround(t, slow, stopping{name: "never"}))
		for _, how := range []stopping{
			{"paused", true, runtime.StatePaused, probes.StateFutex, false}, // a thread that sleeps stays asleep, as the kernel tells it
			{"stopped by a signal", true, runtime.StateRunning, probes.StateOther, false},
			{"stopped by a signal, but for its loaders, which wait for it", true, runtime.StateRunning, probes.StateOther, true},
		} {
			for i, g := range gainsAround(t, slow, how) {
				if math.Abs((1+g)/(1+usual)-1) > spread {
					t.Errorf("%s, steps %g times as long: the %d. gain that is told is %.2f, and else %.2f", how.name, slow, i+1, g, usual)
				}
			}
		}
	}
}

// stopping is how somebody stops a job.
type stopping struct {
	name  string
	stops bool
	state runtime.State
	in    probes.State

	loadersWait bool
}

// gainsAround are the gains told of a loan that comes right after a job goes on, and after it was stopped again.
func gainsAround(t *testing.T, slow float64, how stopping) (gains []float64) {
	t.Helper()
	n := newNode(4)
	n.weighted = false
	j := n.addJob("train", 0.4, tune())
	j.trainerCPU, j.loaderCPU, j.device = slow*j.trainerCPU, slow*j.loaderCPU, slow*j.device
	other := n.addSpinner("neighbour", 4)
	other.c.Now[runtime.KnobCPUQuota] = "360000 100000"
	c := started()
	note := func(_ int, _ Decision) {
		if v := shownAs(t, c, j); v.HasGain {
			gains = append(gains, v.Gain)
		}
	}
	stop := func(seconds int) {
		if !how.stops {
			return
		}
		j.stopped, j.stoppedIn, j.loadersWait, j.c.State = true, how.in, how.loadersWait, how.state
		run(c, n, seconds, nil)
		if v := shownAs(t, c, j); v.Rate.PerSecond != 0 || v.RateWhy != "it is paused or stopped" {
			t.Errorf("%s: while it is, %+v: %s", how.name, v.Rate, v.RateWhy)
		}
		j.stopped, j.c.State = false, runtime.StateRunning
	}
	run(c, n, 60, nil)
	stop(20)
	other.spin = 0.01
	run(c, n, 90, nil)
	note(0, Decision{})
	stop(3)
	run(c, n, 12, note)
	if v := shownAs(t, c, j); v.Loan == nil || len(gains) == 0 {
		t.Fatalf("%s: nothing to compare: %+v, %s", how.name, v.Loan, v.RateWhy)
	}
	return gains
}

// TestStoppedTimeIsNoUse: nor does it count into the CPUs that a program used before and after.
func TestStoppedTimeIsNoUse(t *testing.T) {
	n := newNode(4)
	j := n.addProgram("spin", 2, 1, 0)
	c := started()
	run(c, n, 20, nil)
	j.stopped, j.stoppedIn, j.c.State = true, probes.StateFutex, runtime.StatePaused
	run(c, n, 20, nil)
	j.stopped, j.c.State = false, runtime.StateRunning
	run(c, n, 2, nil)
	if s := c.containers[j.c.Key()]; math.Abs(s.obs.Worked()-1) > 0.1 || s.obs.Used() > 0.5 {
		t.Errorf("it used %.2f CPUs of late, %.2f while nobody stopped it, want 1", s.obs.Used(), s.obs.Worked())
	}
}

// ways are how somebody stops a whole job, and lets it go on.
func ways() map[string]func(j *simJob, on bool) {
	return map[string]func(j *simJob, on bool){
		"paused": func(j *simJob, on bool) {
			j.stopped, j.stoppedIn = on, probes.StateFutex
			if j.c.State = runtime.StateRunning; on {
				j.c.State = runtime.StatePaused
			}
		},
		"stopped by a signal": func(j *simJob, on bool) { j.stopped, j.stoppedIn = on, probes.StateOther },
	}
}

// TestAStopShrinksNoLoan: what it does not use while it is stopped is no sign that less is enough, nor is it then
// a sign that a settled quota was too little that it wants as much as before.
func TestAStopShrinksNoLoan(t *testing.T) {
	for name, stop := range ways() {
		n := newNode(4)
		j := n.addProgram("spin", 0.4, 2, 1e6)
		c := started()
		run(c, n, 100, nil)
		before, s := j.quota(), c.containers[j.c.Key()]
		for range 6 {
			stop(j, true)
			run(c, n, 60, nil)
			stop(j, false)
			run(c, n, 30, func(i int, _ Decision) {
				if j.quota() < 2 || s.loan.tooLittle > 0 {
					t.Fatalf("%s, %d s after it goes on: %.2f CPUs, %.2f before; too little %d times", name, i, j.quota(), before, s.loan.tooLittle)
				}
			})
		}
		if before < 2 || j.quota() != before {
			t.Errorf("%s: %.2f CPUs, %.2f before", name, j.quota(), before)
		}
	}
}

// TestAStopMakesNoLoanUseful: a loan that brings little is doubted though the job was just stopped: what it works
// with now is more than before.
func TestAStopMakesNoLoanUseful(t *testing.T) {
	for name, stop := range ways() {
		for _, after := range []int{17, 18, 19, 20} { // it settles after ten readings, and a doubt takes ten more
			n := newNode(4)
			j := n.addJob("spins", 0.4, tune())
			c := started()
			lent, doubted := 0, false
			run(c, n, 60, func(i int, _ Decision) {
				s, steps := c.containers[j.c.Key()], 1.0
				if s.loan.givenNs > 0 {
					lent, steps = cmp.Or(lent, i), 2.1
				}
				j.trainerCPU, j.loaderCPU, j.device = j.quota()*0.06/steps, j.quota()*0.12/steps, 0.001 // whatever it is given, it burns
				stop(j, lent > 0 && i >= lent+after && i < lent+after+6)
				if doubted = doubted || s.loan.doubt; s.loan.brings == 1 && !doubted {
					t.Fatalf("%s after %d s: useful without a doubt", name, after)
				}
			})
			if lent == 0 || !doubted {
				t.Errorf("%s after %d s: lent at tick %d, doubted %v", name, after, lent, doubted)
			}
		}
	}
}

// TestAStopIsNoSilence: a job that was stopped while devices are hidden from it, on trial or long after, did not hang.
func TestAStopIsNoSilence(t *testing.T) {
	for name, stop := range ways() {
		for _, after := range []int{5, 100} {
			n := newGPUNode()
			j := n.loaded("left", allowGPU())
			c := asked(hideOf("GPU-b"))
			hidden := 0
			records := run(c, n, 400, func(i int, d Decision) {
				if hidden == 0 && len(d.Apply) > 0 {
					hidden = i
				}
				if hidden > 0 && i >= hidden+after {
					stop(j, i < hidden+after+120)
				}
			})
			if got := outcomes(records); hidden == 0 || len(got) != 1 || got[0] != state.OutcomeKept || j.visibility("GPU-b").Visible {
				t.Errorf("%s %d s after it was hidden at %d: %+v", name, after, hidden, records)
			}
		}
	}
}

// TestATrialOutlastsAStop: a trial is judged by what the job does before and after one, and keeps no neighbour
// from its own meanwhile.
func TestATrialOutlastsAStop(t *testing.T) {
	for name, stop := range ways() {
		n, j, others := floored()
		c := started()
		began, passed := 0, false
		records := run(c, n, 300, func(i int, _ Decision) {
			s := c.containers[j.c.Key()]
			if began == 0 && s.plan != "" {
				began = i
			}
			if began == 0 || i >= began+100 {
				return
			}
			stop(j, i > began && i < began+90)
			if i == began+60 {
				passed = s.plan != "" && c.sharedTrial(others[0].c.Key()) == "" && c.sharedTrial(j.c.Key()) != ""
			}
		})
		if got := outcomes(records); began == 0 || !passed || len(got) == 0 || slices.ContainsFunc(got, func(o state.Outcome) bool { return o != state.OutcomeKept }) {
			t.Errorf("%s: open since tick %d, others may try %v, trials %v: %+v", name, began, passed, got, records)
		}
	}
}
