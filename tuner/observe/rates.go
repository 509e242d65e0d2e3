package observe

import (
	"cmp"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
)

// Series are a container's rates by its counted source.
type Series struct {
	Source    string
	Confirmed bool // ticks are steps, for this source
	// Samples are evidence; Shown are these and those under excess steal, which people see all
	// the same.
	Samples, Shown []RateSample
	// Why says why there is no rate now; "" if there is one, or none was ever seen.
	Why string

	open    Builder     // until two ticks are in
	paused  bool        // the latest reading held a pause: the next one begins in it
	held    *RateSample // the reading with the latest pause, until the next one tells what it was
	denied  int         // windows in a row in which no other source agreed
	resumed bool        // no reading came since somebody stopped the job: the next began before that
	restNs  int64       // up to when the time since the latest reading is not the job's own
}

// pauseSteps is how many usual steps a stretch without two ticks must last to count as a
// checkpoint, an evaluation or an epoch's end, which are no evidence either way.
const pauseSteps = 8

// firstTicks is how long a series waits at its begin for two ticks of a framework.
const firstTicks = 10 * second

// add takes one slice, and returns a reading of the rate as soon as it holds two ticks.
func (s *Series) add(k *policies.Constants, slice *Window, known PerStep, settled string, maxSteal float64) *RateSample {
	w, r := s.next(k, slice, known, settled)
	if w == nil {
		return nil
	}
	s.Why = ""
	paused, before := s.paused, s.held
	s.paused, s.held = false, nil
	sample := RateSample{StartNs: w.StartNs, EndNs: w.EndNs, Rate: r.Rate.PerSecond, FromNs: r.Rate.FromNs, ToNs: r.Rate.ToNs}
	if w.StealShare > maxSteal {
		if s.Source == "" {
			*s = Series{Source: r.Rate.Source}
		}
		if r.Rate.Source == s.Source && !paused {
			s.Shown = keep(append(s.Shown, sample))
		}
		return nil
	}
	if paused {
		// Two in a row are no pause but a slower pace, and both count.
		if before == nil || r.Rate.Source != s.Source || s.Source == "" {
			s.held = &sample
			return nil
		}
		s.Samples, s.Shown = append(s.Samples, *before), append(s.Shown, *before)
	}
	if r.Rate.Source != s.Source {
		if len(s.Samples) > 0 && r.Rate.Source != settled {
			return nil // one odd slice does not end a series; the windows decide on the source
		}
		*s = Series{Source: r.Rate.Source}
	}
	s.Samples, s.Shown = keep(append(s.Samples, sample)), keep(append(s.Shown, sample))
	return &s.Samples[len(s.Samples)-1]
}

// next is the next stretch that tells of a rate; nil while it is under way.
func (s *Series) next(k *policies.Constants, slice *Window, known PerStep, settled string) (w *Window, r Reading) {
	if slice.Stopped {
		s.open.Cut()
		if s.held, s.paused, s.resumed, s.restNs = nil, false, true, slice.EndNs; s.Source != "" {
			s.Why = whyStopped
		}
		return nil, r
	} else if s.Why == whyStopped {
		s.Why = ""
	}
	if w = s.open.Add(slice); w == nil || !w.HasKernel {
		return nil, r
	}
	if r = Read(k, w, known); r.Rate.Ticks < needTicks {
		s.silent(k, w)
		return nil, r
	}
	if settled != "" && r.Rate.Source != settled && w.Seconds() <= k.WindowMaxSeconds {
		return nil, r // the source that windows found may be a slower one: its second tick is still to come
	}
	if s.Source == "" && w.EndNs-w.StartNs <= firstTicks && slices.ContainsFunc(w.Ticks, func(t Tick) bool { return t.TGID == r.Root && t.Source != r.Rate.Source && t.Count < needTicks }) {
		return nil, r // the framework ticks, slowly: a lesser source that is faster would begin the series
	}
	s.open.Cut()
	if s.resumed { // its first tick may be of before the stop
		s.resumed, s.restNs = false, w.EndNs
		return nil, r
	}
	return w, r
}

