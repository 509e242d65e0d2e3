package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// PID is the host PID of the container's init process.
func (j *Job) PID(ctx context.Context) (int, error) {
	text, err := Docker(ctx, "inspect", "--format", "{{.State.Pid}}", j.ID)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("workload %s: Docker says its PID is %q: has it ended?", j.Name, text)
	}
	return pid, nil
}

// Cgroup is the container's control group, wherever the kernel says that its init process is.
func (j *Job) Cgroup(ctx context.Context) (runtime.Cgroup, error) {
	pid, err := j.PID(ctx)
	if err != nil {
		return runtime.Cgroup{}, err
	}
	return cgroup.Locate("/proc", cgroup.DefaultRoot, pid)
}

// CPUState is what a container's control group says of its CPU at one instant.
type CPUState struct {
	At        time.Duration // CLOCK_MONOTONIC
	Used      time.Duration // CPU time
	Quota     float64       // CPUs; 0: none
	Periods   int64         // of the quota, and how many of them it stopped the container in
	Throttled int64
}

// CPUStates returns a function that reads it, v1 or v2.
func (j *Job) CPUStates(ctx context.Context) (func() (CPUState, error), error) {
	cg, err := j.Cgroup(ctx)
	if err != nil {
		return nil, err
	}
	return func() (s CPUState, err error) {
		if s.Used, err = CPUUsed(cg); err != nil {
			return s, err
		}
		s.At = Now()
		stat, err := os.ReadFile(filepath.Join(cg.Dir("cpu"), "cpu.stat"))
		if err != nil {
			return s, fmt.Errorf("workload %s: %w", j.Name, err)
		}
		s.Periods, _ = field(stat, "nr_periods") // absent, 0: none was counted
		s.Throttled, _ = field(stat, "nr_throttled")
		values, err := cgroup.ReadValues(cg)
		s.Quota, _ = values[runtime.KnobCPUQuota].CPUs()
		return s, err
	}, nil
}

// CPUUsage returns a function that reads the CPU time of the job's container.
func (j *Job) CPUUsage(ctx context.Context) (func() (time.Duration, error), error) {
	cg, err := j.Cgroup(ctx)
	if err != nil {
		return nil, err
	}
	return func() (time.Duration, error) { return CPUUsed(cg) }, nil
}

// CPUUsed is the CPU time that a control group has used.
func CPUUsed(cg runtime.Cgroup) (time.Duration, error) {
	if dir, v1 := cg.V1["cpuacct"]; v1 {
		ns, err := number(filepath.Join(dir, "cpuacct.usage"))
		return time.Duration(ns), err
	}
	stat, err := os.ReadFile(filepath.Join(cg.Unified, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	us, ok := field(stat, "usage_usec")
	if !ok {
		return 0, errors.New("cpu.stat: no usage_usec")
	}
	return time.Duration(us) * time.Microsecond, nil
}

func field(stat []byte, name string) (n int64, ok bool) {
	for line := range strings.Lines(string(stat)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

func number(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// MemoryLimit returns a function that reads the container's memory limit, bytes; 0: none.
func (j *Job) MemoryLimit(ctx context.Context) (func() (int64, error), error) {
	cg, err := j.Cgroup(ctx)
	if err != nil {
		return nil, err
	}
	return func() (int64, error) {
		values, err := cgroup.ReadValues(cg)
		limit, _ := values[runtime.KnobMemoryLimit].Int() // none: 0
		return limit, err
	}, nil
}

// MemoryUse returns a function that reads how much memory is charged to the container, bytes.
func (j *Job) MemoryUse(ctx context.Context) (func() (int64, error), error) {
	cg, err := j.Cgroup(ctx)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(cg.Dir("memory"), "memory.current")
	if dir, v1 := cg.V1["memory"]; v1 {
		path = filepath.Join(dir, "memory.usage_in_bytes")
	}
	return func() (int64, error) { return number(path) }, nil
}

// Resident is a process's resident set, bytes.
func Resident(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		return 0, fmt.Errorf("/proc/%d/statm: %w", pid, err)
	}
	return resident * float64(os.Getpagesize()), nil
}
