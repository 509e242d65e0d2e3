package profiles

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/observe"
)

// Pace is how fast a run is, in blocks of steps.
type Pace struct {
	Rate float32 `json:"rate,omitempty"` // per second: the geometric mean of its blocks
	// Spread is the standard deviation of the logarithm of a block's rate, Blocks how many there were.
	Spread float32 `json:"spread,omitempty"`
	Blocks int32   `json:"blocks,omitempty"`
	// Slowest is the rate of its slowest two blocks in a row: it warms up, evaluates, writes checkpoints.
	Slowest float32 `json:"slowest,omitempty"`
	// Least is the rate of the fastest block of the slowest stretchBlocks in a row: what is left of its
	// pace where such phases pass. 0: it had fewer.
	Least float32 `json:"least,omitempty"`
	// First is the quadratic mean of the rates of the steps of its first two blocks, where they were seen
	// whole: a step that takes forty times as long counts as one that is missing. A job begins as its last
	// runs did, whatever phases come later. 0: not known.
	First float32 `json:"first,omitempty"`
}

// valid reports whether a pace can be.
func (p Pace) valid() bool {
	return p.Rate >= 0 && p.Rate <= maxValue && p.Spread >= 0 && p.Spread <= 100 && p.Blocks >= 0 && p.Slowest >= 0 && p.Slowest <= maxValue && p.Least >= 0 && p.Least <= maxValue && p.First >= 0 && p.First <= maxValue
}

// log is the logarithm of the rate.
func (p Pace) log() float64 { return math.Log(float64(p.Rate)) }

// Numbers of the alarm. They come from TestSlowerSimulated, which prints what each does to false
// alarms and to what is found.
const (
	// warmSteps of a run are left out: caches fill, kernels are compiled.
	warmSteps = 20
	// blockSteps make a block: two of them behind the first steps end at the 100th.
	blockSteps = 40
	// stretchBlocks are more than a phase lasts in which a job does something else than train.
	stretchBlocks = 8
	// leastRuns of the same kind are needed to know how far runs lie apart.
	leastRuns = 4
	// leastSpread of runs, and of blocks: what two means of the same thing differ by anyway.
	leastSpread = 0.004
	// falseAlarms bounds the chance that a run as fast as ever raises the alarm: by its first two blocks, by
	// how far runs lie apart, and by how far blocks do, each over the whole run. Begins, and steps with long
	// tails, are not normally distributed: with these the three together come to 0.9 in a thousand (at 1.75e-4 to 1.06).
	falseAlarms = 1.5e-4
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
	before       int     // blocks of the run before it began anew
	mean, square float64 // of logarithms of rates (Welford)
	last         [2]float64
	slowest      float64 // least mean of two
	stretch      [stretchBlocks]float64
	least        float64 // least of the fastest blocks of stretches
	begin, first float64 // steps of the first two blocks, and the root of the sum of their rates' squares
	late         bool    // steps came before those that it saw, or between them
	untilNs      int64   // of the latest reading
}

// anew begins anew, later in the same run: what it does by then, as evaluate, other runs did as late.
func (p *Pacer) anew(source string) {
	*p = Pacer{source: source, before: p.before + p.blocks, late: p.late || p.untilNs > 0}
}

