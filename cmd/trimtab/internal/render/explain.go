package render

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
	verdicts "github.com/trimtab/trimtab/tuner/verdict"
)

// Explain tells all about one container: first one sentence, then the sums.
func Explain(c state.Container, clock Clock) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s\n", name(c.Name), Headline(c, clock))
	for _, section := range []string{
		loan(c), standing(c), memory(c), breakdown(c), verdict(c.Verdict, c.WindowVerdict), prediction(c), allocation(c), lastRuns(c), similar(c), devices(c), gpuErrors(c, clock), trials(c, clock), listed("What is not counted", c.Thinned), listed("What you could do", c.Advice), enrolmentText(c), deciders(c),
	} {
		if section != "" {
			out.WriteString("\n" + section)
		}
	}
	return out.String()
}

// Headline is the one sentence for somebody who reads no further.
func Headline(c state.Container, clock Clock) string {
	switch {
	case c.Pending != "":
		return "restore pending: " + Clean(c.Pending) + "."
	case c.Held:
		return "your own values are back, and stay until `trimtab resume " + name(c.Name) + "`."
	case c.Trial != nil:
		return fmt.Sprintf("since %s %s is on trial, %s expected; it is reverted unless that is measured.",
			clock.at(c.Trial.StartedUnixNs), changes(c.Trial.Changes), expected(*c.Trial))
	case len(c.Changed) > 0:
		return changedHeadline(c, clock)
	}
	if t := latestWould(c); t != nil {
		return fmt.Sprintf("nothing was changed (%s). At %s trimtab would have set %s and expected %s.",
			cmp.Or(Clean(c.WhyNot), "observe mode"), clock.at(t.StartedUnixNs), changes(t.Changes), expected(*t))
	}
	if reverted(c) {
		return "your own values are back: " + Clean(c.Reason()) + "."
	}
	return "nothing was changed: " + Clean(c.Reason()) + "."
}

// reverted reports whether something was changed of which nothing stands any more.
func reverted(c state.Container) bool {
	tried := slices.ContainsFunc(c.Trials, func(t state.Trial) bool { return t.Outcome != state.OutcomeWould })
	return len(c.Yielded) == 0 && (tried || c.Tuning == "returned")
}

// changedHeadline: "14:02 CPU 1.0→1.5, +61 % measured, reverts on exit", or "since 14:02 lent
// 1.4 CPUs that nobody used; 0.4 are yours; …".
func changedHeadline(c state.Container, clock Clock) string {
	var what []string
	for _, k := range c.Changed {
		if c.Loan != nil && (k == runtime.KnobCPUQuota || k == runtime.KnobCPUWeight) {
			continue
		}
		what = append(what, change(k, c.Original[k], c.Now[k]))
	}
	when := ""
	for _, t := range c.Trials {
		if t.Outcome == state.OutcomeKept {
			when = clock.at(t.StartedUnixNs) + " "
			break
		}
	}
	if l := c.Loan; l != nil {
		if when = ""; l.SinceUnixNs > 0 {
			when = "since " + clock.at(l.SinceUnixNs) + " "
		}
		lent := fmt.Sprintf("lent %s CPUs that nobody used; %s are yours", cpus(l.CPUs), cpus(l.Own))
		if l.Trial > 0 {
			lent += fmt.Sprintf(", %s a trial gave", cpus(l.Trial))
		}
		what = append([]string{lent}, what...)
	}
	return when + strings.Join(what, ", ") + "; " + proof(c) + "; reverts on exit."
}

