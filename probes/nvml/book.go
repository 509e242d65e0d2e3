package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
)

const (
	// maxPending bounds the duty samples of a device that wait to be read: 10 minutes of them.
	maxPending = 4096
	// keepGoneNs is how long a GPU that the driver no longer lists is still told as lost.
	keepGoneNs = int64(10 * time.Minute)
	maxSilent  = 16
	maxXIDs    = 1024 // of a device that wait to be read
)

// book is what the reader knows; guarded by its mutex.
type book struct {
	hello    wire.Hello
	why      string // there are no readings because; "": there are
	normal   bool   // and nothing is wrong with that
	devices  map[string]*reading
	cursors  map[string]uint64
	skips    skips
	silent   []string // the latest calls that hung or ended a child
	outcomes []wire.Outcome
	left     []wire.Left // processes that a child left behind
	turn     int         // the reading under way: so many are complete

	pastCPUNs, cpuNs, rssBytes uint64 // of children past and of the present one
}

// reading is one device's latest reading.
type reading struct {
	probes.Device
	pending []probes.DutySample
	xids    []uint32 // reported, and not read yet
	turn    int
}

func newBook() book {
	return book{devices: map[string]*reading{}, cursors: map[string]uint64{}, skips: skips{}}
}

// take enters one device's reading, for which there may be no room.
func (b *book) take(d probes.Device, cursor uint64, now time.Time) error {
	if d.UUID == "" { // it could not even be named: it is the one that stood there before
		d = b.identify(d)
	}
	if d.Lost != "" {
		if why := b.skips.why(now, d.UUID, wire.IndexID(d.Index)); why != "" {
			d.Lost = why
		}
	}
	id := cmp.Or(d.UUID, wire.IndexID(d.Index))
	if err := b.room(id, d); err != nil {
		return err
	}
	k := b.devices[id]
	if k == nil {
		k = &reading{}
		b.devices[id] = k
	}
	k.pending = append(k.pending, d.Duty...)
	k.pending = k.pending[max(0, len(k.pending)-maxPending):]
	d.Duty = nil
	k.Device, k.turn = d, b.turn
	if d.UUID != "" && d.Parent == "" {
		delete(b.devices, wire.IndexID(d.Index)) // it has a name now
	}
	if cursor != 0 && d.UUID != "" {
		b.cursors[d.UUID] = cursor
	}
	return nil
}

// identify gives a nameless device the identity of the one last read at its index.
func (b *book) identify(d probes.Device) probes.Device {
	latest := -1
	for _, k := range b.devices {
		if k.Index == d.Index && k.Parent == "" && k.UUID != "" && k.turn > latest {
			latest = k.turn
			d.UUID, d.Name, d.Minor, d.CPUs, d.NUMA = k.UUID, k.Name, k.Minor, k.CPUs, k.NUMA
		}
	}
	return d
}

// complete ends a reading: what was not in it is gone. lost: some device gave nothing.
func (b *book) complete(e wire.End, nowNs int64) (lost bool) {
	b.cpuNs, b.rssBytes, b.outcomes = e.CPUNs, e.RSSBytes, e.Outcomes
	for id, k := range b.devices {
		if k.turn != b.turn {
			if k.Parent != "" || nowNs-k.AtNs > keepGoneNs {
				delete(b.devices, id)
				delete(b.cursors, id)
				continue
			}
			k.Device = stripped(k.Device, "no longer listed by the driver")
		}
		lost = lost || k.Lost != ""
	}
	b.turn++
	return lost
}

// heard enters errors that the driver reported; of too many the newest stay. unknown are those of devices
// that have not been read yet.
func (b *book) heard(list []wire.XID) (unknown []wire.XID) {
	if len(list) == 0 {
		return nil
	}
	named := map[string]*reading{} // GPUs, by UUID and by index
	for id, k := range b.devices {
		if k.Parent != "" {
			continue
		}
		named[id] = k
		if at := named[wire.IndexID(k.Index)]; at == nil || k.turn > at.turn { // of two the one that was read last
			named[wire.IndexID(k.Index)] = k
		}
	}
	for _, x := range list {
		if k := named[x.Device]; k != nil {
			k.xids = append(k.xids, x.Number)
			k.xids = k.xids[max(0, len(k.xids)-maxXIDs):]
		} else {
			unknown = append(unknown, x)
		}
	}
	return unknown
}

// childEnded moves the counters that began with the child. Of one that is not to be believed no device is kept:
// what it invented would leave the next one's devices no room.
func (b *book) childEnded(why error) {
	b.pastCPUNs += b.cpuNs
	b.cpuNs, b.rssBytes = 0, 0
	if errors.Is(why, errNotOurs) {
		clear(b.devices)
		clear(b.cursors)
	}
}

