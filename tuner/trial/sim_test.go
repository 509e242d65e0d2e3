package trial

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// job makes a rate a second: AR(1) noise, a drift, phases of its own, and a change's effect.
type job struct {
	rng      *rand.Rand
	lag      float64 // lag-1 correlation
	cvA, cvB float64 // coefficient of variation before, and under the change
	drift    float64 // a second
	swing    float64 // of phases, to each side
	half     float64 // seconds of a phase
	offset   float64
	effect   float64 // of the change, a ratio
	stalled  int     // the reading that is zero; -1: none
	decrease bool
	noise    float64
	t        int
}

func (j *job) next(with bool) observe.RateSample {
	j.noise = j.lag*j.noise + math.Sqrt(1-j.lag*j.lag)*j.rng.NormFloat64()
	cv, y := j.cvA, 0.0
	if with {
		cv, y = j.cvB, math.Log(j.effect)
	}
	y += math.Sqrt(math.Log(1+cv*cv))*j.noise + j.drift*float64(j.t)
	if j.half > 0 && int(math.Floor((float64(j.t)+j.offset)/j.half))%2 == 1 {
		y += math.Log((1 + j.swing) / (1 - j.swing))
	}
	s := observe.RateSample{StartNs: int64(j.t) * 1e9, EndNs: int64(j.t+1) * 1e9, Rate: 10 * math.Exp(y)}
	if j.t == j.stalled {
		s.Rate = 0
	}
	j.t++
	return s
}

// live runs a whole trial of a job, judged at each reading, and returns its outcome and seconds.
func (j *job) live(k *policies.Constants) (Outcome, int) {
	var before []observe.RateSample
	for range int(k.TrialBaseline) {
		before = append(before, j.next(false))
	}
	t := New(Progress{Decrease: j.decrease}, before)
	began := j.t
	t.Switched(k, int64(j.t)*1e9)
	var samples []observe.RateSample
	for range 200 {
		s := j.next(t.With())
		if s.StartNs >= t.SinceNs {
			samples = append(samples, s)
		}
		switch t.Step(k, Evidence{NowNs: int64(j.t) * 1e9, Samples: samples}) {
		case End:
			return t.Result.Outcome, j.t - began
		case Switch:
			t.Switched(k, int64(j.t)*1e9)
			samples = nil
		}
	}
	return Pending, j.t - began
}

// row is one of the acceptance table.
type row struct {
	name string
	make func() job
	// The largest shares of its trials that may end so; 1: any.
	better, worse float64
}

// acceptance is the table.
func acceptance(rng *rand.Rand) []row {
	some := func(most float64) float64 { return most * rng.Float64() }
	const any = 1
	return []row{
		{"a true gain, noisy before, one reading stalled", func() job {
			cv := some(0.8)
			return job{lag: some(0.8), cvA: cv, cvB: some(cv), effect: 1.3 + some(2), stalled: rng.IntN(8)}
		}, any, 0.02},
		{"a gain of twice, steady", func() job { return job{lag: 0.8, cvA: 0.1, cvB: 0.1, effect: 2, stalled: -1} }, any, 0},
		{"no effect, lag 0", func() job { return job{cvA: 0.1, cvB: 0.1, effect: 1, stalled: -1} }, 0.05, any},
		{"no effect, lag 0.5", func() job { return job{lag: 0.5, cvA: 0.1, cvB: 0.1, effect: 1, stalled: -1} }, 0.05, any},
		{"no effect, lag 0.8", func() job { return job{lag: 0.8, cvA: 0.1, cvB: 0.1, effect: 1, stalled: -1} }, 0.05, any},
		{"no effect, lag 0.95", func() job { return job{lag: 0.95, cvA: 0.1, cvB: 0.1, effect: 1, stalled: -1} }, 0.05, any},
		{"no effect, lag 0.95, wild", func() job { return job{lag: 0.95, cvA: 0.3, cvB: 0.3, effect: 1, stalled: -1} }, 0.05, any},
		{"no effect, wild before and calm after", func() job {
			return job{lag: some(0.95), cvA: 0.2 + some(0.6), cvB: 0.03 + some(0.02), effect: 1, stalled: -1}
		}, 0.05, any},
		{"no effect, as wild as it gets before", func() job { return job{cvA: 0.8, cvB: 0.03, effect: 1, stalled: -1} }, 0.05, any},
		{"no effect, a drift of 2 % a second", func() job { return job{lag: 0.5, cvA: 0.05, cvB: 0.05, drift: 0.02, effect: 1, stalled: -1} }, 0.05, any},
		{"no effect, any drift", func() job {
			return job{lag: some(0.95), cvA: 0.1, cvB: 0.05, drift: 0.02 * (some(2) - 1), effect: 1, stalled: -1}
		}, 0.05, any},
		{"no effect, phases of 20 % of 5 to 120 s", func() job {
			period := 5 + some(115)
			return job{lag: 0.5, cvA: 0.03, cvB: 0.03, swing: 0.2, half: period / 2, offset: some(period), effect: 1, stalled: -1}
		}, 0.05, any},
		{"no effect, phases, short ones as often as long", func() job {
			period := 5 * math.Pow(24, rng.Float64())
			return job{lag: 0.5, cvA: 0.03, cvB: 0.03, swing: 0.2, half: period / 2, offset: some(period), effect: 1, stalled: -1}
		}, 0.05, any},
		{"a take that loses 10 %", func() job {
			return job{lag: some(0.95), cvA: some(0.3), cvB: some(0.3), effect: 0.9, stalled: -1, decrease: true}
		}, 0.02, any},
		{"a take that loses 10 %, lag 0.95", func() job { return job{lag: 0.95, cvA: 0.1, cvB: 0.1, effect: 0.9, stalled: -1, decrease: true} }, 0.02, any},
	}
}

