package place

import (
	"maps"
	"slices"
	"time"

	"github.com/trimtab/trimtab/tuner/state"
)

// HoldFor is how long a device is kept for a job that is about to start.
const HoldFor = time.Minute

// Holds keep devices, by UUID, for jobs that are about to start: one for each device at the most.
// They are not stored; a daemon that starts anew has none. Used from one goroutine.
type Holds map[string]hold

type hold struct {
	by    string
	until time.Time
}

// Take holds devices, by UUID, for a job. Choose takes none that is held.
func (h Holds) Take(devices []string, by string, now time.Time) (until time.Time) {
	until = now.Add(HoldFor)
	for _, d := range devices {
		h[d] = hold{by, until}
	}
	return until
}

// Of returns the hold of a device; nil: none, or it is over.
func (h Holds) Of(device string, now time.Time) *state.Hold {
	held, ok := h[device]
	if !ok || !now.Before(held.until) {
		delete(h, device)
		return nil
	}
	return &state.Hold{For: held.by, UntilUnixNs: held.until.UnixNano()}
}

// Started ends the holds of the devices that a container was given by name. One that was given
// all devices is not who a single one was held for.
func (h Holds) Started(g Grant, devices []Device) {
	for _, d := range devices {
		if g.names(d) {
			delete(h, d.UUID)
		}
	}
}

// Keep drops the holds of devices that are gone.
func (h Holds) Keep(devices []Device) {
	maps.DeleteFunc(h, func(uuid string, _ hold) bool {
		return !slices.ContainsFunc(devices, func(d Device) bool { return d.UUID == uuid })
	})
}
