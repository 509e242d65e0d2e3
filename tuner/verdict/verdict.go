// Package verdict says what bounds a container, from one window's reading. Pure.
// It never acts and never guesses: where the evidence is thin the class is unknown.
package verdict

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe"
)

// pageBytes is the unit of refault counters.
const pageBytes = 4096

// Judge gives a window's verdict.
func Judge(k *policies.Constants, r observe.Reading) policies.Verdict {
	w := r.Window
	if !w.HasKernel {
		return unknown("the kernel probe reads nothing of this container")
	}
	if v, ok := memory(k, r); ok {
		return finish(k, r, v)
	}
	b := r.Breakdown
	reads := b.Share(policies.PartInputStorage) >= k.Dominant // a slow disk leaves nothing to compute
	starved := b.Share(policies.PartThrottled)+b.Share(policies.PartContended) >= k.Dominant
	if !starved && (r.Ranks == 0 || w.UsedCPUs() < k.ActiveCPUs && r.Rate.Ticks < k.MinTicks && !reads) {
		return finish(k, r, policies.Verdict{Class: policies.ClassIdle, Why: "nothing in it runs", Relief: "none"})
	}
	if interactive(k, r) {
		return finish(k, r, policies.Verdict{Class: policies.ClassInteractive, Why: "it waits for people or requests, and works in bursts", Relief: "none"})
	}
	for _, judge := range order(k, r) {
		if v, ok := judge(k, r); ok {
			return finish(k, r, v)
		}
	}
	if r.Aggregated {
		return finish(k, r, unknown(fmt.Sprintf("its steps are not seen; it computes %.0f %% of its time, and no cause takes 5 %%", 100*r.Breakdown.Share(policies.PartCompute))))
	}
	return finish(k, r, policies.Verdict{Class: policies.ClassBalanced, Why: "no cause takes 5 % of its time", Relief: "none"})
}

// order is the order in which causes are looked for: the larger of input and
// communication first; who is short of CPU for more of its time keeps its peers waiting by that.
func order(k *policies.Constants, r observe.Reading) []func(*policies.Constants, observe.Reading) (policies.Verdict, bool) {
	b := r.Breakdown
	communicates := exposed(k, r)
	if b.Share(policies.PartThrottled)+b.Share(policies.PartContended) > communicates {
		return []func(*policies.Constants, observe.Reading) (policies.Verdict, bool){starved, full, host, communication, device}
	}
	if communicates > b.Input() {
		return []func(*policies.Constants, observe.Reading) (policies.Verdict, bool){communication, starved, full, host, device}
	}
	return []func(*policies.Constants, observe.Reading) (policies.Verdict, bool){starved, communication, full, host, device}
}

func unknown(why string) policies.Verdict {
	return policies.Verdict{Class: policies.ClassUnknown, Why: why, Relief: "none"}
}

// memory finds reclaim stalls and growth that is about to meet the limit.
func memory(k *policies.Constants, r observe.Reading) (policies.Verdict, bool) {
	w, g := r.Window, r.Window.Cgroup
	if !w.HasCgroup || g.MemoryLimit <= 0 {
		return policies.Verdict{}, false
	}
	if v, ok := AtRisk(k, float64(g.MemoryLimit), float64(g.Anon+g.Shmem), float64(g.AnonGrowth)/max(w.Seconds(), 1e-3)); ok {
		return v, true
	}
	stall := r.Breakdown.Share(policies.PartReclaim)
	if g.HasPSI {
		stall = max(stall, g.MemoryFull, g.MemorySome/2) // some of the threads: half counts
	}
	refilling := float64(g.RefaultFile)*pageBytes > k.RereadShare*float64(w.Block.ReadBytes) && r.Breakdown.Share(policies.PartInputStorage) >= k.Notable
	if mapped := r.Breakdown.Share(policies.PartInputStorage); refilling && float64(g.MajorFaults) >= k.Dominant*float64(g.RefaultFile) {
		return policies.Verdict{Class: policies.ClassMemory, Cause: policies.CauseReclaim, Severity: stall + mapped,
			Relief: "a higher memory limit", Why: fmt.Sprintf("it spends %.0f %% of its time getting back mapped pages that its memory limit evicted", 100*(stall+mapped))}, true
	}
	if stall >= k.Notable && !refilling {
		return policies.Verdict{Class: policies.ClassMemory, Cause: policies.CauseReclaim, Severity: stall,
			Relief: "a higher memory limit", Why: fmt.Sprintf("%.0f %% of its time goes to reclaiming memory at its limit", 100*stall)}, true
	}
	return policies.Verdict{}, false
}

