package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/originals"
)

// breakLaw breaks one on purpose and does not say so: what holds the laws must tell.
func (w *world) breakLaw(ctx context.Context) error {
	j := w.tuned()[0]
	quota := filepath.Join(j.cgroup.Dir("cpu"), "cpu.cfs_quota_us")
	value := "9999"
	if j.cgroup.V1["cpu"] == "" {
		quota, value = filepath.Join(j.cgroup.Unified, "cpu.max"), "9999 100000"
	}
	w.say("a law is broken on purpose: %s, at %s", w.o.brk, j.name)
	switch w.o.brk {
	case "limit": // somebody writes, and the harness takes it for trimtab's
		return os.WriteFile(quota, []byte(value), 0)
	case "original": // a record that would put back what its owner never set
		if err := w.killed(); err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(quota, []byte(value), 0), w.forge(j)); err != nil {
			return err
		}
		w.look(int(w.step.Load()))
		return w.start(ctx)
	case "process":
		return syscall.Kill(j.were[len(j.were)-1].pid, syscall.SIGKILL)
	case "tick":
		if err := w.daemon.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		_ = workload.Sleep(ctx, readyAfter+2*maxTickAge)
		return w.daemon.Signal(syscall.SIGCONT)
	}
	return fmt.Errorf("-break %q: want limit, original, process or tick", w.o.brk)
}

// forge writes an originals file as if trimtab had changed a job whose owner had set another
// quota.
func (w *world) forge(j *job) error {
	start, err := startOf(j.pid)
	if err != nil {
		return err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	f := originals.For(runtime.Container{ID: runtime.ID{Engine: "docker", Container: j.id, Boot: strings.TrimSpace(string(boot)), StartTick: start},
		Name: j.name, InitPID: j.pid, Cgroup: j.cgroup})
	f.Knobs[runtime.KnobCPUQuota] = originals.Knob{Original: "44444 100000", Written: runtime.Quota(9999, j.record.period)}
	return originals.New(originals.Options{Dir: filepath.Join(w.below, "originals")}).Save(f)
}
