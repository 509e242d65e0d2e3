package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// settle is how long after a phase's begin a window must have begun to count: until
// then it may hold some of what went before. How long that takes in the end is
// what the time to the first right verdict tells, from all windows.
const settle = 2 * time.Second

// stays is how many right windows in a row make a right verdict one that stays:
// the first one, and as many more as the daemon itself asks for before it acts.
const stays = 3

// Case is one container of one job in one phase.
type Case struct {
	Job, Family, Container, Phase string
	HeldOut, Virtual              bool
	Truth                         Truth
	Said                          map[Label]int // by window that counts
	Windows, RightClass, Right    int
	Shown                         [len(sureBounds)]Told // by the confidence that was shown
	Majority                      Label
	// DetectS is the time to the first right verdict that stays, and the phase's length if
	// none did. Begins: the truth is new in this phase, so there was something to detect.
	DetectS          float64
	Begins, Detected bool
	AllowedS         float64   // max(5 s, 8 steps)
	RateErrors       []float64 // relative, of stretches of windows
	RateSource       string
	Steps            bool // the rate was said to be of steps
	WrongActions     int
	WrongKnobs       []string
	Whys             map[Label]string // an example of each wrong label's sentence
	Knee, SaidKnee   float64          // CPUs: what is true, 0 where it is not judged; the median of what windows said
	KneeOrLess       bool             // what is true is that or less
	// OutsideCPUs is what was used outside of containers, mean over windows: a noisy machine.
	OutsideCPUs float64
	// Stolen is the share of the machine's CPU time that its hypervisor took, mean over windows.
	Stolen float64
}

// score compares one recording with its facts.
func score(f Facts, seen map[string]*Seen, family Family, virtual bool) []Case {
	var out []Case
	byContainer := map[string][]int{}
	job, _, _ := find(f.Job)
	for i, p := range f.Phases {
		for _, name := range slices.Sorted(maps.Keys(p.Truths)) {
			c := Case{Job: f.Job, Family: family.Name, HeldOut: family.HeldOut, Virtual: virtual, Container: name, Phase: p.Name,
				Truth: p.Truths[name], Said: map[Label]int{}, Whys: map[Label]string{}, Knee: job.Knee, KneeOrLess: job.KneeOrLess}
			c.Begins = bottleneck(c.Truth) && (i == 0 || f.Phases[i-1].Truths[name].Is != c.Truth.Is)
			s := seen[name]
			if s == nil {
				s = &Seen{AttachNs: p.FromNs}
			}
			c.count(p, s)
			c.detect(p, s, f.Steps[name])
			c.act(p, s)
			byContainer[name] = append(byContainer[name], len(out))
			out = append(out, c)
		}
	}
	for name, cases := range byContainer {
		if s := seen[name]; s != nil {
			rates(out, cases, f, s)
		}
	}
	return out
}

// bottleneck reports whether there is one to detect: what makes no progress, or too
// little to be judged by, has none, and no step within which it could be found.
func bottleneck(t Truth) bool {
	switch t.Is.Class() {
	case policies.ClassIdle, policies.ClassInteractive, policies.ClassUnknown:
		return false
	}
	return true
}

// counts reports whether a window is wholly within a phase, its begin aside, and
// is not the container's first one, which some threads enter without history.
func counts(p FactPhase, s *Seen, i int) bool {
	w := s.Windows[i]
	return i > 0 && w.StartNs >= p.FromNs+p.SettleNs && w.EndNs <= p.ToNs
}

// silentNs is how long a phase may go without a window: the goal for a first
// verdict. Where none counts, each such stretch is a wrong one, or a daemon that
// says nothing would be right in all that it says.
const silentNs = int64(5 * time.Second)

// silence is what is said where no window is closed.
const silence Label = "(silence)"

