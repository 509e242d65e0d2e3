package arbiter

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
)

const (
	gib  = 1 << 30
	page = 4096 // fill is not exact to the byte where growths are far apart
)

func TestMemoryGoesToWhomItPays(t *testing.T) {
	grow := func(bytes, growth float64, importance int) Raise {
		return Raise{Bytes: bytes, Protects: true, Growth: growth, Importance: importance}
	}
	cache := func(bytes, gain float64, importance int) Raise {
		return Raise{Bytes: bytes, Gain: gain, Importance: importance}
	}
	for name, tc := range map[string]struct {
		objective policies.Objective
		free      float64
		raises    []Raise
		bytes     []float64
		order     []int
	}{
		"the larger gain first":             {"", 3 * gib, []Raise{cache(2*gib, 0.1, 5), cache(2*gib, 1, 5)}, []float64{1 * gib, 2 * gib}, []int{1, 0}},
		"the smaller of equal gains first":  {"", 3 * gib, []Raise{cache(2*gib, 0.5, 5), cache(1*gib, 0.5, 5)}, []float64{2 * gib, 1 * gib}, []int{1, 0}},
		"the smaller of dominant shares":    {"", 1 * gib, []Raise{{Bytes: 1 * gib, Beside: 3 * gib, Gain: 0.5}, cache(2*gib, 0.5, 5)}, []float64{0, 1 * gib}, []int{1, 0}},
		"CPUs that are the smaller share":   {"", 1 * gib, []Raise{{Bytes: 1 * gib, Beside: 0.5 * gib, Gain: 0.5}, cache(2*gib, 0.5, 5)}, []float64{1 * gib, 0}, []int{0, 1}},
		"importance between equals":         {"", 1 * gib, []Raise{cache(1*gib, 0.5, 1), cache(1*gib, 0.5, 10)}, []float64{0, 1 * gib}, []int{1, 0}},
		"whoever is worst off, by max-min":  {policies.ObjectiveMaxMin, 2 * gib, []Raise{cache(0.5*gib, 0.5, 5), cache(2*gib, 1, 5)}, []float64{0, 2 * gib}, []int{1, 0}},
		"what protects goes before a gain":  {"", 1 * gib, []Raise{cache(1*gib, 9, 10), grow(1*gib, 1e6, 1)}, []float64{0, 1 * gib}, []int{1, 0}},
		"equal time for those that grow":    {"", 3 * gib, []Raise{grow(9*gib, 1e6, 5), grow(9*gib, 2e6, 5)}, []float64{1 * gib, 2 * gib}, []int{0, 1}},
		"longer for the more important":     {"", 3 * gib, []Raise{grow(9*gib, 1e6, 5), grow(9*gib, 1e6, 10)}, []float64{1 * gib, 2 * gib}, []int{0, 1}},
		"enough for all":                    {"", 9 * gib, []Raise{grow(1*gib, 1e6, 5), cache(2*gib, 1, 5)}, []float64{1 * gib, 2 * gib}, []int{0, 1}},
		"nothing free, and less than none":  {"", -gib, []Raise{grow(1*gib, 1e6, 5), cache(2*gib, 1, 5)}, []float64{0, 0}, []int{0, 1}},
		"what its owner allows costs none":  {"", 0, []Raise{cache(2*gib, 1, 5), {Bytes: gib, Own: gib, Gain: 0.1}}, []float64{0, 0}, []int{1, 0}},
		"room that one has already counts":  {"", 3 * gib, []Raise{{Bytes: 9 * gib, Own: 2 * gib, Protects: true, Growth: 1e6}, grow(9*gib, 1e6, 5)}, []float64{2 * gib, 1 * gib}, []int{0, 1}},
		"nobody asks":                       {"", gib, nil, []float64{}, []int{}},
		"no growth that was read, no crash": {"", gib, []Raise{grow(gib, 0, 0), grow(gib, 0, 0)}, []float64{gib / 2, gib / 2}, []int{0, 1}},
	} {
		p := Defaults()
		if tc.objective != "" {
			p.Objective = tc.objective
		}
		bytes, order := DealMemory(p, tc.free, tc.raises)
		for i := range bytes {
			if !near(bytes[i], tc.bytes[i], gib/1024) {
				t.Errorf("%s: %.3f GiB to %d, want %.3f", name, bytes[i]/gib, i, tc.bytes[i]/gib)
			}
		}
		if diff := cmp.Diff(tc.order, order); diff != "" {
			t.Errorf("%s: order %s", name, diff)
		}
	}
}

// TestMemoryIsDealtOnce: nobody is given more than it asked for, and all together no more
// than is free; what protects is cut only where nothing is left for anything else.
func TestMemoryIsDealtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		free := float64(rapid.Int64Range(-gib, 64*gib).Draw(t, "free"))
		var raises []Raise
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			raises = append(raises, Raise{Bytes: rapid.Float64Range(0, 32*gib).Draw(t, "bytes"), Own: rapid.Float64Range(0, gib).Draw(t, "own"), Beside: rapid.Float64Range(0, 8*gib).Draw(t, "beside"), Protects: rapid.Bool().Draw(t, "protects"),
				Growth: rapid.Float64Range(0, 1e9).Draw(t, "growth"), Gain: rapid.Float64Range(-1, 9).Draw(t, "gain"), Importance: rapid.IntRange(0, 10).Draw(t, "importance")})
		}
		p := Defaults()
		p.Objective = rapid.SampledFrom(policies.Objectives()).Draw(t, "objective")
		bytes, order := DealMemory(p, free, raises)
		sum, cut, others := 0.0, false, 0.0
		seen := map[int]bool{}
		for _, i := range order {
			seen[i] = true
			if !(bytes[i] >= 0) || bytes[i] > raises[i].Bytes*(1+1e-9) {
				t.Fatalf("%v of %v", bytes[i], raises[i].Bytes)
			}
			sum += bytes[i]
			if raises[i].Protects {
				cut = cut || bytes[i] < raises[i].Bytes*(1-1e-6)-page
			} else {
				others += bytes[i]
			}
		}
		if len(seen) != len(raises) || sum > max(free, 0)*(1+1e-9)+1 || cut && others > page {
			t.Fatalf("%v free, %v given, %v of it to what does not protect; order %v", free, sum, others, order)
		}
	})
}
