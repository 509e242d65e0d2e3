package profiles

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/observe"
)

// simulated is a job whose runs, and whose steps, lie so far apart.
type simulated struct {
	name          string
	between, step float64 // standard deviations of logarithms: of a run's pace, of a step
	tails         bool    // runs are apart as Student's distribution with 4 degrees of freedom says
	odd           bool    // one of the runs before was a quarter slower
	correlated    float64 // of one step with the next
	spikes        float64 // share of steps that take three times as long
	// speed is the share of its pace that it has at a step; nil: 1 throughout.
	speed func(step int) float64
	// late is how many steps are made at the most before the first one is seen: another number in each run.
	late int
	// begin is the standard deviation by which the first 100 steps lie apart more than the rest.
	begin   float64
	reading int // steps of one reading; 0: 1
	steps   int // of a run; 0: 1,000
	runs    int // fewer; 0: simulatedRuns
	found   int // of a thousand, at the least
}

const perSecond = 20.0

// run steps a job, and calls each at the end of a block.
func (s simulated) run(rng *rand.Rand, steps int, slower float64, each func(step int, p *Pacer) (goOn bool)) Pace {
	off := rng.NormFloat64()
	if s.tails {
		chi := 0.0
		for range 4 {
			x := rng.NormFloat64()
			chi += x * x
		}
		off /= math.Sqrt(chi / 4)
	}
	begin := math.Exp(s.begin * rng.NormFloat64())
	level := 1 / perSecond * math.Exp(s.between*off) / (1 - slower)
	var p Pacer
	at, noise := 0.0, 0.0
	from, counted := int64(0), 0
	unseen := 0
	if s.late > 0 {
		unseen = rng.IntN(s.late)
	}
	for i := range steps + unseen {
		noise = s.correlated*noise + math.Sqrt(1-s.correlated*s.correlated)*rng.NormFloat64()
		step := level * math.Exp(s.step*noise)
		if rng.Float64() < s.spikes {
			step *= 3
		}
		if i < 100 {
			step *= begin
		}
		if s.speed != nil {
			step /= s.speed(i)
		}
		at += step
		if counted++; counted < s.reading && i >= unseen {
			continue
		}
		to := int64(at * 1e9)
		r := observe.RateSample{StartNs: from, EndNs: to, Rate: float64(counted) / (float64(to-from) / 1e9)}
		from, counted = to, 0
		if i >= unseen && p.Add("steps", r) && each != nil && !each(i+1-unseen, &p) {
			break
		}
	}
	return p.Pace()
}

// before are the last runs of it.
func (s simulated) before(rng *rand.Rand, runs int) (ends []End) {
	for i := range runs {
		slower := 0.0
		if s.odd && i == runs/2 {
			slower = 0.25
		}
		ends = append(ends, End{Run: RunID(i), Setting: Setting{Job: "job", Source: "steps"}, Pace: s.run(rng, s.steps, slower, nil)})
	}
	return ends
}

// simulatedRuns of each kind take ten seconds; docs/known-jobs.md says of how many its figures are.
const simulatedRuns = 300

// each slows the last steps of each so many down to a share of the pace; a period that never ends: the
// first steps.
func each(period, slow int, share float64) func(int) float64 {
	return func(i int) float64 {
		if at := i % period; period > 1e6 && at < slow || at >= period-slow {
			return share
		}
		return 1
	}
}

