package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/tuner/state"
)

// The goals beside goalShare.
const (
	rateGoal  = 0.03 // how far a rate that is shown may be from the truth
	tenthGoal = 0.90 // of its speed without a limit, for nine programs in ten
	wrongGoal = 0.05 // of the classes may be wrong
	slopeGoal = 0.1  // how far the slope of told over true logarithms may be from one
)

// tally is what trimtab said of programs, held against what they say themselves.
type tally struct {
	programs      int
	reached       []float64
	rates, right  int          // rates that were judged; that were right, or not shown
	shown         int          // of them
	logs          [][2]float64 // logarithms of what became of it: in truth, and as told
	judged, wrong int          // classes
	flips         int
}

// phase is a stretch in which a program's resources stay as they are.
type phase struct {
	state state.Container
	flips int
}

// phase ends a stretch that began when so many records were in the history.
func (c *cage) phase(ctx context.Context, before int) (p phase, after int, err error) {
	if p.state, err = c.daemon.Container(ctx, c.job.Name); err != nil {
		return p, 0, err
	}
	records, err := c.daemon.History(ctx)
	if err != nil {
		return p, 0, err
	}
	for _, r := range records[min(before, len(records)):] {
		if r.Kind == state.RecordVerdict && r.Name == c.job.Name {
			p.flips++
			c.say("told: %s", r.Text)
		}
	}
	p.flips = max(0, p.flips-1) // the first is told of what was changed before
	return p, len(records), nil
}

// class judges the verdict on a program that its quota stops.
func (t *tally) class(p program, v policies.Verdict) string {
	want := p.class
	if want == "" {
		want = policies.ClassCompute
	}
	said := string(v.Class)
	if v.Cause != "" {
		said += ": " + string(v.Cause)
	}
	t.judged++
	if v.Class != want || v.Relief != policies.ReliefQuota {
		t.wrong++
		return fmt.Sprintf("WRONG: %s, %s", said, v.Relief)
	}
	return said
}

// rate judges the rate that is shown beside the one that is true.
func (t *tally) rate(v state.Container, truth float64) string {
	shown := v.Rate
	if v.RateWhy != "" {
		shown = policies.Rate{}
	}
	if t.rates++; shown.PerSecond > 0 {
		t.shown++
	}
	switch off := shown.PerSecond/truth - 1; {
	case shown.PerSecond <= 0:
		t.right++
		return "not shown"
	case math.Abs(off) <= rateGoal:
		t.right++
		return fmt.Sprintf("%s %+.1f %%", shown.Source, 100*off)
	default:
		return fmt.Sprintf("%s %+.1f %% MISS", shown.Source, 100*off)
	}
}

// became takes what became of the program's speed, in truth and as it is told.
func (t *tally) became(v state.Container, truth float64) string {
	told := 0.0
	switch {
	case v.HasGain && v.Gain > -1:
		told = 1 + v.Gain
	case v.Work != nil && v.Work.Ratio > 0:
		told = v.Work.Ratio
	default:
		return fmt.Sprintf("× %.2f, not told", truth)
	}
	t.logs = append(t.logs, [2]float64{math.Log(truth), math.Log(told)})
	return fmt.Sprintf("× %.2f, told %.2f", truth, told)
}

// slope is that of told over true logarithms, through the origin; NaN: nothing was told.
func (t *tally) slope() float64 {
	var xy, xx float64
	for _, l := range t.logs {
		xy, xx = xy+l[0]*l[1], xx+l[0]*l[0]
	}
	return xy / xx
}

// tenth is what nine of ten programs reach; NaN: none was starved.
func (t *tally) tenth() float64 {
	sorted := slices.Sorted(slices.Values(t.reached))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[len(sorted)/10]
}

// missed counts what misses its goal, but for the shares that programs reach: those are each program's.
func (t *tally) missed() int {
	n := t.rates - t.right + t.flips
	if float64(t.wrong) > wrongGoal*float64(t.judged) {
		n += t.wrong
	}
	if t.tenth() < tenthGoal {
		n++
	}
	if slope := t.slope(); slope < 1-slopeGoal || slope > 1+slopeGoal {
		n++
	}
	return n
}

func (t *tally) String() string {
	return fmt.Sprintf("zoo: programs %d reached-median %.3f reached-p10 %.3f rate-right %d of %d (%d shown) log-ratio-slope %.2f wrong-class %d of %d flips %d",
		t.programs, stats.Median(t.reached), t.tenth(), t.right, t.rates, t.shown, t.slope(), t.wrong, t.judged, t.flips)
}
