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
	before       int     // seconds of the pause before it writes
	behind       int     // and behind, while it waits for the disk
}

// feeder adds readings one after the other.
type feeder struct {
	Tracker
	ns int64
}

func (f *feeder) add(source string, r Reading, seconds float64) {
	r.StartNs, r.EndNs = f.ns, f.ns+int64(seconds*1e9)
	f.ns = r.EndNs
	f.Add(source, r)
}

func (j job) run(f *feeder, seconds int) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range seconds {
		r := Reading{Ticks: j.rate * (1 + j.noise*random.NormFloat64()), AtOnce: 1, Bytes: j.log}
		if at := i % j.every; at < j.pause {
			if r.Ticks = 0; at >= j.before && at < j.pause-j.behind {
				r.Bytes = j.bytes / float64(j.pause-j.before-j.behind)
			}
		}
		f.add("torch.backward", r, 1)
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
		"steady":               {every: 30, pause: 3, bytes: 60 * mib, rate: 5},
		"noisy":                {every: 30, pause: 3, bytes: 60 * mib, rate: 5, noise: 0.1},
		"it logs":              {every: 30, pause: 3, bytes: 60 * mib, rate: 5, log: 64 << 10},
		"short":                {every: 10, pause: 1, bytes: 8 * mib, rate: 5, noise: 0.02},
		"works before it":      {every: 60, pause: 12, bytes: 60 * mib, rate: 5, noise: 0.02, before: 8},
		"waits for its disk":   {every: 60, pause: 12, bytes: 60 * mib, rate: 5, noise: 0.02, behind: 8},
		"both, and logs":       {every: 60, pause: 12, bytes: 60 * mib, rate: 5, noise: 0.02, before: 4, behind: 4, log: 1000},
		"waits for long":       {every: 100, pause: 40, bytes: 60 * mib, rate: 5, noise: 0.02, behind: 35},
		"a slow step a second": {every: 100, pause: 10, bytes: 60 * mib, rate: 1, noise: 0.02},
	} {
		t.Run(name, func(t *testing.T) {
			var f feeder
			j.run(&f, 20*j.every)
			s := f.Seen()
			near(t, "seconds from one to the next", s.EverySeconds, float64(j.every), 1e-6)
			near(t, "seconds lost", s.LostSeconds, float64(j.pause), 0.1*float64(j.pause)+j.noise)
			near(t, "bytes", s.Bytes, j.bytes, float64(j.pause)*j.log+1)
			if s.Cycles < minCycles || s.Cycles > cycles || s.LowSeconds > float64(j.pause) || s.HighSeconds < float64(j.pause) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// phased makes a step each so many seconds, of which it saves at the end, at the same place in each cycle.
func phased(f *feeder, step, save, reading float64, steps int) {
	cycle := float64(steps)*step + save
	for at := 0.0; at < 20*cycle; at += reading {
		r := Reading{AtOnce: 1}
		for k := range steps {
			begins := 0.4*step + float64(k)*step // where its backward pass is entered
			if in := math.Mod(at, cycle); in <= begins && begins < in+reading {
				r.Ticks++
			}
		}
		if in := math.Mod(at, cycle); in <= cycle-save/2 && cycle-save/2 < in+reading {
			r.Bytes = 60 * mib
		}
		f.add("torch.backward", r, reading)
	}
}

// Steps that are longer than a reading fall to either side of a pause, always to the same one.
func TestSlowSteps(t *testing.T) {
	for name, c := range map[string]struct{ step, save, reading float64 }{
		"half a second of a step of ten": {10, 0.5, 2}, "readings of four seconds": {10, 0.5, 4}, "twenty seconds": {10, 20, 2}, "a step of three": {3, 12, 1},
	} {
		var f feeder
		phased(&f, c.step, c.save, c.reading, 8)
		if s := f.Seen(); s != (Seen{}) && (s.LowSeconds > c.save || s.HighSeconds < c.save) || s == (Seen{}) && c.save > 2*c.step {
			t.Errorf("%s: %+v, a save takes %.1f s", name, s, c.save)
		}
	}
}

// Reports of many steps at once do so as well.
func TestReportsOfManySteps(t *testing.T) {
	var f feeder
	for i := range 1200 {
		r := Reading{AtOnce: 1, EveryNs: 10e9}
		if i%60 >= 2 && i%10 == 5 { // a line each ten seconds, and one late or early means nothing
			r.Ticks = 50
		}
		if i%60 < 2 {
			r.Bytes = 30 * mib
		}
		f.add("log", r, 1)
	}
	if s := f.Seen(); s.LowSeconds > 2 {
		t.Errorf("%+v, a save takes 2 s", s)
	}
}

// What is no pause, or costs nothing, is not told.
func TestNothingSeen(t *testing.T) {
	for name, feed := range map[string]func(*feeder){
		"nothing written":     func(f *feeder) { job{every: 1 << 30, rate: 5}.run(f, 600) },
		"writes all the time": func(f *feeder) { job{every: 1 << 30, rate: 5, log: 10 * mib, noise: 0.1}.run(f, 600) },
		"by another thread, and its steps go on": func(f *feeder) {
			random := rand.New(rand.NewPCG(3, 4))
			for i := range 600 {
				f.add("torch.backward", Reading{Ticks: 5 * (1 + 0.05*random.NormFloat64()), AtOnce: 1, Bytes: float64(i%20/19) * 60 * mib}, 1)
			}
		},
		"five pauses": func(f *feeder) { job{every: 30, pause: 3, bytes: 60 * mib, rate: 5}.run(f, 5*30) },
		"its steps are not counted": func(f *feeder) {
			for i := range 600 {
				f.add("", Reading{Bytes: float64(i%20/19) * 60 * mib}, 1)
			}
		},
		"another source counts each time": func(f *feeder) {
			for i := range 600 {
				f.add([]string{"a", "b"}[i/60%2], Reading{Ticks: 5, Bytes: float64(i%20/19) * 60 * mib}, 1)
			}
		},
		"a reading is missing in each cycle": func(f *feeder) {
			for range 20 {
				job{every: 30, pause: 3, bytes: 60 * mib, rate: 5}.run(f, 30)
				f.ns += 1e9
			}
		},
		"no steps at all": func(f *feeder) { job{every: 30, pause: 3, bytes: 60 * mib}.run(f, 600) },
		"it saves no more": func(f *feeder) {
			job{every: 30, pause: 3, bytes: 60 * mib, rate: 5}.run(f, 600)
			job{every: 1 << 30, rate: 5}.run(f, longest+60)
		},
		"two hours apart": func(f *feeder) { job{every: 7200, pause: 3, bytes: 60 * mib, rate: 5}.run(f, 8*7200) },
	} {
		t.Run(name, func(t *testing.T) {
			var f feeder
			feed(&f)
			if s := f.Seen(); s != (Seen{}) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Whatever readings hold, what is told is finite, in order, and of what happened.
func TestSeenIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr Tracker
		ns := int64(0)
		any := rapid.OneOf(rapid.Float64Range(0, 10), rapid.Float64Range(0, 1e15), rapid.Just(0.0), rapid.Float64Range(mib, 64*mib))
		for range rapid.IntRange(0, 400).Draw(t, "readings") {
			r := Reading{StartNs: ns, EndNs: ns + int64(any.Draw(t, "seconds")*1e3), Ticks: any.Draw(t, "ticks"), AtOnce: any.Draw(t, "at once"), EveryNs: int64(any.Draw(t, "every")), Bytes: any.Draw(t, "bytes")}
			ns = r.EndNs + int64(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, -1}).Draw(t, "gap"))
			tr.Add(rapid.SampledFrom([]string{"a", "a", "a", "a", "b", ""}).Draw(t, "source"), r)
		}
		s := tr.Seen()
		for _, v := range []float64{s.EverySeconds, s.LostSeconds, s.LowSeconds, s.HighSeconds, s.Bytes} {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Fatalf("%+v", s)
			}
		}
		if s.LowSeconds > s.LostSeconds || s.LostSeconds > s.HighSeconds || s.Cycles > cycles || s.HighSeconds > s.EverySeconds {
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
