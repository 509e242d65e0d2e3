package observe

// RateSample is one reading of a quantity that grows with work done: steps, or a relative
// witness. Samples that are compared are of one source.
type RateSample struct {
	StartNs int64   `json:"start"` // CLOCK_MONOTONIC
	EndNs   int64   `json:"end"`
	Rate    float64 `json:"rate"` // per second
	// The time that Rate is the mean of, CLOCK_MONOTONIC ns; 0: the reading.
	FromNs int64 `json:"from,omitempty"`
	ToNs   int64 `json:"to,omitempty"`
}

// Span is the time that Rate is the mean of.
func (s RateSample) Span() (fromNs, toNs int64) {
	if s.ToNs > s.FromNs {
		return s.FromNs, s.ToNs
	}
	return s.StartNs, s.EndNs
}

// MeanRate is the mean of samples, each weighed by the time that it is the mean of; 0 for none.
func MeanRate(samples []RateSample) float64 {
	return events(samples) / max(spans(samples), 1e-9)
}

// spans is the time, seconds, that samples are the means of.
func spans(samples []RateSample) (seconds float64) {
	for _, s := range samples {
		from, to := s.Span()
		seconds += float64(to-from) / 1e9
	}
	return seconds
}

// RateUntil is MeanRate up to an instant shortly after the latest sample. Samples end at an
// event, so that of few slow ones the gaps between are missed: half an event counts for the one
// under way, over the time that it has taken so far.
func RateUntil(samples []RateSample, ns int64) float64 {
	if len(samples) == 0 {
		return 0
	}
	_, last := samples[len(samples)-1].Span()
	if seconds := spans(samples) + max(0, float64(ns-last)/1e9); seconds > 0 {
		return (events(samples) + 0.5) / seconds
	}
	return 0
}
