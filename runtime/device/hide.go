package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/systemd"
)

// Hide makes view.Hidden the set of GPUs that are hidden from c: those that are new in
// it are hidden, those that no longer are in it are shown. Access is what counts:
// whatever of nodes and the file could not be done is in notes, and an open is refused
// or allowed all the same. Errors: ErrInUse, with nothing changed; runtime.ErrGone;
// any other names what stood in the way, and what stood before is back unless it says
// otherwise. A process that opened the device between the check and the write is found
// by a second check, and the device is shown again.
func (v *Visibility) Hide(ctx context.Context, c runtime.Container, view runtime.GPUView) (notes []string, err error) {
	turn, err := v.ledger.turns.Take(ctx, c.Key())
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", c.Name, err)
	}
	defer turn.Give()
	before, _ := v.ledger.get(c.Key())
	target, more, err := v.target(ctx, c, before, view)
	if err != nil {
		return nil, err
	}
	if err := v.plan(ctx, before, &target); err != nil {
		return nil, fmt.Errorf("container %q: %w", c.Name, err)
	}
	if err := v.provedOpen(ctx, target, more); err != nil {
		return nil, fmt.Errorf("container %q: %w", c.Name, err)
	}
	found, unreached := v.findInside(ctx, c, before, target)
	if errors.Is(unreached, runtime.ErrGone) {
		return nil, fmt.Errorf("container %q: %w", c.Name, runtime.ErrGone)
	}
	both := join(before, target)
	both.File, both.Unsettled = true, true // about to be written
	both.Nodes = slices.Concat(before.Nodes, found.nodes)
	if err := v.ledger.put(c.Key(), &both); err != nil { // law: originals first
		return nil, fmt.Errorf("container %q: nothing was changed, since what is hidden could not be stored: %w", c.Name, err)
	}
	v.o.Fault("stored")
	if err := v.rewriteProved(ctx, both, target, more); err != nil {
		return nil, v.back(ctx, c, both, before, err)
	}
	target.File, target.Nodes = before.File, both.Nodes
	if unreached != nil {
		notes = append(notes, "its files could not be reached, so neither nodes nor /run/trimtab/gpus were touched: "+unreached.Error())
		return v.settle(target, notes)
	}
	return v.createDeviceNodes(context.WithoutCancel(ctx), target, view, found.notes)
}

// rewriteProved also checks that it holds, and that nobody slipped in before it did.
func (v *Visibility) rewriteProved(ctx context.Context, both, target Hidden, more []int) error {
	if err := v.rewrite(ctx, both, target, len(more) > 0); err != nil {
		return err
	}
	v.o.Fault("written")
	c := target.Container
	if err := v.holds(ctx, c, target, more); err != nil || len(more) == 0 {
		return err
	}
	return v.inUse(ctx, c, target.guarded(more))
}

// back undoes a change that failed: what stood before stands again, or its restore is pending.
func (v *Visibility) back(ctx context.Context, c runtime.Container, both, before Hidden, cause error) error {
	err := v.rewrite(context.WithoutCancel(ctx), both, before, false)
	if err != nil && !errors.Is(err, runtime.ErrGone) {
		return fmt.Errorf("container %q: %w; and what stood before could not be put back, that is tried again: %w", c.Name, cause, err)
	}
	if before.Container.Name == "" || err != nil { // or it took all with it
		err = v.ledger.put(c.Key(), nil)
	} else {
		err = v.ledger.put(c.Key(), &before)
	}
	return errors.Join(cause, err)
}

// target works out what will be hidden, and refuses what must not be.
func (v *Visibility) target(ctx context.Context, c runtime.Container, before Hidden, view runtime.GPUView) (target Hidden, more []int, err error) {
	visibilities, err := v.see(ctx, c, before, view)
	if err != nil {
		return target, nil, err
	}
	target = Hidden{Container: slim(c), Minors: slices.Clone(view.Hidden), All: len(view.Hidden) > 0}
	slices.Sort(target.Minors)
	target.Minors = slices.Compact(target.Minors)
	for _, minor := range target.Minors {
		if slices.Contains(view.ByPolicy, minor) {
			target.ByPolicy = append(target.ByPolicy, minor)
		}
	}
	highest := leastHighest
	for _, s := range visibilities {
		highest = max(highest, s.Minor)
		if s.Granted && !slices.Contains(target.Minors, s.Minor) {
			target.All = false
		}
	}
	for minor := range highest + 1 {
		if !slices.Contains(target.Minors, minor) {
			target.Kept = append(target.Kept, minor)
		}
	}
	target.Kept = append(target.Kept, firstControlMinor, nvidiactlMinor)
	for _, minor := range target.Minors {
		if slices.Contains(before.Minors, minor) {
			continue
		}
		more = append(more, minor)
		i := slices.IndexFunc(visibilities, func(s runtime.GPUVisibility) bool { return s.Minor == minor })
		if i < 0 || !visibilities[i].Granted || !visibilities[i].Visible {
			return target, nil, fmt.Errorf("container %q does not see /dev/nvidia%d: there is nothing to hide", c.Name, minor)
		}
	}
	if len(more) == 0 {
		return target, nil, nil
	}
	if r := Preflight(ctx, before.seen(c), v.o); !r.Green {
		return target, nil, fmt.Errorf("container %q: it holds its GPUs in a way that a write could take away for good: %s", c.Name, r)
	}
	return target, more, v.inUse(ctx, c, target.guarded(more))
}

