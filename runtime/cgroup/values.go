package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
)

// v1Unlimited is the value from which a v1 memory limit means none. The kernel
// shows its largest page count, 2^63 less a page, and no machine has 2^62 bytes.
const v1Unlimited = 1 << 62

// reader collects values of one control group; the first hard error stays.
type reader struct {
	values runtime.Values
	err    error
}

// ReadValues reads the value that stands in the kernel for each knob that this
// host has; a knob without its file is absent. On v2 an empty cpuset means
// unset, "". A control group that is gone gives runtime.ErrGone.
func ReadValues(cg runtime.Cgroup) (runtime.Values, error) {
	r := reader{values: make(runtime.Values)}
	for _, part := range []struct {
		controller string
		v1, v2     func(dir string)
	}{
		{"cpu", r.cpuV1, r.cpuV2},
		{"cpuset", r.cpuset, r.cpuset},
		{"memory", r.memoryV1, r.memoryV2},
	} {
		switch dir, isV1 := cg.V1[part.controller]; {
		case isV1:
			part.v1(dir)
		case cg.Unified != "":
			part.v2(cg.Unified)
		}
	}
	if r.err == nil && len(r.values) == 0 {
		return nil, fmt.Errorf("control group %s: %w", cg.Dir("cpu"), runtime.ErrGone)
	}
	return r.values, r.err
}

// line returns the trimmed content of a file; ok is false if it is not there.
func (r *reader) line(dir, name string) (text string, ok bool) {
	data, err := readSmall(filepath.Join(dir, name))
	switch {
	case err == nil:
		return strings.TrimSpace(string(data)), true
	case errors.Is(err, syscall.ENODEV): // removed while it was open
		r.fail(fmt.Errorf("%s in %s: %w", name, dir, runtime.ErrGone))
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EOPNOTSUPP):
		r.fail(fmt.Errorf("control group: %w", err))
	}
	return "", false
}

// maxValueBytes bounds what is read of one file.
const maxValueBytes = 64 << 10

// readSmall is os.ReadFile without its bookkeeping, which costs as much again as the
// kernel's part of reading a value.
func readSmall(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd) // opened for reading
	buf := make([]byte, 0, 128)
	for len(buf) < maxValueBytes {
		buf = slices.Grow(buf, 64)
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", path, err)
		case n == 0:
			return buf, nil
		default:
			buf = buf[:len(buf)+n]
		}
	}
	return buf, nil
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// copyFile takes a file's content as the knob's value as it is.
func (r *reader) copyFile(knob runtime.Knob, dir, name string) {
	if text, ok := r.line(dir, name); ok {
		r.values[knob] = runtime.Value(text)
	}
}

func (r *reader) cpuV1(dir string) {
	r.copyFile(runtime.KnobCPUWeight, dir, "cpu.shares")
	r.quotaV1(dir)
}

func (r *reader) quotaV1(dir string) {
	quota, hasQuota := r.number(dir, "cpu.cfs_quota_us")
	period, hasPeriod := r.number(dir, "cpu.cfs_period_us")
	if hasQuota && hasPeriod {
		r.values[runtime.KnobCPUQuota] = runtime.Quota(quota, period)
	}
}

func (r *reader) quotaV2(dir string) { r.copyFile(runtime.KnobCPUQuota, dir, "cpu.max") }

func (r *reader) cpuV2(dir string) {
	// 0 is what the kernel shows while cpu.idle is 1: there is no weight then.
	if text, ok := r.line(dir, "cpu.weight"); ok && text != "0" {
		r.values[runtime.KnobCPUWeight] = runtime.Value(text)
	}
	r.quotaV2(dir)
}

func (r *reader) cpuset(dir string) { r.copyFile(runtime.KnobCpuset, dir, "cpuset.cpus") }

func (r *reader) memoryV1(dir string) {
	for knob, name := range map[runtime.Knob]string{
		runtime.KnobMemoryLimit: "memory.limit_in_bytes",
		runtime.KnobMemorySwap:  "memory.memsw.limit_in_bytes", // absent without swap accounting
	} {
		bytes, ok := r.number(dir, name)
		switch {
		case ok && bytes >= v1Unlimited:
			r.values[knob] = runtime.ValueMax
		case ok:
			r.values[knob] = runtime.IntValue(bytes)
		}
	}
}

func (r *reader) memoryV2(dir string) {
	r.copyFile(runtime.KnobMemoryLimit, dir, "memory.max")
	r.copyFile(runtime.KnobMemorySwap, dir, "memory.swap.max")
}

// number reads a whole number. v1 shows some as unsigned beyond int64: they are clipped.
func (r *reader) number(dir, name string) (n int64, ok bool) {
	text, ok := r.line(dir, name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		r.fail(fmt.Errorf("%s: %w", filepath.Join(dir, name), err))
		return 0, false
	}
	return n, true
}

// ParentCPUs returns the CPUs that an unset cpuset means: those that the parent
// has in effect.
func ParentCPUs(cg runtime.Cgroup) (runtime.Value, error) {
	dir := cg.Dir("cpuset")
	if dir == "" {
		return "", fmt.Errorf("no cpuset controller on this host")
	}
	r := reader{}
	for _, name := range []string{"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"} {
		if text, ok := r.line(filepath.Dir(dir), name); ok && text != "" {
			return runtime.Value(text), nil
		}
	}
	if r.err != nil {
		return "", r.err
	}
	return "", fmt.Errorf("cpuset of the parent of %s: no file tells it", dir)
}

// QuotaAbove returns the fewest CPUs that the quota of a group above a control group
// leaves to all below it, and that group's directory; none has one: "".
func QuotaAbove(cg runtime.Cgroup) (cpus float64, group string, err error) {
	return least(cg, "cpu", runtime.KnobCPUQuota, (*reader).quotaV1, (*reader).quotaV2)
}

// MemoryAbove returns the least memory limit, bytes, of the groups above a control group, and
// that group's directory; none has one: "".
func MemoryAbove(cg runtime.Cgroup) (bytes float64, group string, err error) {
	return least(cg, "memory", runtime.KnobMemoryLimit, (*reader).memoryV1, (*reader).memoryV2)
}

// least is the least of what limits the groups above a control group.
func least(cg runtime.Cgroup, controller string, knob runtime.Knob, v1, v2 func(r *reader, dir string)) (least float64, group string, err error) {
	own := cg.Dir(controller)
	if own == "" {
		return 0, "", nil
	}
	read := v2
	if _, isV1 := cg.V1[controller]; isV1 {
		read = v1
	}
	// Above the root of the hierarchy is no control group.
	for dir := filepath.Dir(own); exists(filepath.Join(dir, "cgroup.procs")); dir = filepath.Dir(dir) {
		r := reader{values: make(runtime.Values)}
		read(&r, dir)
		if r.err != nil {
			return 0, "", r.err
		}
		if has := r.values[knob].Quantity(); !math.IsInf(has, 1) && (group == "" || has < least) {
			least, group = has, dir
		}
	}
	return least, group, nil
}
