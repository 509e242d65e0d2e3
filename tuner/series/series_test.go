package series

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

func at(seconds int64, containers ...state.Container) *state.Snapshot {
	return &state.Snapshot{UnixNs: seconds * 1e9, Containers: containers}
}

func train(compute, device int64) state.Container {
	c := state.Container{Key: "k", Name: "train", Watched: true, UsedCPUs: 1.25, Rate: policies.Rate{PerSecond: 8, Steps: true},
		Now: runtime.Values{runtime.KnobCPUQuota: runtime.QuotaFromCPUs(1.5, 100_000)}}
	c.PartNs[policies.PartCompute], c.PartNs[policies.PartDevice] = compute, device
	return c
}

func TestPointsAreWhatHappenedBetween(t *testing.T) {
	var s Store
	s.Add(at(100, train(10, 10)))
	s.Add(at(105, train(11, 10))) // too soon
	c := train(20, 40)
	c.Loan, c.Trial = &state.Loan{CPUs: 0.5}, &state.Trial{}
	s.Add(at(110, c))
	c.RateWhy = "its own count is in doubt"
	s.Add(at(120, c, state.Container{Key: "web", Name: "web"})) // no window since
	shares := func(compute, device float64) []float64 {
		out := make([]float64, policies.NumParts)
		out[policies.PartCompute], out[policies.PartDevice] = compute, device
		return out
	}
	want := []Point{
		{UnixNs: 100e9, Rate: 8, Steps: true, Used: 1.25, Quota: 1.5, Shares: shares(0.502, 0.498)},
		{UnixNs: 110e9, Rate: 8, Steps: true, Used: 1.25, Quota: 1.5, Lent: 0.5, Trial: true, Shares: shares(0.251, 0.749)},
		{UnixNs: 120e9, Used: 1.25, Quota: 1.5, Lent: 0.5, Trial: true},
	}
	if diff := cmp.Diff(want, s.Of("k")); diff != "" {
		t.Error(diff)
	}
	if got := s.Of("web"); got == nil || len(got) > 0 {
		t.Errorf("of an unwatched container: %v, want an empty list", got)
	}
	for _, second := range []int64{119, 112, 61, 129} { // corrections of the clock
		s.Add(at(second, train(20, 40)))
	}
	if diff := cmp.Diff(want, s.Of("k")); diff != "" {
		t.Error("after the clock was corrected:", diff)
	}
	s.Add(at(50, train(1, 1))) // the clock was set back
	if got := s.Of("k"); len(got) != 1 || got[0].UnixNs != 50e9 {
		t.Errorf("after the clock was set back: %+v", got)
	}
}

func TestWhoEndsIsForgotten(t *testing.T) {
	var s Store
	s.Add(at(0, train(1, 1)))
	s.Add(at(10))
	if len(s.Of("k")) > 0 || len(s.Keys()) > 0 {
		t.Error("points of a container that ended are shown")
	}
	s.Add(at(20, train(1, 1)))
	if got := s.Of("k"); len(got) != 1 {
		t.Errorf("%d points of a container that came back under a key, want its own one", len(got))
	}
}

// Memory is bounded by frames and by points, whatever comes.
func TestBounds(t *testing.T) {
	var s Store
	many := make([]state.Container, 1000)
	for i := range many {
		many[i] = state.Container{Key: fmt.Sprint(i), Watched: true}
	}
	for i := range int64(2 * maxFrames) {
		s.Add(at(10*i, many...))
	}
	if s.points > maxPoints || len(s.Of("7")) != maxPoints/1000 {
		t.Errorf("%d points of at most %d; %d of one container, want %d", s.points, maxPoints, len(s.Of("7")), maxPoints/1000)
	}
	held := cap(s.frames) * int(unsafe.Sizeof(frame{}))
	for _, f := range s.frames {
		held += cap(f.points) * int(unsafe.Sizeof(point{}))
	}
	if held > MaxBytes {
		t.Errorf("%d bytes are held, more than %d", held, MaxBytes)
	}
	for i := range int64(2 * maxFrames) {
		s.Add(at(1e6+10*i, many[0]))
	}
	if got := len(s.Of("0")); got != maxFrames {
		t.Errorf("%d points of one container, want an hour's %d", got, maxFrames)
	}
	if MaxBytes > 5<<20 {
		t.Errorf("%d bytes at the most: docs/page.md says 5 MiB", MaxBytes)
	}
}

func TestSharesSumToTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var before, now [policies.NumParts]int64
		var sum int64
		for i := range now {
			before[i] = rapid.Int64Range(0, 1e18).Draw(t, "before")
			d := rapid.Int64Range(0, 1e15).Draw(t, "part")
			now[i] = before[i] + d
			sum += d
		}
		shares, ok := sharesOf(now, before)
		if ok != (sum > 0) {
			t.Fatalf("told: %v, of %d ns", ok, sum)
		}
		total := 0
		for i, n := range shares {
			total += int(n)
			if ok && math.Abs(float64(n)/units-float64(now[i]-before[i])/float64(sum)) > 1.01/units {
				t.Fatalf("part %d: %d of %d", i, n, units)
			}
		}
		if ok && total != units {
			t.Fatalf("shares sum to %d of %d", total, units)
		}
	})
}

func TestNamesFit(t *testing.T) {
	if got := PartNames(); len(got) != int(policies.NumParts) || got[policies.PartDevice] != "device" {
		t.Errorf("%q", got)
	}
}

// Keys lists the containers that have points, sorted.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.known))
}
