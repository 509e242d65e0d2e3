package control

import (
	"maps"
	"path"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/model"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/verdict"
)

// containerState is what is remembered of one container.
type containerState struct {
	key   string
	c     Container // as of this tick
	state State
	obs   *observe.State
	// answers are still to come for loans and returns of it.
	answers int

	verdicts verdict.Hold
	learned  learned
	loan     loan
	memory   memoryLoan
	failures trial.Failures
	rights   rights

	// refused is why nothing is done now, by the last gate that refused something; asked is
	// whether anything was proposed this tick.
	refused  guard.Rejection
	advice   []string
	trials   []state.Trial              // ended, the latest first
	plan     string                     // of its open trial; "": none
	unproven *Order                     // what stands without a proof, to be asked again
	dealt    runtime.Value              // the weight that a kept trial gave it, of this daemon or of the one before
	coolNs   int64                      // no trial of it before
	retries  int                        // trials in a row that told nothing
	would    map[string]policies.Change // told in observe mode, by policy and knob
	before   baseline
	parts    [policies.NumParts]int64
	gpu      visibilityState
	known    known
}

// learned is what is known of a job whatever stands: its curves, and how far they are off.
type learned struct {
	response   model.Learner
	curve      policies.Curve
	paging     model.Learner
	byMemory   policies.Curve
	correction float64
	// unsteady counts the windows since the last one that can be planned on.
	unsteady int
}

// rights are what a container has a right to, and could have.
type rights struct {
	entitled, obtainable float64
	calmWaiting          float64 // share of time it waited while nothing was lent to anybody
	calmKnown            bool
}

// baseline is the rate under the owner's values, before the first change of them.
type baseline struct {
	source       string
	rate, cpus   float64
	least        float64 // times that CPU are told at least: it is no other job's loss
	fromNs, atNs int64   // start of the readings that it is the mean of; of the change
}

// known is what the profiles of known jobs say of one.
type known struct {
	root             int32 // the first of its training processes
	similar          *policies.Similar
	from             []uint64 // their entries
	entry            uint64   // what it teaches
	taughtNs         int64
	firstNs, sinceNs int64 // when its steps were first seen; when another job began in it, 0: its first is there
	taken            []string
	run              profiles.Run
	speeds           []profiles.Speed
}

func newContainer(key string) *containerState {
	return &containerState{key: key, state: StateWatched, obs: &observe.State{}, would: map[string]policies.Change{}, learned: learned{correction: 1, unsteady: curveKept}}
}

// on moves its state.
func (s *containerState) on(e Event) { s.state = s.state.Next(e) }

// original is a knob's value before trimtab touched it.
func (s *containerState) original(k runtime.Knob) runtime.Value {
	if v, ok := s.c.Original[k]; ok {
		return v
	}
	return s.c.Now[k]
}

// originals are all knobs before trimtab touched them; not to be written to.
func (s *containerState) originals() runtime.Values {
	if len(s.c.Original) == 0 && s.c.Now != nil {
		return s.c.Now
	}
	out := runtime.Values{}
	maps.Copy(out, s.c.Now)
	maps.Copy(out, s.c.Original)
	return out
}

// quotas are the CPUs of its owner's quota and of the one that stands; 0: none.
func (s *containerState) quotas() (own, now float64) {
	own, _ = s.original(runtime.KnobCPUQuota).CPUs()
	now, _ = s.c.Now[runtime.KnobCPUQuota].CPUs()
	return own, now
}

func number(v runtime.Value) float64 {
	n, _ := v.Int()
	return float64(n)
}

// lent reports whether it has more CPU than its owner's quota.
func (s *containerState) lent(k *policies.Constants) bool {
	own, now := s.quotas()
	return own > 0 && now > own*(1+k.MinStep/2)
}

// changed reports whether something of it stands at trimtab's value.
func (s *containerState) changed() bool {
	for k, original := range s.c.Original {
		if original != s.c.Now[k] {
			return true
		}
	}
	return false
}

