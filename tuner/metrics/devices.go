package metrics

import (
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/tuner/state"
)

const (
	// MaxDevices is how many devices have series: 16 GPUs of 7 slices each, and themselves.
	MaxDevices = 128
	// MaxHoldings is how many holders of devices have series of their own, 4 each; the time
	// of others is summed.
	MaxHoldings = 1000
	// hostLabel and othersLabel are taken: of containerd's names any may have parentheses.
	hostLabel   = "(host)"
	othersLabel = "(others)"
)

// deviceFamilies: the label "device" is NVML's index, for a slice with the beginning of
// its UUID; trimtab_gpu_info tells which that is.
func deviceFamilies() []Family {
	device, holder := []string{"device"}, []string{"device", "container", "team"}
	return []Family{
		{Name: "trimtab_gpu_info", Kind: Gauge, Labels: []string{"device", "uuid", "name", "sharing", "virtual"}, Help: "Always 1. A GPU or MIG slice and what it is. The label virtual is true for trimtab's own virtual GPU."},
		{Name: "trimtab_gpu_up", Kind: Gauge, Labels: device, Help: "1 while the GPU answers, 0 while it is lost."},
		{Name: "trimtab_gpu_duty_ratio", Kind: Gauge, Labels: device, Help: "Share of time in which some kernel ran on the GPU, 0 to 1, of the latest reading. Absent where the driver does not tell, as for slices."},
		{Name: "trimtab_gpu_memory_bytes", Kind: Gauge, Labels: device, Help: "Memory of the GPU."},
		{Name: "trimtab_gpu_memory_used_bytes", Kind: Gauge, Labels: device, Help: "Memory in use on the GPU, by whomever."},
		{Name: "trimtab_gpu_sm_active_ratio", Kind: Gauge, Labels: device, Help: "Share of time in which the mean SM had work, 0 to 1. It is there from Hopper on."},
		{Name: "trimtab_gpu_tensor_active_ratio", Kind: Gauge, Labels: device, Help: "Share of time in which the tensor cores were active, 0 to 1. It is there from Hopper on."},
		{Name: "trimtab_gpu_dram_active_ratio", Kind: Gauge, Labels: device, Help: "Share of time in which the GPU's memory was read or written, 0 to 1. It is there from Hopper on."},
		{Name: "trimtab_gpu_power_watts", Kind: Gauge, Labels: device, Help: "Power that the GPU draws. Absent where the driver does not tell, as in the lines below."},
		{Name: "trimtab_gpu_power_limit_watts", Kind: Gauge, Labels: device, Help: "Power that the GPU may draw."},
		{Name: "trimtab_gpu_clock_hertz", Kind: Gauge, Labels: device, Help: "Clock of the SMs."},
		{Name: "trimtab_gpu_max_clock_hertz", Kind: Gauge, Labels: device, Help: "The most that this clock can be."},
		{Name: "trimtab_gpu_temperature_celsius", Kind: Gauge, Labels: device, Help: "Temperature of the GPU."},
		{Name: "trimtab_gpu_slowdown", Kind: Gauge, Labels: []string{"device", "reason"}, Help: "1 while the driver names this reason for a clock below its maximum. Reasons are power, thermal, hw-slowdown, power-brake, sync-boost, application, idle and other."},
		{Name: "trimtab_gpu_pcie_bytes_per_second", Kind: Gauge, Labels: []string{"device", "direction"}, Help: "What the GPU moves over PCIe. The direction is rx (to the GPU) or tx. More than two GPUs are asked in turns: each of sixteen every eighth reading."},
		{Name: "trimtab_gpu_pcie_max_bytes_per_second", Kind: Gauge, Labels: device, Help: "What its PCIe link gives in one direction, at its present generation and width."},
		{Name: "trimtab_gpu_nvlink_bytes_total", Kind: Counter, Labels: []string{"device", "direction"}, Help: "Bytes that the GPU moved over all its NVLinks since the driver started. The direction is rx or tx."},
		{Name: "trimtab_gpu_xid_errors_total", Kind: Counter, Labels: []string{"device", "xid"}, Help: "Errors that the driver reported of the GPU since trimtab started, by NVIDIA's number (XID). Of each GPU 32 numbers are counted apart; xid is other beyond them."},
		{Name: "trimtab_gpu_faults_total", Kind: Counter, Labels: device, Help: "Errors of the GPU since trimtab started: XIDs other than 13, 31, 43, 45, 69 and 109, which a program's own fault explains, and memory errors that ECC cannot correct."},
		{Name: "trimtab_gpu_ecc_errors_total", Kind: Counter, Labels: []string{"device", "kind"}, Help: "Errors of the GPU's memory since the driver was loaded. The kind is corrected or uncorrected. Absent where the driver does not tell, as without ECC."},
		{Name: "trimtab_gpu_remapped_rows", Kind: Gauge, Labels: device, Help: "Rows of the GPU's memory for which spare ones stand. It is there from Ampere on."},
		{Name: "trimtab_gpu_row_remap_failed", Kind: Gauge, Labels: device, Help: "1 if a bad row of the GPU's memory found no spare one: the GPU is to be replaced. It is there from Ampere on."},
		{Name: "trimtab_gpu_held_memory_bytes", Kind: Gauge, Labels: holder, Help: "GPU memory that the container, or (host) for all processes outside of containers, holds. It need not be enrolled."},
		{Name: "trimtab_gpu_idle_seconds", Was: "trimtab_gpu_held_quiet_seconds", Kind: Gauge, Labels: holder, Help: "How long the holder is known to have run nothing on the GPU. It is 0 while it runs something, and where the driver does not tell."},
		{Name: "trimtab_gpu_held_seconds_total", Kind: Counter, Labels: holder, Help: "Time that the container held the GPU since trimtab started. (others) is the sum of holders beyond the cap."},
		{Name: "trimtab_gpu_held_idle_seconds_total", Kind: Counter, Labels: holder, Help: "The part of it in which the holder is known to have run nothing, beyond the first stretch of gpu.idleAfter each time."},
	}
}

