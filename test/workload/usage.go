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
)

// CPUUsage returns a function that reads the CPU time of the job's container
// from its cgroup, v1 or v2, wherever the kernel says that its init process is.
func (j *Job) CPUUsage(ctx context.Context) (func() (time.Duration, error), error) {
	pid, err := docker(ctx, "inspect", "--format", "{{.State.Pid}}", j.ID)
	if err != nil {
		return nil, err
	}
	groups, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", j.Name, err)
	}
	path, read := usageFile(string(groups))
	if path == "" {
		return nil, errors.New("needs cgroups: neither a cpuacct hierarchy nor cgroup v2 below /sys/fs/cgroup")
	}
	return func() (time.Duration, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, fmt.Errorf("workload %s: %w", j.Name, err)
		}
		return read(string(text))
	}, nil
}

// usageFile picks the file from the text of /proc/PID/cgroup.
func usageFile(groups string) (path string, read func(string) (time.Duration, error)) {
	var unified string
	for line := range strings.Lines(groups) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		if part[1] == "" {
			unified = filepath.Join("/sys/fs/cgroup", part[2], "cpu.stat")
		}
		for controller := range strings.SplitSeq(part[1], ",") {
			if controller == "cpuacct" {
				return filepath.Join("/sys/fs/cgroup/cpuacct", part[2], "cpuacct.usage"), nanoseconds
			}
		}
	}
	return unified, usageUsec
}

func nanoseconds(text string) (time.Duration, error) {
	ns, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cpuacct.usage: %w", err)
	}
	return time.Duration(ns), nil
}

func usageUsec(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		if us, ok := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); ok {
			n, err := strconv.ParseInt(us, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("cpu.stat usage_usec: %w", err)
			}
			return time.Duration(n) * time.Microsecond, nil
		}
	}
	return 0, errors.New("cpu.stat: no usage_usec")
}
