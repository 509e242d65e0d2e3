package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

func killDockerd(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	return w.without(ctx, r, w.engine.Kill)
}

func restartDockerd(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	return w.without(ctx, r, w.engine.Stop)
}

func killContainerd(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	return w.without(ctx, r, w.engine.Below.Kill)
}

func restartBoth(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	return w.without(ctx, r, func() error { return errors.Join(w.engine.Stop(), w.engine.Below.Stop()) })
}

// killDaemonAndContainerd: the daemon comes back to an engine that cannot be written by.
func killDaemonAndContainerd(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	if err := w.killed(); err != nil {
		return "", err
	}
	started := make(chan error, 1)
	what, err := w.without(ctx, r, func() error {
		err := w.engine.Below.Kill()
		go func() { started <- w.start(ctx) }()
		return err
	})
	return what, errors.Join(err, <-started)
}

// stopWithoutDockerd: containers outlive dockerd, and containerd takes their owner's values.
func stopWithoutDockerd(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	return w.withoutDockerd(ctx, r, func() (string, error) {
		w.down()
		if err := w.daemon.Stop(); err != nil {
			return "its stop said " + lastLine(err.Error()), nil
		}
		return "", nil
	})
}

func restoreWithoutDockerd(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	return w.withoutDockerd(ctx, r, func() (string, error) {
		if err := w.killed(); err != nil {
			return "", err
		}
		if _, err := w.offline(ctx); err != nil {
			return "restore said " + lastLine(err.Error()), nil
		}
		return "", nil
	})
}

// withoutDockerd restores while dockerd is away, and holds that values are the owner's then.
func (w *world) withoutDockerd(ctx context.Context, r *rand.Rand, restore func() (string, error)) (string, error) {
	w.hush()
	if err := w.engine.Kill(); err != nil {
		return "", err
	}
	pause(ctx, r, 2*time.Second)
	what, err := restore()
	if err != nil {
		return "", err
	}
	w.wantValues("a restore without dockerd")
	if err := w.engine.Start(ctx); err != nil {
		return what, err
	}
	if err := w.engineUp(ctx); err != nil {
		return what, err
	}
	return what, w.start(ctx)
}

// without ends a part of the engine, looks, and has it back.
func (w *world) without(ctx context.Context, r *rand.Rand, end func() error) (string, error) {
	w.hush()
	if err := end(); err != nil {
		return "", err
	}
	down := pause(ctx, r, 4*time.Second)
	w.look(int(w.step.Load()))
	var err error
	if !w.engine.Below.Runs() {
		err = w.engine.Below.Start(ctx)
	}
	if !w.engine.Runs() && err == nil {
		err = w.engine.Start(ctx)
	}
	if err == nil {
		err = w.engineUp(ctx)
	}
	w.hush()
	return fmt.Sprintf("down for %s", down.Round(time.Millisecond)), err
}

// killShim kills what holds a job's container: containerd ends the job for it, which is no
// doing of trimtab's.
func killShim(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	all := w.tuned()
	if len(all) == 0 {
		return "no job", nil
	}
	j := all[r.IntN(len(all))]
	pids := processesOf(func(cmdline string) bool {
		return strings.Contains(cmdline, "containerd-shim") && strings.Contains(cmdline, "\x00"+j.id+"\x00")
	})
	if len(pids) == 0 {
		return "", fmt.Errorf("job %s has no shim", j.name)
	}
	w.forget(j)
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		return "", err
	}
	pause(ctx, r, 2*time.Second)
	return fmt.Sprintf("of %s, process %d", j.name, pids[0]), w.removeOrphan(ctx, j)
}

// removeOrphan removes a job without a shim. Until its end is noticed the engine refuses that; left behind,
// nobody could give it its owner's values back.
func (w *world) removeOrphan(ctx context.Context, j *job) (err error) {
	for end := time.Now().Add(engineWithin); ; {
		if err = w.removeJob(ctx, j); err == nil || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		_ = workload.Sleep(ctx, time.Second) // the loop ends with the context
	}
}

// killChild kills one that the daemon runs: what reads NVML, or containers' libraries.
func killChild(_ context.Context, w *world, r *rand.Rand) (string, error) {
	children := childrenOf(w.daemon.PID())
	if len(children) == 0 {
		return "none runs", nil
	}
	pid := children[r.IntN(len(children))]
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // for people
	err := syscall.Kill(pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		err = nil
	}
	return fmt.Sprintf("process %d, %s", pid, strings.ReplaceAll(string(cmdline), "\x00", " ")), err
}

// processesOf finds processes by their command line, whose words a zero byte ends.
func processesOf(fits func(cmdline string) bool) (out []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range dirs {
		text, err := os.ReadFile(dir + "/cmdline")
		if pid, errPID := strconv.Atoi(filepath.Base(dir)); err == nil && errPID == nil && fits(string(text)) {
			out = append(out, pid)
		}
	}
	return out
}

func childrenOf(parent int) (out []int) {
	dirs, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent)) // the pattern is well formed
	for _, file := range dirs {
		text, _ := os.ReadFile(file) // a thread that ended
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// extra runs a container that is no job, for a while, with what bounds it.
func (w *world) extra(ctx context.Context, name string, d time.Duration, args ...string) error {
	run := []string{"run", "-d", "--net=none", "--name", name, "--cpu-period", "100000", "--cpu-quota", "20000", "--memory-swappiness=0"}
	_, err := w.docker(ctx, append(run, args...)...)
	if err == nil {
		_ = workload.Sleep(ctx, d)
	}
	return errors.Join(err, w.removed(context.WithoutCancel(ctx), name))
}

func memoryPressure(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	d := 3*time.Second + time.Duration(r.Int64N(int64(4*time.Second)))
	return fmt.Sprintf("60 of 64 MiB for %s", d.Round(time.Millisecond)),
		w.extra(ctx, fmt.Sprintf("hoard-%d", w.step.Load()), d, "--memory", "64m", "--label", "trimtab.mode=tune", "--label", "trimtab.knobs=cpu,memory", imageName, "/chaos", childHoard, "60")
}

func forkBomb(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	d := 3*time.Second + time.Duration(r.Int64N(int64(4*time.Second)))
	return fmt.Sprintf("up to 64 processes for %s", d.Round(time.Millisecond)),
		w.extra(ctx, fmt.Sprintf("bomb-%d", w.step.Load()), d, "--memory", "512m", "--pids-limit", "64", "--label", "trimtab.mode=tune", imageName, "/chaos", childBomb)
}

// churn has containers come and go, five a second where the engine can.
func churn(ctx context.Context, w *world, _ *rand.Rand) (string, error) {
	const each, lives, total = 200 * time.Millisecond, 300 * time.Millisecond, 20
	var all sync.WaitGroup
	errs := make([]error, total)
	room := make(chan struct{}, 5)
	began := time.Now()
	for i := range total {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			errs[i] = w.extra(ctx, fmt.Sprintf("fly%d-%d", w.step.Load(), i), lives, "--memory", "64m", "--label", "trimtab.mode=tune", imageName, "/chaos", childWorker, "5", "20")
		})
		_ = workload.Sleep(ctx, each-time.Since(began.Add(time.Duration(i)*each)))
	}
	all.Wait()
	return fmt.Sprintf("%d in %s", total, time.Since(began).Round(100*time.Millisecond)), errors.Join(errs...)
}
