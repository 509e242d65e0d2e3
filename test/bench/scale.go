package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// Goals of the daemon beside so many containers that each is watched.
const (
	scaleLargest         = 1000
	scaleCorePercent     = 10
	scaleResidentMiB     = 128
	scaleGrowth          = 1.1 // times linear; the rest is the clocks' and the machine's
	scaleFiles           = 65536
	scaleStretch         = 5 * time.Second
	scaleSettle          = 10 * time.Second
	scaleYoung           = 62 * time.Second // containers are looked at more often in their first minute
	scaleStretches       = 3
	scaleWatchedPatience = 90 * time.Second
)

// scalePoint is the daemon's use beside so many boxes.
type scalePoint struct {
	n         int
	young     []float64 // % of a core, in the boxes' first minute
	old       []float64 // after it; the largest alone
	resident  []float64 // MiB
	mapsMiB   float64
	unwatched int
}

// measureScale reads the daemon's own CPU and memory beside 1, 10, 100 and 1,000
// bare containers.
func measureScale(ctx context.Context, b *bench) (rows []Row, err error) {
	restore, files, err := raiseFiles()
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, restore)
	dir, err := os.MkdirTemp("", "trimtab-bench-*")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, func() error { return os.RemoveAll(dir) })
	all, err := newBoxes(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, all.close)
	var points []scalePoint
	for _, n := range []int{1, 10, 100, scaleLargest} {
		start := time.Now()
		if err := all.grow(ctx, n); err != nil {
			return nil, err
		}
		b.say("  %d boxes stand after %.1f s", n, time.Since(start).Seconds())
		p, err := b.scalePoint(ctx, dir, all.all)
		if err != nil {
			return nil, fmt.Errorf("%d containers: %w", n, err)
		}
		b.say("  %d containers: %.2f %% of a core, %.0f MiB", n, stats.Mean(p.young), slices.Max(p.resident))
		points = append(points, p)
	}
	return scaleRows(points, files), nil
}

// raiseFiles gives the daemon as many descriptors as its unit does, or as many as
// this host allows; it keeps some twenty open for each container.
func raiseFiles() (restore func() error, allowed uint64, err error) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		return nil, 0, err
	}
	// syscall's own, since only after it os/exec leaves children the raised limit.
	for _, most := range []uint64{max(scaleFiles, before.Max), before.Max} {
		if err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: min(scaleFiles, most), Max: most}); err == nil {
			return func() error { return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) }, min(scaleFiles, most), nil
		}
	}
	return nil, 0, fmt.Errorf("raise the limit of open files: %w", err)
}

func (b *bench) scalePoint(ctx context.Context, dir string, all []box) (p scalePoint, err error) {
	p.n = len(all)
	engine, err := startEngine(dir, all)
	if err != nil {
		return p, err
	}
	defer joinClose(&err, engine.close)
	// A budget that is never exceeded, so that every tick is read: with the default the daemon would read less often.
	d, err := b.daemon(ctx, fmt.Sprintf("docker: {host: 'unix://%s', containerd: %s/none}\noverhead: {cpu: 1}\n", engine.socket, dir))
	if err != nil {
		return p, err
	}
	defer joinClose(&err, d.Close)
	started := time.Now()
	if err := waitWatched(ctx, d, p.n); err != nil {
		return p, errors.Join(err, errors.New(lastLines(d.Log())))
	}
	if err := workload.Sleep(ctx, scaleSettle); err != nil {
		return p, err
	}
	if p.young, err = p.stretches(ctx, d, pick(b, scaleStretches, 2)); err != nil {
		return p, err
	}
	if p.n == scaleLargest && !b.quick {
		if err := workload.Sleep(ctx, time.Until(started.Add(scaleYoung))); err != nil {
			return p, err
		}
		if p.old, err = p.stretches(ctx, d, scaleStretches); err != nil {
			return p, err
		}
	}
	return p, p.check(ctx, d)
}

// waitWatched waits until the daemon watches n containers and has read them all.
func waitWatched(ctx context.Context, d *daemontest.Daemon, n int) error {
	ctx, cancel := context.WithTimeout(ctx, scaleWatchedPatience)
	defer cancel()
	return waitFor(ctx, fmt.Sprintf("%d watched containers", n), func() (bool, error) {
		s, err := d.Client().Status(ctx)
		return err == nil && s.Containers.Watched == n, nil
	})
}

