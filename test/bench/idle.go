package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// What trimtab itself may use with ten containers.
const (
	idleContainers    = 10
	maxCorePercent    = 0.5
	maxResidentMiB    = 64
	idleStretches     = 4
	idleStretchesFast = 3
)

// measureIdle reads the daemon's own CPU and memory beside ten watched
// containers, of which every second one wakes ten times a second.
func measureIdle(ctx context.Context, b *bench) (rows []Row, err error) {
	for i := range idleContainers {
		name := b.name("idle")
		every := "0s"
		if i%2 == 0 {
			every = "100ms"
		}
		args, err := childArgs(name, "observe", childIdle, every)
		if err != nil {
			return nil, err
		}
		defer joinClose(&err, func() error { return removeContainer(name) })
		if _, err := workload.Docker(ctx, append([]string{"run", "--detach"}, args...)...); err != nil {
			return nil, err
		}
	}
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, d.Close)
	if err := workload.Sleep(ctx, 10*time.Second); err != nil { // the start's own cost is no steady state
		return nil, err
	}
	if err := allWatched(ctx, d); err != nil {
		return nil, err
	}
	return daemonUse(ctx, d, pick(b, idleStretches, idleStretchesFast))
}

func allWatched(ctx context.Context, d *daemontest.Daemon) error {
	s, err := d.Client().Status(ctx)
	if err == nil && s.Containers.Watched != idleContainers {
		err = fmt.Errorf("%d containers are watched, want %d", s.Containers.Watched, idleContainers)
	}
	return err
}

func daemonUse(ctx context.Context, d *daemontest.Daemon, stretches int) ([]Row, error) {
	const stretch = 6 * time.Second
	var percents, mebibytes []float64
	for range stretches {
		before, err := workload.ProcessCPU(d.PID())
		if err != nil {
			return nil, err
		}
		start := time.Now()
		if err := workload.Sleep(ctx, stretch); err != nil {
			return nil, err
		}
		after, err := workload.ProcessCPU(d.PID())
		if err != nil {
			return nil, err
		}
		resident, err := workload.Resident(d.PID())
		if err != nil {
			return nil, err
		}
		percents = append(percents, 100*(after-before).Seconds()/time.Since(start).Seconds())
		mebibytes = append(mebibytes, resident/(1<<20))
	}
	how := fmt.Sprintf("the daemon's CPU clock and /proc, %d containers watched (half asleep, half waking 10 times a second), %d stretches of %s", idleContainers, stretches, stretch)
	return []Row{
		Row{What: "the daemon's CPU, 10 containers", Value: stats.Mean(percents), Unit: "% of a core", Low: slices.Min(percents), High: slices.Max(percents), Spread: "range",
			Goal: "< 0.5 %", How: how + "; user and system time, without BPF programs, which run on others' time"}.judged(stats.Mean(percents) < maxCorePercent),
		Row{What: "the daemon's resident memory", Value: slices.Max(mebibytes), Unit: "MiB", Low: slices.Min(mebibytes), High: slices.Max(mebibytes), Spread: "range",
			Goal: "< 64 MiB", How: how + "; the largest"}.judged(slices.Max(mebibytes) < maxResidentMiB),
	}, nil
}