// simulations are jobs as they run.
func simulations() []simulated {
	until := func(n int, share float64) func(int) float64 { return each(1<<30, n, share) }
	return []simulated{
		{name: "steady", between: 0.003, step: 0.02, found: 999},
		{name: "ordinary", between: 0.005, step: 0.05, found: 990},
		{name: "noisy steps", between: 0.005, step: 0.15, found: 750},
		{name: "correlated steps", between: 0.005, step: 0.05, correlated: 0.8, found: 800},
		{name: "runs 1 % apart", between: 0.01, step: 0.05, found: 940},
		{name: "runs 2 % apart", between: 0.02, step: 0.05, found: 250},
		{name: "an odd run before", between: 0.005, step: 0.05, odd: true, found: 950},
		{name: "runs with tails", between: 0.005, step: 0.05, tails: true, found: 800},
		{name: "spikes", between: 0.005, step: 0.05, spikes: 0.02, found: 880},
		{name: "spikes, ten steps read at once", between: 0.005, step: 0.05, spikes: 0.02, reading: 10, found: 60},
		{name: "spikes, twenty steps read at once", between: 0.005, step: 0.05, spikes: 0.02, reading: 20, found: 50},
		{name: "noisy steps, first ones apart", between: 0.005, step: 0.15, begin: 0.02, found: 450},
		{name: "60 steps at half speed", between: 0.005, step: 0.05, speed: until(60, 0.5), found: 980},
		{name: "200 steps at 0.8", between: 0.005, step: 0.05, speed: until(200, 0.8), found: 980},
		{name: "evaluates", between: 0.005, step: 0.05, speed: each(500, 120, 0.5), found: 980},
		{name: "evaluates seldom", between: 0.005, step: 0.05, speed: each(5000, 120, 0.5), steps: 10_000, runs: 30, found: 980},
		{name: "begins unevenly", between: 0.005, step: 0.05, speed: until(100, 0.5), late: 60},
		{name: "checkpoints", between: 0.005, step: 0.05, speed: each(250, 1, 1.0/40), found: 980},
	}
}

// The two figures of the alarm: a run that is a tenth slower is found within 100 steps, and one in a
// thousand that is not is called so at the most, over all of a long run.
func TestSlowerSimulated(t *testing.T) {
	for _, s := range simulations() {
		runs := cmp.Or(min(s.runs, simulatedRuns), simulatedRuns)
		s.steps = cmp.Or(s.steps, 1000)
		rng := rand.New(rand.NewPCG(1, 2))
		alarms, found, later := 0, 0, 0
		for range runs {
			u, ok := UsualOf(Start{}, s.before(rng, MaxEnds), "")
			if !ok {
				t.Fatalf("%s: no usual rate", s.name)
			}
			s.run(rng, s.steps, 0, func(_ int, p *Pacer) bool {
				if u.Slower(p, End{Setting: Setting{}}) != nil {
					alarms++
					return false
				}
				return true
			})
			s.run(rng, s.steps, 0.10, func(at int, p *Pacer) bool {
				if u.Slower(p, End{Setting: Setting{}}) != nil {
					if later++; at <= 101 {
						found++
					}
					return false
				}
				return true
			})
		}
		t.Logf("%-34s false alarms %.2f in 1,000 runs; of runs 10 %% slower %.1f %% found within 100 steps, %.1f %% within the run", s.name, 1000*float64(alarms)/float64(runs), 100*float64(found)/float64(runs), 100*float64(later)/float64(runs))
		mean := float64(runs) / 1000
		if most := math.Ceil(mean + 3*math.Sqrt(mean)); float64(alarms) > most { // by chance more, in one row of 250
			t.Errorf("%s: %d false alarms in %d runs, at most %.0f", s.name, alarms, runs, most)
		}
		if s.speed != nil && s.late == 0 && 100*later < 99*runs {
			t.Errorf("%s: %d of %d found at all", s.name, later, runs)
		}
		if 1000*found < s.found*runs {
			t.Errorf("%s: %d of %d found, want %.1f %%", s.name, found, runs, float64(s.found)/10)
		}
	}
}