// AtRisk finds growth that is about to meet the limit, from bytes held and bytes a second.
func AtRisk(k *policies.Constants, limit, held, growth float64) (policies.Verdict, bool) {
	room := limit - held
	if growth <= 0 || room >= growth*k.RiskSeconds || room >= k.RiskRoom*limit {
		return policies.Verdict{}, false
	}
	return policies.Verdict{Class: policies.ClassMemory, Cause: policies.CauseRisk, Severity: 1 - max(0, room)/limit,
		Relief: "a higher memory limit, before it is reached",
		Why:    fmt.Sprintf("at %.0f MiB/s it reaches its memory limit in %.0f s", growth/(1<<20), max(0, room)/growth)}, true
}

// interactive: no periodic work, the trainer mostly waits for what comes from
// outside the container.
func interactive(k *policies.Constants, r observe.Reading) bool {
	return r.Network >= 0.5 && r.Loaders == 0 && r.Rate.Ticks < k.MinTicks && r.Window.UsedCPUs() < 0.5
}

// starved finds what keeps data from the trainer.
func starved(k *policies.Constants, r observe.Reading) (policies.Verdict, bool) {
	b := r.Breakdown
	if v, ok := short(k, r); ok {
		return v, true
	}
	input := b.Input()
	if input < k.Notable {
		return policies.Verdict{}, false
	}
	storage, remote := b.Share(policies.PartInputStorage), b.Share(policies.PartInputRemote)
	workers, other := b.Share(policies.PartInputWorkers), b.Share(policies.PartInputOther)
	switch {
	case storage >= max(remote, workers, other) && storage >= k.Notable/2:
		return storageVerdict(k, r, input), true
	case remote > 0 && remote >= max(workers, other):
		return policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseRemote, Severity: input,
			Relief: "a local copy of the data, or more loaders in flight", Why: fmt.Sprintf("it waits %.0f %% of its time for loaders that read over the network", 100*input)}, true
	}
	if r.LoaderNs > 0 && float64(r.Loaders)*loadersBusy(r) < workers/2 {
		return policies.Verdict{}, false // while it waits for loaders, one of them works: it waits for something else
	}
	return policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseWorkers, Severity: input, Relief: workersRelief(r),
		Why: fmt.Sprintf("it waits %.0f %% of its time for %s", 100*input, loadersWords(k, r))}, true
}

// loadersWords tells of the loaders what the evidence tells: "loaders busy".
func loadersWords(k *policies.Constants, r observe.Reading) string {
	switch busy := loadersBusy(r); {
	case r.Loaders == 0:
		return "data"
	case busy >= k.Full:
		return "loaders that are busy all along"
	default:
		return fmt.Sprintf("loaders that are busy %.0f %% of the window", 100*busy)
	}
}

// loadersBusy is the share of the window in which a loader works or wants to, at most 1. A loader
// process has more threads than the one that loads, and those only hand over: its threads' time
// counts together, not on average.
func loadersBusy(r observe.Reading) float64 {
	return min(1, r.LoaderBusy*r.LoaderNs/max(1, float64(r.Loaders)*float64(r.Window.EndNs-r.Window.StartNs)))
}

// short finds a rank whose loaders are short of CPU. One quota pays for trainer
// and loaders alike: the loaders that run out of it take the trainer's part, so
// what the trainer itself loses to the same cause counts too. Without loaders
// the trainer alone is short, which is compute's cause host.
func short(k *policies.Constants, r observe.Reading) (policies.Verdict, bool) {
	b := r.Breakdown
	throttled := b.Share(policies.PartInputThrottled) + b.Share(policies.PartThrottled)
	contended := b.Share(policies.PartInputContended) + b.Share(policies.PartContended)
	if r.Loaders == 0 || r.LoaderShort < k.LoaderShort || throttled+contended < k.Notable {
		return policies.Verdict{}, false
	}
	if b.Input() < k.Notable && r.LoaderCPUNs() <= float64(r.Trainer.Ns[probes.StateRun]) {
		return policies.Verdict{}, false // data is there, and most of what it wants is the trainer's own
	}
	io := b.Share(policies.PartInputStorage) + b.Share(policies.PartInputRemote)
	v := policies.Verdict{Class: policies.ClassInput, Severity: throttled + contended + b.Share(policies.PartInputWorkers)}
	switch {
	case throttled >= k.Notable && quotaBinds(k, r) && throttled+contended > io:
		v.Cause, v.Relief = policies.CauseThrottled, policies.ReliefQuota
		v.Why = fmt.Sprintf("its loaders and trainer are out of CPU quota: it loses %.0f %% of its time", 100*(throttled+contended))
	case contended >= k.Notable && contended > io && contended >= throttled && othersUse(r) > 0.1:
		v.Cause, v.Relief = policies.CauseContended, policies.ReliefWeight
		v.Why = fmt.Sprintf("its loaders and trainer queue behind other work for a CPU: it loses %.0f %% of its time", 100*contended)
	default:
		return policies.Verdict{}, false
	}
	if near(k, throttled, contended) {
		v.Why = fmt.Sprintf("its loaders and trainer are out of CPU quota, and queue behind other work for a CPU: it loses %.0f and %.0f %% of its time", 100*throttled, 100*contended)
	}
	return v, true
}

