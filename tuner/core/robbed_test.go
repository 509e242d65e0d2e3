package core

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/view"
	"github.com/trimtab/trimtab/tuner/window"
)

// TestRobbedMachine: what the hypervisor takes all day is the machine that there is; what
// it takes beyond that is no evidence, and a machine of which it takes a quarter has none.
func TestRobbedMachine(t *testing.T) {
	for _, tc := range []struct {
		name   string
		steal  float64
		within int // ticks; 0: never
	}{{"not", 0, 8}, {"a little", 0.015, 8}, {"all day", 0.06, 25}, {"by a quarter", 0.25, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(4)
			n.addJob("train", 0.4, tune())
			c := New(Defaults(), knee.New(knee.Defaults()), "t")
			rng := rand.New(rand.NewPCG(3, 4))
			applied := 0
			n.steal = tc.steal
			records := run(c, n, 60, func(i int, d Decision) {
				n.steal = tc.steal * (0.8 + 0.4*rng.Float64())
				if len(d.Apply) > 0 && applied == 0 {
					applied = i + 1
				}
			})
			var s view.Snapshot
			c.Show(&s)
			switch got := outcomes(records); {
			case tc.within == 0:
				if why := s.Containers[0].WhyNot; applied > 0 || !strings.Contains(why, "hypervisor") {
					t.Errorf("changed at tick %d, why not: %q; want nothing changed, for the hypervisor", applied, why)
				}
			case applied == 0 || applied > tc.within || len(got) != 1 || got[0] != view.OutcomeKept:
				t.Errorf("applied at tick %d (0: never), want within %d; trials %v", applied, tc.within, got)
			}
		})
	}
}

// TestSidesOfATrialAreRobbedAlike: the level at its begin is what windows are held
// against, both ways, and loosely where the gain to be told is large.
func TestSidesOfATrialAreRobbedAlike(t *testing.T) {
	for _, tc := range []struct {
		began, stole, gain float64
		robbed             bool
	}{
		{0.04, 0.05, 0.05, false}, {0.04, 0.07, 0.05, true}, {0.04, 0.01, 0.05, true}, {0, 0.015, 0.05, false},
		{0.04, 0.07, 1, false}, {0.01, 0.15, 1, true}, {0.01, 0.15, 3, false},
	} {
		c := New(Defaults(), nil, "t")
		j := &job{}
		c.trials["p"] = &openTrial{stolen: tc.began, order: Order{Changes: []policies.Change{{Key: "k", Gain: tc.gain}}}}
		c.jobs["k"] = j
		if got := c.robbed("k", &window.Window{StealShare: tc.stole}); got != tc.robbed {
			t.Errorf("%.0f %% where it was %.0f %%, for +%.0f %%: robbed %v", 100*tc.stole, 100*tc.began, 100*tc.gain, got)
		}
	}
}

// TestUsualSteal: a burst does not make it, a lasting change does, however seldom one looks.
func TestUsualSteal(t *testing.T) {
	for _, every := range []int64{1, 4, 10} {
		var s stolen
		host := probes.Host{AtNs: second, CPUs: 2}
		pass := func(seconds int64, share float64) {
			for range seconds / every {
				before := host
				host.AtNs += every * second
				host.StealNs += uint64(share * 2e9 * float64(every))
				host.IdleNs += uint64((1 - share) * 2e9 * float64(every))
				s.note(before, host)
			}
		}
		near := func(what string, want float64) {
			t.Helper()
			if math.Abs(s.usual-want) > 1e-6 {
				t.Errorf("every %d s, %s: %.3f, want %.3f", every, what, s.usual, want)
			}
		}
		pass(60, 0.03)
		near("steady", 0.03)
		pass(every, 0.5)
		near("one burst", 0.03)
		pass(60, 0.06)
		near("it became more", 0.06)
		pass(60, 0.4)
		near("too much to be usual", usualMost)
		pass(60, 0)
		near("over", 0)
		if len(s.at) != len(s.shares) || len(s.at) > 22 {
			t.Errorf("%d readings are kept", len(s.at))
		}
	}
}
