package profiles

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/trimtab/trimtab/tuner/observe"
)

// Pace is how fast a run is, in blocks of steps.
type Pace struct {
	Source string  `json:"source,omitempty"` // of the rate
	Rate   float64 `json:"rate,omitempty"`   // per second: the geometric mean of its blocks
	// Spread is the standard deviation of the logarithm of a block's rate, Blocks how many there were.
	Spread float64 `json:"spread,omitempty"`
	Blocks int     `json:"blocks,omitempty"`
}

// valid reports whether a pace can be.
func (p Pace) valid() bool {
	return p.Rate >= 0 && p.Rate <= maxValue && p.Spread >= 0 && p.Spread <= 100 && p.Blocks >= 0
}

// Numbers of the alarm. They come from TestSlowerSimulated, which prints what each does to false
// alarms and to what is found.
const (
	// warmSteps of a run are left out: caches fill, kernels are compiled.
	warmSteps = 20
	// blockSteps make a block: two of them behind the first steps end at the 100th.
	blockSteps = 40
	// leastRuns of the same kind are needed to know how far runs lie apart.
	leastRuns = 4
	// leastSpread of runs, and of blocks: what two means of the same thing differ by anyway.
	leastSpread = 0.004
	// falseAlarms is the bound on the chance that a run as fast as ever raises the alarm, in all of it.
	falseAlarms = 6e-4
	// leastSlower is the least that is told.
	leastSlower = 0.05
	// blockRoom widens the spread of blocks: a step in fifty may take thrice as long, and blocks of
	// such steps have longer tails than the normal distribution.
	blockRoom = 1.25
	// oddRun is beyond how many times the usual distance from the median a run is left out.
	oddRun = 12
)

// Pacer gathers a run's pace. The zero Pacer has seen nothing.
type Pacer struct {
	source       string
	skipped      float64 // steps of the begin
	steps, ns    float64 // of the open block
	blocks       int
	mean, square float64 // of logarithms of rates (Welford)
	last         [2]float64
}

// Add takes in a reading of the rate, and reports whether it closed a block. Another source begins anew.
func (p *Pacer) Add(source string, r observe.RateSample) (closed bool) {
	from, to := r.Span()
	steps, ns := r.Rate*float64(to-from)/1e9, float64(to-from)
	if !(r.Rate > 0) || !(ns > 0) || math.IsInf(steps, 1) {
		return false
	}
	if source != p.source {
		*p = Pacer{source: source}
	}
	if p.skipped < warmSteps {
		p.skipped += steps
		return false
	}
	if p.steps, p.ns = p.steps+steps, p.ns+ns; p.steps < blockSteps*(1-1e-3) {
		return false
	}
	rate := math.Log(p.steps / (p.ns / 1e9))
	p.steps, p.ns = 0, 0
	p.blocks++
	off := rate - p.mean
	p.mean += off / float64(p.blocks)
	p.square += off * (rate - p.mean)
	p.last = [2]float64{p.last[1], rate}
	return true
}

// Pace is what was gathered; zero before the first block.
func (p *Pacer) Pace() Pace {
	if p.blocks == 0 {
		return Pace{}
	}
	out := Pace{Source: p.source, Rate: math.Exp(p.mean), Blocks: p.blocks}
	if p.blocks > 1 {
		out.Spread = math.Sqrt(max(0, p.square) / float64(p.blocks-1))
	}
	return out
}

// Usual is the rate of the last runs on this host, with the bounds between which the next one is
// expected.
type Usual struct {
	Source         string
	PerSecond      float64
	Low, High      float64 // 95 % of runs
	Runs           int
	between, block float64 // standard deviations, of logarithms
	ends           []End
}

// UsualOf is the usual rate of a start on its host, in the unit of a source ("": of the latest run
// that has one). Runs with the same numbers tell, where there are enough of them. ok is false where too
// few runs tell how far they lie apart; the rate alone stands then.
func UsualOf(s Start, ends []End, source string) (u Usual, ok bool) {
	here := slices.DeleteFunc(slices.Clone(ends), func(e End) bool {
		return e.Host != s.Host || e.Blocks < 2 || !(e.Rate > 0) || source != "" && e.Source != source
	})
	if len(here) == 0 {
		return u, false
	}
	u.Source = here[len(here)-1].Source
	here = slices.DeleteFunc(here, func(e End) bool { return e.Source != u.Source })
	alike := slices.DeleteFunc(slices.Clone(here), func(e End) bool { return !slices.Equal(e.Numbers, s.Identity.Numbers) })
	if len(alike) >= leastRuns || len(alike) == len(here) {
		here = alike
	}
	here = withoutOdd(here)
	var logs []float64
	for _, e := range here {
		logs = append(logs, math.Log(e.Rate))
		u.block += e.Spread * e.Spread / float64(len(here))
	}
	mean := 0.0
	for _, l := range logs {
		mean += l / float64(len(logs))
	}
	var square float64
	for _, l := range logs {
		square += (l - mean) * (l - mean)
	}
	u.Runs, u.ends, u.PerSecond, u.block = len(here), here, math.Exp(mean), max(blockRoom*math.Sqrt(u.block), leastSpread)
	if u.Runs < leastRuns {
		return u, false
	}
	u.between = max(math.Sqrt(square/float64(u.Runs-1)), leastSpread)
	reach := u.quantile(0.05/2) * math.Sqrt(u.variance())
	u.Low, u.High = math.Exp(mean-reach), math.Exp(mean+reach)
	return u, true
}

