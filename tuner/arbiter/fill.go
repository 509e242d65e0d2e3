package arbiter

// fill deals a capacity among claims by weight, each between its low and its high:
// what the kernel does with those that want high. lows that exceed the capacity are
// cut in proportion; short reports it.
func fill(capacity float64, low, high, weight []float64) (out []float64, short bool) {
	out = make([]float64, len(low))
	var lows, highs, top float64
	for i := range low {
		h := max(high[i], low[i])
		lows += low[i]
		highs += h
		top = max(top, h/weight[i])
	}
	switch {
	case !(capacity > 0):
		return out, lows > 0
	case lows > capacity:
		for i := range low {
			out[i] = low[i] * capacity / lows
		}
		return out, lows > capacity*(1+1e-9)
	case highs <= capacity:
		for i := range low {
			out[i] = max(high[i], low[i])
		}
		return out, false
	}
	from, to := 0.0, top
	for range 60 { // halving: enough for every bit that matters
		level, sum := (from+to)/2, 0.0
		for i := range low {
			sum += min(max(level*weight[i], low[i]), max(high[i], low[i]))
		}
		if sum > capacity {
			to = level
		} else {
			from = level
		}
	}
	for i := range low {
		out[i] = min(max(from*weight[i], low[i]), max(high[i], low[i]))
	}
	return out, false
}

// Shares returns the CPUs that each claim gets as the kernel deals them: by weight,
// each up to what it would use under its quota.
func Shares(cpus float64, claims []Claim) []float64 {
	return shares(cpus, claims, Claim.weight, func(c Claim) float64 { return c.Quota })
}

func shares(cpus float64, claims []Claim, weight, quota func(Claim) float64) []float64 {
	low, high, w := make([]float64, len(claims)), make([]float64, len(claims)), make([]float64, len(claims))
	for i, c := range claims {
		high[i], w[i] = c.demand(quota(c), max(cpus, 0)), max(weight(c), 1e-9)
	}
	out, _ := fill(cpus, low, high, w)
	return out
}