// What eighty steps and eight earlier runs can tell of a run that is a tenth slower, at one false alarm in a
// thousand runs: if it were known how far runs and steps lie apart, and if the begins of these runs alone
// told that (Student's test, the most powerful one that takes nothing else for known).
func TestSlowerBound(t *testing.T) {
	const draws, alarms = 20_000, 1e-3
	rng := rand.New(rand.NewPCG(1, 2))
	lost := -math.Log(1 - 0.1)
	beyond := distuv.StudentsT{Sigma: 1, Nu: MaxEnds - 1}.Quantile(1 - alarms)
	for _, step := range []float64{0.02, 0.05, 0.15, 0.3} {
		for _, between := range []float64{0.003, 0.005, 0.01, 0.02, 0.03} {
			apart := math.Hypot(between, step/math.Sqrt(2*blockSteps)) * math.Sqrt(1+1./MaxEnds)
			known := distuv.UnitNormal.CDF(lost/apart + distuv.UnitNormal.Quantile(alarms))
			learned := 0
			for range draws {
				chi := 0.0
				for range MaxEnds - 1 {
					x := rng.NormFloat64()
					chi += x * x
				}
				if lost/apart+rng.NormFloat64() > beyond*math.Sqrt(chi/(MaxEnds-1)) {
					learned++
				}
			}
			t.Logf("steps vary by %2.0f %%, runs by %.1f %%: %5.1f %% can be found if that is known, %5.1f %% if eight begins tell it", 100*step, 100*between, 100*known, 100*float64(learned)/draws)
			if float64(learned) > draws*known+3*math.Sqrt(draws) {
				t.Errorf("who has to learn it finds more than who knows it: %d of %d, %.3f", learned, draws, known)
			}
		}
	}
}

func TestSlowerSays(t *testing.T) {
	var ends []End
	for i := range 8 {
		ends = append(ends, End{Run: RunID(i), Setting: Setting{Host: "here", Driver: "535", Device: "A100", Image: "one", Data: "d", Libraries: "l", Kernel: "6.1", Source: "steps"}, Allowed: 4, Pace: Pace{Rate: 100 + 0.1*float32(i%3), Spread: 0.01, Blocks: 50, Slowest: 99.8}})
	}
	u, ok := UsualOf(Start{Host: "here"}, ends, "steps")
	if !ok || u.PerSecond < 100 || u.PerSecond > 100.3 || u.Low > 100 || u.High < 100.2 {
		t.Fatalf("usual %+v, %t", u, ok)
	}
	var p Pacer
	for i := range 20 {
		p.Add("steps", observe.RateSample{StartNs: int64(i) * 1e9, EndNs: int64(i+1) * 1e9, Rate: 85})
	}
	now := ends[7]
	say := func(want string, f func(*End)) {
		t.Helper()
		e := now
		f(&e)
		s := u.Slower(&p, e)
		if s == nil {
			t.Fatal("not found")
		}
		if got := s.String(); got != "15 % below its last 8 runs, "+want {
			t.Errorf("%q", got)
		}
	}
	say("nothing that trimtab knows of it has changed", func(*End) {})
	say("since the driver changed (550, before 535)", func(e *End) { e.Driver = "550" })
	say("since its device is another (V100, before A100), the driver changed (550, before 535)", func(e *End) { e.Device, e.Driver = "V100", "550" })
	say("since its image changed", func(e *End) { e.Image = "two" })
	say("since its libraries changed", func(e *End) { e.Libraries = "m" })
	say("nothing that trimtab knows of it has changed", func(e *End) { e.Libraries = "" })
	say("since its image changed", func(e *End) { e.Image, e.Libraries = "two", "m" })
	say("since the driver changed (550, before 535)", func(e *End) { e.Driver, e.Libraries = "550", "m" })
	say("since its data is another", func(e *End) { e.Data = "e" })
	say("since the host's kernel changed (6.9, before 6.1)", func(e *End) { e.Kernel = "6.9" })
	say("since neighbours take its CPU (it queues 30 % of its time, before 0 %)", func(e *End) { e.Queued = 0.3 })
	say("since a neighbour works on its device", func(e *End) { e.Shared = true })
	say("since it may use fewer CPUs (2.00, before 4.00)", func(e *End) { e.Allowed = 2 })
	if u.Slower(&Pacer{source: "steps"}, now) != nil {
		t.Error("a run of which nothing was seen is slower")
	}
}

