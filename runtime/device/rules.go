package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/runtime"
)

// readRules reads v1's rules of a control group.
func readRules(dir string) ([]runtime.DeviceRule, error) {
	data, err := os.ReadFile(filepath.Join(dir, "devices.list"))
	if isGone(err) {
		return nil, fmt.Errorf("its control group is gone: %w", runtime.ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("its device rules cannot be read: %w", err)
	}
	var out []runtime.DeviceRule
	for line := range strings.Lines(string(data)) {
		r, err := runtime.ParseDeviceRule(line)
		if err != nil {
			return nil, fmt.Errorf("devices.list: %w", err)
		}
		out = append(out, r)
	}
	return out, nil
}

// The files by which v1's list changes. The kernel allows nothing that the group above does not have
// itself; what is denied of a list that allows everything is an exception to it.
const (
	allowFile = "devices.allow"
	denyFile  = "devices.deny"
)

func writeRule(dir, file string, r runtime.DeviceRule) error {
	err := os.WriteFile(filepath.Join(dir, file), []byte(r.String()), 0)
	switch {
	case isGone(err):
		return fmt.Errorf("its control group is gone: %w", runtime.ErrGone)
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("the kernel refuses rule %q: the control group above %s does not have it, or trimtab lacks CAP_SYS_ADMIN: %w", r, dir, err)
	case err != nil:
		return fmt.Errorf("rule %q: %w", r, err)
	}
	return nil
}

// isGone: a directory that was removed, or is being removed while a file of it is open.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

// allowsAll: the group refuses only what was taken from it by name, and its list
// does not show that (devcgroup_seq_show in the kernel's device_cgroup.c).
func allowsAll(list []runtime.DeviceRule) bool {
	return slices.ContainsFunc(list, func(r runtime.DeviceRule) bool { return r.Kind == "a" && opens(r.Access) })
}

// opens: the rule is for more than making nodes.
func opens(access string) bool { return strings.ContainsAny(access, "rw") }

// gpuRules are the rules of a v1 list that are for a GPU. A rule for everything is
// narrowed to NVIDIA's numbers: no more than those is ever put back.
func gpuRules(list []runtime.DeviceRule, majors []int) []runtime.DeviceRule {
	var out []runtime.DeviceRule
	for _, r := range list {
		switch {
		case r.Kind == "b" || !opens(r.Access):
		case r.Major != runtime.AnyDevice && slices.Contains(majors, r.Major):
			out = append(out, r)
		case r.Major == runtime.AnyDevice:
			for _, major := range majors {
				out = append(out, runtime.DeviceRule{Kind: "c", Major: major, Minor: r.Minor, Access: r.Access})
			}
		}
	}
	return sorted(out)
}

// sorted orders rules and drops doubles.
func sorted(rules []runtime.DeviceRule) []runtime.DeviceRule {
	slices.SortFunc(rules, func(a, b runtime.DeviceRule) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(rules)
}

// missing are the rules of had that a v1 list does not grant, each whole: v1 keeps
// rules as they were written, so that is how they go back.
func missing(had, list []runtime.DeviceRule) []runtime.DeviceRule {
	var out []runtime.DeviceRule
	for _, want := range had {
		for _, access := range want.Access {
			if !slices.ContainsFunc(list, func(r runtime.DeviceRule) bool {
				return r.Contains(runtime.DeviceRule{Kind: want.Kind, Major: want.Major, Minor: want.Minor, Access: string(access)})
			}) {
				out = append(out, want)
				break
			}
		}
	}
	return out
}

// nvidiaMajors are the major numbers of NVIDIA's drivers on this host now: the fixed
// one, and those of nvidia-uvm, nvidia-caps and others that the kernel gave out.
func nvidiaMajors(procRoot string) ([]int, error) {
	majors, err := driverMajors(procRoot)
	if err != nil {
		return nil, err
	}
	return nvidiaOf(majors), nil
}

func nvidiaOf(majors map[string]int) []int {
	out := []int{nvidiaMajor}
	for name, major := range majors {
		if strings.HasPrefix(name, "nvidia") {
			out = append(out, major)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// minorsOf is how many minor numbers are asked about where a rule says "*": GPUs
// and control nodes have eight bits; MIG's capabilities, which share one of the
// major numbers that the kernel gives out, go to some thousands
// (/proc/driver/nvidia-caps/mig-minors).
func minorsOf(major int) int {
	if major == nvidiaMajor {
		return 256
	}
	return 4096
}

// unitEntry is a rule as systemd's DeviceAllow takes it, in the forms that runc
// writes: a node by its numbers, a major by its number.
func unitEntry(r runtime.DeviceRule) Allow {
	if r.Minor == runtime.AnyDevice {
		return Allow{Device: "char-" + strconv.Itoa(r.Major), Access: r.Access}
	}
	return Allow{Device: "/dev/char/" + r.Numbers(), Access: r.Access}
}
