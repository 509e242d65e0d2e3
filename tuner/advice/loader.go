package advice

import (
	"fmt"
	"math"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/verdict"
)

// loaderWorkers is how many loader workers would do: no more than the CPUs that its ranks may use,
// from which on PyTorch warns of "excessive worker creation". Only PyTorch's own count says that it
// is PyTorch which has them.
func (n node) loaderWorkers(c state.Container) (a Advice, ok bool) {
	cost := c.Cost
	if !n.sure(c) || c.Verdict.Cause != policies.CauseWorkers || !c.Rate.Steps || !(c.Knee > 0) || cost.Loaders < 1 {
		return a, false
	}
	l := verdict.Loading{Cost: cost, Ranks: c.Ranks, LoaderCPUs: cost.LoaderCPU * c.Rate.PerSecond, Idle: n.s.Node.Idle, HostCPUs: n.s.Node.CPUs}
	cpus, ranks := n.mostCPUs(c), float64(max(c.Ranks, 1))
	if quota, limited := c.Now[runtime.KnobCPUQuota].CPUs(); limited {
		cpus = min(cpus, quota)
	}
	workers := math.Floor(min(float64(cost.Loaders)*l.Times(), cpus/ranks))
	var lines []Line
	if strings.HasPrefix(c.Rate.Source, "torch.") {
		lines = []Line{{"PyTorch DataLoader", fmt.Sprintf("num_workers=%.0f", workers)}}
	}
	after := cost
	after.Loaders = int(min(max(workers, 0), 1e6))
	s := within(cost.Step(cpus/ranks)/after.Step(cpus/ranks), modelError)
	return Advice{What: LoaderWorkers, Text: "its trainer waits for its loaders", Paste: lines,
		Current: Setting{Value: float64(cost.Loaders), Unit: "workers"}, Advised: Setting{Value: workers, Unit: "workers"}, Gives: gives(OfRunTime, 1, s.low, s.share, s.high),
		Confidence: predictedSure * c.Verdict.Confidence, SinceUnixNs: c.VerdictSinceUnixNs,
		Evidence: []Number{number("one batch, by one loader", cost.Batch, "s", "the kernel's accounting of its threads"), number("the rest of a step", cost.TrainerCPU+cost.Device, "s", "the same"),
			number("loaders", float64(cost.Loaders), "", "the same"), number("CPUs that nobody uses", n.s.Node.Idle, "CPUs", "the host")}}, workers > float64(cost.Loaders)
}

// dataLocal is a copy on this host of what is read over the network. How fast its disk would be is
// not known, so nothing is the lower bound, and half of it is told. Where the data is its only network
// mount tells; of several none does.
func (n node) dataLocal(c state.Container) (Advice, bool) {
	lost, lines := c.Breakdown.Share(policies.PartInputRemote), volumeLines(c.NetworkMount)
	text := "it waits for reads over the network: a copy on a disk of this host ends that, as far as the disk is faster"
	if len(lines) > 0 {
		text = "it waits for reads over the network, and its only network mount is " + c.NetworkMount + ": a copy of that on a disk of this host ends it, as far as the disk is faster"
	}
	return Advice{What: DataLocal, Text: text, Paste: lines,
		Current: Setting{Text: "network"}, Advised: Setting{Text: "local"}, Gives: gives(OfRunTime, 1, 0, lost/2, lost), Confidence: predictedSure * c.Verdict.Confidence, SinceUnixNs: c.VerdictSinceUnixNs,
		Evidence: []Number{number("time waiting for reads over the network", lost, "share", "the kernel's accounting of its threads")}}, n.sure(c) && c.Verdict.Cause == policies.CauseRemote
}