// proof is what is known of what a change did: by counted steps, by what grows with work, or by
// the CPU that is used. The last two are never a rate.
func proof(c state.Container) string {
	switch w := c.Work; {
	case c.Doubt && w != nil:
		return fmt.Sprintf("%s by its own count, which is in doubt: %s by %s", signed(c.Gain), signed(w.Ratio-1), Clean(w.By))
	case c.HasGain:
		return signed(c.Gain) + " measured"
	case w != nil && w.Ratio > 0:
		return "work done: " + signed(w.Ratio-1) + ", by " + Clean(w.By)
	case w != nil && w.CPUs > 0 && c.Rate.PerSecond > 0:
		return "CPU used: " + signed(w.CPUs-1) + "; its rate before is not known in this unit, or is another process's"
	case w != nil && w.CPUs > 0:
		return "CPU used: " + signed(w.CPUs-1) + "; " + cmp.Or(Clean(c.RateWhy), "its steps are not counted")
	}
	return "not measured yet"
}

// loan tells what was lent, how much of it is used, and what to set where it is to stay.
func loan(c state.Container) string {
	l := c.Loan
	if l == nil {
		return ""
	}
	s := section{title: "What it was lent"}
	s.line("its own", cpus(l.Own)+" CPUs")
	if l.Trial > 0 {
		s.line("given by a trial, no loan", cpus(l.Trial)+" CPUs")
	}
	s.line("lent, while nobody else wants it", cpus(l.CPUs)+" CPUs")
	s.line("of that used", cpus(l.Used)+" CPUs")
	if l.Whole {
		s.line("all that may be lent to it", "whether that is enough is not known")
	}
	if l.Enough() {
		s.line("enough", fmt.Sprintf("%s CPUs: the quota to set where it is to keep them (`--cpus %s`)", cpus(l.Stands()), cpus(l.Stands())))
	}
	s.line("why", Clean(l.Why))
	return s.String()
}

// standing lists the values that differ, are yielded, or wait for a preflight.
func standing(c state.Container) string {
	s := section{title: "Limits"}
	for _, k := range c.Now.Sorted() {
		original, changed := c.Original[k], slices.Contains(c.Changed, k)
		if changed && original != "" {
			s.say("%-16s %s now, %s originally", knob(k), value(k, c.Now[k]), value(k, original))
		}
	}
	for _, k := range c.Yielded {
		s.say("%-16s somebody else set it: trimtab leaves it alone", knob(k))
	}
	if c.Preflight != "" {
		s.say("%-16s %s", "GPU preflight", Clean(c.Preflight))
	}
	return s.String()
}

// PartWords says in plain words where a rank's time went.
func PartWords(p policies.Part) string {
	words := map[policies.Part]string{
		policies.PartCompute: "computing on a CPU", policies.PartThrottled: "stopped: out of CPU quota",
		policies.PartContended: "behind other work for a CPU", policies.PartDevice: "waiting for its device",
		policies.PartInputThrottled: "for data: loaders out of quota", policies.PartInputContended: "for data: loaders behind others",
		policies.PartInputStorage: "for data: reading from disk", policies.PartInputRemote: "for data: reading over network",
		policies.PartInputWorkers: "for data: loaders all busy", policies.PartInputOther: "for data: cause not known",
		policies.PartCommunication: "waiting for its peers", policies.PartReclaim: "short of memory", policies.PartOther: "anything else",
	}
	return words[p]
}

const (
	barColumns = 40
	leastShown = 0.005 // of the wall time; smaller parts are summed up in one line
)

// breakdown draws where the time of the slowest rank goes; what is shown sums to
// the whole.
func breakdown(c state.Container) string {
	b := c.Breakdown
	if b.WallNs <= 0 {
		return ""
	}
	s := section{title: "Where the time goes"}
	if c.Ranks > 1 {
		s.title += fmt.Sprintf(" (the slowest of %d processes)", c.Ranks)
	}
	rest, sum := 0.0, 0.0
	for p := range policies.NumParts {
		share := b.Share(p)
		sum += share
		if share < leastShown {
			rest += share
			continue
		}
		s.line(PartWords(p), bar(share))
	}
	if rest > 0 {
		s.line("parts too small to show", bar(rest))
	}
	s.line("together", fmt.Sprintf("%6s  stalled %s, of it %s waiting for data", percent(sum), percent(b.Stalled()), percent(b.Input())))
	return s.String()
}

