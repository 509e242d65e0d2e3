// Package verdict says what bounds a container, from one window's reading. Pure.
// It never acts and never guesses: where the evidence is thin the class is unknown.
package verdict

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/window"
)

// Thresholds decide the classes. Shares are of wall time, 0..1.
type Thresholds struct {
	Input         float64 // input wait that counts: 0.05 (TF profiler, PyTorch profiler plugin)
	Severe        float64 // 0.20 (TF profiler)
	Communication float64 // exposed collectives: 0.10 (PyTorch profiler plugin)
	Host          float64 // trainer computing or wanting to, of its wall: 0.50 (SageMaker's CPU rule, by half of the samples)
	Reclaim       float64 // reclaim and memory stall: 0.05, as for input
	Cache         float64 // re-read pages over pages read from disk: 0.3; below it reads are first touches
	QuotaBinds    float64 // CPU used over the quota: 0.9 (SageMaker's rule: CPU at 90 % of its own allowance)
	LoaderShort   float64 // loaders runnable and not running, of their busy time: 0.15; below it they are merely busy
	IdleCPUs      float64 // below it, without ticks, nothing runs: 0.02
	RiskSeconds   float64 // memory growth that reaches the limit so soon: 30
	RiskRoom      float64 // and no more of the limit left than this: 0.75; a job that has just begun is still loading
	Faults        float64 // major faults over pages read again: 0.5; above it what is evicted is the job's own memory, not its data
	Steal         float64 // robbed windows are no evidence: 0.02 (DESIGN.md) beyond what is usual (tuner/core)
	MinTicks      float64 // 5 steps (DESIGN.md)
	Device        float64 // waiting for the device, of the trainer's wall: 0.50, as Host
	Busy          float64 // duty of a device that has no room: 0.90 (MLPerf Storage's health target)
	Clock         float64 // clock over its maximum, below which power or heat costs speed: 0.90
	Others        float64 // of a device's SMs, used by others: 0.10
	Wire          float64 // use of the link while a rank waits for peers: 0.6; below it a peer is late
	Retransmits   float64 // of segments: 0.02; an ordinary network loses fewer
}

// Defaults are the thresholds to start from, each with its source above.
func Defaults() Thresholds {
	return Thresholds{Input: 0.05, Severe: 0.20, Communication: 0.10, Host: 0.50, Reclaim: 0.05, Cache: 0.3, QuotaBinds: 0.9, LoaderShort: 0.15,
		IdleCPUs: 0.02, RiskSeconds: 30, RiskRoom: 0.75, Faults: 0.5, Steal: 0.02, MinTicks: 5, Device: 0.50, Busy: 0.90, Clock: 0.90, Others: 0.10, Wire: 0.6, Retransmits: 0.02}
}

// pageBytes is the unit of refault counters.
const pageBytes = 4096

// Judge gives a window's verdict.
func Judge(th Thresholds, r window.Reading) policies.Verdict {
	w := r.Window
	if !w.HasKernel {
		return unknown("the kernel probe reads nothing of this container")
	}
	if v, ok := memory(th, r); ok {
		return finish(th, r, v)
	}
	if r.Ranks == 0 || w.UsedCPUs() < th.IdleCPUs && r.Rate.Ticks < th.MinTicks {
		return finish(th, r, policies.Verdict{Class: policies.ClassIdle, Why: "nothing in it runs", Relief: "none"})
	}
	if interactive(th, r) {
		return finish(th, r, policies.Verdict{Class: policies.ClassInteractive, Why: "it waits for people or requests, and works in bursts", Relief: "none"})
	}
	if r.Rate.Ticks < th.MinTicks-1 {
		return unknown(fmt.Sprintf("only %.0f ticks of its steps were seen, %.0f are needed", r.Rate.Ticks, th.MinTicks))
	}
	for _, judge := range order(r) {
		if v, ok := judge(th, r); ok {
			return finish(th, r, v)
		}
	}
	return finish(th, r, policies.Verdict{Class: policies.ClassBalanced, Why: "no cause takes 5 % of its time", Relief: "none"})
}

