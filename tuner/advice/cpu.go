package advice

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// burstRoom is the quota that a job needs over the knee of its mean step at most, as a factor: steps and
// batches come in bursts, and a loan settles to what was enough in nine readings of ten. Jobs that
// were recorded twice settled to 1.05 to 1.75 times their knee; with 1.5 all of the predictions are
// within 15 % of that, or above (TestAdviceCameTrue).
const burstRoom = 1.5

const (
	// spareLeast is the shortest time, in seconds, that a peak of use is worth an advice: what a job
	// leaves unused may be a matter of the day of the week.
	spareLeast = 7 * 24 * 3600
	// spareRoom is what is left above a peak, as a factor: bursts shorter than a reading are in none.
	spareRoom = 1.5
	// spareTimes is how far above that the quota or the right must be.
	spareTimes = 2
	// spareCPUs and sparePart bound the quota to advise from below: a CPU, so that one thread runs
	// without a stop, and a part of what it may use now.
	spareCPUs, sparePart = 1, 0.1
	// spareSure is how sure it is that the next week is like this: of two weeks that nothing tells
	// apart, either may have the higher peak.
	spareSure = 0.5
)

// cpuQuota is the quota to set for good.
func (n node) cpuQuota(c state.Container) (Advice, bool) {
	own, limited := c.Original[runtime.KnobCPUQuota].CPUs()
	if !limited || own <= 0 {
		return Advice{}, false
	}
	if slices.Contains(c.Changed, runtime.KnobCPUQuota) {
		return n.quotaThatStands(c, own)
	}
	return n.quotaByCost(c, own)
}

// quotaThatStands is what a loan settled to, or a trial kept.
func (n node) quotaThatStands(c state.Container, own float64) (a Advice, ok bool) {
	now, _ := c.Now[runtime.KnobCPUQuota].CPUs()
	since, why := int64(0), ""
	switch l := c.Loan; {
	case l != nil && l.Settled:
		holds := "with it nothing holds the container back"
		if l.Whole {
			holds = "it is all that may be lent to the container"
		}
		now, since, why = l.Stands(), l.SinceUnixNs, holds+"; as a loan it stands only while nobody else wants the CPU"
	case l == nil && kept(c) != nil && c.Trial == nil:
		since, why = kept(c).EndedUnixNs, "a trial proved it; trimtab reverts it on exit"
	default:
		return a, false // still measured
	}
	s, sure, of := measured(c)
	a = n.quota(c, own, now, s)
	a.Text, a.SinceUnixNs, a.Confidence = why, since, sure
	a.Evidence = append(a.Evidence, of)
	return a, sure > 0 && now <= n.mostCPUs(c) && now > own*(1+n.k.MinStep/2)
}

// quotaByCost is the quota of a container that its own stops, where trimtab may not lend.
func (n node) quotaByCost(c state.Container, own float64) (a Advice, ok bool) {
	if !n.sure(c) || c.Verdict.Relief != policies.ReliefQuota || !(c.Knee > 0) || n.lends(c) {
		return a, false
	}
	to := min(c.Knee*n.room(c), n.mostCPUs(c))
	reach := min(to, max(own, c.Obtainable)) // of more it could make no use now
	s := within(c.Cost.Step(own)/c.Cost.Step(reach), modelError)
	source := "what a step costs, predicted"
	if c.ByCPUs.Known() {
		s, source = onCurve(c.ByCPUs, own, reach), "its rate by CPUs, as learned"
	}
	a = n.quota(c, own, to, s)
	a.Text, a.SinceUnixNs, a.Confidence = "its quota stops it, and trimtab may not lend it any", c.VerdictSinceUnixNs, predictedSure*c.Verdict.Confidence
	a.Evidence = append(a.Evidence, number("CPUs that its mean step can use", c.Knee, "CPUs", source), number("time lost to the quota", c.Verdict.Severity, "share", "the kernel's accounting of its threads"),
		number("CPUs that it could have now", c.Obtainable, "CPUs", "the host's use and the owners' weights"))
	return a, to > own*(1+n.k.MinStep)
}

