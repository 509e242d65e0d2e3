package observe

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// TestWaitingOfWhoTrains: where it is known which thread trains, what that one waits for a CPU
// counts. Two ranks whose helpers wait half of the time, one at least of them, lose no half.
func TestWaitingOfWhoTrains(t *testing.T) {
	k := policies.DefaultConstants()
	for _, tt := range []struct {
		name  string
		ticks uint64
		want  float64
	}{
		{"steps are counted", 10, 0.1},
		{"nobody counts them", 0, 0.5},
	} {
		w := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 600 * ms, probes.StateQueued: 100 * ms, probes.StateTimer: 300 * ms}))
		w.HasCgroup, w.Cgroup.HasPSI, w.Cgroup.CPUSome = true, true, 0.5
		if tt.ticks > 0 {
			w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: tt.ticks, FromNs: 1, LastNs: w.EndNs}}
		}
		var s State
		s.addUse(k, w, Read(k, w, nil))
		if got := s.Uses[0].Waiting; math.Abs(got-tt.want) > 0.02 {
			t.Errorf("%s: it waits %.2f of its time, want %.2f", tt.name, got, tt.want)
		}
	}
}

// TestQueuedIsWhatOthersHad: each thread that could run and stood behind other work wanted a CPU. One
// that was put on an idle CPU stood behind nobody. Where no thread is read, pressure tells.
func TestQueuedIsWhatOthersHad(t *testing.T) {
	k := policies.DefaultConstants()
	waits := func(tid int32, alone uint64) Thread {
		th := thread(tid, trainer, 1, times{probes.StateRun: 400 * ms, probes.StateQueued: 600 * ms})
		th.AloneNs = alone
		return th
	}
	read := oneSecond(waits(trainer, 0), waits(trainer+1, 600*ms), waits(trainer+2, 100*ms))
	pressure := &Window{StartNs: 1, EndNs: 1 + second, HasCgroup: true, Cgroup: Cgroup{CPUNs: 5e8, HasPSI: true, CPUSome: 0.5}}
	for name, tt := range map[string]struct {
		w    *Window
		want float64
	}{"threads": {read, 1.1}, "pressure": {pressure, 0.5}} {
		var s State
		s.addUse(k, tt.w, Reading{})
		if got := s.Mean(func(u Use) float64 { return u.Queued }); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%s: %.2f CPUs were queued for, want %.2f", name, got, tt.want)
		}
	}
}

// TestPeakIsTheMostOfOneReading: a second at four CPUs is not lost in a mean, nor forgotten when less
// is used; of one that its quota stopped, that quota is the least that it wanted.
func TestPeakIsTheMostOfOneReading(t *testing.T) {
	k := policies.DefaultConstants()
	for _, tt := range []struct {
		quota, throttled, want float64
	}{{0, 0, 4}, {6, 0.9, 6}} {
		var s State
		for i, cpus := range []int64{1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 0} {
			from := 7e9 + int64(i)*1e9
			w := &Window{StartNs: from, EndNs: from + 1e9, HasCgroup: true, Cgroup: Cgroup{CPUNs: uint64(cpus * 1e9), QuotaCPUs: tt.quota, ThrottledShare: tt.throttled}}
			if tt.quota > 0 { // of whom threads tell that its quota stopped them
				w.HasKernel, w.Threads = true, []Thread{thread(trainer, trainer, 1, times{probes.StateRun: 500 * ms, probes.StateThrottled: 500 * ms})}
			}
			s.addUse(k, w, Reading{})
		}
		if math.Abs(s.PeakCPUs-tt.want) > 1e-9 || s.PeakNs != 7e9 {
			t.Errorf("a peak of %.2f CPUs since %d, want %.2f since 7e9", s.PeakCPUs, s.PeakNs, tt.want)
		}
	}
}