// order is the order in which causes are looked for: the larger of input and
// communication first.
func order(r window.Reading) []func(Thresholds, window.Reading) (policies.Verdict, bool) {
	if r.Breakdown.Share(policies.PartCommunication) > r.Breakdown.Input() {
		return []func(Thresholds, window.Reading) (policies.Verdict, bool){communication, starved, full, host, device}
	}
	return []func(Thresholds, window.Reading) (policies.Verdict, bool){starved, communication, full, host, device}
}

func unknown(why string) policies.Verdict {
	return policies.Verdict{Class: policies.ClassUnknown, Why: why, Relief: "none"}
}

// memory finds reclaim stalls and growth that is about to meet the limit.
func memory(th Thresholds, r window.Reading) (policies.Verdict, bool) {
	w, g := r.Window, r.Window.Cgroup
	if !w.HasCgroup || g.MemoryLimit <= 0 {
		return policies.Verdict{}, false
	}
	if v, ok := AtRisk(th, float64(g.MemoryLimit), float64(g.Anon+g.Shmem), float64(g.AnonGrowth)/max(w.Seconds(), 1e-3)); ok {
		return v, true
	}
	stall := r.Breakdown.Share(policies.PartReclaim)
	if g.HasPSI {
		stall = max(stall, g.MemoryFull, g.MemorySome/2) // some of the threads: half counts
	}
	refilling := float64(g.RefaultFile)*pageBytes > th.Cache*float64(w.Block.ReadBytes) && r.Breakdown.Share(policies.PartInputStorage) >= th.Input
	if mapped := r.Breakdown.Share(policies.PartInputStorage); refilling && float64(g.MajorFaults) >= th.Faults*float64(g.RefaultFile) {
		return policies.Verdict{Class: policies.ClassMemory, Cause: policies.CauseReclaim, Severity: stall + mapped,
			Relief: "a higher memory limit", Why: fmt.Sprintf("it spends %.0f %% of its time getting back mapped pages that its memory limit evicted", 100*(stall+mapped))}, true
	}
	if stall >= th.Reclaim && !refilling {
		return policies.Verdict{Class: policies.ClassMemory, Cause: policies.CauseReclaim, Severity: stall,
			Relief: "a higher memory limit", Why: fmt.Sprintf("%.0f %% of its time goes to reclaiming memory at its limit", 100*stall)}, true
	}
	return policies.Verdict{}, false
}

// AtRisk finds growth that is about to meet the limit, from bytes held and bytes a second.
func AtRisk(th Thresholds, limit, held, growth float64) (policies.Verdict, bool) {
	room := limit - held
	if growth <= 0 || room >= growth*th.RiskSeconds || room >= th.RiskRoom*limit {
		return policies.Verdict{}, false
	}
	return policies.Verdict{Class: policies.ClassMemory, Cause: policies.CauseRisk, Severity: 1 - max(0, room)/limit,
		Relief: "a higher memory limit, before it is reached",
		Why:    fmt.Sprintf("at %.0f MiB/s it reaches its memory limit in %.0f s", growth/(1<<20), max(0, room)/growth)}, true
}

// interactive: no periodic work, the trainer mostly waits for what comes from
// outside the container.
func interactive(th Thresholds, r window.Reading) bool {
	return r.Network >= 0.5 && r.Loaders == 0 && r.Rate.Ticks < th.MinTicks && r.Window.UsedCPUs() < 0.5
}

// starved finds what keeps data from the trainer.
func starved(th Thresholds, r window.Reading) (policies.Verdict, bool) {
	b := r.Breakdown
	if v, ok := short(th, r); ok {
		return v, true
	}
	input := b.Input()
	if input < th.Input {
		return policies.Verdict{}, false
	}
	storage, remote := b.Share(policies.PartInputStorage), b.Share(policies.PartInputRemote)
	workers, other := b.Share(policies.PartInputWorkers), b.Share(policies.PartInputOther)
	switch {
	case storage >= max(remote, workers, other) && storage >= th.Input/2:
		return storageVerdict(th, r, input), true
	case remote >= max(workers, other):
		return policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseRemote, Severity: input,
			Relief: "a local copy of the data, or more loaders in flight", Why: fmt.Sprintf("it waits %.0f %% of its time for loaders that read over the network", 100*input)}, true
	}
	return policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseWorkers, Severity: input, Relief: workersRelief(r),
		Why: fmt.Sprintf("it waits %.0f %% of its time for loaders that are busy all along", 100*input)}, true
}

