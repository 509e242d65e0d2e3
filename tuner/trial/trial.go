package trial

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// Action is what a trial asks for.
type Action uint8

// The actions. Switch takes the change back, or makes it again; End closes the trial.
const (
	Wait Action = iota
	Switch
	End
)

// Evidence is what a criterion judges by, at one instant.
type Evidence struct {
	NowNs int64
	// Samples are the readings of progress since the latest switch took hold.
	Samples []observe.RateSample
	// SeenNs is when progress was last seen, also by readings under excess steal.
	SeenNs int64
	// Harm says what hurts under the change; "" if nothing does.
	Harm string
}

// Criterion tells whether a plan may stay.
type Criterion interface {
	// Judge is asked at each tick while the trial's latest block is read.
	Judge(k *policies.Constants, t *Trial, e Evidence) (Action, Result)
}

// Trial is a plan that is being judged. Its blocks alternate: the baseline, then with the
// change, without it, and so on. The zero value is not valid; see New.
type Trial struct {
	Criterion Criterion
	Blocks    []Block
	// SinceNs is from when readings of the latest block count; 0: its write is under way.
	SinceNs int64
	// FrozenNs is time of that block that did not count.
	FrozenNs int64
	Result   Result
}

// New begins a trial whose change is about to be written.
func New(c Criterion, baseline []observe.RateSample) *Trial {
	return &Trial{Criterion: c, Blocks: []Block{{Samples: baseline}, {With: true}}}
}

// With reports whether the change stands, or is on its way.
func (t *Trial) With() bool { return t.Blocks[len(t.Blocks)-1].With }

// Switched says that the latest switch has been written.
func (t *Trial) Switched(k *policies.Constants, nowNs int64) {
	t.SinceNs, t.FrozenNs = nowNs+int64(k.TrialSettle*1e9), 0
}

// Step takes in what was read, and says what to do.
func (t *Trial) Step(k *policies.Constants, e Evidence) Action {
	if t.SinceNs == 0 {
		return Wait
	}
	t.Blocks[len(t.Blocks)-1].Samples = e.Samples
	if n := len(e.Samples); n > 0 {
		e.SeenNs = max(e.SeenNs, e.Samples[n-1].EndNs)
	}
	action, result := End, Result{Outcome: Worse, Why: e.Harm}
	if e.Harm == "" {
		action, result = t.Criterion.Judge(k, t, e)
	}
	if result.Outcome != Pending || result.Ratio > 0 {
		t.Result = result
	}
	if action == Switch {
		t.Blocks = append(t.Blocks, Block{With: !t.With()})
		t.SinceNs = 0
	}
	return action
}

// Abandon ends a trial without a judgement.
func (t *Trial) Abandon(why string) { t.Result.Outcome, t.Result.Why = Void, why }

// silentBlocks times a usual block's length without a whole one is no answer.
const silentBlocks = 10

// Progress judges by what the job gets done: its counted rate, or its relative witnesses. It
// goes back and forth until the readings tell.
type Progress struct {
	Decrease bool // the change takes: it must not be inferior
}

// Judge implements Criterion.
func (p Progress) Judge(k *policies.Constants, t *Trial, e Evidence) (Action, Result) {
	whole := float64(len(e.Samples)) >= k.TrialBlock
	r, ended := Judge(k, p.Decrease, t.Blocks, whole)
	switch {
	case ended:
		return End, r
	case len(t.Blocks) == 2 && !p.Decrease && Regressed(k, t.Blocks):
		return Switch, r
	case whole:
		return Switch, r
	}
	return t.wait(k, e, 0, r)
}

// wait is for readings after so many seconds, and not without end.
func (t *Trial) wait(k *policies.Constants, e Evidence, after float64, r Result) (Action, Result) {
	if float64(e.NowNs-t.SinceNs-t.FrozenNs)-after*1e9 <= silentBlocks*k.TrialBlock*t.reading() {
		return Wait, r
	}
	r = Result{Outcome: Inconclusive, Why: fmt.Sprintf("its rate was not seen for %.0f s", float64(e.NowNs-t.SinceNs)/1e9)}
	if float64(e.NowNs-e.SeenNs) <= k.TrialBlock*t.reading() {
		r.Why = fmt.Sprintf("the hypervisor takes too much of its readings to tell in %.0f s", float64(e.NowNs-t.SinceNs)/1e9)
	}
	return End, r
}

// reading is how long one of the baseline is, ns.
func (t *Trial) reading() float64 {
	ns, s := int64(0), t.Blocks[0].Samples
	for _, r := range s { // between two of them the job may have been stopped
		ns += r.EndNs - r.StartNs
	}
	return max(float64(ns)/float64(max(1, len(s))), 1e9)
}

// NoHarm keeps a change unless harm is seen: for what protects, or takes what nothing misses.
type NoHarm struct {
	// Seen: the rate must have been read under the change, since a job that hangs shows no harm.
	Seen bool
}

// Judge implements Criterion.
func (h NoHarm) Judge(k *policies.Constants, t *Trial, e Evidence) (Action, Result) {
	passed := float64(e.NowNs-t.SinceNs-t.FrozenNs) / 1e9
	r, ok := Compare(k, t.Blocks, k.TrialAlpha/float64(looks))
	fell := ok && r.High < 1-k.RightMargin
	switch {
	case fell:
		return End, r.as(Worse, "its rate fell: %s")
	case passed < k.CostSeconds:
		return Wait, r
	case h.Seen && float64(e.NowNs-e.SeenNs) > k.TrialBlock*t.reading():
		return End, Result{Outcome: Worse, Why: "its rate was not seen after it"}
	case h.Seen && (float64(len(e.Samples)) < k.TrialBlock || float64(e.NowNs-e.Samples[len(e.Samples)-1].EndNs) > k.TrialBlock*t.reading()): // excess steal
		return t.wait(k, e, k.CostSeconds, r)
	}
	r.Outcome, r.Why = Better, "it did no harm"
	return End, r
}