func (c *Case) count(p FactPhase, s *Seen) {
	defer func() {
		if n := int((p.ToNs - p.FromNs - p.SettleNs) / silentNs); c.Windows == 0 && n > 0 && c.Truth.Is != "unknown" {
			c.Windows, c.Said[silence], c.Majority = n, n, silence
		}
	}()
	var knees []float64
	for i, w := range s.Windows {
		if !counts(p, s, i) {
			continue
		}
		if w.Knee > 0 {
			knees = append(knees, w.Knee)
		}
		l := labelOf(w.Verdict)
		c.OutsideCPUs = (c.OutsideCPUs*float64(c.Windows) + w.Outside) / float64(c.Windows+1)
		c.Stolen = (c.Stolen*float64(c.Windows) + w.Stolen) / float64(c.Windows+1)
		c.Windows++
		c.Said[l]++
		if c.Truth.rightClass(l) {
			c.RightClass++
		}
		c.Shown[sureBin(w.Shown.Confidence)].add(w.Shown, c.Truth)
		if c.Truth.right(l) {
			c.Right++
		} else {
			c.Whys[l] = w.Verdict.Why
		}
	}
	c.Majority, c.SaidKnee = majority(c.Said), quantile(knees, 0.5)
}

// kneeFactor is how far a knee may be from the truth, either way.
const kneeFactor = 1.25

// kneeRight reports whether the knee was told, and within the factor.
func (c *Case) kneeRight() bool {
	return c.SaidKnee > 0 && c.SaidKnee <= c.Knee*kneeFactor && c.SaidKnee >= c.leastKnee()
}

// leastKnee is the least that counts as right: a quarter where less than the truth costs nothing.
func (c *Case) leastKnee() float64 {
	if c.KneeOrLess {
		return c.Knee / 4
	}
	return c.Knee / kneeFactor
}

// majority is the most frequent label, the first in the alphabet of equals.
func majority(said map[Label]int) Label {
	var best Label
	for _, l := range slices.Sorted(maps.Keys(said)) {
		if best == "" || said[l] > said[best] {
			best = l
		}
	}
	return best
}

// detect finds the first right window that stays. It looks at all windows that
// ended in the phase: the clock runs from the bottleneck's begin.
func (c *Case) detect(p FactPhase, s *Seen, steps []Count) {
	begin := max(p.FromNs, s.AttachNs)
	c.DetectS = float64(p.ToNs-begin) / 1e9
	c.AllowedS = 5
	if n, ok := stepsBetween(steps, begin, min(p.ToNs, lastAt(steps))); ok && n > 0 {
		c.AllowedS = max(5, 8*float64(min(p.ToNs, lastAt(steps))-begin)/1e9/n)
	}
	var in []Window
	for _, w := range s.Windows {
		if w.EndNs > begin && w.EndNs <= p.ToNs {
			in = append(in, w)
		}
	}
	for i := range in {
		rest := in[i:min(len(in), i+stays)]
		if !slices.ContainsFunc(rest, func(w Window) bool { return !c.Truth.right(labelOf(w.Verdict)) }) {
			c.DetectS, c.Detected = float64(in[i].EndNs-begin)/1e9, true
			return
		}
	}
}

func lastAt(counts []Count) int64 {
	if len(counts) == 0 {
		return 0
	}
	return counts[len(counts)-1].AtNs
}

// act counts wrong actions: stretches of ticks in which the policy called for a
// change on a wrong verdict, of a knob that does not relieve the truth. It counts
// what the policy says before the guard, and before records that repeat
// themselves are dropped, so it can only be stricter than what would be applied.
func (c *Case) act(p FactPhase, s *Seen) {
	var last int64
	for _, pr := range s.Proposals {
		if pr.AtNs < p.FromNs+p.SettleNs || pr.AtNs > p.ToNs || c.Truth.right(pr.Label) || relieves(c.Truth, pr.Knob) {
			continue
		}
		if last == 0 || pr.AtNs-last > int64(5*time.Second) {
			c.WrongActions++
			c.WrongKnobs = append(c.WrongKnobs, string(pr.Knob)+" on "+string(pr.Label))
		}
		last = pr.AtNs
	}
}

