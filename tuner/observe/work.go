package observe

import (
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/checkpoint"
)

// A relative witness is a quantity that grows with work done, whatever the work is. None is
// ever shown as steps: it tells how much faster a job became, not how fast it is.

// Witness names one.
type Witness uint8

// The witnesses.
const (
	WitnessBytes    Witness = iota // read and written by its threads, by any call
	WitnessFaults                  // minor page faults
	WitnessHandOffs                // wake-ups between its threads
	WitnessDisk                    // bytes from and to disks
	NumWitnesses
)

// String returns the witness's name for people.
func (w Witness) String() string {
	return [NumWitnesses]string{"bytes read and written", "page faults", "hand-offs", "disk bytes"}[w]
}

// workReading is what the witnesses counted in one reading.
type workReading struct {
	startNs, endNs int64
	amounts        [NumWitnesses]float64
	open           float64 // seconds in which its quota did not stop it
}

// Work holds the readings of a container's relative witnesses.
type Work struct {
	readings []workReading
	SeenNs   int64 // end of the latest reading in which anything was done, also under excess steal, or the job was stopped
	Pauses   checkpoint.Tracker
}

func (w *Work) add(slice *Window, use Use, excessSteal bool, source string) {
	source, _, _ = strings.Cut(source, " ÷ ") // steps, as far as they are known
	p := checkpoint.Reading{StartNs: slice.StartNs, EndNs: slice.EndNs}
	for _, t := range slice.Ticks {
		if t.Source == source {
			p.Ticks, p.AtOnce, p.EveryNs = p.Ticks+float64(t.Count), p.AtOnce+1, max(p.EveryNs, t.EveryNs)
		}
	}
	r := workReading{startNs: slice.StartNs, endNs: slice.EndNs, open: slice.Seconds() * (1 - min(use.Lost, 0.99))}
	for _, t := range slice.Threads {
		r.amounts[WitnessBytes] += float64(t.IOBytes)
		r.amounts[WitnessFaults] += float64(t.Faults)
		p.Bytes += float64(t.WrittenBytes)
		for _, e := range t.Edges {
			if e.Waker > 0 && e.State != probes.StateTimer && e.State != probes.StateChild {
				r.amounts[WitnessHandOffs] += float64(e.Count)
			}
		}
	}
	w.Pauses.Add(source, p)
	r.amounts[WitnessDisk] = float64(slice.Block.ReadBytes + slice.Block.WriteBytes)
	if slice.Stopped || r.amounts != [NumWitnesses]float64{} {
		w.SeenNs = r.endNs
	}
	if !excessSteal && !slice.Stopped {
		w.readings = keep(append(w.readings, r))
	}
}

// Seconds is how long it was read since an instant, s.
func (w *Work) Seconds(fromNs int64) (s float64) {
	for _, r := range since(w.readings, fromNs, func(r workReading) int64 { return r.startNs }) {
		s += float64(r.endNs-r.startNs) / 1e9
	}
	return s
}

// Sound are the witnesses that qualify in the readings since an instant: their amount for each
// second in which the quota did not stop the container is steady, and they are not driven by
// time, as a poll or a heartbeat is: such a count stays level while those seconds vary. What
// changed for the container at changeNs may have changed its pace: before and after it are each
// held against their own mean; 0: nothing did.
func (w *Work) Sound(k *policies.Constants, fromNs, changeNs int64) []Witness {
	readings := since(w.readings, fromNs, func(r workReading) int64 { return r.startNs })
	if float64(len(readings)) < k.TrialBaseline {
		return nil
	}
	var out []Witness
	open := make([]float64, len(readings))
	change := 0 // readings before it
	for i, r := range readings {
		if open[i] = r.open; r.endNs <= changeNs {
			change = i + 1
		}
	}
	for kind := range NumWitnesses {
		amounts, perOpen := make([]float64, len(readings)), make([]float64, len(readings))
		for i, r := range readings {
			amounts[i], perOpen[i] = r.amounts[kind], r.amounts[kind]/max(r.open, 1e-3)
		}
		overMean(perOpen[:change])
		overMean(perOpen[change:])
		level, busy := variation(amounts), variation(open)
		byTime := busy >= k.WitnessSpread/3 && level < busy/2
		if stat.Mean(amounts, nil) >= 1 && variation(perOpen) <= k.WitnessSpread && !byTime {
			out = append(out, kind)
		}
	}
	return out
}

// Level is the mean amount a second of each witness, over the readings since an instant.
func (w *Work) Level(fromNs int64) (level [NumWitnesses]float64) {
	seconds := max(w.Seconds(fromNs), 1e-9)
	for _, r := range since(w.readings, fromNs, func(r workReading) int64 { return r.startNs }) {
		for kind := range level {
			level[kind] += r.amounts[kind] / seconds
		}
	}
	return level
}

// Series is the work done since an instant over an earlier level: each reading's median of witnesses.
func (w *Work) Series(sound []Witness, level [NumWitnesses]float64, fromNs int64) []RateSample {
	readings := since(w.readings, fromNs, func(r workReading) int64 { return r.startNs })
	if len(sound) == 0 {
		return nil
	}
	out := make([]RateSample, 0, len(readings))
	for _, r := range readings {
		over := make([]float64, len(sound))
		for i, kind := range sound {
			over[i] = r.amounts[kind] / max(level[kind], 1e-9) / (float64(r.endNs-r.startNs) / 1e9)
		}
		out = append(out, RateSample{StartNs: r.startNs, EndNs: r.endNs, Rate: Median(over)})
	}
	return out
}

// Median is the middle of values, the mean of the middle two; 0 for none.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return s[(len(s)-1)/2]/2 + s[len(s)/2]/2
}

// Names lists witnesses for people.
func Names(sound []Witness) string {
	names := make([]string, len(sound))
	for i, w := range sound {
		names[i] = w.String()
	}
	return strings.Join(names, ", ")
}

// overMean divides values by their mean, where there is one.
func overMean(values []float64) {
	if m := stat.Mean(values, nil); m > 0 {
		floats.Scale(1/m, values)
	}
}

// variation is the coefficient of variation.
func variation(values []float64) float64 {
	m, sd := stat.MeanStdDev(values, nil)
	if !(m > 0) {
		return math.Inf(1)
	}
	return sd / m
}