// withoutOdd leaves out at most two runs that are far from the others: of one that was disturbed a
// baseline would be so wide that nothing is found.
func withoutOdd(ends []End) []End {
	if len(ends) <= leastRuns {
		return ends
	}
	logs := make([]float64, len(ends))
	for i, e := range ends {
		logs[i] = math.Log(e.Rate)
	}
	middle := observe.Median(logs)
	off := make([]float64, len(logs))
	for i, l := range logs {
		off[i] = math.Abs(l - middle)
	}
	usual := max(observe.Median(off)*1.4826, leastSpread)
	var out []End
	for i, e := range ends {
		if off[i] <= oddRun*usual {
			out = append(out, e)
		}
	}
	if len(out) < max(leastRuns, len(ends)-2) {
		return ends
	}
	return out
}

// quantile is Student's, of one side.
func (u Usual) quantile(share float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(u.Runs - 1)}.Quantile(1 - share)
}

// variance is that of the logarithm of one run's rate about the mean of the others.
func (u Usual) variance() float64 { return u.between * u.between * (1 + 1/float64(u.Runs)) }

// Slower tells that a run is slower than the last ones of its job on this host.
type Slower struct {
	Below float64  // share of the usual rate that is missing
	Runs  int      // that it is held against
	Since []string // what differs from all of them; none: nothing that is known
}

// String is it for people.
func (s Slower) String() string {
	why := "nothing that trimtab knows of it has changed"
	if len(s.Since) > 0 {
		why = "since " + strings.Join(s.Since, ", ")
	}
	return fmt.Sprintf("%.0f %% below its last %d runs, %s", 100*s.Below, s.Runs, why)
}

// Slower judges a run by its latest two blocks: nil where it is as fast as may be. Two things lie
// between two runs that are alike: how far runs are apart, met once in a run, and how far its blocks
// are, met with each. The chance of the first is bounded for the run, that of the second for each
// look, less each time, so that their sum stays below falseAlarms however long it runs.
func (u Usual) Slower(p *Pacer, now End) *Slower {
	if p.blocks < 2 || u.Runs < leastRuns || p.source != u.Source {
		return nil
	}
	below := math.Log(u.PerSecond) - (p.last[0]+p.last[1])/2
	look := float64(p.blocks - 1)
	block := max(u.block, p.Pace().Spread)
	if p.blocks <= 4 { // its own few say too little
		block = u.block
	}
	of := u.quantile(falseAlarms/2) * math.Sqrt(u.variance())
	by := distuv.UnitNormal.Quantile(1-falseAlarms/2/(look*(look+1))) * block / math.Sqrt2
	if below < max(math.Hypot(of, by), -math.Log(1-leastSlower)) {
		return nil
	}
	return &Slower{Below: 1 - math.Exp(-below), Runs: u.Runs, Since: u.differs(now)}
}

// moreQueued is the share of its time that a run queues more than any before, from which on neighbours
// are named.
const moreQueued = 0.05

// differs names what of a run is another than all earlier ones had alike: what differs from run to
// run anyway, as a seed does, tells nothing.
func (u Usual) differs(now End) (out []string) {
	latest := u.ends[len(u.ends)-1]
	changed := func(of func(End) string) bool {
		return of(now) != "" && of(latest) != "" && of(now) != of(latest) && !slices.ContainsFunc(u.ends, func(e End) bool { return of(e) != of(latest) })
	}
	add := func(text string, of func(End) string) {
		if changed(of) {
			out = append(out, text)
		}
	}
	add(fmt.Sprintf("its device is another (%s, before %s)", now.Device, latest.Device), func(e End) string { return e.Device })
	add(fmt.Sprintf("the driver changed (%s, before %s)", now.Driver, latest.Driver), func(e End) string { return e.Driver })
	add(fmt.Sprintf("the host's kernel changed (%s, before %s)", now.Kernel, latest.Kernel), func(e End) string { return e.Kernel })
	add("its image changed", func(e End) string { return e.Image })
	add("its data is another", func(e End) string { return e.Data })
	add("its numbers differ", func(e End) string { return strings.Join(e.Numbers, " ") })
	queued, allowed, shared := 0.0, math.Inf(1), false
	for _, e := range u.ends {
		queued, shared = max(queued, e.Queued), shared || e.Shared
		if e.Allowed > 0 {
			allowed = min(allowed, e.Allowed)
		}
	}
	if now.Allowed > 0 && now.Allowed < allowed*0.95 && !math.IsInf(allowed, 1) && (now.CPUs == 0 || now.CPUs > now.Allowed) {
		out = append(out, fmt.Sprintf("it may use fewer CPUs (%.2f, before %.2f)", now.Allowed, allowed))
	}
	if now.Queued > queued+moreQueued {
		out = append(out, fmt.Sprintf("neighbours take its CPU (it queues %.0f %% of its time, before %.0f %%)", 100*now.Queued, 100*queued))
	}
	if now.Shared && !shared {
		out = append(out, "a neighbour works on its device")
	}
	return out
}
