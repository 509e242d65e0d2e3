// Command sweep measures how a workload's rate depends on its CPU quota, by the
// job's own printed steps, and names the knee: the smallest quota that gives
// 98 % of the best rate.
//
//	go run ./test/sweep -neighbour 1 -- dataloader.py --threaded
//
// Each point is a static quota on the same running container, settled before
// it is measured; the last one is without a quota.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// warmSteps are done before the first quota: the import of PyTorch, the first
// batches, and the allocator's growth are no part of a step.
const warmSteps = 20

type config struct {
	cpus       []float64
	settle     time.Duration
	measure    time.Duration
	neighbours int
	dockerArgs []string
	script     string
	args       []string
}

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := parse(os.Args[1:])
	if err == nil {
		err = sweep(ctx, c, os.Stdout)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 2
	case err != nil:
		fmt.Fprintln(os.Stderr, "sweep:", err)
		return 1
	}
	return 0
}

func parse(args []string) (config, error) {
	var c config
	fs := flag.NewFlagSet("sweep", flag.ContinueOnError)
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: sweep [flags] -- SCRIPT [ARGS]   (SCRIPT: a file of test/workloads)")
		fs.PrintDefaults()
	}
	cpus := fs.String("cpus", "0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,1.1,1.2,1.4,1.7,2.0,0", "quotas in CPUs, 0: none")
	fs.DurationVar(&c.settle, "settle", 4*time.Second, "after each change of the quota")
	fs.DurationVar(&c.measure, "measure", 10*time.Second, "at each quota")
	fs.IntVar(&c.neighbours, "neighbour", 0, "spinning processes in a container beside it")
	extra := fs.String("docker", "", "further arguments to docker run, separated by spaces; for the neighbour too")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if fs.NArg() == 0 {
		return c, errors.New("no workload named: sweep [flags] -- SCRIPT [ARGS]")
	}
	for text := range strings.SplitSeq(*cpus, ",") {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || v < 0 || (v > 0 && v < 0.01) {
			return c, fmt.Errorf("-cpus: %q is no number of CPUs (0, or 0.01 and more)", text)
		}
		c.cpus = append(c.cpus, v)
	}
	c.dockerArgs = strings.Fields(*extra)
	c.script, c.args = fs.Arg(0), fs.Args()[1:]
	return c, nil
}

func sweep(ctx context.Context, c config, out io.Writer) (err error) {
	if err := workload.Ready(ctx); err != nil {
		return err
	}
	job, err := workload.Start(ctx, workload.Options{
		Name: fmt.Sprintf("trimtab-sweep-%d", os.Getpid()), Script: c.script, Args: c.args, DockerArgs: c.dockerArgs,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Stop()) }()
	if err := job.WaitSteps(ctx, warmSteps); err != nil {
		return err
	}
	var beside *workload.Job
	if c.neighbours > 0 {
		beside, err = startNeighbour(ctx, c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, beside.Stop()) }()
	}
	return table(ctx, c, job, beside, out)
}

func startNeighbour(ctx context.Context, c config) (*workload.Job, error) {
	j, err := workload.Start(ctx, workload.Options{
		Name: fmt.Sprintf("trimtab-sweep-neighbour-%d", os.Getpid()), Script: "neighbour.py",
		Args: []string{"--processes", strconv.Itoa(c.neighbours)}, DockerArgs: c.dockerArgs,
	})
	if err != nil {
		return nil, err
	}
	if err := j.WaitSteps(ctx, 1); err != nil {
		return nil, errors.Join(err, j.Stop())
	}
	return j, nil
}

// table sweeps and prints a line for each point as it comes, then the knee.
func table(ctx context.Context, c config, job, beside *workload.Job, out io.Writer) error {
	usage, err := job.CPUUsage(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%6s %8s %8s %6s %9s %12s\n", "quota", "steps/s", "ms/step", "used", "CPU ms/st", "neighbour/s")
	points, err := job.Sweep(ctx, workload.SweepOptions{
		CPUs: c.cpus, Settle: c.settle, Measure: c.measure, Usage: usage,
		Each: func(p workload.Point) { fmt.Fprintln(out, row(p, beside, c.measure)) },
	})
	if err != nil {
		return err
	}
	knee, best, ok := workload.Knee(points)
	note := ""
	if !ok {
		note = " (outside what was swept)"
	}
	fmt.Fprintf(out, "best %.2f steps/s, knee %.2f CPUs%s\n", best, knee, note)
	if !slices.Contains(c.cpus, 0) {
		fmt.Fprintln(out, "the best is of the quotas swept; add 0 to -cpus to compare with none")
	}
	return nil
}

func row(p workload.Point, beside *workload.Job, measured time.Duration) string {
	quota, step, perStep, neighbour := "none", 0.0, 0.0, "-"
	if p.CPUs > 0 {
		quota = strconv.FormatFloat(p.CPUs, 'f', 2, 64)
	}
	if p.Rate > 0 {
		step, perStep = 1000/p.Rate, 1000*p.UsedCPUs/p.Rate
	}
	if beside != nil {
		now := workload.Now()
		rate, _ := beside.Rate(now-measured, now)
		neighbour = strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return fmt.Sprintf("%6s %8.2f %8.1f %6.2f %9.1f %12s", quota, p.Rate, step, p.UsedCPUs, perStep, neighbour)
}
