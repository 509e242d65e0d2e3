package verdict

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
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

// Loading is what tells how many loader workers would do.
type Loading struct {
	Cost  policies.Cost // of a step of one rank
	Ranks int           // that share the host's CPUs
	// LoaderCPUs is what one rank's loaders use of the CPUs now; 0: not known. Idle is what nobody uses.
	LoaderCPUs, Idle float64
	HostCPUs         float64
}

// Need is how many times its workers would do: so many that a batch takes them no longer than a
// step takes the rest, w/W = C_t+D. It is no number above 0 where the cost does not tell.
func (l Loading) Need() float64 {
	return l.Cost.Batch / (l.Cost.TrainerCPU + l.Cost.Device) / l.today()
}

// Times is the factor to advise: of those in the table the least that does, or the most that the
// host can run; 0: it can run no more than there are.
func (l Loading) Times() float64 {
	need, most, times := l.Need(), l.most(), 0.0
	for _, t := range timesWords {
		if !(t.times <= most) { // nor where that is no number
			break
		}
		if times = t.times; t.times >= need {
			break
		}
	}
	return times
}

func (l Loading) today() float64 { return float64(max(l.Cost.Loaders, 1)) }

// most is the most workers, as a factor, that the host can run: by its CPUs and by what of them
// is idle, either shared with the container's other ranks.
func (l Loading) most() float64 {
	ranks := float64(max(l.Ranks, 1))
	most := workersPerCPU * l.HostCPUs / ranks / l.today()
	if l.LoaderCPUs > 0 {
		most = min(most, 1+l.Idle/ranks/l.LoaderCPUs)
	}
	return most
}

// workersRelief says how many times the loader workers would do. It tells a factor only where steps
// are counted and this host has the CPUs to run them.
func workersRelief(r observe.Reading) string {
	l := loading(r)
	need := l.Need()
	if !r.CostOK || !r.Rate.Steps || !(r.Cost.TrainerCPU+r.Cost.Device > 0 && need > 0) {
		return "more loader workers"
	}
	if need*l.today() < l.today()+1 {
		return "more loader workers, or cheaper decoding"
	}
	times := l.Times()
	for _, t := range timesWords {
		if t.times == times {
			return fmt.Sprintf("about %s (it has %d)", t.words, r.Loaders)
		}
	}
	return "cheaper decoding: for more loader workers too few CPUs are free here"
}

// loading is that of a window.
func loading(r observe.Reading) Loading {
	w := r.Window
	l := Loading{Cost: r.Cost, Ranks: r.Ranks, Idle: w.HostIdle, HostCPUs: float64(w.HostCPUs), LoaderCPUs: r.LoaderCPUNs() / float64(w.EndNs-w.StartNs)}
	l.Cost.Loaders = r.Loaders
	return l
}
