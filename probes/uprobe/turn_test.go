package uprobe

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

//trimtab:table what a hit costs in these tests
var usual = ProbeCost{Emulated: 1000, Stepped: 25000, Return: 1000}

// Whatever the share and the time between readings, a hook is on for its share of
// the time.
func TestTurnsHoldTheShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Float64Range(0.02, 0.98).Draw(t, "share")
		tick := time.Duration(rapid.Int64Range(int64(100*time.Millisecond), int64(4*time.Second)).Draw(t, "tick"))
		h := containerHook{on: true, share: share}
		now := time.Unix(1000, 0)
		var on, all time.Duration
		for all < time.Hour {
			h.turn(now, usual)
			if h.on {
				on += tick
			}
			now, all = now.Add(tick), all+tick
		}
		if got := float64(on) / float64(all); math.Abs(got-share) > 0.02 {
			t.Errorf("on for %.3f of the time, share %.3f", got, share)
		}
	})
}

func TestTurnsAtTheEnds(t *testing.T) {
	for share, want := range map[float64]bool{0: false, 1: true} {
		h := containerHook{on: !want, share: share}
		now := time.Unix(1000, 0)
		for i := range 100 {
			if h.turn(now, usual); h.on != want {
				t.Errorf("share %v: on %v at reading %d", share, h.on, i)
			}
			now = now.Add(time.Second)
		}
	}
}

// Above the ceiling the hook is off for a stretch, then tried again.
func TestTurnCeiling(t *testing.T) {
	h := containerHook{on: true, share: 1}
	now := time.Unix(1000, 0)
	h.turn(now, usual)
	on := 0
	for range 110 {
		now = now.Add(time.Second)
		counted := h.on
		if h.on {
			h.recent = Hits{Emulated: maxHitsPerSecond + 1}
		}
		if h.turn(now, usual); h.on {
			on++
		}
		// A reading that the hook did not count all through says so, and so does that
		// which takes it off.
		if h.over != (!counted || !h.on) {
			t.Errorf("counted until %v: %v, on from then: %v, said to be over: %v", now, counted, h.on, h.over)
		}
	}
	if on < 9 || on > 11 {
		t.Errorf("on for %d of 110 readings, want one in eleven", on)
	}
	h.recent = Hits{Emulated: maxHitsPerSecond - 1}
	now = now.Add(20 * time.Second)
	h.turn(now, usual)
	for range 20 {
		now = now.Add(time.Second)
		h.recent = Hits{Emulated: maxHitsPerSecond - 1}
		if h.turn(now, usual); !h.on {
			t.Fatal("off below the ceiling")
		}
	}
}

// Hits that are single-stepped reach it much earlier: it is 5 % of a thread, too.
func TestTurnCeilingOfDearHits(t *testing.T) {
	for perSecond, on := range map[uint64]bool{1900: true, 2100: false} {
		h := containerHook{on: true, share: 1}
		now := time.Unix(1000, 0)
		h.turn(now, usual)
		h.recent = Hits{Stepped: perSecond}
		if h.turn(now.Add(time.Second), usual); h.on != on || h.dear == on {
			t.Errorf("%d stepped hits a second: on %v, for their cost %v", perSecond, h.on, h.dear)
		}
	}
}