// TestPeakHasWhatOtherWorkKept: a container that waits behind others wants more than it gets.
func TestPeakHasWhatOtherWorkKept(t *testing.T) {
	var s State
	s.addUse(policies.DefaultConstants(), &Window{StartNs: 1e9, EndNs: 2e9, HasKernel: true, HasCgroup: true, Cgroup: Cgroup{CPUNs: 5e8},
		Threads: []Thread{thread(trainer, trainer, 1, times{probes.StateRun: 500 * ms, probes.StateQueued: 400 * ms})}}, Reading{})
	if math.Abs(s.PeakCPUs-0.9) > 1e-9 {
		t.Errorf("it used half a CPU, and queued for 0.4: a peak of %.2f", s.PeakCPUs)
	}
}

// TestTicksPerStepEndWithTheJob: what three windows said of one job is not said of the next, nor are two a beginning.
func TestTicksPerStepEndWithTheJob(t *testing.T) {
	var s State
	for range agreeing {
		s.learnPattern(Reading{Tick: SourceSyncs, PerStep: 4}, false)
	}
	for range agreeing - 1 {
		s.learnPattern(Reading{Tick: SourceLaunches, PerStep: 9}, false)
	}
	if s.perStep[SourceSyncs] != 4 {
		t.Fatalf("nothing is known: %v", s.perStep)
	}
	s.Forget()
	s.learnPattern(Reading{Tick: SourceLaunches, PerStep: 9}, false)
	if len(s.perStep) != 0 || s.pattern.windows != 1 {
		t.Errorf("of another job it knows %v and %+v", s.perStep, s.pattern)
	}
}

// TestTicksPerStepFollowTheJob: windows that agree change them, also back to one. While a trial compares they stay.
func TestTicksPerStepFollowTheJob(t *testing.T) {
	type window struct {
		perStep int
		fixed   bool
	}
	seen := func(perStep int) window { return window{perStep: perStep} }
	for name, c := range map[string]struct {
		windows []window
		want    int
	}{
		"one":                  {[]window{seen(1), seen(1), seen(1), seen(1)}, 0},
		"four":                 {[]window{seen(4), seen(4), seen(4)}, 4},
		"too few":              {[]window{seen(4), seen(4), seen(1)}, 0},
		"then two":             {[]window{seen(4), seen(4), seen(4), seen(2), seen(2), seen(2)}, 2},
		"then one":             {[]window{seen(4), seen(4), seen(4), seen(1), seen(1), seen(1)}, 1},
		"then one, and a four": {[]window{seen(4), seen(4), seen(4), seen(1), seen(1), seen(4), seen(1)}, 4},
		"then not told":        {[]window{seen(4), seen(4), seen(4), seen(0), seen(0), seen(0)}, 4},
		"then one, in a trial": {[]window{seen(4), seen(4), seen(4), {1, true}, {1, true}, {1, true}}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var s State
			for _, w := range c.windows {
				s.learnPattern(Reading{Tick: SourceSyncs, PerStep: w.perStep}, w.fixed)
			}
			if got := s.perStep[SourceSyncs]; got != c.want {
				t.Errorf("%d in a step, want %d", got, c.want)
			}
		})
	}
}

// TestTheFirstWindowWaitsForOneStep: shares of time tell a class before five steps tell what one costs.
func TestTheFirstWindowWaitsForOneStep(t *testing.T) {
	k := policies.DefaultConstants()
	few, computes := policies.Rate{Ticks: 3}, policies.Cost{TrainerCPU: 0.9, Device: 0.1}
	for name, c := range map[string]struct {
		r            Reading
		first, later float64
	}{
		"slow steps, counted":                    {Reading{Tick: "torch.backward", Rate: few}, 3, 60},
		"one step of them":                       {Reading{Tick: "torch.backward", Rate: policies.Rate{Ticks: 1}}, 20, 20},
		"a slow rhythm of one that wants a CPU":  {Reading{Tick: SourceTimer, Rate: few, Aggregated: true, Cost: computes}, 3, 60},
		"a slow rhythm of one that sleeps":       {Reading{Tick: SourceTimer, Rate: few, Aggregated: true, Cost: policies.Cost{Device: 0.9}}, 60, 60},
		"no rhythm, of one that wants a CPU":     {Reading{Aggregated: true, Cost: computes}, 3, 3},
		"no rhythm, of one that waits for users": {Reading{Aggregated: true, Cost: policies.Cost{Device: 0.9}}, 20, 20},
	} {
		if first, later := longest(k, c.r, true), longest(k, c.r, false); first != c.first || later != c.later {
			t.Errorf("%s: %v s at first and %v s later, want %v and %v", name, first, later, c.first, c.later)
		}
	}
}

