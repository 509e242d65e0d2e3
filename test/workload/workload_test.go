package workload

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseStep(t *testing.T) {
	for _, tc := range []struct {
		line string
		want Step
		ok   bool
	}{
		{"step=123 t=8154.012500 dt=0.042100", Step{123, 8154012500 * time.Microsecond, 42100 * time.Microsecond}, true},
		{"note dataloader workers=2", Step{}, false},
		{"step=1 t=2", Step{}, false},
		{"step=-1 t=2 dt=1", Step{}, false},
		{"step=1 t=NaN dt=1", Step{}, false},
		{"step=1 t=1e300 dt=1", Step{}, false},
		{"step=x t=2 dt=1", Step{}, false},
		{"t=2 step=1 dt=1", Step{}, false},
		{"", Step{}, false},
	} {
		got, ok := ParseStep(tc.line)
		if ok != tc.ok {
			t.Errorf("ParseStep(%q): ok %v, want %v", tc.line, ok, tc.ok)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("ParseStep(%q): %s", tc.line, d)
		}
	}
}

func TestRateCountsWholeStepsOnly(t *testing.T) {
	steps := []Step{{N: 10, At: 1 * time.Second}, {N: 20, At: 2 * time.Second}, {N: 40, At: 3 * time.Second}, {N: 41, At: 9 * time.Second}}
	for _, tc := range []struct {
		from, to time.Duration
		rate     float64
		n        int
	}{
		{0, 10 * time.Second, 31.0 / 8, 31},
		{1500 * time.Millisecond, 3500 * time.Millisecond, 20, 20},
		{2 * time.Second, 3 * time.Second, 20, 20},
		{3500 * time.Millisecond, 8 * time.Second, 0, 0}, // none
		{3500 * time.Millisecond, 9 * time.Second, 0, 0}, // one line tells no rate
	} {
		rate, n := Rate(steps, tc.from, tc.to)
		if n != tc.n || math.Abs(rate-tc.rate) > 1e-9 {
			t.Errorf("Rate(%v, %v) = %v, %d; want %v, %d", tc.from, tc.to, rate, n, tc.rate, tc.n)
		}
	}
}

// A job whose rate follows the one-jump model has its knee at c*, wherever the
// sweep's grid lies.
func TestKneeOfTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		floor := rapid.Float64Range(0.02, 0.2).Draw(t, "trainer and device, s")
		knee := rapid.Float64Range(0.35, 1.8).Draw(t, "knee, CPUs")
		points := []Point{{Rate: 1 / floor}}
		const spacing = 0.1
		for c := 2.0; c > 0.15; c -= spacing { // falling: the order must not matter
			points = append(points, Point{CPUs: c, Rate: 1 / max(floor, floor*knee/c)})
		}
		got, best, ok := Knee(points)
		if !ok || math.Abs(best-1/floor) > 1e-9 {
			t.Fatalf("Knee: best %v, ok %v; want %v", best, ok, 1/floor)
		}
		if math.Abs(got-knee) > 1e-6 {
			t.Fatalf("Knee: %v CPUs, want %v", got, knee)
		}
	})
}

// One lucky window on the plateau must not move the knee to itself.
func TestKneeUnderNoise(t *testing.T) {
	points := []Point{{CPUs: 0.3, Rate: 4.2}, {CPUs: 0.7, Rate: 9.8}, {CPUs: 0.8, Rate: 11.1}, {CPUs: 0.9, Rate: 13.1},
		{CPUs: 1, Rate: 13.0}, {CPUs: 1.2, Rate: 13.6}, {CPUs: 1.5, Rate: 13.0}, {Rate: 13.1}, {Rate: 13.2}}
	cpus, best, ok := Knee(points)
	if !ok || cpus < 0.9 || cpus > 0.97 || best < 13.1 || best > 13.3 {
		t.Errorf("Knee = %.3f CPUs, best %.3f, ok %v; want about 0.94 and 13.2", cpus, best, ok)
	}
}

func TestKneeOutsideTheSweep(t *testing.T) {
	for name, tc := range map[string]struct {
		points []Point
		cpus   float64
	}{
		"none swept":      {[]Point{{Rate: 10}}, 0},
		"no steps":        {[]Point{{CPUs: 1}}, 0}, // a plateau of nothing
		"below the first": {[]Point{{CPUs: 0.5, Rate: 10}, {CPUs: 1, Rate: 10}}, 0.5},
		"above the last":  {[]Point{{CPUs: 0.5, Rate: 2}, {CPUs: 1, Rate: 4}, {Rate: 10}}, 1},
	} {
		if cpus, _, ok := Knee(tc.points); ok || cpus != tc.cpus {
			t.Errorf("%s: Knee = %v, ok %v; want %v, false", name, cpus, ok, tc.cpus)
		}
	}
}

// TestJobLife holds what every user of the package relies on: steps come, a
// quota bites and is taken away, the end is told, and nothing is left.
func TestJobLife(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it starts containers")
	}
	if err := Ready(ctx); err != nil {
		t.Skip(err)
	}
	name := fmt.Sprintf("trimtab-workload-test-%d", os.Getpid())
	j, err := Start(ctx, Options{Name: name, Script: "neighbour.py", Args: []string{"--every", "20"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Stop() })
	if err := j.WaitSteps(ctx, 100); err != nil {
		t.Fatal(err)
	}
	usage, err := j.CPUUsage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	points, err := j.Sweep(ctx, SweepOptions{CPUs: []float64{0.1}, Settle: time.Second, Measure: 3 * time.Second, Usage: usage})
	if err != nil {
		t.Fatal(err)
	}
	// A period's overrun is one slice per CPU: 0.1 CPU cannot look like 0.2 over 3 s.
	if used := points[0].UsedCPUs; used <= 0 || used > 0.2 {
		t.Errorf("used %.3f CPUs under a quota of 0.1", used)
	}
	if points[0].N == 0 {
		t.Error("no steps under a quota of 0.1")
	}
	if err := j.Stop(); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if err := j.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if err := j.WaitSteps(ctx, math.MaxInt64); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("WaitSteps on an ended job: %v, want that it ended", err)
	}
	if out, err := Docker(ctx, "ps", "--all", "--quiet", "--filter", "name="+name); err != nil || out != "" {
		t.Errorf("left behind: %q, %v", out, err)
	}
}

func TestStartSaysWhatTheJobSaid(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Ready(ctx); err != nil {
		t.Skip(err)
	}
	j, err := Start(ctx, Options{Name: fmt.Sprintf("trimtab-workload-bad-%d", os.Getpid()), Script: "nosuch.py"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Stop() })
	if err := j.WaitSteps(ctx, 1); err == nil || !strings.Contains(err.Error(), "nosuch.py") {
		t.Errorf("WaitSteps: %v, want the job's own last lines", err)
	}
}
