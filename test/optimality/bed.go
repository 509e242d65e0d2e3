package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/host"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/rivals"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/test/workloads/gpu"
)

// alloc is the values of each job's knobs, in the order of the mix.
type alloc []runtime.Values

// bed is a mix that runs: its containers stay while policies come and go.
type bed struct {
	mix     mix
	jobs    []*workload.Job
	use     []func() (time.Duration, error)
	owner   alloc // what stood at the start: the owner's limits
	node    *vgpu.Node
	fleet   *rivals.Fleet
	host    *host.Probe
	swapped bool // jobs that change are in the second phase
	cleanup []func() error
}

// share is the equal share of a mix's containers, CPUs.
func share(m mix) float64 {
	return math.Floor(100*float64(goruntime.NumCPU())/float64(len(m.jobs))) / 100
}

// startBed starts all jobs without quotas, waits for their first steps, and then gives
// each what its owner would.
func startBed(ctx context.Context, m mix) (b *bed, err error) {
	b = &bed{mix: m, host: host.New("/proc")}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if err := b.makeNode(ctx); err != nil {
		return b, err
	}
	devices := 0
	for _, j := range m.jobs {
		if err := b.startJob(ctx, j, &devices); err != nil {
			return b, err
		}
	}
	if b.fleet, err = rivals.Follow(ctx, prefix); err != nil {
		return b, err
	}
	b.cleanup = append(b.cleanup, b.fleet.Close)
	waiting, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for _, j := range b.jobs {
		if err := j.WaitSteps(waiting, 5); err != nil {
			return b, err
		}
		use, err := j.CPUUsage(ctx)
		if err != nil {
			return b, err
		}
		b.use = append(b.use, use)
	}
	return b, b.setOwner(ctx)
}

func (b *bed) makeNode(ctx context.Context) error {
	devices := 0
	for _, j := range b.mix.jobs {
		devices += j.gpus
	}
	if devices == 0 {
		return nil
	}
	dir, err := gpu.Build(ctx)
	if err != nil {
		return err
	}
	shm, err := os.MkdirTemp("/dev/shm", "trimtab-regret-*")
	if err != nil {
		return err
	}
	b.cleanup = append(b.cleanup, func() error { return os.RemoveAll(shm) })
	b.node, err = vgpu.NewNode(ctx, dir, shm, vgpu.Options{Devices: devices})
	return err
}

func (b *bed) startJob(ctx context.Context, j job, devices *int) error {
	o := workload.Options{Name: b.mix.container(j), Script: j.script, Args: j.args}
	if j.gpus > 0 {
		o.DockerArgs = append(o.DockerArgs, b.node.DockerArgs()...)
		o.DockerArgs = append(o.DockerArgs, "--label", rivals.LabelGPUs+"="+fmt.Sprint(j.gpus))
		if j.gpus == 1 { // ranks of one job take the devices from 0 on
			o.Args = append(append([]string{}, o.Args...), "--device", fmt.Sprint(*devices))
		}
		*devices += j.gpus
	}
	if !j.stranger {
		o.DockerArgs = append(o.DockerArgs, "--label", "trimtab.mode=tune")
	}
	if j.memoryMiB > 0 {
		o.DockerArgs = append(o.DockerArgs, "--label", "trimtab.knobs=cpu,memory")
	}
	if j.bestEffort {
		o.DockerArgs = append(o.DockerArgs, "--label", "trimtab.class=best-effort", "--label", rivals.LabelBestEffort+"=true")
	}
	_ = exec.CommandContext(ctx, "docker", "rm", "--force", o.Name).Run() // what a killed run left; mostly nothing
	w, err := workload.Start(ctx, o)
	if err != nil {
		return err
	}
	b.cleanup = append(b.cleanup, w.Stop)
	b.jobs = append(b.jobs, w)
	return nil
}

// setOwner sets the owner's limits by docker update, as an owner does, and keeps what
// then stands in the kernel.
func (b *bed) setOwner(ctx context.Context) error {
	for i, j := range b.mix.jobs {
		flags := []string{"--cpu-shares", "1024"}
		if !j.stranger {
			flags = append(flags, "--cpu-period", "100000", "--cpu-quota", fmt.Sprint(int64(share(b.mix)*100_000+0.5)))
		}
		if j.memoryMiB > 0 {
			limit := fmt.Sprintf("%dm", j.memoryMiB)
			flags = append(flags, "--memory", limit, "--memory-swap", limit)
		}
		if err := b.jobs[i].Update(ctx, flags...); err != nil {
			return err
		}
		stands, err := b.read(ctx, i)
		if err != nil {
			return err
		}
		b.owner = append(b.owner, stands)
	}
	return nil
}