// relieves reports whether a knob is a relief of the truth.
func relieves(t Truth, k runtime.Knob) bool {
	for _, l := range append([]Label{t.Is}, t.Also...) {
		if slices.Contains(reliefs()[l], k.Family()) {
			return true
		}
	}
	return false
}

// reliefs are the families of knobs that relieve each truth.
func reliefs() map[Label][]string {
	return map[Label][]string{
		"input/throttled": {"cpu"},
		"input/contended": {"cpu", "cpuset"},
		"input/storage":   {"io"},
		"input/cache":     {"memory"},
		"compute/host":    {"cpu", "cpuset"},
		"memory/reclaim":  {"memory"},
		"memory/risk":     {"memory"},
	}
}

// stretch is how many windows a rate error is read from.
const stretch = 2

// rateSample is one stretch: what was shown, and what was true.
type rateSample struct {
	at          int // case
	shown, true float64
	steps       bool
	source      string
}

// rates compares the rates shown with the job's own count. A confirmed rate is
// compared as it is. A proxy, of which nobody knows how many ticks make a step, has
// one unknown constant for each source: its mean over the job is taken for that,
// and the error is how far a stretch is from it.
func rates(cases []Case, at []int, f Facts, s *Seen) {
	var all []rateSample
	for i, p := range f.Phases[:min(len(f.Phases), len(at))] {
		all = append(all, stretches(at[i], p, f.Steps[cases[at[i]].Container], s)...)
	}
	sum, n := map[string]float64{}, map[string]float64{}
	for _, r := range all {
		if !r.steps {
			sum[r.source] += r.shown / r.true
			n[r.source]++
		}
	}
	for _, r := range all {
		c := &cases[r.at]
		ratio := r.shown / r.true
		if !r.steps {
			ratio /= sum[r.source] / n[r.source]
		}
		c.RateErrors = append(c.RateErrors, math.Abs(ratio-1))
		c.RateSource, c.Steps = r.source, c.Steps || r.steps
	}
}

// stretches of consecutive windows that count, of one source.
func stretches(at int, p FactPhase, steps []Count, s *Seen) []rateSample {
	var out []rateSample
	var run []Window
	for i, w := range s.Windows {
		good := counts(p, s, i) && w.Rate.PerSecond > 0
		if !good || len(run) > 0 && (run[0].Rate.Source != w.Rate.Source || run[0].Rate.Steps != w.Rate.Steps) {
			run = nil
		}
		if good {
			run = append(run, w)
		}
		if len(run) < stretch {
			continue
		}
		if r, ok := readStretch(run, steps); ok {
			r.at = at
			out = append(out, r)
		}
		run = nil
	}
	return out
}

// A rate is of the past where the latest event it counts lies two readings of a second
// back, or three events of a slower job.
const (
	staleNs     = 2e9
	staleEvents = 3
)

// readStretch compares what was shown at the end of each window with the truth
// over the very time that the rate is said to be the mean of, or up to the window's
// end where that time is over: nobody is told that it is old. Both are summed over the
// stretch. Fewer than five steps say nothing.
func readStretch(run []Window, steps []Count) (rateSample, bool) {
	r := rateSample{source: run[0].Rate.Source, steps: run[0].Rate.Steps}
	var n float64
	for _, w := range run {
		from, to := w.Rate.FromNs, w.Rate.ToNs
		if float64(w.EndNs-to) > max(staleNs, staleEvents*1e9/w.Rate.PerSecond) {
			to = w.EndNs
		}
		done, ok := stepsBetween(steps, from, to)
		if !ok {
			return r, false
		}
		n += done
		r.shown += w.Rate.PerSecond
		r.true += done / (float64(to-from) / 1e9)
	}
	return r, n >= 5
}

// quantile of unsorted values, by the nearest rank; 0 of none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
}
