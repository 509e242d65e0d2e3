package main

import "fmt"

// supportRow is one row of docs/support.md: a way in which a host or its GPUs are
// used, and how far trimtab goes there.
type supportRow struct {
	situation  string
	seen       string
	attributed string
	tuned      string
	ran        string // where it has run
}

// Where something has run.
const (
	ranHere  = "a host without a GPU"
	ranGuest = "a virtual machine without a GPU"
	ranH100  = "an H100"
	ranBuilt = "built, never run"
	ranTests = "unit tests"
	ranNever = "never"
)

// The keys of rows that doctor finds out.
const (
	rowNoGPU     = "no-gpu"
	rowSilent    = "no-nvml"
	rowExclusive = "exclusive"
	rowSliced    = "time-slicing"
	rowMPS       = "mps"
	rowMIG       = "mig"
	rowHost      = "host"
	rowVirtual   = "virtual"
	rowHybrid    = "hybrid"
	rowV1        = "v1"
	rowV2        = "v2"
	rowRootless  = "rootless"
	rowARM       = "arm64"
	rowNoBTF     = "no-btf"
)

// supportRows are those that the doctor can find; docs/support.md has them too, which a test compares.
func supportRows() map[string]supportRow {
	return map[string]supportRow{
		rowNoGPU:     {"no GPU, no driver or no library", "a normal state: the host, CPU, memory and waits as ever", "–", "yes", ranHere},
		rowSilent:    {"a driver, but NVML fails or does not answer", "what else there is; each device with why it is lost", "no", "yes, with less evidence", ranTests},
		rowExclusive: {"one container on a GPU", "duty, memory, clocks, power, PCIe; SM activity from Hopper on", "by the cgroups of its processes", "yes, if the preflight is green", ranH100},
		rowSliced:    {"several processes on a GPU in turns (time-slicing)", "the same, of all together", "memory by process; use by launches, or the driver's SM shares, which drop out", "yes; a device that others use is reported, never a trial", ranTests},
		rowMPS:       {"MPS", "the same, of all together; known by its server's processes", "memory by client; the server counts where it runs, on the host mostly; use as with time-slicing", "as with time-slicing", ranTests},
		rowMIG:       {"MIG", "each slice as a device: memory, processes; no duty, SM activity from Hopper on", "by slice and process; without SM activity idle only by launches, else unknown", "yes, if the preflight is green", ranTests},
		rowHost:      {"processes of the host on the GPU", "memory, SM shares where told; launches are not counted", "together, as the host's", "never", ranTests},
		rowVirtual:   {"trimtab's virtual GPU", "as a real one; doctor, status, idle and metrics say virtual", "as a real one", "as a real one", ranTests},
		rowHybrid:    {"cgroups v1 with a v2 tree beside (hybrid)", "yes", "yes", "yes", ranHere + "; by systemd's driver " + ranGuest},
		rowV2:        {"cgroup v2", "yes", "yes", "yes", ranGuest + "; beside " + ranH100},
		rowV1:        {"cgroups v1 alone", "yes; no pressure (PSI) of containers", "yes", "yes; neighbours and memory are watched less closely", ranGuest},
		rowRootless:  {"rootless Docker (docker.host names its socket)", "its containers run in cgroups of their user", "yes, by cgroup", "only by Docker's own API, and only what is delegated to the user", ranNever},
		rowARM:       {"arm64", "yes", "yes", "yes", ranBuilt},
		rowNoBTF:     {"a kernel without BTF or before 5.15", "devices and cgroups; no waits, no launches", "yes", "no", ranNever},
	}
}

// String is the row as doctor prints it.
func (r supportRow) String() string {
	return fmt.Sprintf("%s; seen: %s; attributed: %s; tuned: %s (has run: %s)", r.situation, r.seen, r.attributed, r.tuned, r.ran)
}