// near reports whether two shares count, and differ by less than what counts: which is the larger
// may be another in the next window, so both are told.
func near(k *policies.Constants, a, b float64) bool {
	return min(a, b) >= k.Notable && max(a, b)-min(a, b) < k.Notable
}

// quotaBinds reports whether the container spends what its quota grants; where
// the quota cannot be read, throttled threads tell alone.
func quotaBinds(k *policies.Constants, r observe.Reading) bool {
	w := r.Window
	return !w.HasCgroup || w.Cgroup.QuotaCPUs == 0 || w.UsedCPUs() >= k.Full*w.Cgroup.QuotaCPUs
}

// storageVerdict tells a first touch from pages that the memory limit evicted.
func storageVerdict(k *policies.Constants, r observe.Reading, input float64) policies.Verdict {
	w := r.Window
	if refault := float64(w.Cgroup.RefaultFile) * pageBytes; w.HasCgroup && w.Cgroup.MemoryLimit > 0 &&
		refault >= k.RereadShare*float64(max(1, w.Block.ReadBytes)) && w.Cgroup.RefaultFile > 0 {
		return policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseCache, Severity: input,
			Relief: "a higher memory limit: its data set would stay cached", Why: fmt.Sprintf("it waits %.0f %% of its time for pages that its memory limit evicted", 100*input)}
	}
	return policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseStorage, Severity: input,
		Relief: "I/O weight, or faster storage", Why: fmt.Sprintf("it waits %.0f %% of its time for the disk", 100*input)}
}

// othersUse is the CPUs that others use: how much contention there can be.
func othersUse(r observe.Reading) float64 {
	w := r.Window
	return float64(w.HostCPUs)*(1-w.StealShare) - w.HostIdle - w.UsedCPUs()
}

// host finds a trainer that is bound by its own CPU work.
func host(k *policies.Constants, r observe.Reading) (policies.Verdict, bool) {
	b := r.Breakdown
	throttled, contended := b.Share(policies.PartThrottled), b.Share(policies.PartContended)
	lost := throttled + contended
	cpu := b.Share(policies.PartCompute) + lost
	most := k.Dominant
	if r.Aggregated { // what it does otherwise is not known
		most = k.Full
	}
	if cpu < most && lost < k.Notable {
		return policies.Verdict{}, false
	}
	v := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseHost, Severity: cpu}
	switch {
	case throttled >= k.Notable && (throttled >= contended || quotaBinds(k, r)): // else a higher quota would go unspent
		v.Severity, v.Relief = throttled, policies.ReliefQuota
		v.Why = fmt.Sprintf("the trainer itself is out of CPU quota %.0f %% of its time", 100*throttled)
	case contended >= k.Notable:
		v.Severity, v.Relief = contended, policies.ReliefWeight
		v.Why = fmt.Sprintf("the trainer itself queues for a CPU %.0f %% of its time", 100*contended)
	default:
		v.Relief = "faster cores, or less work for the trainer on the CPU"
		v.Why = fmt.Sprintf("the trainer computes on the CPU %.0f %% of its time", 100*b.Share(policies.PartCompute))
		if why := launching(k, r); why != "" {
			v.Relief, v.Why = ReliefLaunches, why
		}
	}
	if near(k, throttled, contended) {
		v.Why = fmt.Sprintf("the trainer itself is out of CPU quota, and queues for a CPU: %.0f and %.0f %% of its time", 100*throttled, 100*contended)
	}
	return v, true
}

// Owned is a verdict in the light of what its owner's values give the container: who queues behind
// others and has its right, CPUs, in full is relieved by no weight. 0: the right is not known.
func Owned(k *policies.Constants, v policies.Verdict, r observe.Reading, right float64) policies.Verdict {
	if v.Relief != policies.ReliefWeight || !k.InFull(r.Window.UsedCPUs(), right) {
		return v
	}
	v.Relief = policies.ReliefGrant
	v.Evidence = append(v.Evidence, policies.Evidence{Name: "CPUs it has a right to", Value: right, Unit: "CPUs"})
	return v
}

