package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/workload"
)

// plainPrefix begins the names of the plain CUDA program's jobs.
const plainPrefix = "plain-"

// plain are the loops of a program on CUDA's driver interface alone (test/workloads/gpu/plain.c).
func plain() []truth {
	device := []string{"compute/device"}
	all := []truth{
		{name: "async", why: "device-bound, and waits for nothing: the launch queue is full all the time", want: device},
		{name: "each50", why: "device-bound, and reads its loss every 50 steps", want: device},
		{name: "staged", why: "device-bound, with asynchronous copies from pageable memory", want: device},
		{name: "polling", why: "device-bound, and waits by asking an event", want: device},
		{name: "graph", why: "device-bound, a step is one graph launch", want: device},
		{name: "storm", why: "20,000 launches a second that do nothing: the device waits for the CPU", want: []string{"compute/host"}},
	}
	for i, t := range all {
		all[i].name, all[i].why = plainPrefix+t.name, "plain CUDA: "+t.why
		all[i].work = work{args: []string{filepath.Join(insideDir, "plain"), t.name}}
	}
	return all
}

// calls are what a program asked of CUDA.
type calls struct{ launches, graphs, in, out, waits uint64 }

const callsFormat = "launches=%d graphs=%d in=%d out=%d waits=%d"

func (n calls) String() string {
	return fmt.Sprintf(callsFormat, n.launches, n.graphs, n.in, n.out, n.waits)
}

// parseCalls reads what the program says that it did.
func parseCalls(text string) (n calls, err error) {
	if _, err := fmt.Sscanf(text, callsFormat, &n.launches, &n.graphs, &n.in, &n.out, &n.waits); err != nil {
		return n, fmt.Errorf("the program counts %q: %w", text, err)
	}
	return n, nil
}

// callsOf are what was counted of a process.
func callsOf(p probes.CUDAProcess) calls {
	n := calls{launches: p.Launches, graphs: p.Graphs, in: p.Copies[probes.CopyHostToDevice], out: p.Copies[probes.CopyDeviceToHost]}
	for _, t := range p.Threads {
		n.waits += t.Syncs
	}
	return n
}

func (n calls) since(was calls) calls {
	return calls{n.launches - was.launches, n.graphs - was.graphs, n.in - was.in, n.out - was.out, n.waits - was.waits}
}

// plainCounts holds the probes' counts against those that the plain program keeps of itself: the
// same calls of one job, each to be counted, once.
func (c *check) plainCounts(ctx context.Context) error {
	for _, t := range plain() {
		if !c.wanted(t.name) {
			continue
		}
		if err := c.plainCount(ctx, t); err != nil {
			c.report.row(bad, "launches", t.name+" is counted", "", err.Error()) // the others still tell
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

func (c *check) plainCount(ctx context.Context, t truth) (err error) {
	if t.work.args = append(t.work.args, "--wait"); c.o.short {
		t.work.args = append(t.work.args, "--kernel-us", "200")
	}
	j, err := c.start(ctx, t.name, t.work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.stop()) }()
	if _, err := j.note(ctx, "ready", startPatience); err != nil {
		return err
	}
	n, err := newCounter(j)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	was, _, err := n.attached(ctx, j.c.InitPID)
	if err != nil {
		return err
	}
	truth, err := c.plainRun(ctx, j)
	if err != nil {
		return err
	}
	is, missing, err := n.attached(ctx, j.c.InitPID)
	if err != nil {
		return err
	}
	c.judgeCalls(t.name, truth, is.since(was), missing)
	return nil
}

// plainRun lets the program loop for a while, and returns what it counted.
func (c *check) plainRun(ctx context.Context, j *job) (calls, error) {
	if err := errors.Join(j.signal(ctx, unix.SIGUSR1), workload.Sleep(ctx, c.pick(5*time.Second, 500*time.Millisecond)), j.signal(ctx, unix.SIGUSR2)); err != nil {
		return calls{}, err
	}
	text, err := j.note(ctx, "counts", 30*time.Second)
	if err != nil {
		return calls{}, err
	}
	return parseCalls(text)
}

// judgeCalls: each call is counted, and none twice.
func (c *check) judgeCalls(name string, truth, ours calls, missing []string) {
	text := ours.String()
	if ours == truth {
		text = "the same"
	}
	if len(missing) > 0 {
		text += "; missing: " + strings.Join(missing, "; ")
	}
	c.report.judge(ours == truth && truth.launches+truth.graphs > 0, "launches", name+", against its own count", truth.String(), text)
}

// attached returns what was counted of a process, once a call of each kind would be.
func (n *counter) attached(ctx context.Context, pid int) (calls, []string, error) {
	var last probes.CUDA
	for end := time.Now().Add(readPatience); time.Now().Before(end); {
		read, err := n.read(ctx)
		if err != nil {
			return calls{}, nil, err
		}
		last = read
		for _, p := range read.Processes {
			if p.TGID == int32(pid) && n.sees(p.TGID) {
				return callsOf(p), read.Missing, nil
			}
		}
		if err := workload.Sleep(ctx, 50*time.Millisecond); err != nil {
			return calls{}, nil, err
		}
	}
	return calls{}, nil, fmt.Errorf("the probes are not on process %d within %s: %d processes are counted; missing: %v", pid, readPatience, len(last.Processes), last.Missing)
}

// sees reports whether the functions that the plain program is counted by are probed.
func (n *counter) sees(pid int32) bool {
	for _, name := range []string{"cuLaunchKernel", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoH_v2", "cuCtxSynchronize", "cuStreamSynchronize"} {
		if !n.calls.Has(pid, name) {
			return false
		}
	}
	return true
}