// memoryUse is its memory under the limit that stands.
func (s *containerState) memoryUse(k *policies.Constants) policies.MemoryUse {
	limit, _ := s.c.Now[runtime.KnobMemoryLimit].Int()
	use := s.obs.MemoryUse(k, float64(limit))
	use.Loan = s.memory.seen(s.obs)
	if s.memory.atNs == 0 && s.memory.loweredNs == 0 && s.c.Now[runtime.KnobMemoryLimit] == s.original(runtime.KnobMemoryLimit) && float64(len(s.obs.Uses)) < k.UnusedSeconds {
		_, use.Last = s.known.run.Last(k)
	}
	use.Loan.Missed = s.failures.Blocks(k, runtime.KnobMemoryLimit, true, memoryConditions(policies.MemoryUse{Held: use.Held}, s.c.Now[runtime.KnobMemoryLimit]))
	return use
}

// resourcesChanged notes that something of it was changed: what it did before tells no more.
func (s *containerState) resourcesChanged(ns int64) {
	s.obs.ResourcesChanged(ns)
	s.verdicts.Forget()
}

// progress is what tells that a container gets on: its counted rate, else the work done by
// relative witnesses, over a level of before. The zero value is none.
type progress struct {
	source string // named for people
	unit   string // of the rate, see state.Trial
	sound  []observe.Witness
	level  [observe.NumWitnesses]float64
}

// progressSince finds what tells it best in the readings since an instant.
func (s *containerState) progressSince(k *policies.Constants, fromNs int64) progress {
	if s.obs.Rates.Source != "" && s.obs.Rates.Why == "" {
		p := progress{source: s.obs.Rates.Source, unit: state.UnitRelative}
		if s.obs.Rates.Confirmed && observe.Counted(p.source) {
			p.unit = state.UnitSteps
		}
		return p
	}
	sound := s.obs.Work.Sound(k, fromNs, 0)
	if len(sound) == 0 {
		return progress{}
	}
	return progress{source: observe.Names(sound), unit: state.UnitRelative, sound: sound, level: s.obs.Work.Level(fromNs)}
}

// baselineFrom is since when readings of containers are a trial's baseline: with what they have
// now, and as many as a baseline needs, however long a step takes.
func (c *Controller) baselineFrom(all ...*containerState) int64 {
	n := int(c.k().TrialBaseline)
	from, changed := c.now()-int64(2*n)*second, int64(0)
	for _, s := range all {
		if r := s.obs.Rates.Samples; len(r) >= n {
			from = min(from, r[len(r)-n].StartNs)
		}
		changed = max(changed, s.obs.ChangedNs())
	}
	return max(from, changed)
}

// samples are the readings of it since an instant; none where it is counted another way now.
func (p progress) samples(s *containerState, fromNs int64) []observe.RateSample {
	switch {
	case p.sound != nil:
		return s.obs.Work.Series(p.sound, p.level, fromNs)
	case p.source == "" || s.obs.Rates.Source != p.source:
		return nil
	}
	return s.obs.Rates.Since(fromNs)
}

// seenNs is when it was last seen, also under excess steal, or could not be as the job was stopped; 0: never.
func (p progress) seenNs(s *containerState) int64 {
	if p.sound != nil {
		return s.obs.Work.SeenNs
	}
	return s.obs.Rates.SeenNs() + s.obs.Rates.RestNs()
}

// unseen: what it gets done shows nowhere, though it was read for long enough with what it has.
func (s *containerState) unseen(k *policies.Constants, baselineFrom int64) bool {
	from := s.obs.ChangedNs()
	return s.obs.Rates.Source == "" && s.obs.Work.Seconds(from) >= k.CostSeconds &&
		s.progressSince(k, from).source == "" && s.progressSince(k, baselineFrom).source == ""
}

// parent is the control group below which its weight counts: weights compare among siblings.
func (s *containerState) parent() string { return path.Dir(s.c.Cgroup.Dir("cpu")) }
