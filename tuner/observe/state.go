package observe

import (
	"cmp"
	"sort"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// keepReadings bounds what is remembered of one container: five minutes of it.
const keepReadings = 300

const second = int64(1e9)

// State is what is known of one container from its samples: windows, series of rates, of
// use and of memory. It is used from one goroutine.
type State struct {
	Uses   []Use        // one a tick
	Memory []MemoryTick // likewise
	Work   Work         // relative witnesses of progress
	Rates  Series       // of the counted source
	// Latest is the reading of the latest closed window; Windows counts them.
	Latest  Reading
	Windows uint64
	// PeakCPUs is the most CPUs that it wanted in a reading, since PeakNs; 0: none came yet.
	PeakCPUs float64
	PeakNs   int64
	// LaunchedNs is the latest use of a device, by anybody of the container.
	LaunchedNs int64

	differ    DeltaTracker
	window    Builder // until enough ticks are in
	long      Builder // since the latest change of resources, for the cost
	perStep   PerStep // confirmed ticks per step, by source
	pattern   patternSeen
	changedNs int64
}

// News is what one sample brought.
type News struct {
	Slice  *Window     // since the sample before; nil: it is the first
	Closed *Reading    // of a window that it filled
	Rate   *RateSample // a new reading of the rate
}

// Add takes in a sample. stolen is the share of the machine's CPU time that its hypervisor
// usually takes: what is taken beyond that by more than MaxSteal is no evidence. fixed: ticks per step
// are not to be learned now, since a rate is being compared in today's unit.
func (s *State) Add(k *policies.Constants, sample probes.Sample, host probes.Host, watched bool, stolen float64, fixed bool) News {
	if sample.CUDA != nil {
		for _, p := range sample.CUDA.Processes {
			s.LaunchedNs = max(s.LaunchedNs, p.LastNs)
		}
	}
	slice := s.differ.Next(sample, host)
	if slice == nil || slice.EndNs <= slice.StartNs {
		return News{}
	}
	excessSteal := slice.StealShare > stolen+k.MaxSteal
	news := News{Slice: slice}
	s.addMemory(slice)
	if !watched {
		s.addUse(k, slice, Reading{})
		return news
	}
	now := Read(k, slice, s.perStep)
	s.addUse(k, slice, now)
	news.Rate = s.Rates.add(k, slice, s.perStep, s.settledSource(), stolen+k.MaxSteal)
	if s.Rates.paused {
		s.long.Cut()
	}
	s.Work.add(slice, s.Uses[len(s.Uses)-1], excessSteal)
	long := s.long.Add(slice)
	if excessSteal {
		s.long.Cut()
	}
	w := s.window.Add(slice)
	if w.Seconds() < k.WindowSeconds {
		return news
	}
	r := Read(k, w, s.perStep)
	if r.Rate.Ticks < k.MinTicks && w.Seconds() < longest(k, r) {
		return news
	}
	s.window.Cut()
	r = withLongCost(k, r, long, s.perStep)
	if long.Seconds() > k.CostSeconds {
		s.long.Cut()
	}
	s.learnPattern(r, fixed)
	s.Rates.confirm(r)
	r.Rate.Steps = s.Rates.Confirmed && r.Rate.Source == s.Rates.Source
	s.Latest = r
	s.Windows++
	news.Closed = &s.Latest
	return news
}

// longest is how long a window may wait for its steps. Where hardly any is seen, a container
// that wants CPUs most of the time is told by shares of time within seconds; of one that sleeps
// a third of the longest tells as much.
func longest(k *policies.Constants, r Reading) float64 {
	switch {
	case r.Rate.Ticks >= needTicks:
		return k.WindowMaxSeconds
	case r.Aggregated && r.Cost.Device < 1-k.Dominant:
		return 2 * k.WindowSeconds
	}
	return k.WindowMaxSeconds / 3
}

// withLongCost takes the cost from the whole stretch at the present resources:
// within a few seconds loaders may make more batches than the trainer takes, as
// prefetched ones fill or drain, and a step would seem dearer or cheaper than it is.
func withLongCost(k *policies.Constants, r Reading, long *Window, known PerStep) Reading {
	if long == nil || long.EndNs-long.StartNs <= r.Window.EndNs-r.Window.StartNs {
		return r
	}
	if l := Read(k, long, known); l.CostOK && l.Rate.Source == r.Rate.Source {
		r.Cost, r.CostOK = l.Cost, true
	}
	return r
}

// ResourcesChanged says that other resources stand from now on: no window holds both.
func (s *State) ResourcesChanged(nowNs int64) {
	s.changedNs = nowNs
	s.window.Cut()
	s.long.Cut()
	s.Rates.cut(nowNs)
}

// ChangedNs is when resources last changed.
func (s *State) ChangedNs() int64 { return s.changedNs }

// settledSource is the source of the rate by the latest window; where that has too few steps to
// tell, the one that the series has.
func (s *State) settledSource() string { return cmp.Or(s.Latest.Rate.Source, s.Rates.Source) }

// patternSeen counts windows in a row whose calls showed the same ticks per step.
type patternSeen struct {
	source  string
	perStep int
	windows int
}

// agreeing is how many windows must say the same before it is believed.
const agreeing = 3

// learnPattern adopts ticks per step once windows agree on it.
func (s *State) learnPattern(r Reading, fixed bool) {
	if r.PerStep == 0 || s.perStep[r.Tick] == r.PerStep {
		s.pattern = patternSeen{}
		return
	}
	if s.pattern.source == r.Tick && s.pattern.perStep == r.PerStep {
		s.pattern.windows++
	} else {
		s.pattern = patternSeen{source: r.Tick, perStep: r.PerStep, windows: 1}
	}
	if s.pattern.windows < agreeing || r.PerStep < 2 || fixed {
		return
	}
	known := PerStep{r.Tick: r.PerStep}
	for source, n := range s.perStep {
		if source != r.Tick {
			known[source] = n
		}
	}
	s.perStep, s.pattern = known, patternSeen{}
	s.window.Cut()
	s.Rates.cut(s.changedNs)
}

// keep drops the oldest. Whoever holds an older slice of them sees no change: append copies
// them to new room now and then.
func keep[T any](all []T) []T { return all[max(0, len(all)-keepReadings):] }

// last are the latest n, or all.
func last[T any](all []T, n int) []T { return all[max(0, len(all)-n):] }

// since are the items that end after an instant; ends tells when one does.
func since[T any](all []T, fromNs int64, ends func(T) int64) []T {
	return all[sort.Search(len(all), func(i int) bool { return ends(all[i]) > fromNs }):]
}
