package verdict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/observe"
)

// minSamples of a device's duty make its mean a reading: half a second of NVML's.
const minSamples = 3

// devices are those that the rank is on. Where that is not told they are its container's, but for
// those that another rank is on.
func devices(r observe.Reading) (out []observe.Device) {
	for _, d := range r.Window.Devices {
		if slices.Contains(d.PIDs, r.Root) {
			out = append(out, d)
		}
	}
	if len(out) > 0 {
		return out
	}
	return slices.DeleteFunc(slices.Clone(r.Window.Devices), func(d observe.Device) bool {
		return slices.ContainsFunc(r.Peers, func(p observe.Peer) bool { return p.Root != r.Root && slices.Contains(d.PIDs, p.Root) })
	})
}

// duty is the mean duty of the rank's busiest device; ok is false where too few samples tell.
func duty(r observe.Reading) (share float64, ok bool) {
	for _, d := range devices(r) {
		if d.Samples >= minSamples {
			share, ok = max(share, d.Duty), true
		}
	}
	return share, ok
}

// alone: nobody else is on the rank's devices, or hardly anybody, so that what they do is its doing.
func alone(k *policies.Constants, r observe.Reading) bool {
	return !slices.ContainsFunc(devices(r), func(d observe.Device) bool { return !d.Alone(k) })
}

// full finds a device without room: it works all the time, whatever the trainer does meanwhile.
// It may spin in a launch, for the queue is full, or ask again and again whether the device is
// done. Kernels leave no gaps then: one bound by its launches was at a duty of 0.13 [measured,
// H100]. Where SMs are not told, a job that exchanges may as well spin in a collective.
func full(k *policies.Constants, r observe.Reading) (policies.Verdict, bool) {
	share, ok := duty(r)
	waits := r.Breakdown.Share(policies.PartDevice)
	proved := waits >= k.Notable && waits >= r.Breakdown.Share(policies.PartThrottled)+r.Breakdown.Share(policies.PartContended)
	switch d := r.Window.Activity(r.Root); {
	case !alone(k, r):
	case d != nil:
		proved = proved || d.SM >= k.Dominant
	default:
		proved = proved || r.Launches > 0 && r.Collectives == 0 && !r.Exchanges
	}
	if !ok || share < k.Full || !proved {
		return policies.Verdict{}, false
	}
	return bound(k, r, share), true
}

// Cost is a step's cost in the light of what the device does. One without room works through the
// whole step, so that no CPU shortens it. What its trainer computes meanwhile, in a full launch
// queue, asking whether the device is done, or ahead of it, is Spin: c* is what it used, and so it is
// less where its quota or others held it back and the device worked on. It is for what the job needs
// on this device: on a faster one what was computed ahead may be the longer part, so profiles and
// curves learn the cost as it was measured.
func Cost(k *policies.Constants, r observe.Reading) policies.Cost {
	c := r.Cost
	if !r.CostOK || r.Aggregated || r.Window == nil || !(r.Window.UsedCPUs() > 0) {
		return c
	}
	if _, ok := full(k, r); !ok || !alone(k, r) {
		return c
	}
	if r.Loaders > 0 && r.LoaderShort >= k.LoaderShort { // batches from before may keep it full for a while
		return c
	}
	busy, _ := duty(r)
	step := c.CPU() / r.Window.UsedCPUs() // its rate may be of another time than the cost
	exposed := min(c.TrainerCPU, (1-min(busy, 1))*step)
	idle := min(c.Spin, idleSpin(k, r), max(0, c.CPU()-k.ActiveCPUs*step)) // less is no use that is told apart
	c.Spin += c.TrainerCPU - exposed - idle
	c.TrainerCPU, c.Queue, c.Device = exposed, 0, step-exposed
	return c
}

// idleSpin is what it spins, seconds a tick, in waits so long that no CPU need be had for it. A quota that
// stops it in one stops no device. Who is stopped sees the end late, by half a period of the quota in the
// mean. Where that is less of the wait than a gain that counts, such spinning is no demand.
func idleSpin(k *policies.Constants, r observe.Reading) float64 {
	b := r.Window.Calls(r.Root).CallsOf(r.Trainer.TID)
	late, wait := float64(runtime.DefaultPeriodUs*1000/2), float64(b.SyncNs)/float64(max(b.Syncs, 1))
	if late > k.PlanMinGain*wait {
		return 0
	}
	return float64(b.SyncRunNs) / 1e9 / r.Cost.Ticks
}

// device finds a trainer that waits for its device most of the time. Waits that
// no call on a device proves may be anything that the job itself asked for.
func device(k *policies.Constants, r observe.Reading) (policies.Verdict, bool) {
	share := r.Breakdown.Share(policies.PartDevice)
	if share < k.Dominant || float64(r.SyncNs) < share/2*float64(r.Breakdown.WallNs) {
		return policies.Verdict{}, false // it asked for most of these waits itself
	}
	if busy, ok := duty(r); ok && busy < 0.5*share {
		return policies.Verdict{}, false // it waits, and the device does not work: not for want of the device
	}
	return bound(k, r, share), true
}