func bar(share float64) string {
	full := min(max(int(share*barColumns+0.5), 0), barColumns)
	return strings.TrimRight(fmt.Sprintf("%6s  %s", percent(share), strings.Repeat("█", full)), " ")
}

// verdict tells what was concluded, and from which numbers: those of the latest window that said so.
func verdict(v, latest policies.Verdict) string {
	if v.Class == "" {
		return ""
	}
	s := section{title: "What bounds it: " + causeWords(v)}
	lost := ""
	if v.Severity > 0 {
		lost = ", " + percent(v.Severity) + " of the time lost to it"
	}
	s.say("%s%s, confidence %s", classAndCause(v), lost, percent(v.Confidence))
	if v.Why != "" {
		s.say("%s", Clean(v.Why))
	}
	for _, e := range v.Evidence {
		s.line(Clean(e.Name), quantity(e))
	}
	if v.Relief != "" {
		s.say("relief: %s", Clean(v.Relief))
	}
	if latest.Class != "" && classAndCause(latest) != classAndCause(v) {
		s.say("these numbers are of an earlier window; the latest alone says %s: %s", classAndCause(latest), causeWords(latest))
	}
	return s.String()
}

func quantity(e policies.Evidence) string {
	switch e.Unit {
	case "share":
		return percent(e.Value)
	case "B":
		return enrolment.FormatBytes(e.Value)
	case "B/s":
		return enrolment.FormatBytes(e.Value) + "/s"
	case "CPUs", "s":
		return number(e.Value) + " " + e.Unit
	}
	figure := number(e.Value)
	if e.Value == math.Trunc(e.Value) { // a count
		figure = strconv.FormatFloat(e.Value, 'f', 0, 64)
	}
	return strings.TrimSuffix(figure+" "+Clean(e.Unit), " ")
}

// prediction shows what a tick costs, and the speeds that follow from it.
func prediction(c state.Container) string {
	cost := c.Cost
	if cost.Ticks <= 0 || cost.Floor() <= 0 {
		return inBursts(c)
	}
	if c.Aggregated || c.RateWhy != "" && c.Rate.PerSecond > 0 { // what it ticks by is no step
		return withoutSteps(c)
	}
	tick := "tick"
	if c.Rate.Steps {
		tick = "step"
	}
	s := section{title: fmt.Sprintf("What one %s costs (measured over %s %ss)", tick, number(cost.Ticks), tick)}
	s.line("training process on a CPU", milliseconds(cost.TrainerCPU))
	s.line("data loaders on a CPU", milliseconds(cost.LoaderCPU))
	s.line("other threads on a CPU", milliseconds(cost.OtherCPU))
	s.line("waits that no CPU shortens", milliseconds(cost.Device))
	if cost.Queue > 0 {
		s.line("queueing behind others for a CPU", milliseconds(cost.Queue))
	}
	if cost.Spin > 0 {
		s.line("spinning, paid from a quota", milliseconds(cost.Spin))
	}
	if cost.Loaders > 0 {
		s.line("one batch, made by one loader", fmt.Sprintf("%s, %d loaders side by side", milliseconds(cost.Batch), cost.Loaders))
	}
	if c.Bursts > 0 {
		return s.String() + inBursts(c)
	}
	return s.String() + speedsByCPUs(c, tick)
}

// speedsByCPUs shows the speeds that follow from what a tick costs.
func speedsByCPUs(c state.Container, tick string) string {
	correction, learned := c.Correction, ""
	if correction <= 0 || math.IsInf(correction, 1) {
		correction = 1
	}
	if correction != 1 {
		learned = fmt.Sprintf("; speeds times %.2f, as its trials taught", correction)
	}
	s := section{title: "What CPUs buy: " + beyond(c) + learned}
	for _, at := range predictedAt(c) {
		step := c.Cost.Step(at.cpus) / correction
		s.line(cpus(at.cpus)+" CPUs ("+at.what+")", fmt.Sprintf("%s a %s, %s predicted", milliseconds(step), tick, perSecond(1/step, c.Rate)))
		if c.ByCPUs.Known() && c.ByCPUs.Source == c.Rate.Source {
			s.line("", "learned "+asLearned(c.ByCPUs, at.cpus, c.Rate))
		}
	}
	return s.String()
}

