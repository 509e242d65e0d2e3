package control

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
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