// Add takes in a reading of the rate, and reports whether it closed a block. Another source begins anew.
func (p *Pacer) Add(source string, r observe.RateSample) (closed bool) {
	from, to := r.Span()
	steps, ns := r.Rate*float64(to-from)/1e9, float64(to-from)
	if !(r.Rate > 0) || !(ns > 0) || math.IsInf(steps, 1) {
		return false
	}
	if source != p.source {
		p.anew(source)
	}
	p.late = p.late || p.blocks < 2 && p.untilNs > 0 && float64(r.StartNs-p.untilNs)*r.Rate > 1e9
	p.untilNs = r.EndNs
	if p.skipped < warmSteps {
		p.skipped += steps
		return false
	}
	if p.blocks < 2 {
		p.begin, p.first = p.begin+steps, math.Hypot(p.first, r.Rate*math.Sqrt(steps))
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
	if two := (p.last[0] + p.last[1]) / 2; p.blocks == 2 || p.blocks > 2 && two < p.slowest {
		p.slowest = two
	}
	p.stretch[p.blocks%stretchBlocks] = rate
	if best := slices.Max(p.stretch[:]); p.blocks == stretchBlocks || p.blocks > stretchBlocks && best < p.least {
		p.least = best
	}
	return true
}

// Pace is what was gathered; zero before the first block.
func (p *Pacer) Pace() Pace {
	if p.blocks == 0 {
		return Pace{}
	}
	out := Pace{Rate: float32(math.Exp(p.mean)), Blocks: int32(p.before + p.blocks)}
	if p.blocks > 1 {
		out.Slowest, out.Spread = float32(math.Exp(p.slowest)), float32(math.Sqrt(max(0, p.square)/float64(p.blocks-1)))
	}
	if p.blocks > 1 && !p.late {
		out.First = float32(p.first / math.Sqrt(p.begin))
	}
	if p.blocks >= stretchBlocks {
		out.Least = float32(math.Exp(p.least))
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
	another, block float64 // standard deviations, of logarithms: of one more run about the mean of these, of a block
	blocks         float64 // that tell the latter, less one for each run
	ends, alike    []End   // those that it is of, and with those that are too odd for it
}

// UsualOf is the usual rate of a start on its host, in the unit of a source ("": of the latest run
// that has one). Runs tell whose numbers are as comparable says. ok is false where too few runs tell how
// far they lie apart; the rate alone stands then.
func UsualOf(s Start, ends []End, source string) (u Usual, ok bool) {
	here := slices.DeleteFunc(slices.Clone(ends), func(e End) bool {
		return e.Host != s.Host || !(e.Slowest > 0) || !(e.Rate > 0) || source != "" && e.Source != source
	})
	if len(here) == 0 {
		return u, false
	}
	u.Source = here[len(here)-1].Source
	here = slices.DeleteFunc(here, func(e End) bool { return e.Source != u.Source })
	if u.alike = comparable(s.Identity.Numbers, here); len(u.alike) == 0 {
		return Usual{}, false
	}
	here = withoutOdd(u.alike)
	var logs []float64
	for _, e := range here {
		logs = append(logs, e.log())
		u.blocks += float64(max(0, e.Blocks-1))
		u.block += float64(e.Spread*e.Spread) / float64(len(here))
	}
	mean, spread := oneMore(logs)
	u.Runs, u.ends, u.PerSecond, u.block = len(here), here, math.Exp(mean), max(blockRoom*math.Sqrt(u.block), leastSpread)
	if u.Runs < leastRuns {
		return u, false
	}
	u.another = spread
	reach := u.reach(0.05 / 2)
	u.Low, u.High = math.Exp(mean-reach), math.Exp(mean+reach)
	return u, true
}

// comparable are the runs whose pace tells that of a start with these numbers: those with the same,
// where they are enough. Else all, if they already differ among themselves in what differs now, as by
// a seed; what all had alike, and this start has not, may be its batch size.
func comparable(numbers []identity.Hash, ends []End) []End {
	alike := slices.DeleteFunc(slices.Clone(ends), func(e End) bool { return !slices.Equal(e.Numbers, numbers) })
	all := slices.DeleteFunc(slices.Clone(ends), func(e End) bool { return len(e.Numbers) != len(numbers) })
	if len(alike) >= leastRuns || len(all) == 0 || len(numbers) > maxEndNumbers {
		return alike
	}
	for _, n := range all[0].Numbers {
		if !slices.Contains(numbers, n) && !slices.ContainsFunc(all, func(e End) bool { return !slices.Contains(e.Numbers, n) }) {
			return alike
		}
	}
	return all
}

// withoutOdd leaves out at most two runs that are far from the others: of one that was disturbed a
// baseline would be so wide that nothing is found. Where their numbers differ that may be why.
func withoutOdd(ends []End) []End {
	if len(ends) <= leastRuns || slices.ContainsFunc(ends, func(e End) bool { return !slices.Equal(e.Numbers, ends[0].Numbers) }) {
		return ends
	}
	logs := make([]float64, len(ends))
	for i, e := range ends {
		logs[i] = e.log()
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

// oneMore is what some values tell of one more: their mean, and its standard deviation about that.
func oneMore(logs []float64) (mean, spread float64) {
	mean, spread = stat.MeanStdDev(logs, nil)
	return mean, max(spread, leastSpread) * math.Sqrt(1+1/float64(len(logs)))
}

// student is beyond how many standard deviations a share lies, on one side.
func student(share, freedom float64) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile(1 - share)
}

// reach is beyond how far below the usual rate a share of runs lies.
func (u Usual) reach(share float64) float64 { return student(share, float64(u.Runs-1)) * u.another }

// Slower tells that a run is slower than the last ones of its job on this host.
type Slower struct {
	Below float64  // share of the usual rate that is missing
	Runs  int      // that it is held against
	Since []string // what differs from all of them; none: nothing that is known
	early bool     // told by the first steps
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
// look, less each time, so that their sum stays below falseAlarms however long it runs. A job is not
// equally fast throughout: it warms up, evaluates, writes checkpoints. So the blocks must be below the
// slowest of runs that lasted as long, too. Where that hides what is missing, the fastest of more blocks
// tell later: such phases pass.
func (u Usual) Slower(p *Pacer, now End) *Slower {
	if p.blocks < 2 || u.Runs < leastRuns || p.source != u.Source {
		return nil
	}
	below := u.below(p)
	slower := func(below float64) *Slower {
		return &Slower{Below: 1 - math.Exp(-below), Runs: u.Runs, Since: u.differs(now)}
	}
	look := float64(p.before + p.blocks - 1)
	block := max(u.block, float64(p.Pace().Spread))
	if p.blocks <= 4 { // its own few say too little
		block = u.block
	}
	if off := u.first(p); off > 0 {
		s := slower(off)
		s.early = true
		return s
	}
	of := u.reach(falseAlarms)
	by := distuv.UnitNormal.Quantile(1-falseAlarms/(look*(look+1))) * block / math.Sqrt2
	blocks := p.before + p.blocks
	if _, most := u.slowest(blocks, of, func(e End) float32 { return e.Slowest }); below >= max(math.Hypot(of, by), -math.Log(1-leastSlower), most) {
		return slower(below)
	}
	if p.blocks < stretchBlocks {
		return nil
	}
	left := math.Log(u.PerSecond) - slices.Max(p.stretch[:])
	if mean, most := u.slowest(blocks, of, func(e End) float32 { return e.Least }); left >= max(most, mean-math.Log(1-leastSlower)) {
		return slower(left - mean)
	}
	return nil
}

// first is by how much the first two blocks are below those of earlier runs, of logarithms, where that is
// more than they may be; else 0. What such a job does first is alike from run to run: phases that come later
// hide nothing here, and how far first blocks lie apart holds all that makes them differ. Few runs tell that
// roughly. Where a job begins no slower than it goes on, whole runs and all their blocks tell it too: their
// variances add up, with the degrees of freedom of Welch and Satterthwaite.
func (u Usual) first(p *Pacer) float64 {
	if p.blocks != 2 || p.late {
		return 0
	}
	var logs []float64
	for _, e := range u.ends {
		if e.First > 0 {
			logs = append(logs, math.Log(float64(e.First)))
		}
	}
	if len(logs) < leastRuns {
		return 0
	}
	mean, spread := oneMore(logs)
	n := float64(len(logs))
	reach := spread * student(falseAlarms, n-1)
	if mean+spread >= math.Log(u.PerSecond) {
		runs, blocks := u.another*u.another, u.block*u.block/2*(1+1/n)
		all := runs + blocks
		freedom := all * all / (runs*runs/float64(u.Runs-1) + blocks*blocks/max(1, u.blocks))
		reach = min(reach, max(spread, math.Sqrt(all))*student(falseAlarms, freedom))
	}
	if off := mean - math.Log(p.first/math.Sqrt(p.begin)); off >= max(reach, -math.Log(1-leastSlower)) {
		return off
	}
	return 0
}

// below is by how much the latest two blocks are below the usual rate, of logarithms.
func (u Usual) below(p *Pacer) float64 { return math.Log(u.PerSecond) - (p.last[0]+p.last[1])/2 }

// slowest is how far below its pace a run of so many blocks is somewhere, on average and at the most. That
// is alike from run to run, so no look counts: a run has one. of is how far the run as a whole may be.
func (u Usual) slowest(blocks int, of float64, stretch func(End) float32) (mean, most float64) {
	var off []float64
	for _, e := range u.alike {
		if int(e.Blocks) >= blocks && stretch(e) > 0 {
			off = append(off, e.log()-math.Log(float64(stretch(e))))
		}
	}
	if len(off) < leastRuns {
		return 0, math.Inf(1) // none lasted so long: what comes by then is not known
	}
	mean, spread := oneMore(off)
	return mean, mean + math.Hypot(of, student(falseAlarms, float64(len(off)-1))*spread)
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
	if !changed(func(e End) string { return e.Image }) && !changed(func(e End) string { return e.Driver }) { // else they come with those
		add("its libraries changed", func(e End) string { return e.Libraries })
	}
	add("its data is another", func(e End) string { return e.Data })
	queued, allowed, shared := float32(0), math.Inf(1), false
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
