package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/trimtab/trimtab/test/stats"
)

// The goals for the default policy.
const (
	defaultPolicy = "trimtab"
	goalFree      = 0.995 // of the sum without quotas
	goalGrant     = 3.0   // seconds from the first throttled second to the first grant, of 95 of 100
	goalRight     = 0.97  // of what is one's own, in any five seconds
	goalOfBest    = 0.97  // of the best static allocation's sum, at steady state
	goalRival     = 0.98  // of any rival's sum, by the lower end of the interval
	goalGain      = 1.02  // of a rival's sum that a static allocation surely reaches: something to gain
	goalStarved   = 2.3   // times a starved job's rate at its static share
	goalSeconds   = 10.0  // in which it is reached, or in so many steps of the starved job
	goalSteps     = 20.0
	goalEntitled  = 0.97
	goalReached   = 0.95 // of its own final rate: "time to 95 %"
)

// figure is a mean with its interval; the interval is NaN below two values.
type figure struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	N    int     `json:"n"`
}

func figureOf(xs []float64) figure {
	f := figure{Mean: stats.Mean(xs), Low: math.NaN(), High: math.NaN(), N: len(xs)}
	if len(xs) > 1 {
		f.Low, f.High = stats.Interval95(xs)
	}
	return f
}

// line is one policy on one mix.
type line struct {
	Policy   string `json:"policy"`
	Sum, Min figure
	OfBest   figure  // of the limit's sum, repeat by repeat
	To95     float64 // seconds until the sum is first at 95 % of its final value, median; negative: not within the run
	Changes  float64 // mean of the live runs
	Live     int     // live runs; To95, Changes, Fall and After are theirs, where there are any
	Moving   bool    // limits still changed in some live run's steady state
	// Fall is the least of what a job had of its entitlement over whole runs, and whose.
	Fall    figure
	FallJob string
	// Starved is a starved job's final rate over that at its static share, the least of them; After the seconds
	// until it was goalStarved times, the longest of the jobs' medians; negative: not within the run.
	Starved, After float64
	Within         float64 // the seconds that the goal allows
	// Grants are the seconds from the first throttled second to the first grant, of all live runs.
	// Right is the least of its own that a job had in any five seconds, and whose.
	Grants   []float64
	Right    float64
	RightJob string
}

// notLive stands for seconds of what was not at work.
const notLive = -2

// goal is one promise and whether it was kept.
type goal struct {
	What   string `json:"what"`
	Result string `json:"result"` // met, MISS, unclear; "no goal" where no allocation reaches it
	Why    string `json:"why"`
}

// report is all of one mix.
type report struct {
	Mix    string    `json:"mix"`
	Why    string    `json:"why"`
	CPUs   float64   `json:"cpus"`
	Share  float64   `json:"share"` // the equal share: quota, CPUs; weights are 1024
	Jobs   []string  `json:"jobs"`
	Alone  []float64 `json:"alone"`  // steps/s
	Needs  []float64 `json:"needs"`  // CPUs used then
	Static []float64 `json:"static"` // at equal shares
	Best   string    `json:"best"`
	Limit  string    `json:"limit"` // "best", or "equal" where that was better
	Looks  int       `json:"looks"`
	Lines  []line    `json:"lines"`
	Goals  []goal    `json:"goals"`
	Runs   []run     `json:"runs"`
	// Steal of the machine's CPU time while runs were measured: mean and most.
	Steal, MostSteal float64
}

// of are the runs of one policy, by repeat.
func of(runs []run, policy string) (out []run) {
	for _, r := range runs {
		if r.Policy == policy {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b run) int { return a.Repeat - b.Repeat })
	return out
}

// judge makes the report of a session.
func (s *session) judge() report {
	rep := report{Mix: s.mix.name, Why: s.mix.why, CPUs: cpus(), Share: share(s.mix), Alone: s.alone, Needs: s.needs, Best: s.best.name, Looks: s.looks, Runs: s.runs}
	for _, j := range s.mix.jobs {
		rep.Jobs = append(rep.Jobs, j.name)
	}
	for _, r := range s.runs {
		rep.Steal += r.Whole.Steal / float64(len(s.runs))
		rep.MostSteal = max(rep.MostSteal, r.Whole.Steal)
	}
	equal := of(s.runs, nameStatic)
	if len(equal) == 0 {
		return rep
	}
	static := reference(equal)
	rep.Static, rep.Limit = static.Rates, s.limit()
	for _, name := range s.o.variants(s.mix) {
		if runs := of(s.runs, name); len(runs) > 0 {
			rep.Lines = append(rep.Lines, s.line(name, runs, static, rep.Limit))
		}
	}
	rep.Goals = s.goals(rep.Lines, rep.Limit)
	return rep
}

// reference is the mean of the runs at equal shares.
func reference(equal []run) (static stretch) {
	var rates, used [][]float64
	for _, r := range equal {
		rates, used = append(rates, r.Steady.Rates), append(used, r.Steady.CPUs)
	}
	return stretch{Rates: average(rates), CPUs: average(used)}
}

