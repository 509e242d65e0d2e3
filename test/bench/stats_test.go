package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

func TestInterval95(t *testing.T) {
	// mean 5, s = 2.1381, n = 8, t = 2.365: half-width 1.788
	low, high := interval95([]float64{2, 4, 4, 4, 5, 5, 7, 9})
	if !near(low, 3.2122, 1e-3) || !near(high, 6.7878, 1e-3) {
		t.Errorf("%.4f … %.4f", low, high)
	}
	for freedom, want := range map[int]float64{1: 12.706, 15: 2.131, 16: 2.120, 30: 2.042, 120: 1.980} {
		if got := student975(freedom); !near(got, want, 5e-3) {
			t.Errorf("t(%d) = %.4f, want %.3f", freedom, got, want)
		}
	}
}

func TestMedian(t *testing.T) {
	if median([]float64{3, 1, 2}) != 2 || median([]float64{4, 1, 3, 2}) != 2.5 || !math.IsNaN(median(nil)) {
		t.Error("median")
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	printTable(&out, []Row{
		Row{What: "a", Value: 0.1234, Unit: "%", Low: -0.5, High: 12.34, Spread: "95 % CI", Goal: "≤ 0.5 %", How: "so"}.judged(false),
		Row{What: "b", Value: 123.4, Unit: "ns", How: "thus"}.reported(),
	})
	for _, want := range []string{"0.123 % (95 % CI -0.500 … 12.3)", "MISS", "123 ns", "1  so", "2  thus"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestParseBenchmark(t *testing.T) {
	const text = "goos: linux\nBenchmarkSwitchWatched-2 \t       2\t1000 ns/op\t        21.5 empty-ns\t       150.2 sched_switch-ns\t     90000 switches\nPASS\n"
	got := parseBenchmark(text)
	if m := got["BenchmarkSwitchWatched"]; len(m) != 1 || m[0]["sched_switch-ns"] != 150.2 || m[0]["empty-ns"] != 21.5 || len(m[0]) != 3 {
		t.Errorf("%v", got)
	}
}
