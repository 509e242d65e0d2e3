package kernel

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/bpf"
)

// Turns of the kernel's accounting: it slows every program of the host, so it is
// on from one reading to the next, once in a while.
const turnEvery = time.Minute

// unmeasuredSwitchNs is what a switch of a watched thread costs where the kernel
// lets nobody account (BPF_ENABLE_STATS wants CAP_SYS_ADMIN): `make bench`'s goal
// for it, above what was measured (171 ns on a paravirtual machine).
const unmeasuredSwitchNs = 200

// unwatchedSwitchNs is what a switch of a thread that nobody watches costs, with its
// wake-up: docs/cost.md's table, rounded up. So much of a turn is not the jobs'.
const unwatchedSwitchNs = 20

// dearestSwitchNs bounds it: where few switches are watched, what the others cost is not
// known to the hundredth.
const dearestSwitchNs = 5 * unmeasuredSwitchNs

// readProgram walks the threads at a reading, on the daemon's time.
const readProgram = "read_threads"

// fewSwitches of watched threads in a turn tell no price.
const fewSwitches = 100

// spending is what the probe knows of its cost to the watched jobs.
type spending struct {
	switches map[string]uint64 // of watched threads, by container, since Watch
	turn     io.Closer         // accounting is on
	before   map[string]ebpf.ProgramStats
	all      uint64 // watched switches since the start, of containers that ended too
	counted  uint64 // all, when the turn began
	next     time.Time
	hitNs    float64
}

// note counts the switches of one reading.
func (s *spending) note(container string, t probes.Thread, last map[threadName]probes.Thread) {
	n := t.Count[probes.StateRun]
	if before, ok := last[threadName{t.TID, t.StartNs}]; ok {
		n -= min(n, before.Count[probes.StateRun])
	}
	s.switches[container] += n
	s.all += n
}

// account ends a turn of accounting or begins one.
func (p *Probe) account(now time.Time) {
	s := &p.spending
	switch {
	case s.turn != nil:
		p.endTurn()
	case !now.Before(s.next) && len(p.containers) > 0:
		s.next = now.Add(turnEvery)
		on, err := ebpf.EnableStats(bpfStatsRunTime)
		if err != nil {
			return // tried again in a minute; the default stands
		}
		s.turn, s.before, s.counted = on, p.runTimes(), s.all
	}
}

func (p *Probe) endTurn() {
	s := &p.spending
	var total, reading time.Duration // reading: by the daemon itself
	var runs, switches uint64
	for name, now := range p.runTimes() {
		took, n := now.Runtime-s.before[name].Runtime, now.RunCount-s.before[name].RunCount
		total += took
		runs += n
		if strings.Contains(name, "switch") {
			switches += n
		}
		if name == readProgram {
			reading += took
		}
	}
	_ = s.turn.Close() // a descriptor of an anonymous inode: nothing to lose
	s.turn = nil
	p.spent.KernelNs += uint64(total)
	p.spent.Runs += runs
	s.price(float64(total-reading), float64(switches), float64(s.all-s.counted))
}

// price learns from a turn what a watched switch costs, wake-ups included: what all
// programs took in it, less what the switches of others did.
func (s *spending) price(totalNs, switches, watched float64) {
	if watched >= fewSwitches && switches > 0 {
		others := max(0, switches-watched)
		s.hitNs = max(totalNs/switches, min((totalNs-unwatchedSwitchNs*others)/watched, dearestSwitchNs))
	}
}

// HookSwitch is the hook of this probe that costs the watched jobs something.
const HookSwitch = "kernel.switch"

// Spending tells what the switches of each container cost, by the price of the
// latest turn.
func (p *Probe) Spending() []probes.Spend {
	hit := cmp.Or(p.spending.hitNs, unmeasuredSwitchNs)
	out := make([]probes.Spend, 0, len(p.spending.switches))
	for key, n := range p.spending.switches {
		out = append(out, probes.Spend{Container: key, Hook: HookSwitch, Hits: n, HitNs: hit})
	}
	slices.SortFunc(out, func(a, b probes.Spend) int { return strings.Compare(a.Container, b.Container) })
	return out
}

// SetDutyCycle does nothing: a thread whose switches are not all seen has no breakdown.
func (p *Probe) SetDutyCycle(string, string, float64) {}

var _ probes.CostReporter = (*Probe)(nil)

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