// room is the quota that a job needs over its knee, as a factor. A quota counts the CPU time of a
// period P. Of steps that take T, P/T+1 lie in one at the most, where P/T is the mean: so (1 + T/P)
// times the knee is enough however each step's work is bunched, and a loan settles to the settling
// margin above what is used. Use while a quota stops a job tells nothing of that: it is the quota.
func (n node) room(c state.Container) float64 {
	_, periodUs, err := runtime.ParseQuota(c.Original[runtime.KnobCPUQuota])
	if err != nil || periodUs <= 0 || c.Aggregated || !c.Rate.Steps {
		return burstRoom
	}
	cycle := max(c.Cost.Floor(), c.Cost.Batch) // loaders work in batches
	return min(burstRoom, (1+cycle*1e6/float64(periodUs))*(1+n.k.SettleMargin))
}

// lends reports whether trimtab gives such a container more quota itself.
func (n node) lends(c state.Container) bool {
	e := c.Enrolment
	return e.Mode == policies.ModeTune && e.Allows(runtime.KnobCPUQuota) && e.Loans != policies.LoansOff && !c.Held &&
		!slices.Contains(c.Yielded, runtime.KnobCPUQuota) && n.s.Daemon.Mode == policies.ModeTune && !n.s.Daemon.Paused && !n.s.Daemon.Disabled
}

// mostCPUs is the largest quota that this host and the container's CPU set can run.
func (n node) mostCPUs(c state.Container) float64 {
	most := n.s.Node.WholeCPUs()
	for _, values := range []runtime.Values{c.Original, c.Now} {
		if cpus, err := runtime.ParseCPUList(string(values[runtime.KnobCpuset])); err == nil && len(cpus) > 0 {
			most = min(most, float64(len(cpus)))
		}
	}
	return most
}

// quota is the part that all advice on a larger quota shares. CPUs are rounded up to hundredths.
func (n node) quota(c state.Container, own, to float64, s saved) Advice {
	to = min(math.Ceil(to*100-1e-6)/100, n.mostCPUs(c))
	return Advice{What: CPUQuota, Paste: cpuLines(to), Current: Setting{Value: own, Unit: "CPUs"}, Advised: Setting{Value: to, Unit: "CPUs"},
		Gives: gives(OfRunTime, 1, s.low, s.share, s.high), Evidence: []Number{number("its own quota", own, "CPUs", "its control group")}}
}

// cpuSpare is the quota that would do for a container that wanted far less than it may for a week.
func (n node) cpuSpare(c state.Container) (a Advice, ok bool) {
	owners, known := c.Original[runtime.KnobCPUQuota]
	has, limited := owners.CPUs()
	name, source := "its quota", "its control group"
	if !limited {
		has, name, source = c.Entitled, "its right by weight", "the owners' weights"
	}
	has = min(has, n.mostCPUs(c))
	to := math.Ceil(max(c.PeakCPUs*spareRoom, spareCPUs, has*sparePart)*10-1e-6) / 10
	if !known || !n.ranFree(c) || !(to*spareTimes <= has) {
		return a, false
	}
	share := func(to float64) float64 { return max(0, 1-to/has) }
	since := time.Unix(0, c.PeakSinceUnixNs).UTC().Format("2 Jan 15:04 MST")
	return Advice{What: CPUSpare, Text: fmt.Sprintf("since %s it wanted at most %.2f CPUs: with a smaller quota the rest can be promised to others", since, c.PeakCPUs), Paste: cpuLines(to),
		Current: Setting{Value: has, Unit: "CPUs"}, Advised: Setting{Value: to, Unit: "CPUs"}, Confidence: spareSure, SinceUnixNs: c.PeakSinceUnixNs,
		Gives: gives(OfCPUs, has, share(2*to), share(to), share(min(to, c.PeakCPUs))),
		Evidence: []Number{number(name, has, "CPUs", source), number("the most it wanted in one reading", c.PeakCPUs, "CPUs", "its control group"),
			number("watched for", n.age(c.PeakSinceUnixNs), "s", "this daemon, and those before it")}}, true
}

// ranFree reports whether a container was seen at work for long, with nothing that holds it back:
// one that wants more CPU, or that trimtab has changed, tells nothing of what it can spare.
func (n node) ranFree(c state.Container) bool {
	v := c.Verdict
	held := v.Cause == policies.CauseThrottled || v.Cause == policies.CauseContended || slices.Contains([]string{policies.ReliefQuota, policies.ReliefWeight, policies.ReliefGrant}, v.Relief)
	return !held && c.Loan == nil && !slices.Contains(c.Changed, runtime.KnobCPUQuota) && c.PeakCPUs >= n.k.ActiveCPUs && n.age(c.PeakSinceUnixNs) >= spareLeast
}
