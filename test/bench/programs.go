package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/test/stats"
)

// Goals of the kernel probe on a context switch, above an empty program.
const (
	maxUnwatchedNs = 80
	maxWatchedNs   = 200
)

// measurePrograms runs the kernel probe's own benchmark, which accounts each
// program against an empty one on the same tracepoint in the same turn.
func measurePrograms(ctx context.Context, b *bench) ([]Row, error) {
	results, out, err := goBench(ctx, "./probes/kernel", "^BenchmarkSwitch", pick(b, 5, 2))
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, c := range []struct {
		benchmark, what string
		goal            float64
	}{{"BenchmarkSwitchUnwatched", "unwatched", maxUnwatchedNs}, {"BenchmarkSwitchWatched", "watched", maxWatchedNs}} {
		runs := results[c.benchmark]
		for _, tracepoint := range []string{"sched_switch", "sched_waking", "sched_wakeup"} {
			ns := column(runs, tracepoint+"-ns")
			if len(ns) == 0 {
				if tracepoint == "sched_switch" {
					return nil, fmt.Errorf("%s told nothing of %s:\n%s", c.benchmark, tracepoint, out)
				}
				continue
			}
			r := Row{What: fmt.Sprintf("program on %s, %s task", tracepoint, c.what), Value: stats.Median(ns), Unit: "ns", Low: slices.Min(ns), High: slices.Max(ns), Spread: "range",
				How: fmt.Sprintf("BPF accounting while two processes switch on one CPU, above an empty program (%.0f ns) in the same turn; %d turns of 1 s", stats.Median(column(runs, "empty-ns")), len(ns))}.reported()
			if tracepoint == "sched_switch" {
				r.Goal = fmt.Sprintf("≤ %.0f ns", c.goal)
				r = r.judged(stats.Median(ns) <= c.goal)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// measureUprobes runs the pricing by which the daemon itself reckons what uprobes cost.
func measureUprobes(ctx context.Context, b *bench) ([]Row, error) {
	results, out, err := goBench(ctx, "./probes/uprobe", "^BenchmarkHit$", pick(b, 7, 3))
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, c := range []struct{ unit, what string }{
		{"ns/entry", "entry, its instruction emulated"}, {"ns/entry-stepped", "entry, its instruction single-stepped"}, {"ns/entry+return", "entry and return"},
	} {
		ns := column(results["BenchmarkHit"], c.unit)
		if len(ns) == 0 {
			return nil, fmt.Errorf("BenchmarkHit told nothing of %s:\n%s", c.unit, out)
		}
		rows = append(rows, Row{What: "a hit of a uprobe, " + c.what, Value: stats.Median(ns), Unit: "ns", Low: slices.Min(ns), High: slices.Max(ns), Spread: "range",
			How: fmt.Sprintf("CPU time of a child of a few instructions that calls the probed function 4,000 times, above the same without probes, the best of 3 runs each; a map lookup and a clock's reading included; %d turns", len(ns))}.reported())
	}
	return rows, nil
}

// goBench runs benchmarks, one turn for each count; out is what they printed.
func goBench(ctx context.Context, pkg, pattern string, count int) (results map[string][]map[string]float64, out string, err error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "-benchtime", "1x", "-count", strconv.Itoa(count), pkg)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return nil, "", fmt.Errorf("go test -bench %s %s: %w:\n%s", pattern, pkg, err, text)
	}
	return parseBenchmark(string(text)), string(text), nil
}

// parseBenchmark reads the lines of `go test -bench`: for each benchmark its runs,
// for each run its figures by unit.
func parseBenchmark(text string) map[string][]map[string]float64 {
	out := map[string][]map[string]float64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		figures := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				figures[fields[i+1]] = v
			}
		}
		delete(figures, "ns/op") // the turn's length
		name, _, _ := strings.Cut(fields[0], "-")
		out[name] = append(out[name], figures)
	}
	return out
}

func column(runs []map[string]float64, unit string) (xs []float64) {
	for _, r := range runs {
		if v, ok := r[unit]; ok {
			xs = append(xs, v)
		}
	}
	return xs
}
