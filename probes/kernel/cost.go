package kernel

import (
	"maps"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/bpf"
)

// storageBytes is a thread's share of kernel memory: its counters and the
// storage element around them.
const storageBytes = uint64(unsafe.Sizeof(countersThread{})) + 128

// bpfStatsRunTime is BPF_STATS_RUN_TIME of enum bpf_stats_type.
const bpfStatsRunTime = 0

// runTimes is what each program cost.
func (p *Probe) runTimes() map[string]ebpf.ProgramStats {
	out := make(map[string]ebpf.ProgramStats, len(p.loaded.coll.Programs))
	for name, prog := range p.loaded.coll.Programs {
		if s, err := prog.Stats(); err == nil {
			out[name] = *s
		}
	}
	return out
}

// Cost returns what the probe has spent: run time from turns of accounting, memory
// and losses as they are now.
func (p *Probe) Cost() probes.Cost {
	cost := p.spent
	cost.MapBytes = p.mapMemory()
	cost.Lost = p.undecoded
	var lost uint64
	if p.loaded.coll.Variables["lost_total"].Get(&lost) == nil {
		cost.Lost += lost
	}
	return cost
}

// mapMemory is the kernel memory held in maps: as the kernel accounts it, and
// for task storage, whose elements it does not account there, by count.
func (p *Probe) mapMemory() uint64 {
	total := bpf.MapBytes(slices.Collect(maps.Values(p.loaded.coll.Maps))...)
	var threads uint64
	if p.loaded.coll.Variables["num_threads"].Get(&threads) == nil {
		total += threads * storageBytes
	}
	return total
}
