package metrics

import (
	"github.com/trimtab/trimtab/tuner/view"
)

const (
	// MaxDevices is how many devices have series: 16 GPUs of 7 slices each, and themselves.
	MaxDevices = 128
	// MaxHoldings is how many holders of devices have series of their own, 4 each; the time
	// of others is summed.
	MaxHoldings = 1000
	// hostLabel and othersLabel can be no container's name: Docker allows no parentheses.
	hostLabel   = "(host)"
	othersLabel = "(others)"
)

// The names. The label "device" is NVML's index, for a slice with the beginning of
// its UUID; trimtab_gpu_info tells which that is.
const (
	nDevice       = "trimtab_gpu_info"
	nDeviceUp     = "trimtab_gpu_up"
	nDeviceDuty   = "trimtab_gpu_duty_ratio"
	nDeviceMem    = "trimtab_gpu_memory_bytes"
	nDeviceUsed   = "trimtab_gpu_memory_used_bytes"
	nDevicePower  = "trimtab_gpu_power_watts"
	nHolderMemory = "trimtab_gpu_held_memory_bytes"
	nHolderQuiet  = "trimtab_gpu_held_quiet_seconds"
	nHolderHeld   = "trimtab_gpu_held_seconds_total"
	nHolderIdle   = "trimtab_gpu_held_idle_seconds_total"
)

func deviceFamilies() []Family {
	device, holder := []string{"device"}, []string{"device", "container", "team"}
	return []Family{
		{Name: nDevice, Kind: Gauge, Labels: []string{"device", "uuid", "name", "sharing", "virtual"}, Help: "Always 1; a GPU or MIG slice and what it is; virtual is true for trimtab's own virtual GPU."},
		{Name: nDeviceUp, Kind: Gauge, Labels: device, Help: "1 while the GPU answers, 0 while it is lost."},
		{Name: nDeviceDuty, Kind: Gauge, Labels: device, Help: "Share of time in which some kernel ran on the GPU, 0 to 1, of the latest reading; absent where the driver does not tell, as for slices."},
		{Name: nDeviceMem, Kind: Gauge, Labels: device, Help: "Memory of the GPU."},
		{Name: nDeviceUsed, Kind: Gauge, Labels: device, Help: "Memory in use on the GPU, by whomever."},
		{Name: nDevicePower, Kind: Gauge, Labels: device, Help: "Power that the GPU draws; absent where the driver does not tell."},
		{Name: nHolderMemory, Kind: Gauge, Labels: holder, Help: "GPU memory that the container, or (host) for all processes outside of containers, holds; enrolled or not."},
		{Name: nHolderQuiet, Kind: Gauge, Labels: holder, Help: "How long the holder is known to have run nothing on the GPU; 0 while it runs something, and where the driver does not tell."},
		{Name: nHolderHeld, Kind: Counter, Labels: holder, Help: "Time that the container held the GPU since trimtab started; (others) is the sum of holders beyond the cap."},
		{Name: nHolderIdle, Kind: Counter, Labels: holder, Help: "The part of it in which the holder is known to have run nothing, beyond the first stretch of idle.after each time."},
	}
}

// devices renders the GPUs and who holds them, up to the caps.
func (e *emitter) devices(all []view.Device) {
	holdings := 0
	for _, d := range all[:min(len(all), MaxDevices)] {
		label := clean(d.Label())
		e.device(d, label)
		for _, h := range d.Holders {
			if holdings++; holdings > MaxHoldings {
				e.set(nHolderHeld, h.HeldSeconds, label, othersLabel, "")
				e.set(nHolderIdle, h.IdleSeconds, label, othersLabel, "")
				continue
			}
			e.holder(h, label)
		}
	}
}

func (e *emitter) device(d view.Device, label string) {
	e.set(nDevice, 1, label, clean(d.UUID), clean(d.Name), clean(d.Sharing), boolLabel(d.Virtual))
	e.setBool(nDeviceUp, d.Lost == "", label)
	if d.Lost != "" {
		return // what was read before it was lost is not now
	}
	if d.MemTotal > 0 {
		e.set(nDeviceMem, float64(d.MemTotal), label)
		e.set(nDeviceUsed, float64(d.MemUsed), label)
	}
	if d.Duty != nil {
		e.set(nDeviceDuty, *d.Duty, label)
	}
	if d.PowerW != nil {
		e.set(nDevicePower, *d.PowerW, label)
	}
}

func (e *emitter) holder(h view.Holder, device string) {
	name, team := hostLabel, ""
	if !h.Host {
		name, team = e.label(h.Key, h.Name), e.c.team(h.Team)
	}
	e.set(nHolderMemory, float64(h.MemBytes), device, name, team)
	e.set(nHolderQuiet, h.QuietSeconds, device, name, team)
	e.set(nHolderHeld, h.HeldSeconds, device, name, team)
	e.set(nHolderIdle, h.IdleSeconds, device, name, team)
}
