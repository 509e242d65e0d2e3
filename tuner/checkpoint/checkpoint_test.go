package checkpoint

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

const mib = 1 << 20

// job makes readings of a second: every so many, for pause of them, it writes and makes no steps.
type job struct {
	every, pause int
	bytes, rate  float64
	noise        float64 // of the rate, relative
	log          float64 // bytes that each second writes beside
}

func (j job) run(t *Tracker, seconds int) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range seconds {
		ticks, bytes := j.rate*(1+j.noise*random.NormFloat64()), j.log
		if i%j.every < j.pause {
			ticks, bytes = 0, j.bytes/float64(j.pause)
		}
		t.Add("torch.backward", 1, ticks, bytes)
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s: %v, want %v ± %v", what, got, want, within)
	}
}

func TestSeen(t *testing.T) {
	for name, j := range map[string]job{
		"steady":  {every: 30, pause: 3, bytes: 60 * mib, rate: 5},
		"noisy":   {every: 30, pause: 3, bytes: 60 * mib, rate: 5, noise: 0.1},
		"it logs": {every: 30, pause: 3, bytes: 60 * mib, rate: 5, log: 64 << 10},
		"short":   {every: 10, pause: 1, bytes: 8 * mib, rate: 5, noise: 0.02},
	} {
		t.Run(name, func(t *testing.T) {
			var tr Tracker
			j.run(&tr, 600)
			s := tr.Seen()
			near(t, "seconds from one to the next", s.EverySeconds, float64(j.every), 1e-6)
			near(t, "seconds lost", s.LostSeconds, float64(j.pause), 0.1*float64(j.pause)+j.noise)
			near(t, "bytes", s.Bytes, j.bytes, 1)
			if s.Cycles < minCycles || s.Cycles > cycles || s.LowSeconds > s.LostSeconds || s.HighSeconds < s.LostSeconds || s.LowSeconds > float64(j.pause) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// What is no pause, or costs nothing, is not told.
func TestNothingSeen(t *testing.T) {
	for name, feed := range map[string]func(*Tracker){
		"nothing written": func(tr *Tracker) { job{every: 1 << 30, rate: 5}.run(tr, 600) },
		"writes all the time": func(tr *Tracker) {
			job{every: 1 << 30, rate: 5, log: 10 * mib, noise: 0.1}.run(tr, 600)
		},
		"by another thread, and its steps go on": func(tr *Tracker) {
			random := rand.New(rand.NewPCG(3, 4))
			for i := range 600 {
				bytes := 0.0
				if i%20 == 0 {
					bytes = 60 * mib
				}
				tr.Add("torch.backward", 1, 5*(1+0.05*random.NormFloat64()), bytes)
			}
		},
		"four pauses": func(tr *Tracker) { job{every: 30, pause: 3, bytes: 60 * mib, rate: 5}.run(tr, 5*30) },
		"its steps are not counted": func(tr *Tracker) {
			for i := range 600 {
				tr.Add("", 1, 0, float64(i%20/19)*60*mib)
			}
		},
		"another source counts each time": func(tr *Tracker) {
			for i := range 600 {
				tr.Add([]string{"a", "b"}[i/60%2], 1, 5, float64(i%20/19)*60*mib)
			}
		},
		"no steps at all": func(tr *Tracker) { job{every: 30, pause: 3, bytes: 60 * mib}.run(tr, 600) },
		"two hours apart": func(tr *Tracker) { job{every: 7200, pause: 3, bytes: 60 * mib, rate: 5}.run(tr, 8*7200) },
	} {
		t.Run(name, func(t *testing.T) {
			var tr Tracker
			feed(&tr)
			if s := tr.Seen(); s != (Seen{}) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Whatever readings hold, what is told is finite, in order, and of what happened.
func TestSeenIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr Tracker
		any := rapid.OneOf(rapid.Float64Range(0, 10), rapid.Float64Range(0, 1e15), rapid.Just(0.0), rapid.Float64Range(mib, 64*mib))
		for range rapid.IntRange(0, 400).Draw(t, "readings") {
			tr.Add(rapid.SampledFrom([]string{"a", "a", "a", "a", "b", ""}).Draw(t, "source"), any.Draw(t, "seconds"), any.Draw(t, "ticks"), any.Draw(t, "bytes"))
		}
		s := tr.Seen()
		for _, v := range []float64{s.EverySeconds, s.LostSeconds, s.LowSeconds, s.HighSeconds, s.Bytes} {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Fatalf("%+v", s)
			}
		}
		if s.LowSeconds > s.LostSeconds || s.LostSeconds > s.HighSeconds || s.Cycles > cycles || s.LostSeconds > s.EverySeconds || s.EverySeconds > longest {
			t.Fatalf("%+v", s)
		}
	})
}

// No other interval costs less than the best.
func TestBest(t *testing.T) {
	for _, lost := range []float64{0.1, 3, 60} {
		const day = 86400
		best := Best(lost, day)
		for _, other := range []float64{best / 3, best * 0.9, best * 1.1, best * 3} {
			if Cost(other, lost, day) <= Cost(best, lost, day) {
				t.Errorf("%v s lost: each %v s costs less than each %v s", lost, other, best)
			}
		}
	}
	near(t, "3 s, once a day", Best(3, 86400), 720, 1)
}
