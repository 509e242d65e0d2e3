package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

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

func TestGrowth(t *testing.T) {
	point := func(n int, percent, mebibytes float64) scalePoint {
		return scalePoint{n: n, young: []float64{percent, percent}, resident: []float64{mebibytes}}
	}
	one, before := point(1, 0.25, 30), point(100, 1.24, 32)
	for _, tc := range []struct {
		cpu, ratio float64
		result     string
	}{{1.24 + 9, 1, verdictMet}, {1.24 + 4.5, 0.5, verdictMet}, {1.24 + 18, 2, verdictMiss}} {
		row := growthRow(one, before, point(1000, tc.cpu, 90))
		if !near(row.Value, tc.ratio, 1e-6) || row.Result != tc.result {
			t.Errorf("%.2f %%: %.3f, %s; want %.3f, %s", tc.cpu, row.Value, row.Result, tc.ratio, tc.result)
		}
	}
}

func TestLaunchesSeen(t *testing.T) {
	const second = int64(1e9)
	// Counted from 10 s to 12 s and from 18 s to 19 s; what was before the stretch is not of it.
	all := []launchTick{{5 * second, 5 * second, 50_000}, {10 * second, 10 * second, 100_000}, {12 * second, 12 * second, 120_000},
		{18 * second, 12 * second, 120_000}, {19 * second, 13 * second, 130_000}, {20 * second, 13 * second, 130_000}}
	got, err := seenOf(all, 10*time.Second)
	if err != nil || !near(got.share, 30, 1e-9) || !near(got.rate, 10_000, 1e-6) {
		t.Errorf("%+v, %v; want 30 %% of the time, 10,000 launches/s", got, err)
	}
	if got, err := seenOf(all[2:4], 10*time.Second); err != nil || got.share != 0 || got.rate != 0 {
		t.Errorf("%+v, %v of a stretch without a turn", got, err)
	}
	if _, err := seenOf(all[:1], 10*time.Second); err == nil {
		t.Error("a share of one reading")
	}
}