// leastHighest: a rule for all GPUs is narrowed to so many at least, also where fewer
// are known: hosts have up to 16.
const leastHighest = 15

// guarded are the minor numbers of which none may be open when more are hidden.
func (h Hidden) guarded(more []int) []int {
	if h.All {
		return append(slices.Clone(more), nvidiactlMinor)
	}
	return more
}

// slim keeps what undoing needs.
func slim(c runtime.Container) runtime.Container {
	return runtime.Container{ID: c.ID, Name: c.Name, InitPID: c.InitPID, Cgroup: c.Cgroup, GPUs: c.GPUs, GPUVia: c.GPUVia}
}

// plan works out which rules and entries go, and which come in their place.
func (v *Visibility) plan(ctx context.Context, before Hidden, target *Hidden) error {
	c := target.Container
	majors, err := driverMajors(v.o.ProcRoot)
	if err != nil {
		return err
	}
	if dir, ok := c.Cgroup.V1["devices"]; ok {
		if err := planList(dir, nvidiaOf(majors), before, target); err != nil {
			return err
		}
	} else if len(target.Minors) > 0 {
		if _, err := v.ownProgram(c.Cgroup.Unified); err != nil {
			return err
		}
	}
	unit := unitOf(c)
	if unit == "" {
		return nil
	}
	now, err := v.o.Units.DeviceAllow(ctx, unit)
	if err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	base := entriesWith(entriesWithout(now, before.UnitAdded), before.UnitRemoved)
	want, err := target.narrowUnit(base, majors)
	if err != nil {
		return err
	}
	target.UnitRemoved, target.UnitAdded = entriesWithout(base, want), entriesWithout(want, base)
	return nil
}

// provedOpen: a list that allows everything does not show what was taken from it. To
// show a device again would give what somebody else took.
func (v *Visibility) provedOpen(ctx context.Context, target Hidden, more []int) error {
	if !target.Open {
		return nil
	}
	for _, minor := range more {
		if access, err := tryOpen(ctx, target.Container, []int{minor}); access != AccessAllowed {
			return errors.Join(fmt.Errorf("/dev/nvidia%d is %s to it now: there is nothing to hide", minor, access), err)
		}
	}
	return nil
}

func planList(dir string, majors []int, before Hidden, target *Hidden) error {
	list, err := readRules(dir)
	if err != nil {
		return err
	}
	if len(target.Minors) > 0 && hasGroupsBelow(dir) {
		return errors.New("it has control groups of its own: what they lose with it does not come back")
	}
	if target.Open = allowsAll(list); target.Open {
		target.Removed = target.refusals(majors, "rwm")
		return nil
	}
	base := combine(without(list, before.Added), before.Removed)
	var gpu []runtime.DeviceRule
	for _, r := range base {
		switch {
		case r.Kind == "b" || !opens(r.Access):
		case r.Major == runtime.AnyDevice:
			return fmt.Errorf("its rule %q allows more than NVIDIA's devices: none of them can be taken from it alone", r)
		case slices.Contains(majors, r.Major):
			gpu = append(gpu, r)
		}
	}
	want := target.narrow(gpu)
	target.Removed, target.Added = without(gpu, want), without(want, gpu)
	return nil
}

// hasGroupsBelow: v1 takes a rule from the groups below too, and never gives it back to them.
func hasGroupsBelow(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.IsDir() })
}

// refusals name what is hidden.
func (h Hidden) refusals(majors []int, access string) []runtime.DeviceRule {
	var out []runtime.DeviceRule
	if h.All {
		for _, major := range majors {
			out = append(out, runtime.DeviceRule{Kind: "c", Major: major, Minor: runtime.AnyDevice, Access: access})
		}
		return out
	}
	for _, minor := range h.Minors {
		out = append(out, runtime.DeviceRule{Kind: "c", Major: nvidiaMajor, Minor: minor, Access: access})
	}
	return out
}

