package nvml

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/probes/nvml/wire"
)

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
	if key.Device == "" && !strings.HasPrefix(key.Call, "nvmlSystem") {
		return false
	}
	s.leave(key, why, now)
	living := 0
	for k, v := range s {
		if k.Device == key.Device && v.until.After(now) {
			living++
		}
	}
	if living >= skipDevice {
		s.leave(wire.CallKey{Device: key.Device, Call: wire.AllCalls}, why, now)
	}
	return true
}

func (s skips) leave(key wire.CallKey, why string, now time.Time) {
	v := s[key]
	if v == nil {
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