// withoutSteps shows what CPUs buy a container whose steps are not counted, as shares of its
// best speed.
func withoutSteps(c state.Container) string {
	if c.Bursts > 0 {
		return inBursts(c)
	}
	s := section{title: "What CPUs buy: " + beyond(c) + ", by its threads' time; " + cmp.Or(Clean(c.RateWhy), "its steps are not counted")}
	for _, at := range predictedAt(c) {
		s.line(cpus(at.cpus)+" CPUs ("+at.what+")", percent(c.Cost.Floor()/c.Cost.Step(at.cpus))+" of its best speed")
	}
	return s.String()
}

// inBursts shows what CPUs buy a container that works in bursts: what stopped them, and what does not.
// Its mean use tells no knee.
func inBursts(c state.Container) string {
	if c.Bursts <= 0 {
		return ""
	}
	s := section{title: "What CPUs buy: it works in bursts, of which its mean use of " + cpus(c.UsedCPUs) + " CPUs tells nothing"}
	s.line("a quota of "+cpus(c.Bursts)+" CPUs", "stopped its bursts of late")
	if now, limited := c.Now[runtime.KnobCPUQuota].CPUs(); limited && now > c.Bursts {
		s.line("a quota of "+cpus(now)+" CPUs", "stands, and hardly stops them")
	}
	return s.String()
}

// beyond says up to how many CPUs more of them help. What this host does not have is not told. Where
// a job queues behind others its knee is lower for that, and would be another without them.
func beyond(c state.Container) string {
	if at, all := knee(c); all {
		return fmt.Sprintf("more speed up to all %s CPUs of this host", cpus(at))
	}
	now, alone := c.Cost.Knee(), c.Cost
	alone.Queue = 0
	if cpus(alone.Knee()) != cpus(now) {
		return fmt.Sprintf("no more speed beyond %s CPUs while it queues behind others as now", cpus(now))
	}
	return fmt.Sprintf("no more speed beyond %s CPUs", cpus(now))
}

// knee is the CPUs beyond which more do not help; all: so many and more, but the host has no more.
func knee(c state.Container) (cpus float64, all bool) {
	if k := c.Cost.Knee(); c.Knee <= 0 || k <= c.Knee*1.01 {
		return k, false
	}
	return c.Knee, true
}

type cpuPoint struct {
	cpus float64
	what string
}

// predictedAt lists the allowances worth comparing, fewest CPUs first.
func predictedAt(c state.Container) []cpuPoint {
	points := []cpuPoint{{c.Cost.Knee(), "the knee"}}
	if at, all := knee(c); all {
		points[0] = cpuPoint{at, "all of this host"}
	}
	add := func(v runtime.Value, what string) {
		n, limited := v.CPUs()
		if !limited {
			return
		}
		for i := range points {
			if cpus(points[i].cpus) == cpus(n) {
				points[i].what += ", " + what
				return
			}
		}
		points = append(points, cpuPoint{n, what})
	}
	if slices.Contains(c.Changed, runtime.KnobCPUQuota) {
		add(c.Original[runtime.KnobCPUQuota], "originally")
	}
	add(c.Now[runtime.KnobCPUQuota], "now")
	slices.SortStableFunc(points, func(a, b cpuPoint) int { return cmp.Compare(a.cpus, b.cpus) })
	return points
}

