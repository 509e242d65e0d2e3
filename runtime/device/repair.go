package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/runtime"
)

// Repair puts back the rules of had that are lost, and no others, and proves that the
// container has them again; what is hidden is not lost. How says by which way. Errors: runtime.ErrGone; any
// other names what stood in the way. What could be put back stays.
func (v *Visibility) Repair(ctx context.Context, c runtime.Container, had []runtime.DeviceRule) (how string, err error) {
	turn, err := v.ledger.turns.Take(ctx, c.Key())
	if err != nil {
		return "", fmt.Errorf("container %q: %w", c.Name, err)
	}
	defer turn.Give()
	h, _ := v.ledger.get(c.Key())
	c, had = h.seen(c), h.narrow(had)
	_, lost, err := v.look(ctx, c, had, h)
	if err != nil || len(lost) == 0 {
		return "", err
	}
	var ways []string
	for _, way := range []struct {
		name string
		try  func() (done bool, err error)
	}{
		{"systemd's DeviceAllow", func() (bool, error) { return v.byUnit(ctx, c, lost) }},
		{"devices.allow", func() (bool, error) { return v.byList(c, had) }},
		{"its device program", func() (bool, error) { return v.byProgram(c, lost) }},
	} {
		if v.gone(c) { // its control group's path may be another's by then
			err = errors.Join(err, runtime.ErrGone)
			break
		}
		done, failed := way.try()
		if done {
			ways = append(ways, way.name)
		}
		err = errors.Join(err, failed)
	}
	if errors.Is(err, runtime.ErrGone) {
		return "", fmt.Errorf("container %q: %w", c.Name, runtime.ErrGone)
	}
	v.Forget(c.Key()) // look anew, an open included
	_, still, lookErr := v.look(ctx, c, had, h)
	if lookErr != nil {
		return "", lookErr
	}
	if len(still) > 0 {
		return "", fmt.Errorf("container %q: %d of %d rules are still lost, %q first: %w", c.Name, len(still), len(lost), still[0], orUnknown(err))
	}
	return strings.Join(ways, ", "), nil // what failed on the way did not matter
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("every way was open, and none helped; somebody may be taking them away at this moment")
	}
	return err
}

// byUnit tells systemd first: it writes its own rules anew then, and at every
// daemon-reload from now on.
func (v *Visibility) byUnit(ctx context.Context, c runtime.Container, lost []runtime.DeviceRule) (done bool, err error) {
	unit := unitOf(c)
	if unit == "" {
		return false, nil
	}
	_, isV1 := c.Cgroup.V1["devices"]
	more, err := v.unitLacks(ctx, unit, lost, isV1)
	if err != nil || len(more) == 0 {
		return false, err
	}
	err = keepingRules(c, func() error {
		if err := v.o.Units.AddDeviceAllow(ctx, unit, more); err != nil {
			return fmt.Errorf("systemd: %w", err)
		}
		done = true
		return nil
	})
	return done, err
}

// unitLacks are the entries that systemd is to be told. None for a unit that allows
// all: where that is because it names no device, the first entry would mean that one
// and nothing else. What it names already is told again on v2 only, where a program of
// systemd's that lags behind is written anew by that; v1's list takes the rule itself.
func (v *Visibility) unitLacks(ctx context.Context, unit string, lost []runtime.DeviceRule, isV1 bool) (more []Allow, err error) {
	now, err := v.o.Units.DeviceAllow(ctx, unit)
	if err != nil {
		return nil, fmt.Errorf("systemd: %w", err)
	}
	majors, err := driverMajors(v.o.ProcRoot)
	if err != nil {
		return nil, err
	}
	for _, r := range lost {
		if !slices.ContainsFunc(now, func(a Allow) bool { return (isV1 || a.Device == "char-*") && a.allows(r, majors) }) {
			more = append(more, unitEntry(r))
		}
	}
	return more, nil
}

// allows: by this entry systemd grants all that the rule does. The forms are those that runc and
// systemd write (systemd.resource-control(5)).
func (a Allow) allows(r runtime.DeviceRule, majors map[string]int) bool {
	for _, letter := range r.Access {
		if !strings.ContainsRune(a.Access, letter) {
			return false
		}
	}
	if group, ok := strings.CutPrefix(a.Device, "char-"); ok {
		return group == "*" || slices.Contains(groupMajors(group, majors), r.Major)
	}
	major, minor, ok := a.node(majors)
	return ok && major == r.Major && minor == r.Minor
}

// byList writes to v1's devices.allow exactly the rules that the list lacks.
func (v *Visibility) byList(c runtime.Container, had []runtime.DeviceRule) (bool, error) {
	dir, ok := c.Cgroup.V1["devices"]
	if !ok {
		return false, nil
	}
	list, err := readRules(dir)
	if err != nil {
		return false, err
	}
	majors, err := nvidiaMajors(v.o.ProcRoot)
	if err != nil {
		return false, err
	}
	back := missing(had, list)
	if allowsAll(list) {
		back = exceptions(c, had)
	}
	wrote := false
	for _, r := range back {
		if !slices.Contains(majors, r.Major) {
			continue
		}
		if failed := writeRule(dir, allowFile, r); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		wrote = true
	}
	return wrote, err
}

// exceptions are what may have been taken from a container that is allowed all else.
// The kernel drops an exception only for the very numbers it was made with, and
// allowing what is allowed does nothing.
func exceptions(c runtime.Container, had []runtime.DeviceRule) []runtime.DeviceRule {
	out := slices.Clone(had)
	for _, minor := range provenMinors(c, had) {
		out = append(out, runtime.DeviceRule{Kind: "c", Major: nvidiaMajor, Minor: minor, Access: "rwm"})
	}
	return out
}

// byProgram replaces each of the group's own programs that refuses a rule by itself
// with the rule in front. Programs are ANDed, so adding one could only take more away.
func (v *Visibility) byProgram(c runtime.Container, lost []runtime.DeviceRule) (bool, error) {
	dir := c.Cgroup.Unified
	if dir == "" {
		return false, nil
	}
	programs, err := v.programs.of(dir)
	if err != nil {
		return false, err
	}
	wrote := false
	for _, p := range programs {
		refused, readErr := refusedBy(p, lost)
		switch {
		case readErr != nil:
			err = errors.Join(err, readErr)
		case len(refused) == 0:
		case !p.here:
			err = errors.Join(err, fmt.Errorf("device program %d %q of a group above refuses %q: that group is not this container's", p.id, p.name, refused[0]))
		case p.name == systemdProgram:
			err = errors.Join(err, fmt.Errorf("systemd's own program refuses %q", refused[0]))
		default:
			hides, rest := splitRefusing(p.code)
			code, failed := allowing(refused, rest)
			code = append(plain(hides), code...) // what is hidden stays so
			if failed == nil {
				failed = replace(dir, p, code)
			}
			wrote = wrote || failed == nil
			err = errors.Join(err, failed)
		}
	}
	return wrote, err
}

// refusedBy are the rules that one program does not let pass whole.
func refusedBy(p program, all []runtime.DeviceRule) (out []runtime.DeviceRule, err error) {
	for _, rule := range all {
		passed, err := pass([]program{p}, rule)
		if err != nil {
			return nil, err
		}
		if len(passed) != 1 || passed[0] != rule {
			out = append(out, rule)
		}
	}
	return out, nil
}
