package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// See tells how c has each GPU that it was granted or that the host is known to have.
func (v *Visibility) See(ctx context.Context, c runtime.Container, view runtime.GPUView) ([]runtime.GPUVisibility, error) {
	h, _ := v.ledger.get(c.Key())
	return v.see(ctx, c, h, view)
}

func (v *Visibility) see(ctx context.Context, c runtime.Container, h Hidden, view runtime.GPUView) ([]runtime.GPUVisibility, error) {
	r, err := v.read(c)
	if err != nil {
		return nil, err
	}
	base := r.list
	if !h.Open {
		base = combine(without(r.list, h.Added), h.Removed)
	}
	covers := func(list []runtime.DeviceRule, minor int) bool {
		return !r.hasList || slices.ContainsFunc(list, func(rule runtime.DeviceRule) bool { return rule.Covers(nvidiaMajor, minor) })
	}
	var out []runtime.GPUVisibility
	for _, minor := range v.knownMinors(ctx, c, h, view, base) {
		s := runtime.GPUVisibility{Minor: minor, UUID: view.UUIDs[minor], Hidden: slices.Contains(h.Minors, minor), ByPolicy: slices.Contains(h.ByPolicy, minor)}
		who, err := refusing(r.programs, openRequest(nvidiaMajor, minor))
		if who == nil && err != nil {
			return nil, fmt.Errorf("container %q: %w", c.Name, err)
		}
		s.Visible = who == nil && covers(r.list, minor) && !(h.Open && s.Hidden)
		s.Granted = s.Visible || s.Hidden || who == nil && covers(base, minor)
		out = append(out, s)
	}
	return out, nil
}

// knownMinors are the GPUs that there are: those of the host, and where it shows none
// those that the container's rules or its own /dev name.
func (v *Visibility) knownMinors(ctx context.Context, c runtime.Container, h Hidden, view runtime.GPUView, base []runtime.DeviceRule) []int {
	out := slices.Clone(h.Minors)
	for minor := range view.UUIDs {
		out = append(out, minor)
	}
	out = append(out, gpusIn(ctx, v.hostDev)...)
	if len(out) == len(h.Minors) {
		// Where its files cannot be reached its rules alone name them.
		named, _ := inFiles(ctx, v, c, func(ctx context.Context, root *os.File) ([]int, error) {
			dev, err := v.devDir(root)
			if err != nil {
				return nil, err
			}
			defer dev.Close()
			return gpusIn(ctx, fmt.Sprintf("/proc/self/fd/%d", dev.Fd())), nil
		})
		out = append(out, named...)
	}
	for _, n := range h.Nodes { // removed by trimtab, and about to be made again
		if minor, ok := gpuMinor(n.Name); ok {
			out = append(out, minor)
		}
	}
	for _, r := range base {
		if r.Kind != "b" && r.Major == nvidiaMajor && r.Minor >= 0 && r.Minor < firstControlMinor && opens(r.Access) {
			out = append(out, r.Minor)
		}
	}
	out = append(out, namedMinors(c)...)
	slices.Sort(out)
	return slices.Compact(out)
}

// namedMinors are those of the GPUs that c names by index; "all" and UUIDs name no node.
func namedMinors(c runtime.Container) (out []int) {
	for _, gpu := range c.GPUs {
		if minor, err := strconv.ParseUint(gpu, 10, 8); err == nil && minor < firstControlMinor {
			out = append(out, int(minor))
		}
	}
	return out
}

// gpusIn are the N of the nvidiaN in a directory.
func gpusIn(ctx context.Context, dir string) (out []int) {
	err := eachEntry(ctx, dir, func(e os.DirEntry) bool {
		if minor, ok := gpuMinor(e.Name()); ok && e.Type()&os.ModeCharDevice != 0 {
			out = append(out, minor)
		}
		return true
	})
	if err != nil { // what cannot be read has none
		return nil
	}
	return out
}

// gone: another process, or none, has the number of the container's init process; or
// it ran before the host was started.
func (v *Visibility) gone(c runtime.Container) bool {
	if v.boot != "" && c.ID.Boot != "" && c.ID.Boot != v.boot {
		return true
	}
	if c.ID.StartTick == 0 {
		return false
	}
	tick, err := cgroup.StartTick(v.o.ProcRoot, c.InitPID)
	return errors.Is(err, runtime.ErrGone) || err == nil && tick != c.ID.StartTick
}
