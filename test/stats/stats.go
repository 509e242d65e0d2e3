// Package stats holds the few statistics that the benchmarks print.
package stats

import (
	"math"
	"slices"
)

// Mean is the arithmetic mean; NaN of nothing.
func Mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// Median is the middle value; NaN of nothing.
func Median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	if n == 0 {
		return math.NaN()
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Interval95 is Student's 95 % confidence interval of the mean; two values at least.
func Interval95(xs []float64) (low, high float64) {
	m, sum := Mean(xs), 0.0
	for _, x := range xs {
		sum += (x - m) * (x - m)
	}
	n := len(xs)
	half := Student975(n-1) * math.Sqrt(sum/float64(n-1)/float64(n))
	return m - half, m + half
}

// Student975 is the 97.5 % quantile of Student's t, from the usual table; above
// its end the normal one's, with two terms of Cornish and Fisher's expansion.
func Student975(freedom int) float64 {
	table := [...]float64{math.Inf(1), 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131}
	if freedom < len(table) {
		return table[max(freedom, 0)]
	}
	const z = 1.959964
	n := float64(freedom)
	return z + (z*z*z+z)/(4*n) + (5*z*z*z*z*z+16*z*z*z+3*z)/(96*n*n)
}

// Ratio95 is the ratio of two positive quantities' means and its 95 % confidence interval, by
// Welch's test of their logarithms; two values each at least.
func Ratio95(of, over []float64) (ratio, low, high float64) {
	mean := func(xs []float64) (mean, variance float64) {
		logs := make([]float64, len(xs))
		for i, x := range xs {
			logs[i] = math.Log(max(x, math.SmallestNonzeroFloat64))
		}
		mean = Mean(logs)
		for _, x := range logs {
			variance += (x - mean) * (x - mean)
		}
		return mean, variance / float64(len(xs)-1) / float64(len(xs))
	}
	a, va := mean(of)
	b, vb := mean(over)
	half := 0.0
	if v := va + vb; v > 0 {
		freedom := v * v / (va*va/float64(len(of)-1) + vb*vb/float64(len(over)-1))
		half = Student975(int(freedom)) * math.Sqrt(v)
	}
	return math.Exp(a - b), math.Exp(a - b - half), math.Exp(a - b + half)
}