// allocation tells what the container gets of the node's CPUs, and why.
func allocation(c state.Container) string {
	a := c.Allocation
	if a == nil {
		return ""
	}
	s := section{title: "Its part of this host: " + Clean(a.Why)}
	s.line("CPUs it is entitled to", cpus(c.Entitled))
	s.line("CPUs it can use", cpus(a.Need))
	gets := cpus(a.CPUs)
	if a.Rate > 0 {
		gets += fmt.Sprintf(", for %s of its best rate", percent(a.Rate))
	}
	s.line("CPUs it gets beside others", gets)
	return s.String()
}

// partColumns are those of the words in a section's lines.
const partColumns = 32

// section is a part of what explain tells: a title, and indented lines below it.
type section struct {
	title string
	lines strings.Builder
}

// line sets words and what belongs to them side by side, where that is not "".
func (s *section) line(words, text string) {
	if text != "" {
		s.say("%-*s %s", partColumns, words, text)
	}
}

// say adds a line of free text.
func (s *section) say(format string, args ...any) { fmt.Fprintf(&s.lines, "  "+format+"\n", args...) }

// String is the section; "" where it has no lines.
func (s *section) String() string {
	if s.lines.Len() == 0 {
		return ""
	}
	return s.title + "\n" + s.lines.String()
}

// listed is a section of texts.
func listed(title string, texts []string) string {
	s := section{title: title}
	for _, text := range texts {
		s.say("%s", Clean(text))
	}
	return s.String()
}

// causeWord is a verdict in one word: its cause, or its class where it has none.
func causeWord(v policies.Verdict) string {
	if v.Cause != "" {
		return Clean(string(v.Cause))
	}
	return cmp.Or(Clean(string(v.Class)), "-")
}

// classAndCause are a verdict's words as metrics and the documentation use them.
func classAndCause(v policies.Verdict) string {
	if v.Cause == "" {
		return Clean(string(v.Class))
	}
	return Clean(string(v.Class) + "/" + string(v.Cause))
}

// causeWords says in plain words what bounds a job. Who is short of CPU waits for data by that, or is stopped itself:
// which is the larger part its evidence tells.
func causeWords(v policies.Verdict) string {
	waits := slices.ContainsFunc(v.Evidence, func(e policies.Evidence) bool { return e.Name == verdicts.InputWait && e.Value >= v.Severity/2 })
	short := map[policies.Cause]string{
		policies.CauseThrottled: "its loaders and trainer run out of CPU quota",
		policies.CauseContended: "its loaders and trainer wait for a CPU behind other work",
	}
	if words := short[v.Cause]; words != "" && !waits {
		return words
	}
	causes := map[policies.Cause]string{
		policies.CauseThrottled: "data comes late, because loaders run out of CPU quota",
		policies.CauseContended: "data comes late, because loaders wait for a CPU behind other work",
		policies.CauseStorage:   "data comes late, because disks are slow to read",
		policies.CauseRemote:    "data comes late, because it is read over the network",
		policies.CauseCache:     "data comes late, because the memory limit evicts files that are read again",
		policies.CauseWorkers:   "data comes late, because there are too few loaders",
		policies.CauseDevice:    "its device is busy; there is nothing to gain on the host",
		policies.CauseShared:    "another container works on the same device",
		policies.CauseHost:      "the training process itself needs more CPU than it gets",
		policies.CauseClocks:    "power or heat slows its device down",
		policies.CauseNetwork:   "the network between peers is the limit",
		policies.CauseStraggler: "one of its peers is late",
		policies.CauseReclaim:   "its memory limit makes the kernel take memory away",
		policies.CauseRisk:      "its memory grows towards the limit",
	}
	classes := map[policies.Class]string{
		policies.ClassBalanced: "nothing in particular", policies.ClassIdle: "nothing: no progress is expected now",
		policies.ClassInteractive: "nothing: a person works in it", policies.ClassUnknown: "not known, the evidence is too thin",
	}
	return cmp.Or(causes[v.Cause], classes[v.Class], classAndCause(v))
}