// devices renders the GPUs and who holds them, up to the caps.
func (e *emitter) devices(all []state.Device) {
	holdings := 0
	for _, d := range all[:min(len(all), MaxDevices)] {
		label := clean(d.Label())
		e.device(d, label)
		for _, h := range d.Holders {
			if holdings++; holdings > MaxHoldings {
				e.set("trimtab_gpu_held_seconds_total", h.HeldSeconds, label, othersLabel, "")
				e.set("trimtab_gpu_held_idle_seconds_total", h.IdleSeconds, label, othersLabel, "")
				continue
			}
			e.holder(h, label)
		}
	}
}

func (e *emitter) device(d state.Device, label string) {
	e.set("trimtab_gpu_info", 1, label, clean(d.UUID), clean(d.Name), clean(d.Sharing), strconv.FormatBool(d.Virtual))
	e.setBool("trimtab_gpu_up", d.Lost == "", label)
	if d.Parent == "" {
		e.set("trimtab_gpu_faults_total", float64(d.Errors.Faults), label) // from 0 on: a counter that begins with its first one shows no increase
		e.deviceErrors(d.Errors, label)
	}
	if d.Lost != "" {
		return // what was read before it was lost is not now
	}
	if d.MemTotal > 0 {
		e.set("trimtab_gpu_memory_bytes", float64(d.MemTotal), label)
		e.set("trimtab_gpu_memory_used_bytes", float64(d.MemUsed), label)
	}
	tell := func(name string, value *float64, unit float64, labels ...string) {
		if value != nil {
			e.set(name, unit**value, labels...)
		}
	}
	tell("trimtab_gpu_duty_ratio", d.Duty, 1, label)
	tell("trimtab_gpu_sm_active_ratio", d.SMActive, 1, label)
	tell("trimtab_gpu_tensor_active_ratio", d.TensorActive, 1, label)
	tell("trimtab_gpu_dram_active_ratio", d.DRAMActive, 1, label)
	tell("trimtab_gpu_power_watts", d.PowerW, 1, label)
	tell("trimtab_gpu_power_limit_watts", d.PowerLimitW, 1, label)
	tell("trimtab_gpu_clock_hertz", d.ClockMHz, 1e6, label)
	tell("trimtab_gpu_max_clock_hertz", d.MaxClockMHz, 1e6, label)
	tell("trimtab_gpu_temperature_celsius", d.TempC, 1, label)
	for _, why := range slices.Compact(slices.Sorted(slices.Values(d.Slowdown))) {
		e.set("trimtab_gpu_slowdown", 1, label, clean(why))
	}
	tell("trimtab_gpu_pcie_bytes_per_second", d.PCIeRxBps, 1, label, "rx")
	tell("trimtab_gpu_pcie_bytes_per_second", d.PCIeTxBps, 1, label, "tx")
	tell("trimtab_gpu_pcie_max_bytes_per_second", d.PCIeMaxBps, 1, label)
	if d.NVLinkRx != nil {
		e.set("trimtab_gpu_nvlink_bytes_total", float64(*d.NVLinkRx), label, "rx")
	}
	if d.NVLinkTx != nil {
		e.set("trimtab_gpu_nvlink_bytes_total", float64(*d.NVLinkTx), label, "tx")
	}
}

// deviceErrors renders also those of a GPU that is lost: they say why.
func (e *emitter) deviceErrors(d state.DeviceErrors, label string) {
	for _, x := range d.XIDs {
		number := strconv.FormatUint(uint64(x.XID), 10)
		if x.XID == 0 {
			number = "other"
		}
		e.set("trimtab_gpu_xid_errors_total", float64(x.Count), label, number)
	}
	if n := d.ECCUncorrected; n != nil {
		e.set("trimtab_gpu_ecc_errors_total", float64(*n), label, "uncorrected")
	}
	if n := d.ECCCorrected; n != nil {
		e.set("trimtab_gpu_ecc_errors_total", float64(*n), label, "corrected")
	}
	if n := d.RowsRemapped; n != nil {
		e.set("trimtab_gpu_remapped_rows", float64(*n), label)
		e.setBool("trimtab_gpu_row_remap_failed", d.RowFailed, label)
	}
}

func (e *emitter) holder(h state.Holder, device string) {
	name, team := hostLabel, ""
	if !h.Host {
		name, team = e.label(h.Key, h.Name), e.c.team(h.Team)
	}
	e.set("trimtab_gpu_held_memory_bytes", float64(h.MemBytes), device, name, team)
	e.set("trimtab_gpu_idle_seconds", h.QuietSeconds, device, name, team)
	e.set("trimtab_gpu_held_seconds_total", h.HeldSeconds, device, name, team)
	e.set("trimtab_gpu_held_idle_seconds_total", h.IdleSeconds, device, name, team)
}
