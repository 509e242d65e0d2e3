package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/turns"
)

// Writer is the way around every write: one at a time for each container, what
// stands read first, what no write path can express refused. The zero Writer is ready;
// it is safe for concurrent use.
type Writer struct {
	writing turns.Turns // by container ID: one read-modify-write at a time
}

// Apply is runtime.Engine's, around a write path. write is given what stands in the
// kernel and what is to change; the latter is checked, and holds no empty cpuset.
// A write path that carries all values writes over what somebody else wrote since the reading, but for what
// it can see: limits (runtime/containerd), and what `docker update` stored (runtime/docker).
func (w *Writer) Apply(ctx context.Context, host Host, c runtime.Container, set runtime.Values,
	write func(ctx context.Context, stands, want runtime.Values) error) error {
	turn, err := w.writing.Take(ctx, c.ID.Container)
	if err != nil {
		return fmt.Errorf("container %q: %w", c.Name, err)
	}
	defer turn.Give()
	stands, err := host.Read(ctx, c)
	if err != nil {
		return err
	}
	if err := check(c, stands, set); err != nil {
		return err
	}
	want, err := ResolveCPUs(c, stands, set)
	if err != nil {
		return err
	}
	err = write(ctx, stands, want)
	switch {
	case err == nil:
	case host.Alive(c) != nil:
		return fmt.Errorf("container %q: it ended during the write (%w): %w", c.Name, err, runtime.ErrGone)
	case errors.Is(err, runtime.ErrGone): // its process runs: who does not know it is not whom to ask
		err = fmt.Errorf("container %q: it runs, and %s does not know it (%v): %w", c.Name, c.ID.Engine, err, runtime.ErrUnavailable)
	}
	if errors.Is(err, runtime.ErrRefused) {
		err = errors.Join(err, undo(context.WithoutCancel(ctx), host, c, stands, want, write))
	}
	return err
}

// undo puts back what a write that was refused wrote before the refusal. runc puts back
// what its state holds, and leaves the rest: by systemd's driver on v1 a weight that nobody
// had set stands as it was asked for [measured: runc 1.1.5, systemd 252].
func undo(ctx context.Context, host Host, c runtime.Container, stands, want runtime.Values, write func(ctx context.Context, stands, want runtime.Values) error) error {
	now, err := host.Read(ctx, c)
	if err != nil {
		return err
	}
	back := runtime.Values{}
	for _, knob := range want.Sorted() { // what is neither is somebody else's
		if !knob.Same(stands[knob], now[knob]) && knob.Same(want[knob], now[knob]) {
			back[knob] = stands[knob]
		}
	}
	if len(back) == 0 {
		return nil
	}
	if back, err = ResolveCPUs(c, now, back); err != nil {
		return err
	}
	if err := write(ctx, now, back); err != nil {
		return fmt.Errorf("container %q: putting back %s after a refusal: %w", c.Name, KnobNames(back), err)
	}
	return nil
}

// ResolveCPUs replaces an empty cpuset, which means unset, by what that means:
// no runtime takes "" for anything but "unchanged".
func ResolveCPUs(c runtime.Container, stands, set runtime.Values) (runtime.Values, error) {
	cpus, ok := set[runtime.KnobCpuset]
	if !ok || cpus != "" || stands[runtime.KnobCpuset] == "" {
		return set, nil
	}
	parent, err := cgroup.ParentCPUs(c.Cgroup)
	if err != nil {
		return nil, fmt.Errorf("container %q: %s: %w", c.Name, runtime.KnobCpuset, err)
	}
	out := set.Clone()
	out[runtime.KnobCpuset] = parent
	return out, nil
}

// check refuses what no write path can express on this host.
func check(c runtime.Container, stands, set runtime.Values) error {
	for _, knob := range slices.Sorted(maps.Keys(set)) { // also those that runtime.Knobs does not know: refused, not forgotten
		if _, ok := stands[knob]; !ok {
			return Refused(c, knob, "this host's %s control groups have no such knob", c.Cgroup.Mode)
		}
		if err := checkValue(knob, set[knob]); err != nil {
			return Refused(c, knob, "%v", err)
		}
	}
	if err := checkAbove(c, set); err != nil {
		return err
	}
	return checkCPUs(c, set)
}

