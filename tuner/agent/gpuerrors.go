package agent

import (
	"cmp"
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
	// maxErrorsTold is how many records a minute tell of all devices' errors. The rest is told later, with its number.
	maxErrorsTold = 64
	// maxStruck is how many containers one kind of error of one device is told of at once: no more than that.
	maxStruck = maxErrorsTold
	// maxXIDs is how many numbers of a device are counted apart, and the largest that is told as such.
	// Others are counted as 0, which is none of NVIDIA's.
	maxXIDs      = 32
	maxXIDNumber = 999
	// ofMemory stands for errors that ECC cannot correct, which have no number.
	ofMemory = maxXIDNumber + 1
	// maxErrorsShown is how many errors of its devices are shown of a container.
	maxErrorsShown = 8
	// keepHealth is how long what was counted of a device stays that is no longer listed, and maxHealth how
	// many such there may be: names of devices are the NVML child's.
	keepHealth = time.Hour
	maxHealth  = 1024
)

// deviceErrors counts and tells what drivers report of devices' health. Nothing is decided by it.
type deviceErrors struct {
	devices map[string]*deviceHealth    // by UUID
	shown   map[string][]state.GPUError // by container that held the device, oldest first
	told    int                         // records since toldAt
	toldAt  time.Time
}

// deviceHealth is one device.
type deviceHealth struct {
	index   int
	seen    time.Time // listed last
	xids    map[uint32]*tally
	faults  uint64            // no program's
	ecc     tally             // uncorrected; count is the driver's
	known   bool              // ecc.count is of an earlier reading
	holders map[string]string // names of containers with a process on it, by key, of the latest two readings that tell
	before  map[string]string
}

// tally counts one kind of error; untold ones came since it was last told, and struck those who held the device then.
type tally struct {
	count, untold uint64
	toldAt        time.Time
	struck        map[string]string
}

// hit counts errors of now.
func (t *tally) hit(n uint64, holders ...map[string]string) {
	t.untold += n
	if t.struck == nil {
		t.struck = map[string]string{}
	}
	for _, held := range holders {
		for key, name := range held {
			if len(t.struck) < maxStruck {
				t.struck[key] = name
			}
		}
	}
}

// due reports whether it is to be told now.
func (t *tally) due(now time.Time) bool {
	return t.untold > 0 && (t.toldAt.IsZero() || now.Sub(t.toldAt) >= tellErrorEvery)
}

// noteErrors takes in a reading and tells what is new, once.
func (l *Agent) noteErrors(now time.Time) {
	parts := map[string][]probes.Device{} // slices of MIG, by GPU
	for _, d := range l.host.Devices {
		if d.Parent != "" {
			parts[d.Parent] = append(parts[d.Parent], d)
		}
	}
	for _, d := range l.host.Devices {
		if d.UUID != "" && d.Parent == "" {
			h := l.errors.of(d.UUID)
			h.index, h.seen = d.Index, now
			h.hold(d, l.holders(append(parts[d.UUID], d)))
			h.take(d)
		}
	}
	l.errors.forget(now)
	l.tellErrors(now)
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

// forget drops devices that are no longer listed.
func (e *deviceErrors) forget(now time.Time) {
	maps.DeleteFunc(e.devices, func(_ string, h *deviceHealth) bool { return now.Sub(h.seen) > keepHealth })
	if len(e.devices) > maxHealth {
		maps.DeleteFunc(e.devices, func(_ string, h *deviceHealth) bool { return h.seen != now })
	}
}

// holders are the containers with a process on a GPU or on a slice of it, which has its errors told.
func (l *Agent) holders(parts []probes.Device) map[string]string {
	held := map[string]string{}
	for _, d := range parts {
		for _, p := range d.Processes {
			if t := l.containers[p.Container]; t != nil {
				held[p.Container] = t.c.Name
			}
		}
	}
	return held
}

// hold notes who holds a device. One that is lost does not tell.
func (h *deviceHealth) hold(d probes.Device, holders map[string]string) {
	if d.Lost == "" {
		h.before, h.holders = h.holders, holders
	}
}

// take counts. What a device has counted before trimtab first reads it is not news. Who held it in the
// reading before is struck too: a program that the error ended is gone by now.
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
		h.xids[number].hit(1, h.holders, h.before)
	}
	if n := d.Errors.ECCUncorrected; n != nil {
		if h.known && *n > h.ecc.count {
			h.ecc.hit(*n-h.ecc.count, h.holders, h.before)
			h.faults += *n - h.ecc.count
		}
		h.ecc.count, h.known = *n, true // fewer: the driver was loaded anew
	}
}

// untold is one kind of error of one device that is to be told now.
type untold struct {
	*tally
	index  int
	number uint32 // or ofMemory
}

// news are the kinds of errors to be told now: those first that were not told for longest.
func (e *deviceErrors) news(now time.Time) (list []untold) {
	for _, h := range e.devices {
		for number, t := range h.xids {
			if t.due(now) {
				list = append(list, untold{t, h.index, number})
			}
		}
		if h.ecc.due(now) {
			list = append(list, untold{&h.ecc, h.index, ofMemory})
		}
	}
	slices.SortFunc(list, func(a, b untold) int {
		return cmp.Or(a.toldAt.Compare(b.toldAt), cmp.Compare(a.index, b.index), cmp.Compare(a.number, b.number))
	})
	return list
}

// text is a sentence about them.
func (u untold) text() string {
	gpu := "GPU " + strconv.Itoa(u.index)
	if u.number == ofMemory {
		return fmt.Sprintf("%s reported memory errors that ECC cannot correct: %d, and %d since the driver was loaded", gpu, u.untold, u.count)
	}
	text := fmt.Sprintf("%s reported XID %d", gpu, u.number)
	if u.number == 0 {
		text = gpu + " reported an XID beyond those that are counted apart"
	}
	if u.untold > 1 {
		text += fmt.Sprintf(" %d times", u.untold)
	}
	if words := devices.XID(u.number); words != "" {
		text += ": " + words
	}
	return text
}

// tellErrors tells of errors in the history of each container that held the device when they came, and of
// the host where none did. What finds no room in this minute stays untold, and counted.
func (l *Agent) tellErrors(now time.Time) {
	e := &l.errors
	if now.Sub(e.toldAt) >= time.Minute {
		e.told, e.toldAt = 0, now
	}
	var records []state.Record
	for _, u := range e.news(now) {
		if e.told += max(len(u.struck), 1); e.told > maxErrorsTold {
			break
		}
		r := state.Record{UnixNs: now.UnixNano(), Kind: state.RecordGPUError, ByProgram: devices.ByProgram(u.number), Text: u.text()}
		for _, key := range slices.Sorted(maps.Keys(u.struck)) {
			r.Key, r.Name = key, u.struck[key]
			records = append(records, r)
			shown := append(e.shown[key], state.GPUError{UnixNs: r.UnixNs, Text: r.Text})
			e.shown[key] = shown[max(0, len(shown)-maxErrorsShown):]
		}
		if len(u.struck) == 0 {
			records = append(records, r)
		}
		u.tally.untold, u.toldAt, u.struck = 0, now, nil
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
