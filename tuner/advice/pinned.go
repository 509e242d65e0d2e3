package advice

import (
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

// An asynchronous copy to the device returns at once from pinned memory. From pageable memory it
// returns when all has been copied to a staging buffer (CUDA's documentation, "API synchronization
// behavior"). On an H100 it waited until the stream had come to it as well (docs/gpu.md).
const (
	// pinnedSeconds is what one call takes from pinned memory: 18 us on that H100, rounded up. Twice as
	// much tells a saving that is smaller by as much.
	pinnedSeconds = 20e-6
	// stagedSeconds is the least that one call takes, in the mean, to count as one that blocks: five times
	// as long as from pinned memory. With twice as much small batches are missed: 1 MiB at 10 GB/s takes 105 us.
	stagedSeconds = 100e-6
	// stagedMiBSeconds is the least for each MiB: what is staged takes longer the more it is, at 52 GB/s at
	// the most. That is chosen: no core is known to copy as fast. With twice as much the fastest hosts are missed.
	stagedMiBSeconds = 20e-6
	// stagedSure is chosen: no device has shown what pinned memory saves. Twice as much would be certain.
	stagedSure = 0.5
)

// loaderPinned is pinned memory for batches whose asynchronous copies block the trainer. It saves no more than
// the time inside them, and no more than its device idles: kernels take as long as before. Both
// may still be lost elsewhere, so nothing is the lower bound, and half of it is told. A job that waits for its
// loaders or for peers would wait for them instead.
func (n node) loaderPinned(c state.Container) (a Advice, ok bool) {
	s, v := c.Staging, c.Verdict
	bounds := v.Class == policies.ClassCompute && v.Cause != policies.CauseShared || v.Class == policies.ClassBalanced
	// Calls are timed by the clock: of a trainer that is kept from its CPU those from pinned memory take long too.
	kept := c.Breakdown.Share(policies.PartThrottled) + c.Breakdown.Share(policies.PartContended)
	if !n.sure(c) || !bounds || !(kept < n.k.Notable) || !(s.CallSeconds >= stagedSeconds && s.MiBSeconds >= stagedMiBSeconds) {
		return a, false
	}
	var lines []Line
	if strings.HasPrefix(c.Rate.Source, "torch.") {
		lines = []Line{{"PyTorch DataLoader", "pin_memory=True"}, {"PyTorch Tensor.to", "non_blocking=True"}}
	}
	most := min(s.Share*(1-pinnedSeconds/s.CallSeconds), s.Idle)
	return Advice{What: LoaderPinned, Text: "its asynchronous copies to the device block, as those from memory that is not pinned do, and the device idles", Paste: lines,
		Current: Setting{Text: "pageable"}, Advised: Setting{Text: "pinned"}, Gives: gives(OfRunTime, 1, 0, most/2, most), Confidence: stagedSure * v.Confidence, SinceUnixNs: c.VerdictSinceUnixNs,
		Evidence: []Number{number("time of its trainer inside these copies", s.Share, "share", "probes on CUDA's calls"), number("one of them", s.CallSeconds*1e3, "ms", "the same"),
			number("a MiB of them", s.MiBSeconds*1e6, "us", "the same"), number("time without a kernel on its device", s.Idle, "share", "NVML")}}, true
}
