package trial

import (
	"math"
	"math/rand/v2"
	"testing"
)

// wander makes steady windows of 1 s whose log rate is an AR(1) process around
// log(rate).
type wander struct {
	rng      *rand.Rand
	rho, cv  float64
	state    float64
	nowNs    int64
	occasion float64 // probability of a window at half the rate
}

func newWander(seed uint64, rho, cv float64) *wander {
	w := &wander{rng: rand.New(rand.NewPCG(seed, 17)), rho: rho, cv: cv}
	w.state = w.rng.NormFloat64() * cv
	return w
}

func (w *wander) windows(n int, rate float64) []Obs {
	out := make([]Obs, n)
	for i := range out {
		w.state = w.rho*w.state + math.Sqrt(1-w.rho*w.rho)*w.cv*w.rng.NormFloat64()
		r := rate * math.Exp(w.state)
		if w.occasion > 0 && w.rng.Float64() < w.occasion {
			r /= 2
		}
		out[i] = Obs{StartNs: w.nowNs, EndNs: w.nowNs + secondNs, Rate: r}
		w.nowNs += secondNs
	}
	return out
}

// settle is the pause between before and after that the caller leaves.
func (w *wander) settle(seconds int) { w.windows(seconds, 1) }

// run plays one trial to its end. It skips the calls between looks, which only
// wait (TestBetweenLooksNothingIsSpent).
func run(p Params, w *wander, before int, ratio float64) (r Result, windows int) {
	a := w.windows(before, 10)
	w.settle(6)
	b := w.windows(p.MaxAfter, 10*ratio)
	for _, windows = range p.looks() {
		if r = Judge(p, a, b[:windows], r.Look); r.Outcome != Pending {
			break
		}
	}
	return r, windows
}

// share counts outcomes over many trials.
func share(p Params, before int, ratio, rho, cv float64, trials int) (by map[Outcome]float64, meanWindows float64) {
	by = map[Outcome]float64{}
	for i := range trials {
		r, n := run(p, newWander(uint64(i+1), rho, cv), before, ratio)
		by[r.Outcome] += 1 / float64(trials)
		meanWindows += float64(n) / float64(trials)
	}
	return by, meanWindows
}

// The bounds below are the design's (Alpha) or the power that DefaultParams'
// comment claims, with room of three standard errors of the simulation.
func TestFalseKeepOverAllLooksStaysBelowAlpha(t *testing.T) {
	for _, tc := range []struct{ rho, cv float64 }{{0, 0.02}, {0.5, 0.02}, {0.8, 0.02}, {0.8, 0.06}, {0.9, 0.02}} {
		for _, before := range []int{3, 60} {
			by, _ := share(DefaultParams(false), before, 1, tc.rho, tc.cv, 1000)
			if by[Superior] > 0.05+0.021 {
				t.Errorf("rho %v, CV %v, %d windows before: %v of gives without effect were kept, want at most Alpha",
					tc.rho, tc.cv, before, by[Superior])
			}
		}
	}
}

func TestPowerOfGives(t *testing.T) {
	p := DefaultParams(false)
	for _, tc := range []struct {
		ratio       float64
		before      int
		least       float64 // share superior
		mostWindows float64 // mean length of a trial
	}{
		{1.05, 60, 0.92, 22},
		{1.10, 60, 0.99, 5},
		{1.10, 3, 0.95, 14},
		{1.30, 3, 0.99, 4},
		{1.30, 60, 0.99, 4},
		{3.00, 3, 0.999, 3.01},
	} {
		by, windows := share(p, tc.before, tc.ratio, 0.8, 0.02, 300)
		if by[Superior] < tc.least || windows > tc.mostWindows {
			t.Errorf("ratio %v, %d windows before: %.3f superior in %.1f windows, want %v in %v",
				tc.ratio, tc.before, by[Superior], windows, tc.least, tc.mostWindows)
		}
	}
}

func TestErrorOfTakes(t *testing.T) {
	p := DefaultParams(true)
	for _, before := range []int{30, 300} {
		by, _ := share(p, before, 1-p.Margin, 0.8, 0.02, 100)
		if by[NonInferior] > 0.05+3*0.022 {
			t.Errorf("%d windows before: %.3f of takes that cost the margin were kept", before, by[NonInferior])
		}
		if by, _ = share(p, before, 0.95, 0.8, 0.02, 100); by[NonInferior] > 0 {
			t.Errorf("%d windows before: %.3f of takes that cost 5 %% were kept", before, by[NonInferior])
		}
	}
	by, windows := share(p, 300, 1, 0.8, 0.02, 100)
	if by[NonInferior] < 0.85 || windows > 160 {
		t.Errorf("harmless takes: %.3f kept in %.0f windows, want 0.85 in 160", by[NonInferior], windows)
	}
}

func TestCheckpointsLeftInDoNotDecide(t *testing.T) {
	p := DefaultParams(false)
	kept := 0
	for i := range 200 {
		w := newWander(uint64(i+1), 0.8, 0.02)
		w.occasion = 0.03
		if r, _ := run(p, w, 60, 1); r.Outcome == Superior {
			kept++
		}
	}
	if kept > 10+9 {
		t.Errorf("%d of 200 gives without effect were kept beside occasional slow windows", kept)
	}
}

func TestABAIgnoresNeighboursThatLeave(t *testing.T) {
	p := DefaultParams(false)
	kept, found := 0, 0
	for i := range 200 {
		w := newWander(uint64(i+1), 0.8, 0.02)
		// A neighbour leaves with the change: +10 % that the change did not bring.
		if r := JudgeABA(p, w.windows(30, 10), w.windows(30, 11), w.windows(30, 11), 0); r.Outcome == Superior {
			kept++
		}
		// The same, and a change that brings 30 % besides.
		if r := JudgeABA(p, w.windows(30, 10), w.windows(30, 14.3), w.windows(30, 11), 0); r.Outcome == Superior {
			found++
		}
	}
	if kept > 10 || found < 190 {
		t.Errorf("of 200 each, %d moves of a neighbour were taken for a gain, %d real gains found", kept, found)
	}
}
