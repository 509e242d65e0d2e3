package trial

import (
	"slices"

	"github.com/trimtab/trimtab/tuner/observe"
)

// Together makes one series of several: the mean of their rates, so that a plan that touches
// several jobs is judged by what they gain together. The readings are those of the series that
// has the fewest; where some other has none, there is no reading.
func Together(series [][]observe.RateSample) []observe.RateSample {
	if len(series) == 1 {
		return series[0]
	}
	if len(series) == 0 {
		return nil
	}
	slowest := slices.MinFunc(series, func(a, b []observe.RateSample) int { return len(a) - len(b) })
	var out []observe.RateSample
readings:
	for _, r := range slowest {
		sum := 0.0
		for _, s := range series {
			rate, ok := within(s, r.StartNs, r.EndNs)
			if !ok {
				continue readings
			}
			sum += rate
		}
		out = append(out, observe.RateSample{StartNs: r.StartNs, EndNs: r.EndNs, Rate: sum / float64(len(series))})
	}
	return out
}

// within is the mean rate between two instants; ok: at least half of the time was observed.
func within(samples []observe.RateSample, fromNs, toNs int64) (rate float64, ok bool) {
	var events, ns float64
	for _, r := range samples {
		if d := min(r.EndNs, toNs) - max(r.StartNs, fromNs); d > 0 {
			events, ns = events+r.Rate*float64(d), ns+float64(d)
		}
	}
	if ns < float64(toNs-fromNs)/2 {
		return 0, false
	}
	return events / ns, true
}
