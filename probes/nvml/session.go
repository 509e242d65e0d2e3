package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxDevices bounds what a library may claim to have; a node has 16, with room.
const maxDevices = 128

// textBytes is room for the longest text there is: NVML_DEVICE_UUID_V2_BUFFER_SIZE.
const textBytes = 96

// virtualSymbol is in the library of trimtab's own virtual GPU, and in no driver's.
const virtualSymbol = "trimtab_vgpu_version"

// session is the child's open library with its devices.
type session struct {
	lib   *library
	hello hello
	gpus  []*gpu
}

// openSession loads and initialises the library and finds the devices.
func openSession(path string, p *page, q request) (*session, *failure) {
	lib, err := openLibrary(path, p)
	if err != nil {
		return nil, noLibrary(err)
	}
	s := &session{lib: lib}
	s.leaveOut(q.Skip)
	if c := s.lib.first("", []string{"nvmlInit_v2", "nvmlInit"}); c != codeOK {
		return nil, noInit(c)
	}
	s.hello.Virtual = lib.symbol(virtualSymbol) != 0
	s.hello.Driver, _ = lib.text("", "nvmlSystemGetDriverVersion", 0)
	s.hello.NVML, _ = lib.text("", "nvmlSystemGetNVMLVersion", 0)
	var n uint32
	if c := lib.first("", []string{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}, uintptr(unsafe.Pointer(&n))); c != codeOK {
		return nil, &failure{Why: "the driver's devices cannot be counted: " + c.String()}
	}
	if n == 0 {
		return nil, &failure{Why: "the driver has no device", Normal: true}
	}
	for i := range min(n, maxDevices) {
		s.gpus = append(s.gpus, openGPU(lib, int(i), s.hello.Virtual))
	}
	return s, nil
}

// noLibrary tells a host without NVIDIA's driver from one whose driver is installed by half.
func noLibrary(err error) *failure {
	_, driver := os.Stat("/proc/driver/nvidia/version")
	if errors.Is(driver, fs.ErrNotExist) {
		return &failure{Why: "no NVIDIA driver here (" + lastPart(err) + ")", Normal: true}
	}
	return &failure{Why: fmt.Sprintf("the NVIDIA driver is loaded, but its library is not to be had: %s; "+
		"install the driver's user-space package (libnvidia-compute, nvidia-utils)", lastPart(err))}
}

// lastPart is the loader's own sentence.
func lastPart(err error) string {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}

func noInit(c code) *failure {
	switch c {
	case codeNoDriver, codeNoDevice:
		return &failure{Why: "NVML: " + c.String(), Normal: true}
	case codeMismatch:
		return &failure{Why: "NVML: " + c.String() + ": the driver was upgraded; reload its kernel modules or restart the host"}
	case codeNoSymbol:
		return &failure{Why: "the library has no nvmlInit_v2: it is not NVML, or a broken one"}
	}
	return &failure{Why: "nvmlInit_v2: " + c.String()}
}

func (s *session) leaveOut(keys []callKey) {
	clear(s.lib.skip)
	for _, k := range keys {
		s.lib.skip[k] = true
	}
}

// answer reads all devices, each written as soon as it is read: what hangs later costs it nothing.
func (s *session) answer(q request, out io.Writer) error {
	s.leaveOut(q.Skip)
	for _, g := range s.trustedFirst() {
		g.resume(q.Cursors)
		for _, d := range g.read() {
			a := answer{Device: &d}
			if d.Parent == "" {
				a.Cursor = g.cursorUs
			}
			if err := writeLine(out, a); err != nil {
				return err
			}
		}
	}
	e := end{CPUNs: cpuNs(), RSSBytes: rssBytes()}
	if q.Outcomes {
		e.Outcomes = s.lib.told()
	}
	return writeLine(out, answer{End: &e})
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
func (l *library) told() []outcome {
	list := make([]outcome, 0, len(l.outcomes))
	for k, c := range l.outcomes {
		list = append(list, outcome{k, c})
	}
	slices.SortFunc(list, func(a, b outcome) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Call, b.Call))
	})
	return list
}

// first calls the newest of several names of one function that the library has.
//
//go:uintptrescapes
func (l *library) first(device string, names []string, args ...uintptr) code {
	c := codeNoSymbol
	for _, name := range names {
		if c = l.call(device, name, args...); c != codeNoSymbol {
			return c
		}
	}
	return c
}

// text asks a function of the shape ([handle,] char *, unsigned int).
func (l *library) text(device, name string, handle uintptr) (string, code) {
	b := make([]byte, textBytes)
	var c code
	if handle == 0 {
		c = l.call(device, name, uintptr(unsafe.Pointer(&b[0])), textBytes)
	} else {
		c = l.call(device, name, handle, uintptr(unsafe.Pointer(&b[0])), textBytes)
	}
	if c != codeOK {
		return "", c
	}
	s, _, _ := strings.Cut(string(b), "\x00")
	return strings.ToValidUTF8(s, ""), codeOK
}

func cpuNs() uint64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return uint64(u.Utime.Nano() + u.Stime.Nano())
}

func rssBytes() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
