// Package device tells whether a container's access to its GPUs would survive a
// write to its other knobs, whether it has that access now, and puts back rules
// that were taken away. It needs neither a GPU nor a driver. With memory.reclaim
// it is the one place where trimtab writes to a control group itself: engines skip
// device rules in their updates.
//
// The trap: with NVIDIA's legacy hook the rules for the GPU are in the control
// group only. systemd, where it manages that group, does not know them, and any
// write of a property or daemon-reload drops them; the next process in the
// container then fails with "Failed to initialize NVML: Unknown Error".
package device

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/systemd"
)

// Device numbers of NVIDIA's driver: its major number, and nvidiactl's minor,
// without which no GPU can be opened.
const (
	nvidiaMajor    = 195
	nvidiactlMinor = 255
)

// Report is the answer of a preflight.
type Report struct {
	Green  bool   // a write is known not to take the GPU away
	Driver string // who keeps its control group: DriverSystemd or DriverCgroupfs; "" if unknown
	Why    string // in a sentence
	Hint   string
	AtRisk bool // anybody's reload or write may take the GPU away, or has
	Lost   bool // its control group refuses the GPU now
}

// Cgroup drivers.
const (
	DriverSystemd  = "systemd"
	DriverCgroupfs = "cgroupfs"
)

// String is the sentence with its fix.
func (r Report) String() string {
	if r.Hint == "" {
		return r.Why
	}
	return r.Why + ": " + r.Hint
}

// Options are a preflight's ways to the host; the zero value is a live one.
type Options struct {
	// ProcRoot is "/proc" if empty.
	ProcRoot string
	// Units asks systemd; nil: over the system bus.
	Units Units
	// Records keep what Hide hid; nil: nothing may be hidden.
	Records Records
	// Fault is called between writes, for tests; nil: none.
	Fault func(point string)
}

func (o Options) filled() Options {
	o.ProcRoot, o.Units = cmp.Or(o.ProcRoot, "/proc"), cmp.Or[Units](o.Units, systemBus{})
	if o.Fault == nil {
		o.Fault = func(string) {}
	}
	return o
}

// Units answers what systemd allows a unit; the error is shown to people.
type Units interface {
	DeviceAllow(ctx context.Context, unit string) ([]Allow, error)
	// AddDeviceAllow lets the unit use more devices, until it ends; systemd then
	// writes the rules of its control group anew.
	AddDeviceAllow(ctx context.Context, unit string, more []Allow) error
	// SetDeviceAllow replaces the whole list, likewise.
	SetDeviceAllow(ctx context.Context, unit string, all []Allow) error
}

// Allow is one entry of a unit's DeviceAllow: a path, or a group such as
// "char-nvidia", and a subset of "rwm".
type Allow struct {
	Device string `json:"device"`
	Access string `json:"access"`
}

// Preflight decides whether a write to c's knobs may proceed as far as its GPU is
// concerned. What it cannot find out is not green.
func Preflight(ctx context.Context, c runtime.Container, opts Options) Report {
	opts = opts.filled()
	if len(c.GPUs) == 0 {
		return Report{Green: true, Why: "it holds no GPU"}
	}
	var r Report
	dir := c.Cgroup.Dir("devices")
	switch unit := systemd.Unit(dir); {
	case dir == "":
		r.Why = "its control group is not known"
	case unit != "": // runtimes with the systemd driver put each container in a scope
		r.Driver = DriverSystemd
		bySystemd(ctx, &r, c, unit, opts)
	case c.Cgroup.V1["devices"] != "":
		r.Driver = DriverCgroupfs
		byList(&r, dir)
	default:
		r.Driver = DriverCgroupfs
		byPrograms(&r, dir)
	}
	return r
}