func (s *session) sums(runs []run) (sums, mins []float64) {
	for _, r := range runs {
		sum, least := sumMin(s.mix, normal(r.Steady.Rates, s.alone))
		sums, mins = append(sums, sum), append(mins, least)
	}
	return sums, mins
}

// limit is the best static allocation that is known: what the search found, or equal
// shares where it found nothing better.
func (s *session) limit() string {
	best, _ := s.sums(of(s.runs, nameBest))
	equal, _ := s.sums(of(s.runs, nameStatic))
	if len(best) == 0 || stats.Mean(equal) > stats.Mean(best) {
		return nameStatic
	}
	return nameBest
}

func (s *session) line(name string, runs []run, static stretch, limit string) line {
	l := line{Policy: name}
	sums, mins := s.sums(runs)
	l.Sum, l.Min = figureOf(sums), figureOf(mins)
	l.OfBest = figureOf(s.ratios(name, limit))
	var to95, changes []float64
	var had [][]float64
	atWork := live(runs)
	l.Live = len(atWork)
	if l.Live == 0 {
		l.To95, atWork = notLive, runs
	}
	l.Right = math.Inf(1)
	for _, r := range atWork {
		if r.trace != nil {
			l.Grants = append(l.Grants, r.trace.grants(r.up)...)
			if least, job := r.trace.least(s.own(static)); least < l.Right {
				l.Right, l.RightJob = least, s.mix.jobs[job].name
			}
		}
		l.Moving = l.Moving || r.Moving
		to95 = append(to95, s.to95(r))
		changes = append(changes, float64(r.Changes))
		had = append(had, entitled(s.mix, r.Whole.Rates, r.Whole.CPUs, static))
	}
	if l.Changes = stats.Mean(changes); l.Live > 0 {
		l.To95 = medianReached(to95)
	}
	mean := average(had)
	worst := slices.Index(mean, slices.Min(mean))
	var his []float64
	for _, run := range had {
		his = append(his, run[worst])
	}
	l.Fall, l.FallJob = figureOf(his), s.mix.jobs[worst].name
	s.starved(&l, runs, static)
	return l
}

// live are the runs in which a variant was at work.
func live(runs []run) []run {
	return slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.Still })
}

// ratios of one policy's sums to another's, repeat by repeat: what both met in the same
// minutes cancels.
func (s *session) ratios(a, b string) (out []float64) {
	for _, x := range of(s.runs, a) {
		for _, y := range of(s.runs, b) {
			if x.Repeat == y.Repeat {
				sumX, _ := sumMin(s.mix, normal(x.Steady.Rates, s.alone))
				sumY, _ := sumMin(s.mix, normal(y.Steady.Rates, s.alone))
				out = append(out, sumX/sumY)
			}
		}
	}
	return out
}

func (s *session) to95(r run) float64 {
	final, _ := sumMin(s.mix, normal(r.lastEnd, s.alone))
	return reached(r.rolling, func(rates []float64) float64 {
		sum, _ := sumMin(s.mix, normal(rates, s.alone))
		return sum
	}, goalReached*final)
}

// medianReached is the median of times of which negative ones never came.
func medianReached(times []float64) float64 {
	sorted := slices.Clone(times)
	for i, t := range sorted {
		if t < 0 {
			sorted[i] = math.Inf(1)
		}
	}
	if m := stats.Median(sorted); !math.IsInf(m, 1) {
		return m
	}
	return -1
}

// starved fills in what became of the jobs that equal shares starve.
func (s *session) starved(l *line, runs []run, static stretch) {
	l.Starved, l.After = math.Inf(1), 0
	for i, j := range s.mix.jobs {
		if !j.starved || static.Rates[i] <= 0 {
			continue
		}
		var gains, after []float64
		for _, r := range runs {
			gains = append(gains, r.Steady.Rates[i]/static.Rates[i])
		}
		for _, r := range live(runs) {
			after = append(after, reached(r.rolling, func(rates []float64) float64 { return rates[i] }, goalStarved*static.Rates[i]))
		}
		l.Starved = min(l.Starved, stats.Mean(gains))
		if len(after) == 0 {
			l.After = notLive
		} else if t := medianReached(after); t < 0 || l.After < 0 {
			l.After = -1
		} else {
			l.After = max(l.After, t)
		}
		l.Within = max(l.Within, goalSeconds, goalSteps/static.Rates[i])
	}
	if math.IsInf(l.Starved, 1) {
		l.Starved = 0
	}
}

