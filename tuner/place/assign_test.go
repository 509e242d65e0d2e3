package place

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAssignByHand: two devices of which the second is ten times as fast for the first
// two jobs, and no faster for the other.
func TestAssignByHand(t *testing.T) {
	jobs := Times{{100, 10}, {100, 10}, {100, 100}}
	free := []float64{0, 0}
	for name, c := range map[string]struct {
		got  Assignment
		want float64
		on   []int
	}{
		"first come":                     {FirstCome(jobs, free), 110, []int{0, 1, 1}},
		"fastest first":                  {FastestFirst(jobs, free, []float64{1, 10}), 110, []int{1, 0, 1}},
		"shortest":                       {Shortest(jobs, free), 100, []int{1, 1, 0}},
		"shortest, the fast one is busy": {Shortest(jobs, []float64{0, 95}), 115, []int{1, 1, 0}},
		"cannot run on the fast one":     {Shortest(Times{{5, math.Inf(1)}, {5, math.NaN()}, {5, 0}}, free), 15, []int{0, 0, 0}},
		"one that runs nowhere":          {Shortest(Times{{5, 5}, {math.Inf(1), -1}}, free), 5, []int{0, -1}},
		"nothing":                        {Shortest(nil, free), 0, []int{}},
	} {
		if c.got.Makespan() != c.want || !slices.Equal(c.got.On, c.on) {
			t.Errorf("%s: %v on %v, want %v on %v", name, c.got.Makespan(), c.got.On, c.want, c.on)
		}
	}
	if got := Bound(jobs, free); got != 100 {
		t.Errorf("bound %v, want 100", got)
	}
	// One long job that may be split in thought: two devices of equal speed, three jobs of 10.
	if got := Bound(Times{{10, 10}, {10, 10}, {10, 10}}, free); math.Abs(got-15) > 0.01 {
		t.Errorf("bound %v, want 15", got)
	}
	if got := Bound(nil, nil); got != 0 {
		t.Errorf("bound of nothing: %v", got)
	}
}

// TestCareful: the first job is sure to take 10 s on the second device, so the third is tried for what
// it is expected to do, and the first counts as slow as it may be. Of the second job nothing is unsure.
func TestCareful(t *testing.T) {
	never := math.Inf(1)
	got := Careful(Times{{20, 10, 5, never}, {20, 10, 5, 0}}, Times{{60, 10, 12, never}, {20, 10, 5, 0}})
	if want := (Times{{60, 10, 5, never}, {20, 10, 5, never}}); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAssignIsSound: every job that can run runs once, ends are what they sum to, no division
// is below the bound or the best that there is, and the search is no worse than where it began.
func TestAssignIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		devices := rapid.IntRange(1, 4).Draw(t, "devices")
		ready := make([]float64, devices)
		for d := range ready {
			ready[d] = rapid.Float64Range(0, 20).Draw(t, "ready")
		}
		jobs := make(Times, rapid.IntRange(0, 6).Draw(t, "jobs"))
		for j := range jobs {
			for range devices {
				jobs[j] = append(jobs[j], rapid.OneOf(rapid.Float64Range(0.1, 100), rapid.Just(math.Inf(1)), rapid.Just(0.0)).Draw(t, "seconds"))
			}
		}
		bound, best := Bound(jobs, ready), exhaustive(jobs, slices.Clone(ready), 0)
		if bound > best*(1+1e-9) {
			t.Fatalf("bound %v is above the best %v", bound, best)
		}
		for name, a := range map[string]Assignment{"first come": FirstCome(jobs, ready), "fastest first": FastestFirst(jobs, ready, ready), "shortest": Shortest(jobs, ready)} {
			ends := slices.Clone(ready)
			for d, on := range a.Jobs {
				for _, j := range on {
					if a.On[j] != d {
						t.Fatalf("%s: job %d is on %d and on %d", name, j, a.On[j], d)
					}
					ends[d] += jobs.at(j, d)
				}
			}
			for j, d := range a.On {
				if (d < 0) != math.IsInf(jobs.least(j), 1) {
					t.Fatalf("%s: job %d is on %d of %v", name, j, d, jobs[j])
				}
			}
			for d := range ends {
				if math.Abs(ends[d]-a.Ends[d]) > 1e-6 {
					t.Fatalf("%s: device %d ends at %v, and its jobs at %v", name, d, a.Ends[d], ends[d])
				}
			}
			if a.Makespan() < bound*(1-1e-9) || a.Makespan() < best*(1-1e-9) {
				t.Fatalf("%s: %v is below the bound %v or the best %v", name, a.Makespan(), bound, best)
			}
		}
		if a, began := Shortest(jobs, ready), listed(jobs, ready, jobs.least); a.Makespan() > began.Makespan() {
			t.Fatalf("%v, and the search began with %v", a.Makespan(), began.Makespan())
		}
	})
}

// exhaustive is the shortest makespan of all divisions of the jobs from j on.
func exhaustive(jobs Times, ends []float64, j int) float64 {
	if j == len(jobs) {
		return slices.Max(ends)
	}
	best := math.Inf(1)
	for d := range ends {
		if s := jobs.at(j, d); !math.IsInf(s, 1) {
			ends[d] += s
			best = min(best, exhaustive(jobs, ends, j+1))
			ends[d] -= s
		}
	}
	if math.IsInf(best, 1) { // it runs nowhere
		return exhaustive(jobs, ends, j+1)
	}
	return best
}
