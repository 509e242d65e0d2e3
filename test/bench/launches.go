package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/test/workloads/gpu"
)

// thinSettle lets the budget find its level: it looks each 5 s, and believes a
// hook's price after the first look that had the hook attached throughout.
const thinSettle = 12 * time.Second

// Periods of a few seconds tell a rate to some tenths of a percent; what counts is how
// often the daemon is switched.
const (
	launchPeriod = 5 * time.Second
	launchEach   = 2
)

// launchRate is a job that launches so many kernels a second: its trainer is bound
// by its own CPU between launches, so that all that a launch costs more shows.
type launchRate struct {
	name   string
	args   []string // of the C++ trainer
	step   float64  // launches in a step: the kernels and the optimizer's
	settle time.Duration
}

func launchRates() []launchRate {
	return []launchRate{
		{"1,000", []string{"--kernels", "20", "--kernel-us", "300", "--launch-us", "950"}, 21, 7 * time.Second},
		{"10,000", []string{"--kernels", "200", "--kernel-us", "30", "--launch-us", "98"}, 201, thinSettle},
		{"50,000", []string{"--kernels", "1000", "--kernel-us", "5", "--launch-us", "19.5"}, 1001, thinSettle},
	}
}

// measureLaunches compares the rates of jobs on the virtual GPU with and without
// a daemon, and with what the daemon itself says that it costs them.
func measureLaunches(ctx context.Context, b *bench) (rows []Row, err error) {
	dir, err := gpu.Build(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range launchRates() {
		b.say("  %s launches/s", l.name)
		more, err := b.launches(ctx, dir, l)
		if err != nil {
			return rows, fmt.Errorf("%s launches/s: %w", l.name, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// costReading is what the daemon said at the end of a period.
type costReading struct {
	percent float64 // of one CPU
	launchesSeen
}

func (b *bench) launches(ctx context.Context, dir vgpu.Dir, l launchRate) (rows []Row, err error) {
	shm, err := os.MkdirTemp("/dev/shm", "trimtab-bench-*")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, func() error { return os.RemoveAll(shm) })
	node, err := vgpu.NewNode(ctx, dir, shm, vgpu.Options{Devices: 1})
	if err != nil {
		return nil, err
	}
	args := append([]string{"/opt/trimtab-vgpu/" + gpu.Trainer, "--every", "2"}, l.args...)
	j, err := b.begin(ctx, workload.Options{Name: b.name("launches"), Script: gpu.Script, Args: args, DockerArgs: node.DockerArgs()}, "observe")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, j.Stop)
	d, err := b.daemon(ctx, "", node.Env()...)
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, d.Close)
	// The periods between two switches hold a whole turn of ten seconds; starting the daemon,
	// and its budget's finding its level, take as long as they do.
	a := &abTest{d: d, j: j, period: launchPeriod, each: launchEach, settle: l.settle}
	var said []costReading
	a.look = func(ctx context.Context) error {
		reading, err := readCost(ctx, a)
		said = append(said, reading)
		return err
	}
	if err := workload.Sleep(ctx, l.settle); err != nil { // the daemon has just been started
		return nil, err
	}
	pairs := pick(b, 6*launchEach, 3*launchEach)
	losses, err := a.losses(ctx, b, pairs)
	if err != nil {
		return nil, err
	}
	return l.rows(a, pairs, losses, said), nil
}

// readCost takes the daemon's own word for what it costs the job, and what it saw.
func readCost(ctx context.Context, a *abTest) (r costReading, err error) {
	c, err := a.d.Container(ctx, a.j.Name)
	if err != nil {
		return r, err
	}
	r.percent = 100 * c.ProbeShare
	if r.launchesSeen, err = countedLaunches(a.d, launchEach*a.period); err != nil {
		err = fmt.Errorf("%w; the daemon said:\n%s", err, lastLines(a.d.Log()))
	}
	return r, err
}

func (l launchRate) rows(a *abTest, pairs int, losses []float64, said []costReading) []Row {
	var costs, shares, rates []float64
	for _, r := range said {
		costs, shares, rates = append(costs, r.percent), append(shares, r.share), append(rates, r.rate)
	}
	rate := stats.Mean(a.rates) * l.step
	job := fmt.Sprintf("C++ trainer on the virtual GPU, bound by its own CPU between launches, %.0f launches/s without the daemon", rate)
	loss := lossRow(fmt.Sprintf("loss of a job with %s launches/s", l.name), losses, job+"; "+a.how(pairs))
	cost := rangeRow(fmt.Sprintf("  its computed cost, %s launches/s", l.name), costs, "%",
		"the daemon's own word before each stop: hits of uprobes at their price on this machine, and its programs' accounted time, of one CPU, which the job has to itself; "+job)
	cost.Goal = "≤ 0.5 %"
	counted := rangeRow(fmt.Sprintf("  share of time in which launches are counted, %s launches/s", l.name), shares, "%",
		fmt.Sprintf("by the flight recorder, over the periods between two switches: what the budget of 0.5 %% of a CPU (overhead.perContainer) and the guard against floods leave of it; while counted, %.0f launches/s (median)", stats.Median(rates)))
	return []Row{loss, cost.judged(slices.Max(costs) <= maxLossPercent), counted.reported()}
}