// checkAbove refuses a quota above that of a group above the container, where the kernel
// would: v1's says no more than "invalid argument". On v2 it takes it, and the group above
// bounds it all the same.
func checkAbove(c runtime.Container, set runtime.Values) error {
	asked, limited := set[runtime.KnobCPUQuota].CPUs()
	if _, isV1 := c.Cgroup.V1["cpu"]; !limited || !isV1 {
		return nil
	}
	cpus, group, err := cgroup.QuotaAbove(c.Cgroup)
	if err != nil {
		return fmt.Errorf("container %q: %s: above it: %w", c.Name, runtime.KnobCPUQuota, err)
	}
	if group != "" && asked > cpus {
		return Refused(c, runtime.KnobCPUQuota, "%.2f CPUs are more than the %.2f that %s has, to which it belongs", asked, cpus, group)
	}
	return nil
}

// checkCPUs refuses a CPU that the container's parent does not have. The kernel refuses
// it too; but where systemd is asked first, systemd keeps it.
func checkCPUs(c runtime.Container, set runtime.Values) error {
	want, err := runtime.ParseCPUList(string(set[runtime.KnobCpuset]))
	if err != nil || len(want) == 0 {
		return err
	}
	list, err := cgroup.ParentCPUs(c.Cgroup)
	if err != nil {
		return fmt.Errorf("container %q: %s: %w", c.Name, runtime.KnobCpuset, err)
	}
	there, err := runtime.ParseCPUList(string(list))
	if err != nil {
		return fmt.Errorf("container %q: %s: the parent's %w", c.Name, runtime.KnobCpuset, err)
	}
	for _, cpu := range want {
		if !slices.Contains(there, cpu) {
			return Refused(c, runtime.KnobCpuset, "CPU %d is not among %s, which it may use", cpu, list)
		}
	}
	return nil
}

// The kernel's bounds of quota and period (kernel/sched/core.c: min_ and
// max_cfs_quota_period). Asked for more, half a change may stay: systemd rounds a quota
// up, and keeps it, before runc is refused; runc writes the quota, then not the period.
const (
	minQuotaUs  = 1000
	maxPeriodUs = 1_000_000
)

func checkValue(knob runtime.Knob, value runtime.Value) error {
	switch knob {
	case runtime.KnobCPUQuota:
		quota, period, err := runtime.ParseQuota(value)
		switch {
		case err != nil:
		case quota >= 0 && quota < minQuotaUs:
			err = fmt.Errorf("%q: a quota below the %d µs that the kernel takes at least", value, minQuotaUs)
		case period < minQuotaUs || period > maxPeriodUs:
			err = fmt.Errorf("%q: a period outside of the %d to %d µs that the kernel takes", value, minQuotaUs, maxPeriodUs)
		}
		return err
	case runtime.KnobCpuset:
		_, err := runtime.ParseCPUList(string(value))
		return err
	}
	if value == runtime.ValueMax && knob.HasMax() {
		return nil
	}
	if n, ok := value.Int(); !ok || n < 0 {
		return fmt.Errorf("%q is not a whole number", value)
	}
	return nil
}

// Refused makes an ErrRefused that names container, knob and reason.
func Refused(c runtime.Container, knob runtime.Knob, format string, args ...any) error {
	return fmt.Errorf("container %q: %s: %s: %w", c.Name, knob, fmt.Sprintf(format, args...), runtime.ErrRefused)
}

// Merge returns what will stand once set is applied.
func Merge(stands, set runtime.Values) runtime.Values {
	all := stands.Clone()
	maps.Copy(all, set)
	return all
}

// KnobNames lists the knobs of a set for an error's text.
func KnobNames(set runtime.Values) string {
	var names []string
	for _, knob := range slices.Sorted(maps.Keys(set)) {
		names = append(names, string(knob))
	}
	return strings.Join(names, ", ")
}

// CheckTogether refuses values that contradict each other, naming the one that
// was not asked for: the kernel's own answer is a bare "invalid argument".
func CheckTogether(c runtime.Container, all, set runtime.Values) error {
	limit, swap := all[runtime.KnobMemoryLimit], all[runtime.KnobMemorySwap]
	_, asksLimit := set[runtime.KnobMemoryLimit]
	_, asksSwap := set[runtime.KnobMemorySwap]
	if c.Cgroup.Mode == runtime.CgroupV2 || !(asksLimit || asksSwap) || !swap.Below(limit) {
		return nil
	}
	if asksLimit {
		return Refused(c, runtime.KnobMemoryLimit, "%s is above %s %s, which counts memory and swap: set both",
			limit, runtime.KnobMemorySwap, swap)
	}
	return Refused(c, runtime.KnobMemorySwap, "%s is below %s %s, and counts memory and swap: set both",
		swap, runtime.KnobMemoryLimit, limit)
}
