package containerd

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/runtime"
)

// LinuxResources expresses a complete set of values as one OCI update. What is
// nil or absent stays unchanged in the kernel. stands decides only whether a
// lower memory limit needs its check.
//
// On v2, knobs that OCI has no exact field for are Unified keys: weights, because
// runtimes convert shares in different ways, and swap.max, because OCI's field
// counts memory and swap together and has no value for "some swap, any memory".
// Quota and memory limit stay in their fields: they are written first, as burst
// needs, and only the field is checked against usage.
func LinuxResources(cg runtime.Cgroup, stands, all runtime.Values) *specs.LinuxResources {
	r := &specs.LinuxResources{CPU: cpuResources(all)}
	if limit, ok := bytesOf(all, runtime.KnobMemoryLimit); ok {
		r.Memory = &specs.LinuxMemory{Limit: &limit}
		if all[runtime.KnobMemoryLimit].Below(stands[runtime.KnobMemoryLimit]) {
			r.Memory.CheckBeforeUpdate = new(true)
		}
	}
	if cg.Mode == runtime.CgroupV2 {
		if r.Memory != nil {
			r.Memory.Swap = new(together(*r.Memory.Limit, all))
		}
		r.Unified = unified(all)
		return r
	}
	if shares, ok := all[runtime.KnobCPUWeight].Int(); ok {
		r.CPU.Shares = new(uint64(shares))
	}
	if swap, ok := bytesOf(all, runtime.KnobMemorySwap); ok && r.Memory != nil {
		r.Memory.Swap = &swap
	}
	if weight, ok := all[runtime.KnobIOWeight].Int(); ok {
		r.BlockIO = &specs.LinuxBlockIO{Weight: new(uint16(weight))}
	}
	return r
}

// together is OCI's swap field, memory and swap in one: runc keeps the owner's sum from
// when the container was made, and since 1.2 refuses a limit above it. What Unified says
// of swap is written after it.
func together(limit int64, all runtime.Values) int64 {
	swap, ok := bytesOf(all, runtime.KnobMemorySwap)
	if limit < 0 || !ok || swap < 0 {
		return -1
	}
	return limit + swap
}

// cpuResources has the fields that v1 and v2 share; quota and period as a pair.
func cpuResources(all runtime.Values) *specs.LinuxCPU {
	cpu := &specs.LinuxCPU{Cpus: string(all[runtime.KnobCpuset])}
	if quotaUs, periodUs, err := runtime.ParseQuota(all[runtime.KnobCPUQuota]); err == nil {
		cpu.Quota, cpu.Period = &quotaUs, new(uint64(periodUs))
	}
	return cpu
}

func unified(all runtime.Values) map[string]string {
	out := make(map[string]string)
	for knob, key := range map[runtime.Knob]string{
		runtime.KnobCPUWeight:  "cpu.weight",
		runtime.KnobCPUBurst:   "cpu.max.burst",
		runtime.KnobMemorySwap: "memory.swap.max",
		runtime.KnobMemoryHigh: "memory.high",
		runtime.KnobMemoryLow:  "memory.low",
		runtime.KnobIOWeight:   "io.weight",
	} {
		if value, ok := all[knob]; ok {
			out[key] = string(value)
		}
	}
	return out
}

// bytesOf reads a memory value; "max" is OCI's -1.
func bytesOf(all runtime.Values, knob runtime.Knob) (n int64, ok bool) {
	if all[knob] == runtime.ValueMax {
		return -1, true
	}
	return all[knob].Int()
}
