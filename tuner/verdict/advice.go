package verdict

import (
	"fmt"

	"github.com/trimtab/trimtab/tuner/observe"
)

// workersPerCPU bounds the loader workers of a host: PyTorch warns of more than CPUs, and those that
// sleep on a disk may be twice as many.
const workersPerCPU = 2

// timesWords are the factors that are advised, ascending. A quotient of two measured times is worth
// no finer word.
//
//trimtab:table read only
var timesWords = []struct {
	times float64
	words string
}{
	{1.5, "half as many loader workers again"},
	{2, "twice as many loader workers"},
	{3, "three times as many loader workers"},
	{4, "four times as many loader workers"},
}

// workersRelief says how many times the loader workers would do: so many that a batch takes them no
// longer than a step takes the rest, w/W = C_t+D. It tells a factor only where steps are counted and
// this host has the CPUs to run them.
func workersRelief(r observe.Reading) string {
	today := float64(max(r.Loaders, 1))
	rest := r.Cost.TrainerCPU + r.Cost.Device
	need := r.Cost.Batch / rest / today
	if !r.CostOK || !r.Rate.Steps || !(rest > 0 && need > 0) {
		return "more loader workers"
	}
	if need*today < today+1 {
		return "more loader workers, or cheaper decoding"
	}
	most, words := mostTimes(r, today), ""
	for _, t := range timesWords {
		if !(t.times <= most) { // nor where that is no number
			break
		}
		if words = t.words; t.times >= need {
			break
		}
	}
	if words == "" {
		return "cheaper decoding: for more loader workers too few CPUs are free here"
	}
	return fmt.Sprintf("about %s (it has %d)", words, r.Loaders)
}

// mostTimes is the most workers, as a factor, that the host can run: by its CPUs and by what of them
// is idle, either shared with the container's other ranks.
func mostTimes(r observe.Reading, today float64) float64 {
	w := r.Window
	most := workersPerCPU * float64(w.HostCPUs) / float64(max(r.Ranks, 1)) / today
	if used := r.LoaderCPUNs() / float64(w.EndNs-w.StartNs); used > 0 {
		most = min(most, 1+w.HostIdle/float64(max(r.Ranks, 1))/used)
	}
	return most
}