// bySystemd compares what the container needs with what systemd would write.
func bySystemd(ctx context.Context, r *Report, c runtime.Container, unit string, opts Options) {
	r.AtRisk = true // until systemd is seen to know all
	allowed, err := opts.Units.DeviceAllow(ctx, unit)
	if err != nil {
		r.Why = fmt.Sprintf("systemd cannot be asked about %s: %v", unit, err)
		return
	}
	majors, err := driverMajors(opts.ProcRoot)
	var needs, more []runtime.DeviceRule
	if err == nil {
		needs, err = neededNodes(c, majors)
	}
	if err == nil {
		more, err = neededCapabilities(opts.ProcRoot, c, majors)
	}
	if err != nil {
		r.Why = err.Error()
		return
	}
	for _, need := range append(needs, more...) {
		if !slices.ContainsFunc(allowed, func(a Allow) bool { return a.allows(need, majors) }) {
			r.Why = fmt.Sprintf("systemd does not know that %s may use device %s, so a daemon-reload, or any write to the unit, takes it away", unit, need.Numbers())
			r.Hint = hintUnit(c.GPUVia)
			return
		}
	}
	r.AtRisk, r.Green, r.Why = false, true, "systemd knows the rules for its GPU"
}

// hintUnit says how systemd gets to know the nodes. runc (1.1.5 for one) tells it only
// of devices that have a link in /dev/char, and for NVIDIA's nodes nobody makes one.
func hintUnit(via string) string {
	const links = "make the links in /dev/char (nvidia-ctk system create-dev-char-symlinks --create-all) and start it again"
	if via == "devices" || via == "cdi" {
		return links
	}
	return "start the container by CDI, or with --device for each node; " + links
}

// byList: without systemd nobody rewrites the rules, and runc leaves them alone
// in an update; what counts is that they are there.
func byList(r *Report, dir string) {
	rules, err := readRules(dir)
	if err != nil {
		r.Why = err.Error()
		return
	}
	if !slices.ContainsFunc(rules, func(n runtime.DeviceRule) bool { return n.Covers(nvidiaMajor, nvidiactlMinor) }) {
		r.refused()
		return
	}
	r.Green, r.Why = true, "its control group holds the rules for its GPU, and no systemd unit rewrites them"
}

// refused: nobody would take the rules away, but they are not there.
func (r *Report) refused() {
	r.AtRisk, r.Lost = true, true
	r.Why, r.Hint = "its control group refuses the GPU now, with no rule for devices of major number 195", "restart the container"
}

// byPrograms is byList for v2: the rules are programs, which are asked. runc leaves
// them alone in an update, and no unit of systemd's replaces them.
func byPrograms(r *Report, dir string) {
	access, err := askPrograms(dir, []int{nvidiactlMinor})
	switch {
	case err != nil:
		r.Why = fmt.Sprintf("its device rules cannot be read: %v", err)
	case access == AccessRefused:
		r.refused()
	default:
		r.Green, r.Why = true, "its control group lets it use its GPU, and no systemd unit rewrites the rules"
	}
}

// neededNodes are the nodes that systemd must know. On v1 those are NVIDIA's rules of
// the control group itself; on v2 the rules are a program, and nvidiactl, and
// nvidia-uvm if its module is loaded, stand for them.
func neededNodes(c runtime.Container, majors map[string]int) ([]runtime.DeviceRule, error) {
	needs := []runtime.DeviceRule{{Kind: "c", Major: nvidiaMajor, Minor: nvidiactlMinor, Access: "rw"}}
	if uvm, ok := majors["nvidia-uvm"]; ok {
		needs = append(needs, runtime.DeviceRule{Kind: "c", Major: uvm, Minor: 0, Access: "rw"})
	}
	for _, minor := range namedMinors(c) {
		needs = append(needs, runtime.DeviceRule{Kind: "c", Major: nvidiaMajor, Minor: minor, Access: "rw"})
	}
	dir, isV1 := c.Cgroup.V1["devices"]
	if !isV1 {
		return needs, nil
	}
	rules, err := readRules(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range rules {
		if n.Major == nvidiaMajor {
			n.Access = "rw" // whether nodes may be made as well takes no GPU away
			needs = append(needs, n)
		}
	}
	return needs, nil
}

// driverMajors reads the major numbers of character devices. NVIDIA's driver has
// had more than one name for its fixed one.
func driverMajors(procRoot string) (map[string]int, error) {
	data, err := os.ReadFile(filepath.Join(procRoot, "devices"))
	if err != nil {
		return nil, fmt.Errorf("device numbers: %w", err)
	}
	out := map[string]int{}
	chars, _, _ := strings.Cut(string(data), "Block devices:")
	for line := range strings.Lines(chars) {
		if fields := strings.Fields(line); len(fields) == 2 {
			if major, err := strconv.Atoi(fields[0]); err == nil {
				out[fields[1]] = major
			}
		}
	}
	return out, nil
}