// WhyNothing says why nothing is proposed for a container of such a verdict.
func WhyNothing(v policies.Verdict) string {
	switch v.Relief {
	case policies.ReliefGrant:
		return "it has all the CPU that is its own, and more is others'"
	case policies.ReliefWeight: // its owner may not allow it, and the host's own processes do not heed it
		return "it queues behind other work for a CPU, and nothing that it may be given is sure to help"
	}
	return "nothing to gain"
}

// finish adds evidence and confidence; one that is given lowers it.
func finish(k *policies.Constants, r observe.Reading, v policies.Verdict) policies.Verdict {
	v.Confidence = cmp.Or(v.Confidence, 1) * confidence(k, r)
	add := func(name string, value float64, unit string) {
		v.Evidence = append(v.Evidence, policies.Evidence{Name: name, Value: value, Unit: unit})
	}
	w := r.Window
	add("window", w.Seconds(), "s")
	add("ticks", r.Rate.Ticks, r.Rate.Source)
	add(InputWait, r.Breakdown.Input(), "share")
	add("CPUs used", w.UsedCPUs(), "CPUs")
	if w.HasCgroup && w.Cgroup.QuotaCPUs > 0 {
		add("quota", w.Cgroup.QuotaCPUs, "CPUs")
		add("throttled periods", w.Cgroup.ThrottledShare, "share")
	}
	if r.Loaders > 0 {
		add("loaders", float64(r.Loaders), "")
		add("loaders busy", loadersBusy(r), "share")
		add("loaders running while busy", r.LoaderRun, "share")
	}
	if w.Block.ReadBytes > 0 {
		add("read from disk", float64(w.Block.ReadBytes), "B")
	}
	if w.HasCgroup && w.Cgroup.RefaultFile > 0 {
		add("pages read again", float64(w.Cgroup.RefaultFile), "pages")
	}
	if r.CostOK {
		knee := Cost(k, r).Knee()
		if w.HostCPUs > 0 {
			knee = min(knee, float64(w.HostCPUs))
		}
		add(Knee, knee, "CPUs")
	}
	v.Evidence = append(v.Evidence, wider(r)...)
	if w.StealShare > 0.001 {
		add(Stolen, w.StealShare, "share")
	}
	return v
}

// InputWait names the evidence of the time in which the trainer waits for data.
const InputWait = "input wait"

// Knee names the evidence of the CPUs beyond which more add no speed, made of means.
const Knee = "knee"

// WithoutKnee is a verdict on a job of which means tell no knee.
func WithoutKnee(v policies.Verdict) policies.Verdict {
	v.Evidence = slices.DeleteFunc(slices.Clone(v.Evidence), func(e policies.Evidence) bool { return e.Name == Knee })
	return v
}

// Doubted is a verdict on a job. Where its own count of its steps contradicts the work that it does, what
// rests on that count is no measurement: the verdict is half as sure. Chosen, not measured.
func Doubted(v policies.Verdict, doubt bool) policies.Verdict {
	if doubt {
		v.Confidence /= 2
	}
	return v
}

// Stolen names the evidence of what the hypervisor took of the machine's CPU time.
const Stolen = "CPU stolen from the machine"

// confidence falls with thin evidence, excess steal or incomplete evidence.
func confidence(k *policies.Constants, r observe.Reading) float64 {
	w, c := r.Window, 1.0
	if r.Rate.Ticks < 2*k.MinTicks {
		c *= 0.8
	}
	if r.Aggregated {
		c *= 0.8
	}
	if w.Seeding {
		c *= 0.9
	}
	if w.StealShare > k.MaxSteal {
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

// trusted is what is left of the confidence in a late rank: one that is not seen may be later.
func trusted(l *policies.Late) float64 {
	if l.Partly {
		return 0.6
	}
	return 1
}

// Unsteady says why a window is no evidence for a plan; "" if it is. stolen is the share of the
// machine's CPU time that its hypervisor usually takes.
func Unsteady(k *policies.Constants, r observe.Reading, stolen float64) string {
	w := r.Window
	switch {
	case w == nil || !w.HasKernel || !r.CostOK:
		return "measuring: what it does with its time is not known"
	case w.StealShare > stolen+k.MaxSteal:
		return fmt.Sprintf("the hypervisor took %.0f %% of the machine's CPU time", 100*w.StealShare)
	}
	return ""
}
