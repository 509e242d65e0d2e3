package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/probes/host"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/guard"
)

// Times of one run.
const (
	settle   = 2 * time.Second  // after something began
	control  = 10 * time.Second // in which nothing is lent: as long as what is held against it
	lendFor  = 20 * time.Second // a loan must come within, and then stand for standFor
	standFor = 8 * time.Second
	within   = 5 * time.Second // the right must be there
	watchFor = 15 * time.Second
	window   = 5 * time.Second
	step     = 100 * time.Millisecond
)

const prefix = "fairness-"

// bench is one case at work.
type bench struct {
	c        fairCase
	daemon   *daemontest.Daemon
	borrower *workload.Job
	lent     func() (workload.CPUState, error)
	limit    func() (int64, error)
	uses     func() (int64, error)
	reserve  int64 // bytes of the host's memory that nobody is lent
	others   []*other
	// taken is the most that others took of the host's CPU time in a stretch of this run; always is the least of
	// all stretches: what the bench itself and the engine need, a tenth beside ten neighbours.
	taken, always float64
}

func measure(ctx context.Context, o options, c fairCase) (all []result, err error) {
	b, err := start(ctx, o, c)
	defer func() { err = errors.Join(err, b.close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	for i := range o.runs {
		r, err := b.undisturbed(ctx)
		if err != nil {
			return all, fmt.Errorf("run %d: %w", i+1, err)
		}
		if o.verbose {
			fmt.Fprintf(os.Stderr, "%s: run %d: least %.3f, nobody %.3f, loan cut %.1f s after %.1f s; others took %.1f %%\n", c.name, i+1, r.least.each, r.nobody.each, r.back, r.lacked, 100*r.taken)
		}
		all = append(all, r)
	}
	if o.record != "" {
		err = b.daemon.Record(ctx, filepath.Join(o.record, strings.NewReplacer(" ", "-", ",", "").Replace(c.name)+".trimtab"))
	}
	return all, err
}

func start(ctx context.Context, o options, c fairCase) (*bench, error) {
	b := &bench{c: c, always: 1}
	config, err := b.config()
	if err != nil {
		return b, err
	}
	if b.daemon, err = daemontest.Start(ctx, daemontest.Options{Binary: o.binary, Config: config}); err != nil {
		return b, err
	}
	w := workload.Options{Name: prefix + "borrower", Script: "fair.py", Args: append([]string{"--busy"}, c.lends...), DockerArgs: append([]string{"--label", "trimtab.mode=tune"}, c.borrower...)}
	if c.lends == nil {
		w.Script, w.Args = "memory.py", []string{"--every", "2", "--data-mib", "900"}
	}
	if b.borrower, err = launch(ctx, w); err != nil {
		return b, err
	}
	if b.lent, err = b.borrower.CPUStates(ctx); err != nil {
		return b, err
	}
	if b.limit, err = b.borrower.MemoryLimit(ctx); err != nil {
		return b, err
	}
	if b.uses, err = b.borrower.MemoryUse(ctx); err != nil {
		return b, err
	}
	for i, n := range c.neighbours {
		x := &other{n: n, name: fmt.Sprint(prefix, "other", i)}
		b.others = append(b.others, x)
		if n.present {
			if err := x.start(ctx, c.together); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}

func (b *bench) config() (string, error) {
	text := "watch: all\nreserve: {cpus: 0.01}\n"
	if b.c.config != "memory" {
		return text, nil
	}
	available, err := memAvailable()
	if err != nil {
		return "", err
	}
	b.reserve = available - 1700<<20
	return fmt.Sprintf("watch: all\nreserve: {cpus: 0.01, memory: %d}\n", b.reserve), nil
}

func launch(ctx context.Context, o workload.Options) (*workload.Job, error) {
	_ = exec.CommandContext(ctx, "docker", "rm", "--force", o.Name).Run() // what a killed run left; mostly nothing
	return workload.Start(ctx, o)
}

// wake makes all neighbours work, or end it; who came later is started, and stopped.
func (b *bench) wake(ctx context.Context, busy bool) error {
	told := make([]error, len(b.others))
	var all sync.WaitGroup
	for i, x := range b.others {
		if x.n.present && x.busy != busy {
			all.Go(func() { told[i] = x.tell(ctx, busy) })
		}
	}
	all.Wait()
	if err := errors.Join(told...); err != nil {
		return err
	}
	for _, x := range b.others {
		switch {
		case !x.n.present && busy && x.job == nil:
			if err := x.start(ctx, true); err != nil {
				return err
			}
		case !x.n.present && !busy && x.job != nil:
			if err := x.job.Stop(); err != nil {
				return err
			}
			x.job, x.busy = nil, false
		}
	}
	return nil
}

// undisturbed makes a run again while others took too much of it.
func (b *bench) undisturbed(ctx context.Context) (r result, err error) {
	for range 1 + workload.MaxVoid {
		b.taken = 0
		r, err = b.run(ctx)
		if r.taken = b.taken - b.always; err != nil || r.taken <= workload.MaxTaken {
			break
		}
		fmt.Fprintf(os.Stderr, "%s: others took %.1f %% of the host's CPU time\n", b.c.name, 100*r.taken)
		if err = errors.Join(b.wake(ctx, false), workload.Sleep(ctx, settle)); err != nil {
			break
		}
	}
	return r, err
}

// mine is the CPU time of all that belongs to the case.
func (b *bench) mine() (sum time.Duration, err error) {
	sum, err = workload.ProcessCPU(b.daemon.PID())
	own, errOwn := b.lent()
	sum, err = sum+own.Used, errors.Join(err, errOwn)
	for _, x := range b.others {
		if x.job == nil {
			continue
		}
		s, errOther := x.read()
		sum, err = sum+s.Used, errors.Join(err, errOther)
	}
	return sum, err
}

// run is one comparison: first while nothing is lent, then while something is.
func (b *bench) run(ctx context.Context) (r result, err error) {
	if _, err := b.daemon.Run(ctx, "disable", b.borrower.Name); err != nil {
		return r, err
	}
	if err := errors.Join(b.wake(ctx, true), workload.Sleep(ctx, settle)); err != nil {
		return r, err
	}
	if err := b.watch(ctx, control, nil); err != nil {
		return r, err
	}
	due := make([]float64, len(b.others))
	var together float64
	for i, x := range b.others {
		due[i] = min(b.amount(x, 0, len(x.sample)-1), b.c.fair(x.n, float64(runtime.NumCPU())))
		together += due[i]
	}
	r.nobody = b.least(due, together, 0)
	if !b.c.together {
		if err := errors.Join(b.wake(ctx, false), workload.Sleep(ctx, settle)); err != nil {
			return r, err
		}
	}
	if _, err := b.daemon.Run(ctx, "enable", b.borrower.Name); err != nil {
		return r, err
	}
	switch lent, err := b.waitLent(ctx); {
	case err != nil:
		return r, err
	case !lent: // it is known what this neighbour does not bear
		r.least, r.mean, r.back = r.nobody, 1, -1
		return r, nil
	}
	if !b.c.together {
		if err := workload.Sleep(ctx, standFor); err != nil {
			return r, err
		}
	}
	before, err := b.lentNow()
	if err != nil {
		return r, err
	}
	began := workload.Now()
	if r.back = -1; b.c.config == "memory" {
		r.lacked = -1
	}
	if err := b.wake(ctx, true); err != nil {
		return r, err
	}
	err = b.watch(ctx, watchFor, func() error {
		now, err := b.lentNow()
		if err != nil {
			return err
		}
		at := (workload.Now() - began).Seconds()
		cut := now < 0.98*before
		short, err := b.short()
		if r.lacked < 0 && (short || cut) {
			r.lacked = at
		}
		if r.back < 0 && cut {
			r.back = at - r.lacked
		}
		before = max(before, now)
		return err
	})
	r.least, r.mean = b.least(due, together, began+within), b.mean(together, began+within)
	if b.c.config == "memory" && (r.back < 0 || r.back > within.Seconds()) {
		r.least = share{} // its limit stands though the host is short
	}
	return r, err
}

// short reports whether what is available of the host's memory is less than the reserve and what
// the loan may still take.
func (b *bench) short() (bool, error) {
	if b.c.config != "memory" {
		return false, nil
	}
	available, errHost := memAvailable()
	limit, errLimit := b.limit()
	uses, errUse := b.uses()
	return available < b.reserve+max(0, limit-max(uses, borrowerLimit)), errors.Join(errHost, errLimit, errUse)
}

// lentNow is the borrower's quota, CPUs, or its limit, bytes.
func (b *bench) lentNow() (float64, error) {
	if b.c.config == "memory" {
		n, err := b.limit()
		return float64(n), err
	}
	s, err := b.lent()
	return s.Quota, err
}

// waitLent waits until the borrower has more than its owner's; false: it is lent nothing, for its
// neighbour's sake.
func (b *bench) waitLent(ctx context.Context) (bool, error) {
	own := borrowerQuota
	if b.c.config == "memory" {
		own = borrowerLimit
	}
	for deadline := time.Now().Add(lendFor); time.Now().Before(deadline); {
		now, err := b.lentNow()
		if err != nil {
			return false, err
		}
		if now > 1.1*own {
			return true, nil
		}
		if err := workload.Sleep(ctx, step); err != nil {
			return false, err
		}
	}
	c, err := b.daemon.Container(ctx, b.borrower.Name)
	if err == nil && b.c.by == byWork && c.Gate == string(guard.GateRights) {
		return false, nil
	}
	return false, errors.Join(fmt.Errorf("no loan within %s: %s", lendFor, c.WhyNot), err)
}

// watch samples all neighbours for a while.
func (b *bench) watch(ctx context.Context, d time.Duration, each func() error) error {
	for _, x := range b.others {
		x.sample = nil
	}
	taken, err := workload.Others(b.mine)
	if err != nil {
		return err
	}
	for end := workload.Now() + d; workload.Now() < end; {
		for _, x := range b.others {
			s, err := x.read()
			if err != nil {
				return err
			}
			var n int64
			if all := x.job.Steps(); len(all) > 0 {
				n = all[len(all)-1].N
			}
			held, err := x.held()
			if err != nil {
				return err
			}
			x.sample = append(x.sample, reading{s.At, s.Used, n, held})
		}
		if each != nil {
			if err := each(); err != nil {
				return err
			}
		}
		if err := workload.Sleep(ctx, step); err != nil {
			return err
		}
	}
	share, err := taken()
	b.taken, b.always = max(b.taken, share), min(b.always, share)
	return err
}

func (b *bench) close(ctx context.Context) error {
	var err error
	for _, x := range b.others {
		if x.job != nil {
			err = errors.Join(err, x.job.Stop())
		}
	}
	if b.borrower != nil {
		err = errors.Join(err, b.borrower.Stop())
	}
	if b.daemon != nil {
		err = errors.Join(err, b.daemon.Close())
	}
	for _, name := range []string{"fair-a", "fair-b"} { // left by --cgroup-parent; empty now
		_ = exec.CommandContext(ctx, "sh", "-c", "rmdir /sys/fs/cgroup/*/"+name+" /sys/fs/cgroup/"+name+" 2>/dev/null").Run()
	}
	return err
}

func memAvailable() (int64, error) {
	h, err := host.New("/proc").Read()
	return int64(h.MemAvail), err
}