// silent notes that a stretch holds no two ticks yet.
func (s *Series) silent(k *policies.Constants, w *Window) {
	usual := s.Now()
	if usual > 0 && w.Seconds() > 3 && w.Seconds()*usual > pauseSteps {
		s.paused = true
	}
	if usual > 0 && w.Seconds()*usual > 2*pauseSteps && w.Seconds() > k.WindowMaxSeconds/2 {
		s.Why = "no " + s.Source + " for some time"
	}
	if w.Seconds() > k.WindowMaxSeconds {
		s.open.Cut()
	}
}

// cut begins a new reading, so that none holds two allocations.
func (s *Series) cut(_ int64) { s.open.Cut(); s.held = nil }

// confirm keeps whether ticks are steps: one window in which another source agrees
// says so, several in a row in which none does take it back.
func (s *Series) confirm(r Reading) {
	if r.Rate.Source != s.Source {
		return
	}
	switch {
	case r.Rate.Steps:
		s.Confirmed, s.denied = true, 0
	case r.Agreement < 0:
		s.denied++
	}
	if s.denied >= agreeing {
		s.Confirmed = false
	}
}

const shownReadings = 5 // that the rate is the mean of
const whyStopped = "it is paused or stopped"

// Now is the mean of the latest readings; 0 if there is none, or none any more.
func (s *Series) Now() float64 {
	if s.Why != "" {
		return 0
	}
	return MeanRate(last(s.Samples, shownReadings))
}

// SeenNs is the end of the latest reading, also under excess steal; 0: there is none.
func (s *Series) SeenNs() int64 {
	if len(s.Shown) == 0 {
		return 0
	}
	return s.Shown[len(s.Shown)-1].EndNs
}

// RestNs is how long since the latest reading the job was stopped, or just went on; 0 before the first.
func (s *Series) RestNs() int64 { return max(0, s.restNs-cmp.Or(s.SeenNs(), s.restNs)) }

// Since are the readings that began after an instant.
func (s *Series) Since(ns int64) []RateSample { return since(s.Samples, ns-1, startOf) }

// ShownSince are likewise those that people see.
func (s *Series) ShownSince(ns int64) []RateSample { return since(s.Shown, ns-1, startOf) }

func startOf(r RateSample) int64 { return r.StartNs }

// Display is what people see: the mean of the latest unbroken readings, of the present pace
// alone once two readings tell it, since a mean over both would hold for seconds what is over.
func (s *Series) Display() []RateSample {
	all := last(unbroken(s.Shown), shownReadings)
	if before := s.Shown[:len(s.Shown)-len(all)]; len(all) < agreeing && events(all) < 2*pauseSteps && len(before) > 0 {
		if earlier := last(unbroken(before), shownReadings); events(earlier) > events(all) {
			all = earlier // hardly anything came since the latest pause
		}
	}
	if len(all) <= 2 {
		return all
	}
	pace := MeanRate(last(all, 2))
	from := len(all)
	for from > 0 && math.Abs(all[from-1].Rate-pace) <= pace/2 {
		from--
	}
	if from > len(all)-2 {
		return all // the latest two differ: no pace yet
	}
	for _, r := range all[:from] {
		if math.Abs(r.Rate-pace) <= pace/2 || (r.Rate > pace) != (all[0].Rate > pace) {
			return all // to and fro: noise
		}
	}
	return all[from:]
}

// unbroken are the readings at the end of which each begins where the one before ended.
func unbroken(all []RateSample) []RateSample {
	for i := len(all) - 1; i > 0; i-- {
		if all[i-1].EndNs != all[i].StartNs {
			return all[i:]
		}
	}
	return all
}

// events is how many events the readings counted.
func events(all []RateSample) (n float64) {
	for _, r := range all {
		from, to := r.Span()
		n += r.Rate * float64(to-from) / 1e9
	}
	return n
}