// short finds a rank whose loaders are short of CPU. One quota pays for trainer
// and loaders alike: the loaders that run out of it take the trainer's part, so
// what the trainer itself loses to the same cause counts too. Without loaders
// the trainer alone is short, which is compute's cause host.
func short(th Thresholds, r window.Reading) (policies.Verdict, bool) {
	b := r.Breakdown
	throttled := b.Share(policies.PartInputThrottled) + b.Share(policies.PartThrottled)
	contended := b.Share(policies.PartInputContended) + b.Share(policies.PartContended)
	if r.Loaders == 0 || r.LoaderShort < th.LoaderShort || throttled+contended < th.Input {
		return policies.Verdict{}, false
	}
	if b.Input() < th.Input && r.LoaderCPUNs() <= float64(r.Trainer.Ns[probes.StateRun]) {
		return policies.Verdict{}, false // data is there, and most of what it wants is the trainer's own
	}
	io := b.Share(policies.PartInputStorage) + b.Share(policies.PartInputRemote)
	v := policies.Verdict{Class: policies.ClassInput, Severity: throttled + contended + b.Share(policies.PartInputWorkers)}
	switch {
	case throttled >= th.Input && quotaBinds(th, r) && throttled+contended > io:
		v.Cause, v.Relief = policies.CauseThrottled, policies.ReliefQuota
		v.Why = fmt.Sprintf("its loaders and trainer are out of CPU quota: it loses %.0f %% of its time", 100*(throttled+contended))
	case contended >= th.Input && contended > io && contended >= throttled && othersUse(r) > 0.1:
		v.Cause, v.Relief = policies.CauseContended, policies.ReliefWeight
		v.Why = fmt.Sprintf("its loaders and trainer queue behind other work for a CPU: it loses %.0f %% of its time", 100*contended)
	default:
		return policies.Verdict{}, false
	}
	return v, true
}

// quotaBinds reports whether the container spends what its quota grants; where
// the quota cannot be read, throttled threads tell alone.
func quotaBinds(th Thresholds, r window.Reading) bool {
	w := r.Window
	return !w.HasCgroup || w.Cgroup.QuotaCPUs == 0 || w.UsedCPUs() >= th.QuotaBinds*w.Cgroup.QuotaCPUs
}

// storageVerdict tells a first touch from pages that the memory limit evicted.
func storageVerdict(th Thresholds, r window.Reading, input float64) policies.Verdict {
	w := r.Window
	if refault := float64(w.Cgroup.RefaultFile) * pageBytes; w.HasCgroup && w.Cgroup.MemoryLimit > 0 &&
		refault >= th.Cache*float64(max(1, w.Block.ReadBytes)) && w.Cgroup.RefaultFile > 0 {
		return policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseCache, Severity: input,
			Relief: "a higher memory limit: its data set would stay cached", Why: fmt.Sprintf("it waits %.0f %% of its time for pages that its memory limit evicted", 100*input)}
	}
	return policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseStorage, Severity: input,
		Relief: "I/O weight, or faster storage", Why: fmt.Sprintf("it waits %.0f %% of its time for the disk", 100*input)}
}

// othersUse is the CPUs that others use: how much contention there can be.
func othersUse(r window.Reading) float64 {
	w := r.Window
	return float64(w.HostCPUs) - w.HostIdle - w.UsedCPUs()
}

// workersRelief says how many loader workers would do: enough that w/W meets C_t+D.
func workersRelief(r window.Reading) string {
	base := r.Cost.TrainerCPU + r.Cost.Device
	if !r.CostOK || base <= 0 || r.Cost.Batch <= 0 {
		return "more loader workers"
	}
	n := int(r.Cost.Batch/base) + 1
	if n <= r.Loaders {
		return "more loader workers, or cheaper decoding"
	}
	return fmt.Sprintf("%d loader workers would do (it has %d)", n, r.Loaders)
}

