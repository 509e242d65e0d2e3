//go:build cgo

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/nvml/wire"
)

// maxDevices bounds what a library may claim to have; a node has 16, with room.
const maxDevices = 128

// virtualSymbol is in the library of trimtab's own virtual GPU, and in no driver's.
const virtualSymbol = "trimtab_vgpu_version"

// session is the child's open library with its devices.
type session struct {
	lib   *library
	hello wire.Hello
	gpus  []*gpu
	// events is where the driver reports errors; nil: it cannot.
	events   nvml.EventSet
	pcieNext int // which way of which device is asked next
}

// openSession loads and initialises the library and finds the devices.
func openSession(path string, rules fileRules, p *wire.Page, q wire.Request) (*session, *wire.Failure) {
	err := rules.err
	if err == nil {
		err = confine() // before the first line of the library's runs
	}
	if err != nil {
		return nil, &wire.Failure{Why: "the library is not loaded: " + err.Error()}
	}
	lib, err := openLibrary(path, p)
	if err != nil {
		return nil, noLibrary(err, rules)
	}
	s := &session{lib: lib, hello: wire.Hello{Protocol: wire.Protocol, Landlock: rules.abi, NoLandlock: rules.lacks, LeftOut: rules.leftOut()}}
	s.leaveOut(q.Skip)
	whole := asker{lib: lib}
	if c := whole.call(lib.newest("nvmlInit_v2", "nvmlInit"), lib.api.Init); c != wire.OK {
		return nil, noInit(c, rules)
	}
	s.hello.Virtual = lib.has(virtualSymbol)
	s.hello.Driver = whole.text("nvmlSystemGetDriverVersion", lib.api.SystemGetDriverVersion)
	s.hello.NVML = whole.text("nvmlSystemGetNVMLVersion", lib.api.SystemGetNVMLVersion)
	n, c := get(&whole, lib.newest("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"), lib.api.DeviceGetCount)
	if c != wire.OK {
		return nil, rules.blame(&wire.Failure{Why: "the driver's devices cannot be counted: " + c.String()})
	}
	if n == 0 {
		return nil, &wire.Failure{Why: "the driver has no device", Normal: true}
	}
	for i := range min(n, maxDevices) {
		s.gpus = append(s.gpus, openGPU(lib, i, s.hello.Virtual))
	}
	s.listen()
	return s, nil
}

// noLibrary, by the loader's own sentence, tells a host without NVIDIA's driver from one whose driver is installed by half.
func noLibrary(err error, rules fileRules) *wire.Failure {
	_, driver := os.Stat("/proc/driver/nvidia/version")
	if errors.Is(driver, fs.ErrNotExist) {
		return &wire.Failure{Why: "no NVIDIA driver here (" + err.Error() + ")", Normal: true}
	}
	return rules.blame(&wire.Failure{Why: fmt.Sprintf("the NVIDIA driver is loaded, but its library is not to be had: %v; "+
		"install the driver's user-space package (libnvidia-compute, nvidia-utils)", err)})
}

func noInit(c wire.Code, rules fileRules) *wire.Failure {
	switch c {
	case wire.NoDriver, wire.NoDevice:
		return rules.blame(&wire.Failure{Why: "NVML: " + c.String(), Normal: true})
	case wire.Mismatch:
		return &wire.Failure{Why: "NVML: " + c.String() + ": the driver was upgraded; reload its kernel modules or restart the host"}
	case wire.NoSymbol:
		return &wire.Failure{Why: "the library has no nvmlInit_v2: it is not NVML, or a broken one"}
	}
	return rules.blame(&wire.Failure{Why: "nvmlInit_v2: " + c.String()})
}

func (s *session) leaveOut(keys []wire.CallKey) {
	clear(s.lib.skip)
	for _, k := range keys {
		s.lib.skip[k] = true
	}
}

// answer reads all devices, each written as soon as it is read: what hangs later costs it nothing.
func (s *session) answer(q wire.Request, out io.Writer) error {
	s.leaveOut(q.Skip)
	s.takeTurns()
	if err := s.tellXIDs(out); err != nil { // first: an error of the device makes calls hang
		return err
	}
	for _, g := range s.trustedFirst() {
		g.cursorUs = max(g.cursorUs, q.Cursors[g.base.UUID]) // the child before may have gone further
		for _, d := range g.read() {
			a := wire.Answer{Device: &d}
			if d.Parent == "" {
				a.Cursor = g.cursorUs
			}
			if err := wire.WriteLine(out, a); err != nil {
				return err
			}
		}
	}
	if err := s.tellXIDs(out); err != nil { // again: one by which a device was lost just now says why
		return err
	}
	e := wire.End{CPUNs: cpuNs(), RSSBytes: rssBytes()}
	if q.Outcomes {
		e.Outcomes = s.lib.told()
	}
	return wire.WriteLine(out, wire.Answer{End: &e})
}

// trustedFirst puts devices with calls that are left out at the end: where one
// call hangs the next may, and the others shall have been read by then.
func (s *session) trustedFirst() []*gpu {
	trouble := map[string]int{}
	for k := range s.lib.skip {
		trouble[k.Device]++
	}
	list := slices.Clone(s.gpus)
	slices.SortStableFunc(list, func(a, b *gpu) int { return cmp.Compare(trouble[a.id], trouble[b.id]) })
	return list
}

// told lists what each call answered last, sorted.
func (l *library) told() []wire.Outcome {
	list := make([]wire.Outcome, 0, len(l.outcomes))
	for k, c := range l.outcomes {
		list = append(list, wire.Outcome{CallKey: k, Code: c})
	}
	slices.SortFunc(list, func(a, b wire.Outcome) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Call, b.Call))
	})
	return list
}

func cpuNs() uint64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return uint64(u.Utime.Nano() + u.Stime.Nano())
}

func rssBytes() uint64 {
	var size, resident uint64
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}
