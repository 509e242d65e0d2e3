package nvml

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/trimtab/trimtab/probes"
)

// maxLineBytes bounds one line in either direction: a device with 4,000 processes stays below it.
const maxLineBytes = 1 << 20

// request asks the child for one reading.
type request struct {
	Skip []callKey `json:"skip,omitempty"` // not to be entered
	// Cursors are, by UUID, where the samples of the last reading ended (NVML's clock); a fresh child goes on there.
	Cursors map[string]uint64 `json:"cursors,omitempty"`
	// Outcomes asks for what each call answered.
	Outcomes bool `json:"outcomes,omitempty"`
}

// answer is one line of the child; one member is set.
type answer struct {
	Hello  *hello         `json:"hello,omitempty"`  // first, if the library works
	Failed *failure       `json:"failed,omitempty"` // first and last, if it does not
	Device *probes.Device `json:"device,omitempty"` // one line for each, as soon as it has been read
	Cursor uint64         `json:"cursor,omitempty"` // with Device
	End    *end           `json:"end,omitempty"`    // the reading is over
}

type hello struct {
	Driver  string `json:"driver"`
	NVML    string `json:"nvml"`
	Virtual bool   `json:"virtual,omitempty"`
}

// failure says why there is nothing to read.
type failure struct {
	Why    string `json:"why"`
	Normal bool   `json:"normal,omitempty"` // no NVIDIA driver here, or no device: nothing is wrong
}

type end struct {
	CPUNs    uint64    `json:"cpu"` // of the child since its start
	RSSBytes uint64    `json:"rss"`
	Outcomes []outcome `json:"outcomes,omitempty"` // sorted
}

type outcome struct {
	callKey
	Code code `json:"code"`
}

// newLines scans lines of bounded length.
func newLines(r io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 16<<10), maxLineBytes)
	return s
}

// writeLine writes one value as one line, in one write.
func writeLine(w io.Writer, v any) error {
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