// host finds a trainer that is bound by its own CPU work.
func host(th Thresholds, r window.Reading) (policies.Verdict, bool) {
	b := r.Breakdown
	throttled, contended := b.Share(policies.PartThrottled), b.Share(policies.PartContended)
	lost := throttled + contended
	cpu := b.Share(policies.PartCompute) + lost
	if cpu < th.Host && lost < th.Input {
		return policies.Verdict{}, false
	}
	v := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Severity: cpu}
	switch {
	case throttled >= th.Input:
		v.Severity, v.Relief = throttled, policies.ReliefQuota
		v.Why = fmt.Sprintf("the trainer itself is out of CPU quota %.0f %% of its time", 100*throttled)
	case contended >= th.Input:
		v.Severity, v.Relief = contended, policies.ReliefWeight
		v.Why = fmt.Sprintf("the trainer itself queues for a CPU %.0f %% of its time", 100*contended)
	default:
		v.Relief = "faster cores or less Python: more of them would not help"
		v.Why = fmt.Sprintf("the trainer computes on the CPU %.0f %% of its time", 100*b.Share(policies.PartCompute))
	}
	return v, true
}

// finish adds evidence and confidence.
func finish(th Thresholds, r window.Reading, v policies.Verdict) policies.Verdict {
	v.Confidence = confidence(th, r)
	add := func(name string, value float64, unit string) {
		v.Evidence = append(v.Evidence, policies.Evidence{Name: name, Value: value, Unit: unit})
	}
	w := r.Window
	add("window", w.Seconds(), "s")
	add("ticks", r.Rate.Ticks, r.Rate.Source)
	add("input wait", r.Breakdown.Input(), "share")
	add("CPUs used", w.UsedCPUs(), "CPUs")
	if w.HasCgroup && w.Cgroup.QuotaCPUs > 0 {
		add("quota", w.Cgroup.QuotaCPUs, "CPUs")
		add("throttled periods", w.Cgroup.ThrottledShare, "share")
	}
	if r.Loaders > 0 {
		add("loaders", float64(r.Loaders), "")
		add("loaders busy", r.LoaderBusy, "share")
		add("loaders running while busy", r.LoaderRun, "share")
	}
	if w.Block.ReadBytes > 0 {
		add("read from disk", float64(w.Block.ReadBytes), "B")
	}
	if w.HasCgroup && w.Cgroup.RefaultFile > 0 {
		add("pages read again", float64(w.Cgroup.RefaultFile), "pages")
	}
	if r.CostOK {
		add("knee", r.Cost.Knee(), "CPUs")
	}
	v.Evidence = append(v.Evidence, wider(r)...)
	if w.StealShare > 0.001 {
		add(Stolen, w.StealShare, "share")
	}
	return v
}

// Stolen names the evidence of what the hypervisor took of the machine's CPU time.
const Stolen = "CPU stolen from the machine"

// confidence falls with thin, robbed or incomplete evidence.
func confidence(th Thresholds, r window.Reading) float64 {
	w, c := r.Window, 1.0
	if r.Rate.Ticks < 2*th.MinTicks {
		c *= 0.8
	}
	if w.Seeding {
		c *= 0.9
	}
	if w.StealShare > th.Steal {
		c *= 0.5
	}
	if !w.HasCgroup {
		c *= 0.8
	}
	if w.Lost > 0 {
		c *= 0.7
	}
	if len(w.Unseen) > 0 {
		c *= 0.8
	}
	if other := r.Breakdown.Share(policies.PartOther); other > 0.2 {
		c *= 1 - 0.5*other
	}
	return c
}

// Steady reports whether a window is evidence at all for a plan: enough ticks,
// a machine that was not robbed, nothing lost. No window yet is none.
func Steady(th Thresholds, r window.Reading) bool { return Unsteady(th, r) == "" }

// Unsteady says why a window is no evidence for a plan; "" if it is.
func Unsteady(th Thresholds, r window.Reading) string {
	w := r.Window
	switch {
	case w == nil || !w.HasKernel || !r.CostOK || r.Trainer.Ns[probes.StateRun] == 0:
		return "measuring: what a step costs is not known"
	case w.StealShare > th.Steal:
		return fmt.Sprintf("the hypervisor took %.0f %% of the machine's CPU time", 100*w.StealShare)
	case r.Rate.Ticks < th.MinTicks-1:
		return fmt.Sprintf("measuring: %.0f steps in a window", r.Rate.Ticks)
	}
	return ""
}