// TestAcceptance holds the table: 1,000 trials a row, judged at each reading.
func TestAcceptance(t *testing.T) {
	k := policies.DefaultConstants()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range acceptance(rng) {
		var ended [5]float64
		var took []float64
		for range 1000 {
			j := c.make()
			j.rng = rng
			o, seconds := j.live(k)
			ended[o]++
			took = append(took, float64(seconds))
		}
		t.Logf("%-50s better %5.1f %%  worse %5.1f %%  inconclusive %5.1f %%  median %2.0f s", c.name, ended[Better]/10, ended[Worse]/10, ended[Inconclusive]/10, observe.Median(took))
		switch {
		case ended[Better] > 1000*c.better:
			t.Errorf("%s: %.1f %% are kept as better, and %.0f %% may be", c.name, ended[Better]/10, 100*c.better)
		case ended[Worse] > 1000*c.worse:
			t.Errorf("%s: %.1f %% are returned as worse, and %.0f %% may be", c.name, ended[Worse]/10, 100*c.worse)
		case observe.Median(took) > 12:
			t.Errorf("%s: the median decision takes %.0f s, and 12 are demanded", c.name, observe.Median(took))
		case ended[Pending]+ended[Void] > 0:
			t.Errorf("%s: %.0f of 1,000 never end", c.name, ended[Pending])
		}
	}
}

// TestPower: what is really there is found, in the end.
func TestPower(t *testing.T) {
	k := policies.DefaultConstants()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		name  string
		job   job
		least float64 // share of 1,000 that are told right
		right Outcome
	}{
		{"a gain of 5 % of a steady job", job{lag: 0.8, cvA: 0.02, cvB: 0.02, effect: 1.05, stalled: -1}, 0.9, Better},
		{"a gain of 10 %", job{lag: 0.5, cvA: 0.05, cvB: 0.05, effect: 1.1, stalled: -1}, 0.75, Better},
		{"a loss of 10 %", job{lag: 0.5, cvA: 0.05, cvB: 0.05, effect: 0.9, stalled: -1}, 0.5, Worse},
		{"a loss of half", job{lag: 0.5, cvA: 0.1, cvB: 0.1, effect: 0.5, stalled: -1}, 0.95, Worse},
		{"a take that nothing misses", job{lag: 0.8, cvA: 0.02, cvB: 0.02, effect: 1, stalled: -1, decrease: true}, 0.4, Better},
	} {
		right := 0.0
		for range 1000 {
			j := c.job
			j.rng = rng
			if o, _ := j.live(k); o == c.right {
				right++
			}
		}
		t.Logf("%-35s %5.1f %%", c.name, right/10)
		if right < 1000*c.least {
			t.Errorf("%s: %.1f %% are told as %s", c.name, right/10, c.right)
		}
	}
}
