package trial

// Together makes one series of several jobs' rates: the mean of their rates, each over
// a reference of its own, so that a plan that touches them all is judged by what they
// gain together. The windows are those of the series that has the fewest; where some
// other job has none, there is no window. A series without a reference is left out.
func Together(series [][]Obs, references []float64) []Obs {
	var kept [][]Obs
	var over []float64
	slowest := -1
	for i, obs := range series {
		if !(references[i] > 0) {
			continue
		}
		kept, over = append(kept, usable(obs)), append(over, references[i])
		if n := len(kept) - 1; slowest < 0 || len(kept[n]) < len(kept[slowest]) {
			slowest = n
		}
	}
	if slowest < 0 {
		return nil
	}
	var out []Obs
windows:
	for _, w := range kept[slowest] {
		sum := 0.0
		for i, obs := range kept {
			rate, ok := within(obs, w.StartNs, w.EndNs)
			if !ok {
				continue windows
			}
			sum += rate / over[i]
		}
		out = append(out, Obs{StartNs: w.StartNs, EndNs: w.EndNs, Rate: sum / float64(len(kept))})
	}
	return out
}

// within is the mean rate between two instants; ok is false where less than half of
// the time was observed.
func within(obs []Obs, fromNs, toNs int64) (rate float64, ok bool) {
	var ticks, ns float64
	for _, o := range obs {
		if d := min(o.EndNs, toNs) - max(o.StartNs, fromNs); d > 0 {
			ticks, ns = ticks+o.Rate*float64(d), ns+float64(d)
		}
	}
	if ns < float64(toNs-fromNs)/2 {
		return 0, false
	}
	return ticks / ns, true
}
