package device

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/runtime"
)

// narrowUnit is what systemd is to allow while h is in force, of what it allows by
// itself. An entry for more than NVIDIA's devices is an error: what else it allows
// could not be kept.
func (h Hidden) narrowUnit(base []Allow, majors map[string]int) ([]Allow, error) {
	if len(h.Minors) == 0 {
		return base, nil
	}
	nvidia := nvidiaOf(majors)
	var out []Allow
	for _, a := range base {
		group, isGroup := strings.CutPrefix(a.Device, "char-")
		if !isGroup {
			if major, minor, ok := a.node(majors); !ok || !h.hides(major, minor, nvidia) {
				out = append(out, a)
			}
			continue
		}
		of := groupMajors(group, majors)
		if !slices.ContainsFunc(of, func(m int) bool { return h.hides(m, runtime.AnyDevice, nvidia) }) && group != "*" {
			out = append(out, a)
			continue
		}
		if group == "*" && !opens(a.Access) {
			out = append(out, a) // nodes may be made
			continue
		}
		if slices.ContainsFunc(of, func(m int) bool { return !slices.Contains(nvidia, m) }) || group == "*" {
			return nil, fmt.Errorf("systemd allows %q, which is more than NVIDIA's devices: none of them can be taken from it alone", a.Device)
		}
		var rules []runtime.DeviceRule
		for _, major := range of {
			rules = append(rules, runtime.DeviceRule{Kind: "c", Major: major, Minor: runtime.AnyDevice, Access: a.Access})
		}
		for _, r := range h.narrow(rules) {
			out = append(out, unitEntry(r))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("systemd would be left with no device to allow, and would then allow all")
	}
	return out, nil
}

// hides: the number is hidden, or for runtime.AnyDevice one of that major is.
func (h Hidden) hides(major, minor int, nvidia []int) bool {
	switch {
	case !slices.Contains(nvidia, major):
		return false
	case h.All:
		return true
	}
	return major == nvidiaMajor && (minor == runtime.AnyDevice || slices.Contains(h.Minors, minor))
}

// node is the number of the one device that an entry names: by its numbers, or as one of NVIDIA's
// nodes, which need not exist here.
func (a Allow) node(majors map[string]int) (major, minor int, ok bool) {
	if numbers, ok := strings.CutPrefix(a.Device, "/dev/char/"); ok {
		left, right, _ := strings.Cut(numbers, ":")
		major, errMajor := strconv.Atoi(left)
		minor, errMinor := strconv.Atoi(right)
		return major, minor, errMajor == nil && errMinor == nil
	}
	name, ok := strings.CutPrefix(a.Device, "/dev/nvidia")
	switch {
	case !ok:
		return 0, 0, false
	case name == "ctl":
		return nvidiaMajor, nvidiactlMinor, true
	case name == "-modeset":
		return nvidiaMajor, firstControlMinor, true
	case name == "-uvm":
		major, ok := majors["nvidia-uvm"]
		return major, 0, ok
	case name == "-uvm-tools":
		major, ok := majors["nvidia-uvm"]
		return major, 1, ok
	case strings.HasPrefix(name, "-caps/nvidia-cap"):
		major, ok := majors[capsDriver]
		n, err := strconv.ParseUint(name[len("-caps/nvidia-cap"):], 10, 20)
		return major, int(n), ok && err == nil
	}
	n, err := strconv.ParseUint(name, 10, 8)
	return nvidiaMajor, int(n), err == nil
}

// groupMajors looks a group up as systemd does: by its name in /proc/devices, a glob, or its number.
func groupMajors(group string, majors map[string]int) []int {
	if major, err := strconv.Atoi(group); err == nil {
		return []int{major}
	}
	var out []int
	for name, major := range majors {
		if hit, err := filepath.Match(group, name); err == nil && hit {
			out = append(out, major)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// entries compares lists of DeviceAllow as sets.
func entriesWithout(all, less []Allow) []Allow {
	return slices.DeleteFunc(slices.Clone(all), func(a Allow) bool { return slices.Contains(less, a) })
}

func entriesWith(all, more []Allow) []Allow {
	return slices.Concat(all, entriesWithout(more, all))
}
