package observe

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// Device is what one GPU did in a window in which the container held it.
type Device struct {
	UUID    string
	Index   int
	Samples int     // of Duty
	Duty    float64 // mean share of time in which some kernel ran, 0..1; meaningless without samples
	// Mean shares of time, 0..1, that SMs, the memory's interface and tensor cores worked, in
	// Activities readings; none before Hopper.
	Activities       int
	SM, DRAM, Tensor float64
	// Readings counts the readings of the figures below.
	Readings int
	// Slowed counts readings in which power or heat held the clock below its maximum, and
	// Clock is the mean clock over the maximum in them.
	Slowed      int
	SlowedClock float64
	SlowedBy    string // "power" or "thermal", of the latest such reading
	// Own and Others are the mean SM shares of the container's processes and of all others, by
	// the process; they drop out at times, and SMReadings counts where they were told.
	Own, Others float64
	SMReadings  int
	PIDs        []int32 // of the container's processes on it, sorted
	// Holders are other containers with a process on the device, by key, sorted; "" is the host.
	Holders []string
}

// diffDevices takes the devices on which a process of the container lives.
func diffDevices(key string, prev, cur probes.Host) []Device {
	var out []Device
	for _, d := range cur.Devices {
		if d.Lost != "" || !slices.ContainsFunc(d.Processes, func(p probes.DeviceProcess) bool { return p.Container == key }) {
			continue
		}
		use := Device{UUID: d.UUID, Index: d.Index}
		for _, s := range d.Duty {
			use.Duty = (use.Duty*float64(use.Samples) + s.Share) / float64(use.Samples+1)
			use.Samples++
		}
		if i := slices.IndexFunc(prev.Devices, func(o probes.Device) bool { return o.UUID == d.UUID }); i >= 0 && prev.Devices[i].AtNs >= d.AtNs {
			out = append(out, holders(use, d, key)) // the same reading as the tick before
			continue
		}
		use.Readings = 1
		if d.SMActive != nil && d.DRAMActive != nil {
			use.Activities, use.SM, use.DRAM, use.Tensor = 1, *d.SMActive, *d.DRAMActive, value(d.TensorActive)
		}
		if by := slowed(d); by != "" {
			use.Slowed, use.SlowedBy, use.SlowedClock = 1, by, value(d.ClockMHz)/value(d.MaxClockMHz)
		}
		out = append(out, shares(holders(use, d, key), d, key))
	}
	return out
}

// Activity is that of the device, of those that a process is on, whose multiprocessors had most to
// do; nil where none tells.
func (w *Window) Activity(tgid int32) (most *Device) {
	for i, d := range w.Devices {
		if d.Activities > 0 && slices.Contains(d.PIDs, tgid) && (most == nil || d.SM > most.SM) {
			most = &w.Devices[i]
		}
	}
	return most
}

// Spinning is the share of time, 0..1, in which the device of a rank that exchanges seems to work for
// it, and waits for other ranks. Where other containers work on it too, the one that waits may be theirs.
func (w *Window) Spinning(k *policies.Constants, tgid int32) float64 {
	if p := w.Calls(tgid); p == nil || p.Ranks == 1 {
		return 0
	}
	if d := w.Activity(tgid); d != nil && d.Alone(k) {
		return k.Spinning(d.Duty, d.SM)
	}
	return 0
}

// Alone: no other container is on the device, or hardly works there, so that what it does is this one's doing.
func (d *Device) Alone(k *policies.Constants) bool {
	return len(d.Holders) == 0 || d.SMReadings > 0 && d.Others < k.Exposed
}

func value(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// slowed names what holds the device's clock down: power or heat alone count, an
// idle device and an operator's own setting are nobody's loss.
func slowed(d probes.Device) string {
	if value(d.MaxClockMHz) <= 0 || d.ClockMHz == nil {
		return ""
	}
	for _, why := range d.Slowdown {
		switch why {
		case "power", "power-brake":
			return "power"
		case "thermal", "hw-slowdown":
			return "thermal"
		}
	}
	return ""
}

func holders(use Device, d probes.Device, key string) Device {
	for _, p := range d.Processes {
		if p.Container == key {
			use.PIDs = append(use.PIDs, p.PID)
		} else if !p.Graphics && !p.Server && !slices.Contains(use.Holders, p.Container) {
			use.Holders = append(use.Holders, p.Container)
		}
	}
	slices.Sort(use.Holders)
	return use
}

func shares(use Device, d probes.Device, key string) Device {
	for _, p := range d.Processes {
		if p.SM == nil || p.Server {
			continue
		}
		use.SMReadings = 1
		if p.Container == key {
			use.Own += *p.SM
		} else {
			use.Others += *p.SM
		}
	}
	return use
}

func joinDevice(a, b Device) Device {
	mean := func(x, y float64, nx, ny int) float64 {
		return (x*float64(nx) + y*float64(ny)) / float64(max(1, nx+ny))
	}
	a.Duty = mean(a.Duty, b.Duty, a.Samples, b.Samples)
	a.SM, a.DRAM, a.Tensor = mean(a.SM, b.SM, a.Activities, b.Activities), mean(a.DRAM, b.DRAM, a.Activities, b.Activities), mean(a.Tensor, b.Tensor, a.Activities, b.Activities)
	a.SlowedClock = mean(a.SlowedClock, b.SlowedClock, a.Slowed, b.Slowed)
	a.Own, a.Others = mean(a.Own, b.Own, a.SMReadings, b.SMReadings), mean(a.Others, b.Others, a.SMReadings, b.SMReadings)
	a.Samples, a.Readings, a.Slowed, a.SMReadings, a.Activities = a.Samples+b.Samples, a.Readings+b.Readings, a.Slowed+b.Slowed, a.SMReadings+b.SMReadings, a.Activities+b.Activities
	a.SlowedBy, a.PIDs = cmp.Or(b.SlowedBy, a.SlowedBy), b.PIDs
	for _, h := range b.Holders {
		if !slices.Contains(a.Holders, h) {
			a.Holders = append(slices.Clone(a.Holders), h)
		}
	}
	slices.Sort(a.Holders)
	return a
}
