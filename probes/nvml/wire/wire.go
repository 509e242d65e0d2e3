// Package wire is what the daemon and its NVML child, trimtab-nvml, say to each other: lines of
// JSON in either direction, and a page of memory that names the call the child is in.
package wire

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/trimtab/trimtab/probes"
)

// What the daemon hands over to the child.
const (
	LibraryFlag = "--library=" // before the path or soname of NVML
	SilentFlag  = "--silent="  // before a folder of the loader's, or a file, in which another looker hangs: any number of these
	PageFD      = 3            // the shared page
	AnswerFD    = 4            // for answers; standard output is left to the library
)

// Protocol grows with each change of what is said: an upgrade replaces the child under a daemon
// that runs.
const Protocol = 5

// AllCalls in the place of a call's name stands for all calls of the device.
const AllCalls = "*"

// The ways in which processes share a device (probes.Device.Sharing).
const (
	SharingMIG    = "mig"
	SharingMPS    = "mps"
	SharingSliced = "time-slicing"
)

// What the child tells at the most of one device in one line, and of errors in one: more is no child's of ours.
const (
	MaxProcesses = 4096 // a longer list is of no use to anyone
	MaxSamples   = 4096 // NVML's buffer holds some hundred
	MaxXIDs      = 256
)

// maxLineBytes bounds one line in either direction: a device with 4,000 processes stays below it.
const maxLineBytes = 1 << 20

// DeviceNodes are patterns of the nodes that a child may open: of NVIDIA's driver, of Windows' below WSL, and of Tegra's.
func DeviceNodes() []string {
	return []string{"/dev/nvidia*", "/dev/dxg", "/dev/nvmap", "/dev/nvhost*", "/dev/nvgpu"}
}

// CallKey names one function asked of one device.
type CallKey struct {
	Device string `json:"dev,omitempty"` // UUID, "#index", or "" for the library as a whole
	Call   string `json:"call"`
}

// Request asks the child for one reading.
type Request struct {
	Skip []CallKey `json:"skip,omitempty"` // not to be entered
	// Cursors are, by UUID, where the samples of the last reading ended (NVML's clock); a fresh child goes on there.
	Cursors map[string]uint64 `json:"cursors,omitempty"`
	// Outcomes asks for what each call answered.
	Outcomes bool `json:"outcomes,omitempty"`
}

// Answer is one line of the child; one member is set.
type Answer struct {
	Hello  *Hello         `json:"hello,omitempty"`  // first, if the library works
	Failed *Failure       `json:"failed,omitempty"` // first and last, if it does not
	Device *probes.Device `json:"device,omitempty"` // one line for each, as soon as it has been read
	Cursor uint64         `json:"cursor,omitempty"` // with Device
	// XIDs are the errors that the driver reported since the last time, oldest first: told before the devices, of
	// which one may hang by then, and again after them.
	XIDs []XID `json:"xids,omitempty"`
	End  *End  `json:"end,omitempty"` // the reading is over
	// Left is told at once, before Hello or Failed: whatever comes of the child, the daemon knows of it.
	Left *Left `json:"left,omitempty"`
}

// Left is a process that looked at a folder of the loader's for the child, and was killed since that did not
// answer. It may hang there for good.
type Left struct {
	PID       int32  `json:"pid"`
	StartTick uint64 `json:"start"` // of /proc/PID/stat: another process may be given the PID
	At        string `json:"at,omitempty"`
}

// Hello says which library answers.
type Hello struct {
	Protocol int `json:"protocol"`

	Driver  string `json:"driver"` // version
	NVML    string `json:"nvml"`   // version
	Virtual bool   `json:"virtual,omitempty"`

	// Landlock is the kernel's ABI by which the child is kept to the library's own files; 0: to none.
	Landlock   int    `json:"landlock,omitempty"`
	NoLandlock string `json:"noLandlock,omitempty"` // why 0
	LeftOut    string `json:"leftOut,omitempty"`    // folders of the loader's that do not answer
}

// Failure says why there is nothing to read.
type Failure struct {
	Why    string `json:"why"`
	Normal bool   `json:"normal,omitempty"` // no NVIDIA driver here, or no device: nothing is wrong
}

func (f *Failure) Error() string { return f.Why }

// End closes a reading.
type End struct {
	CPUNs    uint64    `json:"cpu"` // of the child since its start
	RSSBytes uint64    `json:"rss"`
	Outcomes []Outcome `json:"outcomes,omitempty"` // sorted
}

// XID is an error that the driver reported, by NVIDIA's number.
type XID struct {
	Device string `json:"dev"` // UUID, or "#index"
	Number uint32 `json:"xid"`
}

// Outcome is what one call answered last.
type Outcome struct {
	CallKey
	Code Code `json:"code"`
}

// IndexID names a device before its UUID is known.
func IndexID(i int) string { return "#" + strconv.Itoa(i) }

// NewLines scans lines of bounded length.
func NewLines(r io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 16<<10), maxLineBytes)
	return s
}

// WriteLine writes one value as one line, in one write.
func WriteLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("nvml: encode: %w", err)
	}
	if len(b) >= maxLineBytes {
		return fmt.Errorf("nvml: a line of %d bytes is longer than %d", len(b), maxLineBytes)
	}
	if _, err := w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("nvml: write: %w", err)
	}
	return nil
}
