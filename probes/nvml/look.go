package nvml

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

// Summary is what one look tells: for `trimtab doctor` and `make gpu-check`.
type Summary struct {
	Absent  string // why there is nothing to read, with nothing wrong: no driver, no device
	Driver  string // version
	NVML    string // version
	Virtual bool   // trimtab's own virtual GPU answers
	Devices []probes.Device
	// Answers is what each function said last, by device (UUID, or "" for the library).
	Answers []wire.Outcome
	// Silent are calls that hung or ended the child.
	Silent []string
}

// Answered lists the functions that answered a device.
func (s Summary) Answered(uuid string) (calls []string) {
	for _, a := range s.Answers {
		if a.Device == uuid && a.Code == wire.OK {
			calls = append(calls, strings.TrimPrefix(a.Call, "nvml"))
		}
	}
	return calls
}

// lookReadings is how many readings a look takes: GPM tells what lies between two.
const lookReadings = 2

// Look starts a child of its own, takes two readings, and ends it: some seconds.
// An absent driver is no error.
func Look(ctx context.Context, o Options) (Summary, error) {
	r := newReader(o, true)
	defer r.Close()
	for {
		s, news, err := r.summary()
		if news == nil {
			r.attribute(s.Devices)
			return s, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return s, fmt.Errorf("nvml: no reading yet: %w", ctx.Err())
		}
	}
}

// summary is what is known so far; news is nil once that is enough.
func (r *Reader) summary() (s Summary, news <-chan struct{}, err error) {
	now := procfs.MonotonicNs()
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &r.book
	s = Summary{Driver: b.hello.Driver, NVML: b.hello.NVML, Virtual: b.hello.Virtual, Silent: append([]string(nil), b.silent...)}
	switch {
	case b.why != "" && b.normal:
		s.Absent = b.why
		return s, nil, nil
	case b.why != "":
		return s, nil, errors.New(b.why)
	case b.turn < lookReadings:
		return s, r.news, nil
	}
	s.Devices, s.Answers = b.deliver(now, r.o.StaleAfter), b.outcomes
	return s, nil, nil
}