func (b *bed) read(ctx context.Context, i int) (runtime.Values, error) {
	c, err := b.fleet.Named(b.jobs[i].Name)
	if err != nil {
		return nil, err
	}
	return b.fleet.Engine.Read(ctx, c)
}

// set makes every job's knobs what an allocation says, and those that it does not name
// the owner's; it reads back.
func (b *bed) set(ctx context.Context, a alloc) error {
	for i := range b.jobs {
		want := b.owner[i].Clone()
		if a != nil {
			for k, v := range a[i] {
				want[k] = v
			}
		}
		for attempt := 0; ; attempt++ {
			missing, err := b.differs(ctx, i, want)
			if err != nil {
				return err
			}
			if len(missing) == 0 {
				break
			}
			if attempt == 2 {
				return fmt.Errorf("container %q: %v does not stand after two writes", b.jobs[i].Name, missing)
			}
			c, err := b.fleet.Named(b.jobs[i].Name)
			if err != nil {
				return err
			}
			if err := b.fleet.Engine.Apply(ctx, c, missing); err != nil {
				return err
			}
		}
	}
	return nil
}

// stands is what stands on all jobs now.
func (b *bed) stands(ctx context.Context) (a alloc, err error) {
	for i := range b.jobs {
		v, err := b.read(ctx, i)
		if err != nil {
			return nil, err
		}
		a = append(a, only(v))
	}
	return a, nil
}

// same reports whether two allocations are one.
func (a alloc) same(b alloc) bool {
	return slices.EqualFunc(a, b, func(x, y runtime.Values) bool {
		return len(x) == len(y) && !slices.ContainsFunc(x.Sorted(), func(k runtime.Knob) bool { return !k.Same(x[k], y[k]) })
	})
}

func (b *bed) differs(ctx context.Context, i int, want runtime.Values) (runtime.Values, error) {
	stands, err := b.read(ctx, i)
	if err != nil {
		return nil, err
	}
	missing := runtime.Values{}
	for k, v := range want {
		if !k.Same(v, stands[k]) {
			missing[k] = v
		}
	}
	return missing, nil
}

// reset brings back the owner's limits and the first phase.
func (b *bed) reset(ctx context.Context) error {
	if err := b.phase(ctx, 0); err != nil {
		return err
	}
	return b.set(ctx, nil)
}

// phase makes the jobs that change be what they are in a phase.
func (b *bed) phase(ctx context.Context, n int) error {
	if want := n == 1; want == b.swapped || b.mix.phases < 2 {
		return nil
	}
	for i, j := range b.mix.jobs {
		if j.switches {
			if _, err := workload.Docker(ctx, "kill", "--signal", "USR1", b.jobs[i].Name); err != nil {
				return err
			}
		}
	}
	b.swapped = !b.swapped
	return nil
}

// alone runs f while all containers but one stand still. Their processes are stopped
// one by one: Docker's pause gives up where a freezer takes long.
func (b *bed) alone(ctx context.Context, i int, f func() error) (err error) {
	for k := range b.jobs {
		if k == i {
			continue
		}
		defer func() { err = errors.Join(err, b.signal(k, unix.SIGCONT)) }()
		if err := b.still(ctx, k); err != nil {
			return err
		}
	}
	return f()
}

// stillTries bounds how often a container is stopped anew because it had the virtual node's
// lock: one that spins has it often, and no other job would make a step meanwhile.
const stillTries = 50

// still stops a container's processes where they hold nobody up.
func (b *bed) still(ctx context.Context, k int) error {
	for range stillTries {
		if err := b.signal(k, unix.SIGSTOP); err != nil || b.node == nil {
			return err
		}
		node, err := b.node.Show(ctx)
		if err != nil || !node.Stuck {
			return err
		}
		if err := errors.Join(b.signal(k, unix.SIGCONT), b.sleep(ctx, 10*time.Millisecond)); err != nil {
			return err
		}
	}
	return fmt.Errorf("container %q: wherever it is stopped it holds the virtual node's lock", b.jobs[k].Name)
}

// signal reaches every process of a container.
func (b *bed) signal(i int, sig unix.Signal) error {
	c, err := b.fleet.Named(b.jobs[i].Name)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(c.Cgroup.Dir("cpu"), "cgroup.procs"))
	if err != nil {
		return err
	}
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return fmt.Errorf("container %q: its cgroup.procs holds %q", c.Name, field)
		}
		if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("container %q, process %d: %w", c.Name, pid, err)
		}
	}
	return nil
}

func (b *bed) close() error {
	var errs []error
	for i := len(b.cleanup) - 1; i >= 0; i-- {
		errs = append(errs, b.cleanup[i]())
	}
	return errors.Join(errs...)
}
