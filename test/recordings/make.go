// Command recordings runs each workload of test/workloads under a real daemon
// and keeps what its flight recorder saw. The recordings are replay tests: see
// cmd/trimtab/replay_test.go. Run it from the checkout as root:
//
//	go run ./test/recordings [-only NAME]
//
// It prints what each job was said to be, against what it is by construction.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/view"
)

// job is one recording.
type job struct {
	name    string
	truth   string // class/cause by construction
	script  string
	args    []string
	docker  []string
	mode    string
	quota   float64 // CPUs, set once it steps; 0: none
	spinner bool    // beside a neighbour that wants every CPU
	steps   int64   // to wait for before the daemon starts; 0: it makes none
	seconds int     // recorded
}

func jobs() []job {
	return []job{
		{name: "starved", truth: "input/throttled", script: "dataloader.py", mode: "tune", quota: 0.3, steps: 10, seconds: 25},
		{name: "starved-threaded", truth: "input/throttled", script: "dataloader.py", args: []string{"--threaded"}, mode: "tune", quota: 0.3, steps: 10, seconds: 25},
		{name: "starved-no-workers", truth: "compute/host", script: "dataloader.py", args: []string{"--workers", "0"}, mode: "tune", quota: 0.3, steps: 10, seconds: 25},
		{name: "contended", truth: "input/contended", script: "dataloader.py", args: []string{"--device-ms", "20"}, mode: "observe", spinner: true, steps: 10, seconds: 20},
		{name: "workers", truth: "input/workers", script: "workers.py", mode: "observe", steps: 10, seconds: 20},
		{name: "trainer-bound", truth: "compute/host", script: "trainerbound.py", mode: "observe", steps: 10, seconds: 20},
		{name: "balanced", truth: "balanced", script: "balanced.py", mode: "observe", steps: 10, seconds: 20},
		{name: "storage", truth: "input/storage", script: "storage.py", mode: "observe", steps: 10, seconds: 20},
		{name: "remote", truth: "input/remote", script: "sockets.py", mode: "observe", steps: 10, seconds: 20},
		{name: "cache", truth: "input/cache", script: "memory.py", args: []string{"--data-mib", "500"}, docker: []string{"--memory", "320m"}, mode: "observe", steps: 20, seconds: 20},
		{name: "growth", truth: "memory/risk", script: "memory.py", args: []string{"--kind", "grow", "--grow-mib", "16", "--grow-max-mib", "500"}, docker: []string{"--memory", "800m"}, mode: "observe", steps: 20, seconds: 25},
		{name: "idle", truth: "idle", script: "idle.py", mode: "observe", seconds: 25},
		{name: "notebook", truth: "interactive", script: "notebook.py", mode: "observe", steps: 2, seconds: 45},
	}
}

func main() {
	only := flag.String("only", "", "make this one alone")
	binary := flag.String("trimtab", "bin/trimtab", "the binary to record with")
	dir := flag.String("dir", "cmd/trimtab/testdata/recordings", "where the recordings go")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var errs []error
	for _, j := range jobs() {
		if *only != "" && *only != j.name {
			continue
		}
		said, err := record(ctx, j, *binary, *dir)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", j.name, err))
		}
		fmt.Printf("%-20s is %-16s said %s\n", j.name, j.truth, said)
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// record runs one job and returns the verdicts it was given, most frequent first.
func record(ctx context.Context, j job, binary, dir string) (said string, err error) {
	w, err := workload.Start(ctx, workload.Options{Name: "rec-" + j.name, Script: j.script, Args: j.args,
		DockerArgs: append([]string{"--network", "none", "--label", "trimtab.mode=" + j.mode}, j.docker...)})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	if j.spinner {
		n, err := workload.Start(ctx, workload.Options{Name: "rec-neighbour", Script: "neighbour.py", Args: []string{"--processes", "4"}, DockerArgs: []string{"--network", "none"}})
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, n.Stop()) }()
	}
	if j.steps > 0 {
		if err := w.WaitSteps(ctx, j.steps); err != nil {
			return "", err
		}
	} else {
		time.Sleep(8 * time.Second) // its imports
	}
	if j.quota > 0 {
		if err := w.SetQuota(ctx, j.quota); err != nil {
			return "", err
		}
	}
	d, err := daemontest.Start(ctx, daemontest.Options{Binary: binary})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	counts := map[string]int{}
	var windows uint64
	for range j.seconds * 4 {
		time.Sleep(250 * time.Millisecond)
		c, err := d.Container(ctx, w.Name)
		if err == nil && c.Windows != windows {
			windows = c.Windows
			counts[name(c)]++
		}
	}
	if err := d.Stop(); err != nil {
		return "", err
	}
	file := filepath.Join(dir, j.name+".trimtab")
	if _, err := d.Run(ctx, "record", "--flight", "--state-dir", filepath.Join(d.Dir, "state"), file); err != nil {
		return "", err
	}
	return list(counts), nil
}

func name(c view.Container) string {
	if c.Verdict.Cause == "" {
		return string(c.Verdict.Class)
	}
	return string(c.Verdict.Class) + "/" + string(c.Verdict.Cause)
}

func list(counts map[string]int) string {
	var all []string
	for v := range counts {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	for i, v := range all {
		all[i] = fmt.Sprintf("%s ×%d", v, counts[v])
	}
	return strings.Join(all, ", ")
}
