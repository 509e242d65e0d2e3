package kernel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
)

// storageBytes is a thread's share of kernel memory: its counters and the
// storage element around them.
const storageBytes = uint64(unsafe.Sizeof(countersThread{})) + 128

// bpfStatsRunTime is BPF_STATS_RUN_TIME of enum bpf_stats_type.
const bpfStatsRunTime = 0

// ProgramStats is what one program cost in a turn of accounting.
type ProgramStats struct {
	Name  string
	RunNs uint64
	Runs  uint64
}

// Stats switches the kernel's accounting of BPF run time on for d, or until ctx
// ends, and returns what each program ran, sorted by name. Accounting itself
// slows every program of the host, so turns are short and rare.
func (p *Probe) Stats(ctx context.Context, d time.Duration) ([]ProgramStats, error) {
	on, err := ebpf.EnableStats(bpfStatsRunTime)
	if err != nil {
		return nil, fmt.Errorf("kernel probe: switch BPF accounting on: %w; needs Linux 5.8 and CAP_SYS_ADMIN", err)
	}
	defer on.Close()
	before := p.runTimes()
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	stats := make([]ProgramStats, 0, len(before))
	for name, now := range p.runTimes() {
		s := ProgramStats{Name: name, RunNs: now.RunNs - before[name].RunNs, Runs: now.Runs - before[name].Runs}
		p.spent.KernelNs += s.RunNs
		p.spent.Runs += s.Runs
		stats = append(stats, s)
	}
	slices.SortFunc(stats, func(a, b ProgramStats) int { return strings.Compare(a.Name, b.Name) })
	return stats, nil
}

func (p *Probe) runTimes() map[string]ProgramStats {
	out := make(map[string]ProgramStats, len(p.loaded.coll.Programs))
	for name, prog := range p.loaded.coll.Programs {
		if s, err := prog.Stats(); err == nil {
			out[name] = ProgramStats{Name: name, RunNs: uint64(s.Runtime), Runs: s.RunCount}
		}
	}
	return out
}

// Cost returns what the probe has spent: run time from turns of Stats, memory
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
	var total uint64
	for _, m := range p.loaded.coll.Maps {
		if info, err := m.Info(); err == nil {
			if bytes, ok := info.Memlock(); ok {
				total += bytes
			}
		}
	}
	var threads uint64
	if p.loaded.coll.Variables["num_threads"].Get(&threads) == nil {
		total += threads * storageBytes
	}
	return total
}