// TestUseUnreadForOneReading: the counter stands for a reading, and makes two steps in the next. That tells
// neither that nothing was used nor that twice as much was; a window of both goes by the threads.
func TestUseUnreadForOneReading(t *testing.T) {
	k := policies.DefaultConstants()
	for name, tt := range map[string]struct {
		missing string
		threads bool
		uses    int
	}{
		"v2":            {"cpu.stat", true, 29},
		"v2, no number": {"cpu.stat:usage_usec", true, 29},
		"v1":            {"cpuacct.usage", true, 29},
		"no threads":    {"cpu.stat", false, 27},
	} {
		var s State
		var b Builder
		var differ DeltaTracker
		var read uint64
		for i := range int64(30) {
			g := &probes.Cgroup{AtNs: i * second, MemoryLimit: -1}
			if i == 20 {
				g.Missing = []string{tt.missing}
			} else {
				read = uint64(i) * 5e8
			}
			g.CPUUsageNs = read
			sample, host := probes.Sample{Container: "x", Cgroup: g}, probes.Host{AtNs: i*second + 1, CPUs: 4}
			if tt.threads {
				th := probes.Thread{TID: 7, TGID: 7, AtNs: i * second}
				th.Ns[probes.StateRun] = uint64(i) * 5e8
				sample.Kernel = &probes.Kernel{Threads: []probes.Thread{th}}
			}
			s.Add(k, sample, host, tt.threads, 0, false)
			if w := b.Add(differ.Next(sample, host)); w != nil && tt.threads && math.Abs(w.UsedCPUs()-0.5) > 0.01 {
				t.Errorf("%s: %.2f CPUs in a window of %.0f s", name, w.UsedCPUs(), w.Seconds())
			}
		}
		for _, u := range s.Uses {
			if math.Abs(u.CPUs-0.5) > 0.01 || u.Held != (u.EndNs/second == 20 || u.EndNs/second == 21) {
				t.Errorf("%s, second %d: it used %.2f CPUs, held %v", name, u.EndNs/second, u.CPUs, u.Held)
			}
		}
		if len(s.Uses) != tt.uses || math.Abs(s.PeakCPUs-0.5) > 0.01 {
			t.Errorf("%s: %d readings, want %d; a peak of %.2f CPUs", name, len(s.Uses), tt.uses, s.PeakCPUs)
		}
	}
}

// TestNothingReadIsNoUse: a container of which nothing was read for a while did not use nothing in it, and
// where its accounting could not be read nobody knows that nothing held it back.
func TestNothingReadIsNoUse(t *testing.T) {
	k := policies.DefaultConstants()
	var s State
	var used uint64
	for i := range int64(90) {
		used += 5e8
		sample := probes.Sample{Container: "x", Kernel: &probes.Kernel{}, Cgroup: &probes.Cgroup{AtNs: i * second, CPUUsageNs: used, MemoryLimit: -1, Throttling: []probes.Throttling{{QuotaUs: 50000, PeriodUs: 100000, Periods: uint64(10 * i)}}}}
		switch {
		case i >= 20 && i < 40:
			sample.Kernel, sample.Cgroup = nil, nil
		case i >= 60:
			sample.Cgroup = nil
		}
		s.Add(k, sample, probes.Host{AtNs: i*second + 1, CPUs: 4}, true, 0, false)
	}
	for _, u := range s.Uses {
		if at := u.EndNs / second; !u.Held && u.CPUs < 0.49 {
			t.Errorf("second %d: it used %.2f CPUs, and nothing held it back: %+v", at, u.CPUs, u)
		}
	}
}
