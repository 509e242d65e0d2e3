package placement

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/test/lab/tables"
	"github.com/trimtab/trimtab/tuner/place"
)

// TestByHand: two devices of which the second is ten times as fast for the first
// configuration, and no faster for the other. 100 steps each.
func TestByHand(t *testing.T) {
	rates := [][]float64{{1, 10}, {1, 1}}
	f := fleet{kinds: []int{0, 1}}
	jobs := []Job{{0, 100}, {0, 100}, {1, 100}}
	times, ready := f.trueTimes(rates, jobs)
	for name, c := range map[string]struct{ got, want float64 }{
		// job 0 on the slow device until 100, job 1 on the fast until 10, job 2 there until 110
		"first-come": {place.FirstCome(times, ready).Makespan(), 110},
		// job 0 on the fast until 10, job 1 on the slow until 100, job 2 on the fast until 110
		"fastest-first": {place.FastestFirst(times, ready, []float64{1, 10}).Makespan(), 110},
		// 0 and 1 one after the other on the fast until 20, job 2 on the slow until 100
		"true rates": {play(f, rates, jobs, planned(f, jobs, belief{expected: truth(rates)})).makespan(), 100},
		// the second is believed ten times as fast for all: all wait for it, until 10, 20, 120
		"wrong": {play(f, rates, jobs, planned(f, jobs, belief{expected: func(_, kind int) float64 { return []float64{1, 10}[kind] }})).makespan(), 120},
		// the same, and it may be no faster: of the three the first device takes one for sure
		"wrong, and unsure": {play(f, rates, jobs, planned(f, jobs, belief{func(_, kind int) float64 { return []float64{1, 0.9}[kind] }, func(_, kind int) float64 { return []float64{1, 0.1}[kind] }})).makespan(), 300},
		// the fast one is believed slow for all: the job that begins there shows that it is not
		"learning": {play(f, [][]float64{{1, 10}}, []Job{{0, 100}, {0, 100}, {0, 100}, {0, 100}}, learning(f, []Job{{0, 100}, {0, 100}, {0, 100}, {0, 100}}, [][]float64{{1, 10}},
			belief{expected: func(_, _ int) float64 { return 1 }, least: func(_, _ int) float64 { return 1 }})).makespan(), 100},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if got, bound := oracle(f, rates, jobs); math.Abs(got-100) > 1e-9 || math.Abs(bound-100) > 1e-9 {
		t.Errorf("oracle: %v, want 100, bound %v", got, bound)
	}
}

// TestEveryRulePlacesAll: no device does two things at once, no job is left out, and
// the oracle is no worse than where its search began.
func TestEveryRulePlacesAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.IntRange(1, 3).Draw(t, "kinds")
		f := newFleet(rapid.IntRange(1, 3).Draw(t, "each"), kinds)
		rates := make([][]float64, rapid.IntRange(1, 4).Draw(t, "configs"))
		for i := range rates {
			for range kinds {
				rates[i] = append(rates[i], rapid.Float64Range(0.1, 10).Draw(t, "rate"))
			}
		}
		jobs := make([]Job, rapid.IntRange(1, 12).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = Job{rapid.IntRange(0, len(rates)-1).Draw(t, "config"), rapid.Float64Range(1, 100).Draw(t, "steps")}
		}
		wrong := func(_, kind int) float64 { return 1 + float64(kind) }
		best, bound := oracle(f, rates, jobs)
		for name, choose := range map[string]chooser{
			"wrong": planned(f, jobs, belief{wrong, truth(rates)}), "learning": learning(f, jobs, rates, belief{wrong, wrong}),
			"true": planned(f, jobs, belief{expected: truth(rates)}),
		} {
			r := play(f, rates, jobs, choose)
			busy := make([]float64, len(f.kinds))
			for j, d := range r.on {
				busy[d] += jobs[j].Steps / rates[jobs[j].Config][f.kinds[d]]
			}
			for d, end := range r.ends {
				if busy[d] > end*(1+1e-9) {
					t.Fatalf("%s: device %d ends at %v and has %v of work", name, d, end, busy[d])
				}
			}
			if slices.Max(busy) <= 0 {
				t.Fatalf("%s placed nothing", name)
			}
			if r.makespan() < bound*(1-1e-9) || name == "true" && r.makespan() < best*(1-1e-9) {
				t.Fatalf("%s: %v is below the bound %v or the oracle's %v", name, r.makespan(), bound, best)
			}
		}
	})
}

func TestSimulateIsDeterministic(t *testing.T) {
	s := DefaultSetup()
	s.Seeds, s.Jobs = 2, 20
	first, err := Simulate(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Simulate(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("equal seeds differ:\n%s", diff)
	}
	if len(first.Rows) != len(tables.Devices())*len(Batches())*len(Rules()) {
		t.Errorf("%d rows", len(first.Rows))
	}
}

func TestSimulateRefuses(t *testing.T) {
	for name, edit := range map[string]func(*Setup){
		"no such GPU": func(s *Setup) { s.Probe = "h100" }, "no jobs": func(s *Setup) { s.Jobs = 0 },
		"times the wrong way": func(s *Setup) { s.LongS = 1 }, "no seeds": func(s *Setup) { s.Seeds = 0 },
	} {
		s := DefaultSetup()
		edit(&s)
		if _, err := Simulate(s); err == nil {
			t.Errorf("%s: simulated", name)
		}
	}
}

// TestKnowsNothingOfItself: what is believed of a job does not change when the
// table's rates of its own model on other kinds do.
func TestKnowsNothingOfItself(t *testing.T) {
	table, err := tables.GPUJobs()
	if err != nil {
		t.Fatal(err)
	}
	const probe = 1
	before := beliefs(t, believer{table, probe})
	for _, config := range inPart(table, "middle") { // one of each model
		edited := slices.Clone(table)
		for i := range edited {
			if edited[i].Model == table[config].Model {
				edited[i].Alone = slices.Clone(edited[i].Alone)
				edited[i].Alone[0] *= 3
				edited[i].Alone[2] /= 5
			}
		}
		after := beliefs(t, believer{edited, probe})
		for rule := range before {
			for kind := range tables.Devices() {
				if before[rule](config, kind) != after[rule](config, kind) {
					t.Errorf("%s: %s on %s: %v, with other rates of its own %v", rule, table[config].Name(), tables.Devices()[kind],
						before[rule](config, kind), after[rule](config, kind))
				}
			}
		}
	}
}

func beliefs(t *testing.T, b believer) map[string]guess {
	out, all := map[string]guess{}, b.beliefs()
	for _, rule := range []string{"nominal", "average", "likeness", "sheets", "learned", "predicted"} {
		out[rule] = all[rule].expected
	}
	return out
}

func TestPartsOfBatchSizes(t *testing.T) {
	table, err := tables.GPUJobs()
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]int{"small": 7, "middle": 7, "large": 7, "all": 26} {
		if got := inPart(table, part); len(got) != want {
			t.Errorf("%s: %d configurations, want %d", part, len(got), want)
		}
	}
	small := inPart(table, "small")
	if !slices.ContainsFunc(small, func(i int) bool { return table[i].Name() == "LM 5" }) || slices.ContainsFunc(small, func(i int) bool { return table[i].Name() == "LM 80" }) {
		t.Error("small batches are not LM's smallest")
	}
}

func BenchmarkSimulate(b *testing.B) {
	for b.Loop() {
		if _, err := Simulate(DefaultSetup()); err != nil {
			b.Fatal(err)
		}
	}
}