// bound says why a device-bound job is not faster.
func bound(k *policies.Constants, r observe.Reading, severity float64) policies.Verdict {
	v := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseDevice, Severity: severity, Relief: "none: it has what it needs of the host",
		Why: works(k, r)}
	for _, d := range devices(r) {
		switch {
		case d.SMReadings > 0 && d.Others >= k.Exposed, d.SMReadings == 0 && len(r.SharedWith) > 0 && len(d.Holders) > 0:
			v.Cause, v.Relief = policies.CauseShared, "a device of its own"
			v.Why = fmt.Sprintf("GPU %d also works for %s", d.Index, orOthers(r.SharedWith))
			return v
		case d.Readings > 0 && 2*d.Slowed >= d.Readings && d.SlowedClock < k.Full:
			v.Cause, v.Relief = policies.CauseClocks, "cooling, or a higher power limit"
			v.Why = fmt.Sprintf("GPU %d runs at %.0f %% of its clock: %s", d.Index, 100*d.SlowedClock, d.SlowedBy)
		}
	}
	return v
}

// works says for what a device-bound job's device works, where it tells.
func works(k *policies.Constants, r observe.Reading) string {
	waits := fmt.Sprintf("it waits %.0f %% of its time for its device, which works", 100*r.Breakdown.Share(policies.PartDevice))
	share, _ := duty(r)
	if share >= k.Full {
		waits = fmt.Sprintf("its device works %.0f %% of the time", 100*share)
	}
	switch d := r.Window.Activity(r.Root); {
	case d == nil:
		return waits
	case d.Samples == 0: // a MIG slice has no duty: what its parts leave idle may be gaps between kernels
		return fmt.Sprintf("%s, and its SMs %.0f %%, its memory %.0f %%", waits, 100*d.SM, 100*d.DRAM)
	case d.DRAM >= k.Dominant*d.Duty:
		return fmt.Sprintf("%s, and its memory %.0f %%: bandwidth bounds it", waits, 100*d.DRAM)
	case d.SM < k.Dominant*d.Duty:
		return fmt.Sprintf("%s, and its SMs %.0f %%: small kernels or batches leave most of it idle", waits, 100*d.SM)
	case share >= k.Full && d.Tensor >= k.Dominant*d.Duty:
		return fmt.Sprintf("%s, its SMs %.0f %%, its tensor cores %.0f %%: they bound it", waits, 100*d.SM, 100*d.Tensor)
	case share >= k.Full && d.SM >= k.Full*d.Duty:
		return fmt.Sprintf("%s, and its SMs %.0f %%: they bound it", waits, 100*d.SM)
	default:
		return fmt.Sprintf("%s, and its SMs %.0f %%", waits, 100*d.SM)
	}
}

// ReliefLaunches is of a trainer that does little but launch.
const ReliefLaunches = "fewer and larger launches: CUDA graphs (torch.compile's reduce-overhead), fused operators, larger batches; more CPUs would not help"

// launchNs is the most CPU time of a trainer for one launch of which launching is the work: 25 to 30 µs
// on an H100, 11 to 12 and, short of CPU, 19 to 55 on the virtual device, where it does nothing else; 1.2 ms
// and more where Python does [the windows of all recordings that come to this question]. Twice as much changes
// none of these 96 windows; half of it leaves two of the 24 that are told untold.
const launchNs = 100e3

// launching says that a trainer that computes does little but launch, while its device is idle for
// most of the time; "" where that is not told.
func launching(k *policies.Constants, r observe.Reading) string {
	busy, ok := duty(r)
	if !ok || busy >= k.Dominant || !(1e9*r.Breakdown.Share(policies.PartCompute) <= launchNs*r.LaunchRate) {
		return ""
	}
	return fmt.Sprintf("launch-bound: %.0f launches/s, the device works %.0f %% of the time", r.LaunchRate, 100*busy)
}

func orOthers(names []string) string {
	if len(names) == 0 {
		return "others"
	}
	return strings.Join(names, ", ")
}

// wider is the evidence of device and network.
func wider(r observe.Reading) []policies.Evidence {
	var out []policies.Evidence
	add := func(name string, value float64, unit string) {
		out = append(out, policies.Evidence{Name: name, Value: value, Unit: unit})
	}
	w := r.Window
	if r.LaunchRate > 0 {
		add("launches", r.LaunchRate, "1/s")
	}
	if share, ok := duty(r); ok {
		add("device active", share, "share")
	}
	if d := w.Activity(r.Root); d != nil {
		add("SMs active", d.SM, "share")
		add("tensor cores active", d.Tensor, "share")
		add("device memory active", d.DRAM, "share")
	}
	for _, d := range devices(r) {
		if d.Readings > 0 && d.Slowed > 0 {
			add(fmt.Sprintf("GPU %d clock", d.Index), d.SlowedClock, "of its maximum")
		}
	}
	if r.Collectives > 0 {
		add("collectives", float64(r.Collectives)/w.Seconds(), "1/s")
		add("bytes of collectives", float64(r.CollectiveBytes)/w.Seconds(), "B/s")
	}
	if n := w.Network; n.Ns > 0 && n.Bytes() > 0 {
		add("network", float64(n.RxBytes+n.TxBytes)/(float64(n.Ns)/1e9), "B/s")
		if share, _ := n.LinkShare(); share > 0 {
			add("link used", share, "share")
		}
		if n.Retransmits > 0 {
			add("sent again", n.RetransmitShare(), "share")
		}
	}
	return out
}