// goals are judged for the default policy.
func (s *session) goals(lines []line, limit string) (out []goal) {
	i := slices.IndexFunc(lines, func(l line) bool { return l.Policy == defaultPolicy })
	if i < 0 {
		return nil
	}
	l := lines[i]
	out = append(out, atLeast(fmt.Sprintf("%s: ≥ %.0f %% of the best static allocation", defaultPolicy, 100*goalOfBest), l.OfBest, goalOfBest))
	for _, other := range lines {
		if kindOf(other.Policy) == kindRival {
			ratio := figureOf(s.ratios(defaultPolicy, other.Policy))
			out = append(out, atLeast(fmt.Sprintf("%s: not worse than %s by more than 2 %%", defaultPolicy, other.Policy), ratio, goalRival))
			if gain := figureOf(s.ratios(limit, other.Policy)); gain.Low > goalGain || gain.N == 1 && gain.Mean > goalGain {
				out = append(out, atLeast(fmt.Sprintf("%s: better than %s, to which %.0f %% are left to gain", defaultPolicy, other.Policy, 100*(gain.Mean-1)), ratio, 1))
			}
		}
	}
	if l.Within > 0 {
		g := goal{What: fmt.Sprintf("%s: a starved job ≥ %.1f × its static share within %.0f s", defaultPolicy, goalStarved, l.Within), Result: "MISS",
			Why: fmt.Sprintf("%.2f × at the end, %s", l.Starved, afterText(l.After))}
		had := math.Inf(1)
		if b := slices.IndexFunc(lines, func(l line) bool { return l.Policy == nameBest }); b >= 0 && limit == nameBest {
			had = lines[b].Starved
		}
		switch {
		case l.Starved >= goalStarved && l.After >= 0 && l.After <= l.Within:
			g.Result = "met"
		case had < goalStarved: // neither has what it is held against
			g.Result, g.Why = "no goal", fmt.Sprintf("%.2f × at the end; the best static allocation gives %.2f ×", l.Starved, had)
		}
		out = append(out, g)
	}
	if free := s.ratios(defaultPolicy, "free"); len(free) > 0 {
		out = append(out, atLeast(fmt.Sprintf("%s: ≥ %.1f %% of no quotas", defaultPolicy, 100*goalFree), figureOf(free), goalFree))
	}
	if n := len(l.Grants); n > 0 {
		p95 := slices.Sorted(slices.Values(l.Grants))[min(n-1, int(math.Ceil(0.95*float64(n)))-1)]
		out = append(out, verdictOf(fmt.Sprintf("%s: first grant within %.0f s of the first throttled second, of 95 of 100", defaultPolicy, goalGrant), p95 <= goalGrant, fmt.Sprintf("%.1f s, of %d", p95, n)))
	}
	if !math.IsInf(l.Right, 1) {
		what, least := fmt.Sprintf("%s: no job below %.2f of its own in any 5 s", defaultPolicy, goalRight), goalRight
		why := fmt.Sprintf("%s: %.3f", l.RightJob, l.Right)
		if e := slices.IndexFunc(lines, func(l line) bool { return l.Policy == nameStatic }); e >= 0 && !math.IsInf(lines[e].Right, 1) {
			least = min(least, lines[e].Right)
			why += fmt.Sprintf("; where nobody tunes, %s: %.3f", lines[e].RightJob, lines[e].Right)
		}
		out = append(out, verdictOf(what, l.Right >= least, why))
	}
	g := atLeast(fmt.Sprintf("%s: no job below %.2f of its entitlement", defaultPolicy, goalEntitled), l.Fall, goalEntitled)
	g.Why = l.FallJob + ": " + g.Why
	return append(out, g)
}

func verdictOf(what string, met bool, why string) goal {
	if met {
		return goal{What: what, Result: "met", Why: why}
	}
	return goal{What: what, Result: "MISS", Why: why}
}

// own is what is each job's own: what it has at equal shares, and of a stranger no more than its share.
func (s *session) own(static stretch) []own {
	out := make([]own, len(s.mix.jobs))
	for i, j := range s.mix.jobs {
		out[i] = own{cpus: static.CPUs[i], rate: static.Rates[i]}
		if j.stranger {
			out[i] = own{cpus: min(static.CPUs[i], share(s.mix))}
			continue
		}
		out[i].rateIn = func(from, to time.Duration) float64 {
			rate, _ := s.bed.jobs[i].Rate(from, to)
			return rate
		}
	}
	return out
}

func afterText(after float64) string {
	if after < 0 {
		return "the factor was not reached within the run"
	}
	return fmt.Sprintf("the factor was reached after %.1f s", after)
}

// atLeast is met where the whole interval is, missed where none of it is.
func atLeast(what string, f figure, least float64) goal {
	g := goal{What: what, Result: "unclear", Why: f.percent()}
	switch {
	case f.N < 2 && f.Mean >= least, f.Low >= least:
		g.Result = "met"
	case f.N < 2, f.High < least:
		g.Result = "MISS"
	}
	if f.N < 2 {
		g.Why += ", of one run: no interval"
	}
	return g
}

func (f figure) percent() string {
	if f.N < 2 {
		return fmt.Sprintf("%.1f %%", 100*f.Mean)
	}
	return fmt.Sprintf("%.1f %% (95 %%: %.1f … %.1f, %d runs)", 100*f.Mean, 100*f.Low, 100*f.High, f.N)
}
