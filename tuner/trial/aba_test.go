package trial

import (
	"slices"
	"strings"
	"testing"
)

// follow plays a trial whose change is reverted, window by window, and returns
// the result that ended it with the number of reverted windows and of looks.
func follow(t *testing.T, p Params, before, with, reverted []Obs) (r Result, windows, looks int) {
	t.Helper()
	look := 0
	for windows = p.MinBefore; windows <= len(reverted); windows++ {
		r = JudgeABA(p, before, with, reverted[:windows], look)
		if r.Look != look {
			looks++
		}
		if look = r.Look; r.Outcome != Pending {
			return r, windows, looks
		}
	}
	return r, len(reverted), looks
}

// The windows with the change no longer grow once it is reverted: looks must
// come with the windows without it.
func TestABALooksComeWithRevertedWindows(t *testing.T) {
	p := DefaultParams(false)
	noisy := func(seed uint64, n int, rate float64) []Obs { return newWander(seed, 0.5, 0.10).windows(n, rate) }
	at := func(obs []Obs, seconds int64) []Obs {
		out := slices.Clone(obs)
		for i := range out {
			out[i].StartNs += seconds * secondNs
			out[i].EndNs += seconds * secondNs
		}
		return out
	}
	before, with := noisy(1, 30, 10), at(noisy(2, 10, 13), 100)

	r, windows, looks := follow(t, p, before, with, at(noisy(3, p.MaxAfter, 10), 200))
	if r.Outcome != Superior || looks < 2 || windows <= p.MinBefore {
		t.Errorf("a gain that needs evidence: %v after %d windows and %d looks (%s), want superior after the first look", r.Outcome, windows, looks, r.Why)
	}
	// The rate stayed up without the change: that is told by MaxAfter at the latest.
	r, windows, looks = follow(t, p, before, with, at(noisy(4, p.MaxAfter, 12.6), 200))
	if r.Outcome == Pending || r.Outcome.Keep() || looks < 2 {
		t.Errorf("no gain over the reverted side: %v after %d windows and %d looks (%s)", r.Outcome, windows, looks, r.Why)
	}
}

func TestABAEndsAtMaxAfter(t *testing.T) {
	for _, take := range []bool{false, true} {
		p := DefaultParams(take)
		w := newWander(5, 0.8, 0.15)
		before, with, reverted := w.windows(p.MinBefore, 10), w.windows(p.MinAfter, 10.6), w.windows(p.MaxAfter, 10)
		r, windows, _ := follow(t, p, before, with, reverted)
		if r.Outcome == Pending {
			t.Errorf("take %v: still pending after %d reverted windows: %s", take, windows, r.Why)
		}
		if r = JudgeABA(p, before, with, reverted[:p.MinBefore+1], 1000); r.Outcome == Pending {
			t.Errorf("take %v: pending after the last look: %s", take, r.Why)
		}
	}
}

func TestABAWithTooFewWindowsOfTheChange(t *testing.T) {
	p := DefaultParams(false)
	r := JudgeABA(p, flat(0, 10, 10, 10), flat(10*secondNs, 15, 15), flat(20*secondNs, 10, 10, 10), 0)
	if r.Outcome != Inconclusive || !strings.Contains(r.Why, "2 of 3 windows with the change") {
		t.Errorf("got %v: %s", r.Outcome, r.Why)
	}
}