// Other hosts, other units and too few runs tell nothing of what is usual here.
func TestUsualOf(t *testing.T) {
	hashes := func(numbers ...string) (out []identity.Hash) {
		for _, n := range numbers {
			var h identity.Hash
			copy(h[:], n)
			out = append(out, h)
		}
		return out
	}
	end := func(host, source string, rate float64, numbers ...string) End {
		return End{Setting: Setting{Host: host, Source: source}, Numbers: hashes(numbers...), Pace: Pace{Rate: float32(rate), Blocks: 10, Spread: 0.01, Slowest: float32(rate) * 0.99}}
	}
	repeat := func(n int, e End) (out []End) {
		for range n {
			out = append(out, e)
		}
		return out
	}
	seeds := func(n int, rate float64, numbers ...string) (out []End) {
		for i := range n {
			out = append(out, end("here", "steps", rate, append([]string{fmt.Sprint("seed ", i)}, numbers...)...))
		}
		return out
	}
	steps := end("here", "steps", 10)
	for _, tc := range []struct {
		name    string
		ends    []End
		numbers []string
		ok      bool
		rate    float64
	}{
		{"none", nil, nil, false, 0},
		{"elsewhere", repeat(8, end("there", "steps", 10)), nil, false, 0},
		{"three", repeat(3, steps), nil, false, 10},
		{"four", repeat(4, steps), nil, true, 10},
		{"another unit", append(repeat(4, end("here", "passes", 100)), repeat(4, steps)...), nil, true, 10},
		{"the same numbers", append(repeat(4, end("here", "steps", 40, "x")), repeat(4, steps)...), nil, true, 10},
		{"other numbers", repeat(8, end("here", "steps", 40, "batch32")), []string{"batch64"}, false, 0},
		{"one more number", repeat(8, steps), []string{"batch64"}, false, 0},
		{"another seed", seeds(8, 10, "z 32"), []string{"seed 99", "z 32"}, true, 10},
		{"the seed of one of them", seeds(8, 10, "z 32"), []string{"seed 3", "z 32"}, true, 10},
		{"another seed, and another number", seeds(8, 10, "z 32"), []string{"seed 99", "z 64"}, false, 0},
	} {
		u, ok := UsualOf(Start{Host: "here", Identity: identity.Identity{Numbers: hashes(tc.numbers...)}}, tc.ends, "steps")
		if ok != tc.ok || math.Abs(u.PerSecond-tc.rate) > 1e-9 || !ok && u.Low+u.High > 0 {
			t.Errorf("%s: %t, %.2f/s; want %t, %.2f/s", tc.name, ok, u.PerSecond, tc.ok, tc.rate)
		}
	}
	// Once a number made a run another one: that run is no disturbed one, and the next number may do as much.
	odd := append(seeds(7, 10, "z 32"), end("here", "steps", 20, "seed 7", "z 16"))
	if u, ok := UsualOf(Start{Host: "here", Identity: identity.Identity{Numbers: hashes("seed 8", "z 64")}}, odd, "steps"); ok && u.Low > 7 {
		t.Errorf("expected between %.2f and %.2f", u.Low, u.High)
	}
}

// Whatever readings hold, a pace is finite.
func TestPacerIsFinite(t *testing.T) {
	var p Pacer
	for _, r := range []float64{math.NaN(), math.Inf(1), -1, 0, 1e300, 1e-300, 5} {
		p.Add("steps", observe.RateSample{StartNs: 5, EndNs: 1e9, Rate: r})
		p.Add("steps", observe.RateSample{StartNs: 5, EndNs: 5, Rate: r})
	}
	if pace := p.Pace(); !pace.valid() || math.IsNaN(pace.log()) {
		t.Errorf("%+v", pace)
	}
	if p.Add(strings.Repeat("x", 10), observe.RateSample{EndNs: 1, Rate: 1}); p.blocks != 0 {
		t.Error("another source goes on with the blocks of the first")
	}
}