// join covers both states, for as long as either may stand.
func join(a, b Hidden) Hidden {
	out := b
	out.Open = a.Open || b.Open
	out.Removed, out.Added = combine(a.Removed, b.Removed), combine(a.Added, b.Added)
	out.UnitRemoved, out.UnitAdded = entriesWith(a.UnitRemoved, b.UnitRemoved), entriesWith(a.UnitAdded, b.UnitAdded)
	return out
}

// rewrite makes one state of what another covers. To hide, the rules come first and
// systemd after; to show, systemd first: it rewrites the rules, and must not rewrite
// what was just written with what it knew before.
func (v *Visibility) rewrite(ctx context.Context, covers, to Hidden, hide bool) error {
	to.Container = covers.Container
	if !hide { // the rules count, also where systemd cannot be told
		err := v.setUnit(ctx, covers, to)
		return errors.Join(err, v.setRules(covers, to))
	}
	if err := v.setRules(covers, to); err != nil {
		return err
	}
	v.o.Fault("rules")
	if unitOf(to.Container) == "" {
		return nil
	}
	if err := v.setUnit(ctx, covers, to); err != nil {
		return err
	}
	return v.setRules(covers, to)
}

func (v *Visibility) setRules(covers, to Hidden) error {
	if v.gone(to.Container) { // its control group's path may be another's by now
		return fmt.Errorf("it ended: %w", runtime.ErrGone)
	}
	if dir, ok := to.Container.Cgroup.V1["devices"]; ok {
		return v.setList(dir, covers, to)
	}
	return v.setProgram(covers, to)
}

// setList writes the differences to v1's list, what comes before what goes: a device
// that stays can be opened at every instant.
func (v *Visibility) setList(dir string, covers, to Hidden) error {
	list, err := readRules(dir)
	if err != nil {
		return err
	}
	base := combine(without(list, covers.Added), covers.Removed)
	want := combine(without(base, to.Removed), to.Added)
	allow, deny := without(want, list), without(list, want)
	if covers.Open || to.Open { // the list does not show exceptions
		allow, deny = without(covers.Removed, to.Removed), to.Removed
	}
	for _, r := range allow {
		if err := writeRule(dir, allowFile, r); err != nil {
			return err
		}
		v.o.Fault("allowed")
	}
	for _, r := range deny {
		if err := writeRule(dir, denyFile, r); err != nil {
			return err
		}
		v.o.Fault("denied")
	}
	return nil
}

// unitOf is the scope that systemd keeps a container in; "" without one.
func unitOf(c runtime.Container) string { return systemd.Unit(c.Cgroup.Dir("devices")) }

// setUnit tells systemd.
func (v *Visibility) setUnit(ctx context.Context, covers, to Hidden) error {
	unit := unitOf(to.Container)
	if unit == "" || len(covers.UnitRemoved)+len(covers.UnitAdded) == 0 {
		return nil
	}
	now, err := v.o.Units.DeviceAllow(ctx, unit)
	if err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	base := entriesWith(entriesWithout(now, covers.UnitAdded), covers.UnitRemoved)
	want := entriesWith(entriesWithout(base, to.UnitRemoved), to.UnitAdded)
	if len(entriesWithout(want, now))+len(entriesWithout(now, want)) == 0 {
		return nil
	}
	return keepingRules(to.Container, func() error {
		if v.gone(to.Container) {
			return fmt.Errorf("it ended: %w", runtime.ErrGone)
		}
		if err := v.o.Units.SetDeviceAllow(ctx, unit, want); err != nil {
			return fmt.Errorf("systemd: %w", err)
		}
		v.o.Fault("unit")
		return nil
	})
}

// keepingRules tells systemd something of a unit. On v1 systemd then writes the rules that it knows, so
// those that others had added are put back.
func keepingRules(c runtime.Container, tell func() error) error {
	dir, isV1 := c.Cgroup.V1["devices"]
	if !isV1 {
		return tell()
	}
	before, err := readRules(dir)
	if err != nil {
		return err
	}
	if err := tell(); err != nil {
		return err
	}
	after, err := readRules(dir)
	if err != nil {
		return err
	}
	for _, r := range missing(before, after) {
		err = errors.Join(err, writeRule(dir, allowFile, r))
	}
	return err
}

// holds proves a change: what is hidden is refused, and what stays is still allowed.
func (v *Visibility) holds(ctx context.Context, c runtime.Container, target Hidden, more []int) error {
	v.Forget(c.Key())
	for _, minor := range more {
		if access, err := tryOpen(ctx, c, []int{minor}); access != AccessRefused {
			return fmt.Errorf("/dev/nvidia%d can still be opened (%s): %w", minor, access, orUnknown(err))
		}
	}
	if target.All || len(more) == 0 {
		return nil
	}
	if access, err := tryOpen(ctx, c, []int{nvidiactlMinor}); access == AccessRefused {
		return fmt.Errorf("nvidiactl can no longer be opened: %w", orUnknown(err))
	}
	return nil
}
