package observe

import (
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// Reading is all that a window says.
type Reading struct {
	Window    *Window
	Ranks     int
	Peers     []Peer             // all ranks of the container, by TGID
	Root      int32              // TGID of the slowest one, of which the rest tells
	Breakdown policies.Breakdown // its trainer's wall time
	Rate      policies.Rate
	Tick      string // what the rate counts, before it was divided into steps
	PerStep   int    // ticks per step by the pattern of its calls, for Tick; 0: not told
	Agreement int    // of the rate with other sources: 1 one confirms it, -1 others are there and none does, 0 none is there
	Cost      policies.Cost
	CostOK    bool
	// Aggregated: no steps tell which thread trains, so Breakdown and Cost are of all threads
	// together, and a "tick" of Cost is a second.
	Aggregated bool
	Trainer    Thread  // its trainer thread
	Network    float64 // share of the trainer's wall in waits that no local thread ended
	exposed    float64 // share of its wall that Expose charged
	LoaderUse
	DeviceCalls

	// What the caller knows of other containers: those that launched on the same devices
	// meanwhile, and the rank of the same job that keeps this one waiting, or does by its device.
	SharedWith []string
	Slow       string
	Late       *policies.Late
}

// LoaderUse is what a rank's loaders did, all their threads together.
type LoaderUse struct {
	Loaders    int
	LoaderNs   float64 // their wall time
	LoaderBusy float64 // share of it in which they worked or wanted to
	LoaderRun  float64 // share of that busy time on a CPU
	// LoaderShort is the share of that busy time runnable and not running.
	LoaderShort float64
}

// DeviceCalls is what a rank called of CUDA and NCCL.
type DeviceCalls struct {
	Launches        uint64  // kernels and graphs
	LaunchRate      float64 // of them a second; where kernels were not counted in the window, as many as before
	Collectives     uint64  // NCCL calls
	Exchanges       bool    // it calls collectives, or did before the probe had to leave them out
	CollectiveBytes uint64
	SyncNs          uint64 // the trainer's time in blocking CUDA calls
	spinNs          uint64 // its time on a CPU in them and in MPI's waits
}

// Read says all that a window tells: ranks, roles, rate, breakdown, cost. A
// container's are those of its slowest rank, the one that loses most of its time.
// known holds ticks per step as confirmed earlier; nil: none.
func Read(k *policies.Constants, w *Window, known PerStep) Reading {
	if !w.HasKernel {
		return Reading{Window: w}
	}
	ranks := Ranks(k, w)
	all := make([]Reading, 0, len(ranks))
	for _, r := range ranks {
		all = append(all, readRank(w, r, len(ranks), known))
	}
	exposeWaits(k, w, all)
	best := Reading{Window: w, Ranks: len(ranks)}
	for i, got := range all {
		if i == 0 || got.Breakdown.Stalled() > best.Breakdown.Stalled() {
			best = got
		}
	}
	if !best.Sure() && !best.CostOK {
		best.aggregate()
	}
	for _, got := range all {
		best.Peers = append(best.Peers, Peer{Root: got.Root, Own: got.Own(), Exchanges: got.Exchanges})
	}
	return best
}

// Peer is one rank among those of its job.
type Peer struct {
	Root int32   // TGID
	Own  float64 // share of its wall in which it waited neither for its device nor for peers
	// Exchanges as Reading's: who calls no collectives is no peer of one that does.
	Exchanges bool
}

// Own is the share of the rank's wall time in which it waited neither for its
// device nor for peers: what it keeps them waiting with, if it is the slowest.
func (r Reading) Own() float64 {
	return 1 - r.Breakdown.Share(policies.PartDevice) - r.Breakdown.Share(policies.PartCommunication)
}

// minWire is the use of a link from which on its transfers count as exposed: NVML
// and the probes cannot tell a collective that hides behind compute from one that
// does not, and one that takes half of the step seldom hides.
const minWire = 0.5

// exposeWaits finds, among ranks that call collectives, how much of a rank's wait
// for its device is a wait for the slowest of them, or for the wire: a collective's
// kernel keeps the device busy until the last rank has come and the last byte. Where
// the budget does not pay for counting them, that it called some before is enough: who
// comes late is told by the kernel's accounting alone.
func exposeWaits(k *policies.Constants, w *Window, all []Reading) {
	wire, _ := w.Network.CarrierShare()
	var late []float64
	for _, r := range all {
		slowest := r.Own()
		for _, peer := range all {
			if peer.Exchanges && 2*peer.Collectives >= r.Collectives {
				slowest = max(slowest, peer.Own())
			}
		}
		late = append(late, slowest-r.Own())
	}
	for i := range all {
		r := &all[i]
		if !r.Exchanges {
			continue
		}
		r.Expose(late[i])
		r.Expose(w.Spinning(k, r.Root))
		if wire >= minWire {
			r.Expose(wire)
		}
	}
}

// Expose charges a share of the rank's wall from its device waits to communication; what tells of
// the same waits twice charges them once.
func (r *Reading) Expose(share float64) {
	b := &r.Breakdown
	ns := min(int64((share-r.exposed)*float64(b.WallNs)), b.Ns[policies.PartDevice])
	if ns > 0 {
		r.exposed = share
		b.Ns[policies.PartDevice] -= ns
		b.Ns[policies.PartCommunication] += ns
	}
}

func readRank(w *Window, r Rank, ranks int, known PerStep) Reading {
	lw := work(w, r)
	got := Reading{Window: w, Ranks: ranks, Root: r.Root, Trainer: w.Threads[r.Trainer], LoaderUse: LoaderUse{Loaders: r.Loaders}}
	var outside float64
	got.Breakdown, outside = breakdown(w, r, lw)
	got.Network = outside / max(1, float64(got.Breakdown.WallNs))
	if p := w.Calls(r.Root); p != nil {
		got.Collectives, got.CollectiveBytes, got.Exchanges = p.Calls, p.Bytes, p.Calls > 0 || p.Exchanged
		b := p.CallsOf(got.Trainer.TID)
		got.spinNs, got.SyncNs = b.spin()+uint64(p.inMPI(got.Trainer.TID)*float64(sub(got.Trainer.Ns[probes.StateRun], b.spin()))), b.SyncNs+b.CopyNs
		got.Launches, got.LaunchRate = p.Launches+p.Graphs, (w.Launched(p)+float64(p.Graphs))/w.Seconds()
		if float64(p.LaunchNs) < minCounted*float64(w.EndNs-w.StartNs) { // the budget left them out
			got.LaunchRate += p.Ever
		}
	}
	var of rateOf
	got.Rate, of = rate(w, r, known)
	got.Tick, got.PerStep, got.Agreement = of.tick, of.perStep, of.agreement
	sum := lw.parts.sum()
	got.LoaderBusy, got.LoaderNs, got.LoaderRun = sum/max(1, lw.wallNs), lw.wallNs, lw.runNs/max(1, sum)
	got.LoaderShort = (lw.parts[policies.PartInputThrottled] + lw.parts[policies.PartInputContended]) / max(1, sum)
	got.Cost, got.CostOK = cost(w, r, lw, got)
	return got
}

// LoaderCPUNs is the loaders' time on a CPU.
func (r Reading) LoaderCPUNs() float64 { return r.LoaderNs * r.LoaderBusy * r.LoaderRun }

// minTicks is the least a window must hold before it counts (docs/design.md: five steps).
const minTicks = 5

// needTicks make a reading of a rate: from the first to the second is one whole.
const needTicks = 2

// aggregate tells the cost of a container by all of its threads, where no steps tell which one
// trains. Its knee is a quotient of two times, so no step is needed: CPU time over the time that
// its parallel work would take with CPU in plenty. The thread taken for the trainer may be one
// that only waits for others, so what it lost is that of all threads where that is more.
func (r *Reading) aggregate() {
	w := r.Window
	run, throttled, queued, reads := wants(w)
	wall, wanted := float64(w.EndNs-w.StartNs), run+throttled+queued
	if wanted <= 0 || wall <= 0 {
		return
	}
	active := min(1, wanted/wall) // share of the time in which something wanted a CPU
	computing := active * run / wanted
	r.Aggregated, r.CostOK = true, true
	r.Cost = policies.Cost{TrainerCPU: computing, OtherCPU: max(0, w.UsedCPUs()-computing), Device: 1 - active, Ticks: wall / 1e9}
	if lost := active * (throttled + queued) / wanted; lost <= short(r.Breakdown)+clearly {
		return
	}
	var p parts
	p[policies.PartCompute] = wall * computing
	p[policies.PartThrottled] = wall * active * throttled / wanted
	p[policies.PartContended] = wall * active * queued / wanted
	p[policies.PartInputStorage] = min(wall*(1-active), reads*w.readShare())
	r.Breakdown, r.LoaderShort, r.Loaders = exact(p, int64(wall)), 0, 0
}

// wants is how long its threads ran, its quota kept them from it, others did, and they read files, ns.
func wants(w *Window) (run, throttled, queued, reads float64) {
	for _, t := range w.Threads {
		run += float64(t.Ns[probes.StateRun])
		throttled += float64(t.Ns[probes.StateThrottled])
		queued += behindOthers(t)
		reads += asleepOnFiles(t)
	}
	return run, throttled, queued, reads
}

// short is the share of a rank's wall time in which it or its loaders lacked a CPU.
func short(b policies.Breakdown) float64 {
	return b.Share(policies.PartThrottled) + b.Share(policies.PartContended) + b.Share(policies.PartInputThrottled) + b.Share(policies.PartInputContended)
}

// clearly is a difference of shares of time that is no matter of how threads are told apart.
const clearly = 0.05

// cost is what one tick takes; see policies.Cost.
func cost(w *Window, r Rank, lw loaderWork, got Reading) (policies.Cost, bool) {
	ticks := got.Rate.PerSecond * float64(got.Breakdown.WallNs) / 1e9
	if ticks < minTicks-1 {
		return policies.Cost{}, false
	}
	perTick := func(ns float64) float64 { return ns / 1e9 / ticks }
	b, run, own := got.Breakdown, float64(sub(got.Trainer.Ns[probes.StateRun], got.spinNs)), w.unstolen()
	c := policies.Cost{Loaders: r.Loaders, Ticks: ticks, TrainerCPU: perTick(own * run), LoaderCPU: perTick(own * lw.runNs), Batch: perTick(lw.ownNs), Spin: perTick(own * float64(got.spinNs))}
	// Ranks step together: one tick of this one costs the CPU time of all, which is its "other".
	total := w.UsedCPUs() * float64(w.EndNs-w.StartNs)
	c.OtherCPU = max(0, perTick(total)-c.TrainerCPU-c.Spin-c.LoaderCPU)
	device := b.Ns[policies.PartDevice] + b.Ns[policies.PartCommunication] + b.Ns[policies.PartOther] + b.Ns[policies.PartReclaim]
	helpers := max(0, float64(b.Ns[policies.PartCompute])-run-w.stacked(got.Trainer))
	c.Queue = perTick(unasked(got.Trainer)*max(0, behindOthers(got.Trainer)-float64(got.Trainer.SiblingNs)) + (1-own)*run)
	// The trainer's own reading is a wait that CPU does not shorten.
	reads := ownReads(got.Trainer) * w.readShare()
	if w.Exchange().Exchanges() {
		reads -= float64(got.Trainer.Ns[probes.StateInet]) * w.readShare() // counted as communication
	}
	c.Device = perTick(float64(device) + helpers + max(0, reads))
	return c, true
}

// unstolen is the part of the threads' time on a CPU that the cgroup's accounting calls
// theirs, at most 1. Between two switches the kernel probe sees no more than the clock, and
// what the hypervisor or interrupts took meanwhile is neither work nor paid from a quota:
// beside 25 % of stolen time it made a step of 160 ms of CPU look like one of 260 [measured].
func (w *Window) unstolen() float64 {
	var run float64
	for _, t := range w.Threads {
		run += float64(t.Ns[probes.StateRun])
	}
	if !w.HasCgroup || w.Cgroup.Unread || w.Cgroup.CPUNs == 0 || run <= 0 {
		return 1
	}
	return min(1, float64(w.Cgroup.CPUNs)/run)
}

// unasked is the part of a thread's waits in a queue that a quota did not ask for: one that
// comes back from being throttled has lost its turn, and waits for another behind whoever
// runs. With quota enough it does not.
func unasked(t Thread) float64 {
	queued, throttled := t.Count[probes.StateQueued], t.Count[probes.StateThrottled]
	if queued == 0 {
		return 1
	}
	return 1 - min(1, float64(throttled)/float64(queued))
}
