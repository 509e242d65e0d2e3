package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Goals of the kernel probe on a context switch, above an empty program.
const (
	maxUnwatchedNs = 80
	maxWatchedNs   = 200
)

// measurePrograms runs the kernel probe's own benchmark, which accounts each
// program against an empty one on the same tracepoint in the same turn.
func measurePrograms(ctx context.Context, b *bench) ([]Row, error) {
	count := pick(b, 5, 2)
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkSwitch", "-benchtime", "1x", "-count", strconv.Itoa(count), "./probes/kernel")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -bench ./probes/kernel: %w:\n%s", err, out)
	}
	results := parseBenchmark(string(out))
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
			r := Row{What: fmt.Sprintf("program on %s, %s task", tracepoint, c.what), Value: median(ns), Unit: "ns", Low: slices.Min(ns), High: slices.Max(ns), Spread: "range",
				How: fmt.Sprintf("BPF accounting while two processes switch on one CPU, above an empty program (%.0f ns) in the same turn; %d turns of 1 s", median(column(runs, "empty-ns")), len(ns))}.reported()
			if tracepoint == "sched_switch" {
				r.Goal = fmt.Sprintf("≤ %.0f ns", c.goal)
				r = r.judged(median(ns) <= c.goal)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
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