// deliver hands out copies, sorted by index with slices after their GPU, and the samples that wait.
func (b *book) deliver(nowNs int64, stale time.Duration) []probes.Device {
	var list []probes.Device
	for _, k := range b.devices {
		d := b.current(k, nowNs, stale)
		d.Duty, k.pending = k.pending, nil
		d.Errors.XIDs, k.xids = k.xids, nil // also of a device that is lost: they say why
		d.Slowdown, d.Processes = slices.Clone(d.Slowdown), slices.Clone(d.Processes)
		list = append(list, d)
	}
	slices.SortFunc(list, func(x, y probes.Device) int {
		return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.Parent, y.Parent), cmp.Compare(x.UUID, y.UUID))
	})
	return list
}

// current is a device's reading, or the device as lost if that is too old.
func (b *book) current(k *reading, nowNs int64, stale time.Duration) probes.Device {
	age := time.Duration(nowNs - k.AtNs)
	if k.Lost != "" || age <= stale {
		return k.Device
	}
	return stripped(k.Device, cmp.Or(b.why, fmt.Sprintf("no reading for %d s", int(age.Seconds()))))
}

// stripped leaves a device its identity, and the time of its last reading.
func stripped(d probes.Device, why string) probes.Device {
	return probes.Device{Index: d.Index, Minor: d.Minor, UUID: d.UUID, Parent: d.Parent, Name: d.Name, Virtual: d.Virtual,
		CPUs: d.CPUs, NUMA: d.NUMA, AtNs: d.AtNs, Lost: why}
}

// complaint is the doctor's word on the devices that are there.
func (b *book) complaint(nowNs int64, stale time.Duration) (ok bool, lost string) {
	if b.turn == 0 {
		return false, "no reading yet"
	}
	for _, id := range slices.Sorted(maps.Keys(b.devices)) {
		if d := b.current(b.devices[id], nowNs, stale); d.Lost != "" {
			return false, fmt.Sprintf("GPU %d (%s): %s", d.Index, id, d.Lost)
		}
	}
	now := time.Now()
	for _, k := range b.skips.keys(now) {
		return false, b.skips[k].why + "; it is left out for now"
	}
	return true, ""
}

const (
	skipFirst = time.Minute // a call that hung is tried again after this, then after twice as long, …
	skipMost  = time.Hour
	// skipDevice calls of one device left out at once, and the device is left alone altogether.
	skipDevice = 3
)

// skips are the calls that hung or killed a child, and for how long they are left out.
type skips map[wire.CallKey]*skipped

type skipped struct {
	until time.Time
	next  time.Duration // how long if it happens again
	why   string
}

// add leaves a call out. false: it is one that nothing works without.
func (s skips) add(key wire.CallKey, why string, now time.Time) bool {
	if key.Device == "" && !strings.HasPrefix(key.Call, "nvmlSystem") && !strings.HasPrefix(key.Call, "nvmlEvent") {
		return false
	}
	s.leave(key, why, now)
	living := 0
	for k, v := range s {
		if k.Device == key.Device && v.until.After(now) {
			living++
		}
	}
	if living >= skipDevice && key.Device != "" {
		s.leave(wire.CallKey{Device: key.Device, Call: wire.AllCalls}, why, now)
	}
	return true
}

func (s skips) leave(key wire.CallKey, why string, now time.Time) {
	v := s[key]
	if v == nil {
		for k, old := range s { // names are the child's: those that are tried again are let go first
			if len(s) < maxSkips {
				break
			} else if !old.until.After(now) {
				delete(s, k)
			}
		}
		if len(s) >= maxSkips {
			clear(s)
		}
		v = &skipped{next: skipFirst}
		s[key] = v
	}
	v.until, v.why = now.Add(v.next), why
	v.next = min(2*v.next, skipMost)
}

// keys lists what is left out now, sorted.
func (s skips) keys(now time.Time) []wire.CallKey {
	list := slices.SortedFunc(maps.Keys(s), func(a, b wire.CallKey) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Call, b.Call))
	})
	return slices.DeleteFunc(list, func(k wire.CallKey) bool { return !s[k].until.After(now) })
}

// why says what a device is left alone for; ids are its UUID and "#index", under
// which goes only what it takes to know its UUID.
func (s skips) why(now time.Time, ids ...string) string {
	for _, k := range s.keys(now) {
		if slices.Contains(ids, k.Device) && (k.Call == wire.AllCalls || strings.HasPrefix(k.Device, "#")) {
			return s[k].why
		}
	}
	return ""
}
