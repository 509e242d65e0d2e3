package agent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/devices"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	// tellErrorEvery is how often one kind of error of one device is told: what came between is told with its number.
	tellErrorEvery = time.Minute
	// maxXIDs is how many numbers of a device are counted apart, and the largest that is told as such.
	// Others are counted as 0, which is none of NVIDIA's.
	maxXIDs      = 32
	maxXIDNumber = 999
	// maxErrorsShown is how many errors of its devices are shown of a container.
	maxErrorsShown = 8
)

// deviceErrors counts and tells what drivers report of devices' health. Nothing is decided by it.
type deviceErrors struct {
	devices map[string]*deviceHealth    // by UUID
	shown   map[string][]state.GPUError // by container that held the device, oldest first
}

// deviceHealth is one device.
type deviceHealth struct {
	xids    map[uint32]*tally
	faults  uint64          // no program's
	ecc     tally           // uncorrected; count is the driver's
	known   bool            // ecc.count is of an earlier reading
	holders map[string]bool // containers with a process on it, of the latest two readings that tell
	before  map[string]bool
}

// tally counts one kind of error; untold ones came since it was last told.
type tally struct {
	count, untold uint64
	toldAt        time.Time
}

// due takes the untold ones if they are to be told now.
func (t *tally) due(now time.Time) (n uint64) {
	if t.untold == 0 || !t.toldAt.IsZero() && now.Sub(t.toldAt) < tellErrorEvery {
		return 0
	}
	n, t.untold, t.toldAt = t.untold, 0, now
	return n
}

// noteErrors takes in a reading and tells what is new, once.
func (l *Agent) noteErrors(now time.Time) {
	for _, d := range l.host.Devices {
		if d.UUID == "" || d.Parent != "" {
			continue
		}
		h := l.errors.of(d.UUID)
		h.take(d)
		for _, text := range h.news(d.Index, now) {
			l.tellError(h, now, text)
		}
	}
	maps.DeleteFunc(l.errors.shown, func(key string, _ []state.GPUError) bool { return l.containers[key] == nil })
}

func (e *deviceErrors) of(uuid string) *deviceHealth {
	if e.devices == nil {
		e.devices, e.shown = map[string]*deviceHealth{}, map[string][]state.GPUError{}
	}
	h := e.devices[uuid]
	if h == nil {
		h = &deviceHealth{xids: map[uint32]*tally{}}
		e.devices[uuid] = h
	}
	return h
}

// take counts. What a device has counted before trimtab first reads it is not news.
func (h *deviceHealth) take(d probes.Device) {
	for _, number := range d.Errors.XIDs {
		if !devices.ByProgram(number) {
			h.faults++
		}
		if number > maxXIDNumber || h.xids[number] == nil && len(h.xids) >= maxXIDs {
			number = 0
		}
		if h.xids[number] == nil {
			h.xids[number] = &tally{}
		}
		h.xids[number].count++
		h.xids[number].untold++
	}
	if n := d.Errors.ECCUncorrected; n != nil {
		if h.known && *n > h.ecc.count {
			h.ecc.untold += *n - h.ecc.count
			h.faults += *n - h.ecc.count
		}
		h.ecc.count, h.known = *n, true // fewer: the driver was loaded anew
	}
	if d.Lost != "" {
		return // it does not tell who holds it
	}
	h.before, h.holders = h.holders, map[string]bool{}
	for _, p := range d.Processes {
		if p.Container != "" {
			h.holders[p.Container] = true
		}
	}
}

// news is what is to be told now.
func (h *deviceHealth) news(index int, now time.Time) (out []string) {
	gpu := "GPU " + strconv.Itoa(index)
	for _, number := range slices.Sorted(maps.Keys(h.xids)) {
		n := h.xids[number].due(now)
		if n == 0 {
			continue
		}
		text := fmt.Sprintf("%s reported XID %d", gpu, number)
		if number == 0 {
			text = gpu + " reported an XID beyond those that are counted apart"
		}
		if n > 1 {
			text += fmt.Sprintf(" %d times", n)
		}
		if words := devices.XID(number); words != "" {
			text += ": " + words
		}
		out = append(out, text)
	}
	if n := h.ecc.due(now); n > 0 {
		out = append(out, fmt.Sprintf("%s reported memory errors that ECC cannot correct: %d, and %d since the driver was loaded", gpu, n, h.ecc.count))
	}
	return out
}

// tellError tells of an error in the history of each container that held the device, and of the
// host where none did: a program that it ended is gone by now.
func (l *Agent) tellError(h *deviceHealth, now time.Time, text string) {
	struck := maps.Clone(h.before)
	if struck == nil {
		struck = map[string]bool{}
	}
	maps.Copy(struck, h.holders)
	var records []state.Record
	for _, key := range slices.Sorted(maps.Keys(struck)) {
		t := l.containers[key]
		if t == nil {
			continue
		}
		records = append(records, state.Record{UnixNs: now.UnixNano(), Kind: state.RecordGPUError, Key: key, Name: t.c.Name, Text: text})
		shown := append(l.errors.shown[key], state.GPUError{UnixNs: now.UnixNano(), Text: text})
		l.errors.shown[key] = shown[max(0, len(shown)-maxErrorsShown):]
	}
	if records == nil {
		records = []state.Record{{UnixNs: now.UnixNano(), Kind: state.RecordGPUError, Text: text}}
	}
	l.keep(records)
}

// showErrors fills in what was counted of devices, and what is shown of containers.
func (l *Agent) showErrors(s *state.Snapshot) {
	for i, d := range s.Devices {
		h := l.errors.devices[d.UUID]
		if h == nil {
			continue
		}
		s.Devices[i].Errors.Faults = h.faults
		for _, number := range slices.Sorted(maps.Keys(h.xids)) {
			s.Devices[i].Errors.XIDs = append(s.Devices[i].Errors.XIDs, state.XIDCount{XID: number, Count: h.xids[number].count})
		}
	}
	for i, c := range s.Containers {
		s.Containers[i].GPUErrors = slices.Clone(l.errors.shown[c.Key])
	}
}
