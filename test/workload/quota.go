package workload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

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
	used, err := j.CPUUsage(ctx)
	if err != nil {
		return nil, err
	}
	pid, err := j.PID(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", j.Name, err)
	}
	dir, v1 := cpuGroup(string(groups))
	return func() (s CPUState, err error) {
		if s.Used, err = used(); err != nil {
			return s, err
		}
		s.At = Now()
		stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		if err != nil {
			return s, fmt.Errorf("workload %s: %w", j.Name, err)
		}
		s.Periods, s.Throttled = field(string(stat), "nr_periods"), field(string(stat), "nr_throttled")
		s.Quota, err = quotaOf(dir, v1)
		return s, err
	}, nil
}

// cpuGroup is the directory of a control group's CPU files, from the text of /proc/PID/cgroup.
func cpuGroup(groups string) (dir string, v1 bool) {
	for line := range strings.Lines(groups) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		if part[1] == "" {
			dir = filepath.Join("/sys/fs/cgroup", part[2])
		}
		for controller := range strings.SplitSeq(part[1], ",") {
			if controller == "cpu" {
				return filepath.Join("/sys/fs/cgroup/cpu", part[2]), true
			}
		}
	}
	return dir, false
}

func quotaOf(dir string, v1 bool) (float64, error) {
	if !v1 {
		text, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
		quota, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		return ratio(quota, period), err
	}
	quota, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
	if err != nil {
		return 0, err
	}
	period, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
	return ratio(strings.TrimSpace(string(quota)), strings.TrimSpace(string(period))), err
}

// ratio is a quota over its period; 0 where there is none.
func ratio(quota, period string) float64 {
	q, err := strconv.ParseFloat(quota, 64)
	p, errPeriod := strconv.ParseFloat(period, 64)
	if err != nil || errPeriod != nil || q <= 0 || p <= 0 {
		return 0
	}
	return q / p
}

func field(stat, name string) int64 {
	for line := range strings.Lines(stat) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, _ := strconv.ParseInt(text, 10, 64) // the kernel's own numbers
			return n
		}
	}
	return 0
}

// MemoryLimit returns a function that reads the container's memory limit, bytes; 0: none.
func (j *Job) MemoryLimit(ctx context.Context) (func() (int64, error), error) {
	return j.memoryFile(ctx, "memory.max", "memory.limit_in_bytes")
}

// MemoryUse returns a function that reads how much memory is charged to the container, bytes.
func (j *Job) MemoryUse(ctx context.Context) (func() (int64, error), error) {
	return j.memoryFile(ctx, "memory.current", "memory.usage_in_bytes")
}

// memoryFile reads a number by its names in v2 and v1; 0 where it is no limit.
func (j *Job) memoryFile(ctx context.Context, v2, v1 string) (func() (int64, error), error) {
	pid, err := j.PID(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", j.Name, err)
	}
	var path string
	for line := range strings.Lines(string(groups)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		if part[1] == "" && path == "" {
			path = filepath.Join("/sys/fs/cgroup", part[2], v2)
		}
		if part[1] == "memory" {
			path = filepath.Join("/sys/fs/cgroup/memory", part[2], v1)
		}
	}
	return func() (int64, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, fmt.Errorf("workload %s: %w", j.Name, err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || n > 1<<50 { // "max", or v1's way to say so
			return 0, nil
		}
		return n, nil
	}, nil
}