// stretches measures one value a stretch.
func (p *scalePoint) stretches(ctx context.Context, d *daemontest.Daemon, n int) (percents []float64, err error) {
	for range n {
		before, err := workload.ProcessCPU(d.PID())
		if err != nil {
			return nil, err
		}
		start := time.Now()
		if err := workload.Sleep(ctx, scaleStretch); err != nil {
			return nil, err
		}
		after, err := workload.ProcessCPU(d.PID())
		if err != nil {
			return nil, err
		}
		percents = append(percents, 100*(after-before).Seconds()/time.Since(start).Seconds())
		resident, err := workload.Resident(d.PID())
		if err != nil {
			return nil, err
		}
		p.resident = append(p.resident, resident/(1<<20))
	}
	return percents, nil
}

// check looks whether all were really watched, by every probe.
func (p *scalePoint) check(ctx context.Context, d *daemontest.Daemon) error {
	s, err := d.Client().Status(ctx)
	if err != nil {
		return err
	}
	p.mapsMiB = float64(s.Daemon.ProbeMapBytes) / (1 << 20)
	if s.Containers.Watched != p.n {
		return fmt.Errorf("%d of %d are watched at the end", s.Containers.Watched, p.n)
	}
	p.unwatched = refusals(d.Log())
	return nil
}

// refusals counts the containers that a probe did not take, as the log names them.
func refusals(log string) int { return strings.Count(log, "a container cannot be read") }

// lastLines is the end of a log, for an error.
func lastLines(log string) string {
	const kept = 20
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-kept):], "\n")
}

func scaleRows(points []scalePoint, files uint64) (rows []Row) {
	how := fmt.Sprintf("bin/trimtab itself; its engine is a stand-in that lists bare cgroups, each with a network namespace and a sleeping process, every second one with another that works for %s each %s; every tick of 1 s read (overhead.cpu raised); %d open files allowed; the process's CPU clock over stretches of %s", boxBurn, boxEvery, files, scaleStretch)
	last := points[len(points)-1]
	for _, p := range points {
		told := fmt.Sprintf("%s, %d of them; after %s", how, len(p.young), scaleSettle)
		row := rangeRow(fmt.Sprintf("the daemon's CPU, %d bare containers, in their first minute", p.n), p.young, "% of a core", told)
		rows = append(rows, row.reported())
		if p.n == scaleLargest {
			rows = append(rows, p.goalRow(how))
		}
		memory := rangeRow(fmt.Sprintf("the daemon's resident memory, %d bare containers", p.n), p.resident, "MiB",
			fmt.Sprintf("largest of %d; beside it %.1f MiB of BPF maps in the kernel", len(p.resident), p.mapsMiB))
		memory.Value = slices.Max(p.resident)
		memory = memory.reported()
		if p.n == scaleLargest {
			memory.Goal = fmt.Sprintf("< %d MiB", scaleResidentMiB)
			memory = memory.judged(memory.Value < scaleResidentMiB)
		}
		rows = append(rows, memory)
	}
	before := points[len(points)-2]
	return append(rows, growthRow(points[0], before, last))
}

// goalRow is the steady state beside the most containers.
func (p scalePoint) goalRow(how string) Row {
	values, age := p.old, "after their first minute"
	if len(values) == 0 { // a quick run has no time for it
		values, age = p.young, "in their first minute"
	}
	row := rangeRow(fmt.Sprintf("the daemon's CPU, %d bare containers, %s", p.n, age), values, "% of a core", how)
	row.Goal = fmt.Sprintf("< %d %%", scaleCorePercent)
	if p.unwatched > 0 {
		row.How += fmt.Sprintf("; a probe had no room for some: %d refusals", p.unwatched)
	}
	return row.judged(row.Value < scaleCorePercent && p.unwatched == 0)
}

// growthRow says how much dearer the last 900 containers are, each, than the 99 before them.
func growthRow(one, before, last scalePoint) Row {
	each := func(from, to scalePoint, of func(scalePoint) float64) float64 {
		return (of(to) - of(from)) / float64(to.n-from.n)
	}
	cpu := func(p scalePoint) float64 { return stats.Median(p.young) }
	memory := func(p scalePoint) float64 { return stats.Median(p.resident) }
	ratio := each(before, last, cpu) / each(one, before, cpu)
	return Row{What: fmt.Sprintf("growth of the CPU, %d to %d against %d to %d", before.n, last.n, one.n, before.n), Value: ratio, Unit: "× linear",
		Goal: fmt.Sprintf("≤ %.1f ×", scaleGrowth),
		How: fmt.Sprintf("CPU that each further container takes, %.4f %% of a core against %.4f %%; memory: %.3f MiB against %.3f MiB", each(before, last, cpu), each(one, before, cpu),
			each(before, last, memory), each(one, before, memory))}.judged(ratio <= scaleGrowth)
}

// rangeRow is a mean with the extremes.
func rangeRow(what string, xs []float64, unit, how string) Row {
	return Row{What: what, Value: stats.Mean(xs), Unit: unit, Low: slices.Min(xs), High: slices.Max(xs), Spread: "range", How: how}
}
