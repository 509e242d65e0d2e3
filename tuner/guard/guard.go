// Package guard holds plans within the laws: floors, ceilings, what an owner allowed, what
// somebody else decided, cool-downs and the node's limits. A policy proposes; the guard cuts,
// or refuses and says why, once for each plan. It is pure.
package guard

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Gate is what refused a change.
type Gate string

// The gates, in the order in which they are asked.
const (
	GateFixed     Gate = "fixed"     // nothing of the container may be changed now
	GateKnob      Gate = "knob"      // its owner does not allow the knob
	GateYielded   Gate = "yielded"   // somebody else set it
	GateStale     Gate = "stale"     // it changed since the plan was made
	GateBounds    Gate = "bounds"    // its owner's or the host's bounds leave no room
	GateStep      Gate = "step"      // not worth a write
	GateFailed    Gate = "failed"    // a like change failed, and nothing has moved since
	GateCoolDown  Gate = "cool-down" // too soon after the latest change
	GateTrial     Gate = "trial"     // another trial is open
	GateMeasuring Gate = "measuring" // not enough readings to judge it by
	GateRate      Gate = "rate"      // the node's changes a minute
	GateMaxTuned  Gate = "ramp"      // the number of tuned containers
	GateRights    Gate = "rights"    // somebody would fall below what is theirs
	GateIdle      Gate = "idle"      // nothing is free to be lent
	GateNone      Gate = "none"      // nothing was asked: nothing to gain
)

// Gates lists them.
func Gates() []Gate {
	return []Gate{GateFixed, GateKnob, GateYielded, GateStale, GateBounds, GateStep, GateFailed, GateCoolDown, GateTrial, GateMeasuring, GateRate, GateMaxTuned, GateRights, GateIdle}
}

// Rejection is one refusal: what explain, ps, metrics and history print alike.
type Rejection struct {
	Container        string // key
	Gate             Gate
	Value, Threshold float64 // what was held against what; 0, 0 where no number decided
	Text             string  // one phrase for people
}

// Container is one container as the guard knows it.
type Container struct {
	Enrolment     policies.Enrolment
	Now, Original runtime.Values
	Yielded       []runtime.Knob
	// Fixed says why nothing of it may be changed now; "" if something may.
	Fixed       string
	FixedGate   Gate
	Memory      policies.MemoryUse
	Crowds      bool    // the CPUs, as policies.CPUUse has it
	V1Memory    bool    // its memory.swap counts memory and swap together
	Changed     bool    // something of it stands at trimtab's value
	CoolSeconds float64 // left until the next trial of it
	// Failed reports whether a like change failed, and nothing that it depended on has moved.
	Failed func(knob runtime.Knob, decrease bool) bool
	// Readings of its progress that a trial could begin with.
	Readings int
	Unseen   string // why none will come; "": they will
}

// Limits are the node's, at one instant.
type Limits struct {
	Node         policies.Node
	ChangesLeft  int // in this minute, of trials
	MaxTunedLeft int // containers that may be changed for the first time
	// Trials says which open trial shares CPUs with a container; "" if none does.
	Trials func(key string) string
	// Rights says who would fall below what is theirs by changes; "" if nobody would.
	Rights func(changes []policies.Change) string
}

// Check holds a plan within the laws. The plan comes back cut to what it may be; with
// rejections it may not be at all.
func Check(k *policies.Constants, l Limits, find func(key string) *Container, p policies.Plan) (policies.Plan, []Rejection) {
	out := p
	out.Changes = nil
	var no []Rejection
	refuse := func(key string, r Rejection) { r.Container = key; no = append(no, r) }
	for _, ch := range p.Changes {
		c := find(ch.Key)
		if c == nil {
			return p, []Rejection{{Container: ch.Key, Gate: GateStale, Text: "it is gone"}}
		}
		bounded, r := one(k, l, c, p.Kind, ch)
		if r.Gate != "" {
			refuse(ch.Key, r)
			continue
		}
		out.Changes = append(out.Changes, bounded...)
	}
	if len(no) > 0 || len(out.Changes) == 0 {
		return out, no
	}
	if r := together(k, l, find, out); r.Gate != "" {
		for _, ch := range out.Changes {
			refuse(ch.Key, r)
		}
	}
	return out, no
}

// one holds one change, which may bring another with it.
func one(k *policies.Constants, l Limits, c *Container, kind policies.Kind, ch policies.Change) ([]policies.Change, Rejection) {
	switch {
	case c.Fixed != "":
		return nil, Rejection{Gate: c.FixedGate, Text: c.Fixed}
	case !c.Enrolment.Allows(ch.Knob):
		return nil, Rejection{Gate: GateKnob, Text: fmt.Sprintf("knob %s is not allowed (trimtab.knobs)", ch.Knob.Family())}
	case slices.Contains(c.Yielded, ch.Knob):
		return nil, Rejection{Gate: GateYielded, Text: fmt.Sprintf("%s was set by somebody else", ch.Knob)}
	case ch.From != c.Now[ch.Knob]:
		return nil, Rejection{Gate: GateStale, Text: fmt.Sprintf("%s changed in the meantime", ch.Knob)}
	case kind != policies.KindReturn && c.Failed != nil && c.Failed(ch.Knob, ch.Take):
		return nil, Rejection{Gate: GateFailed, Text: "a like change failed; waiting until something it depended on changes"}
	}
	var r Rejection
	switch ch.Knob {
	case runtime.KnobCPUQuota:
		ch, r = quota(k, l.Node, c, ch)
	case runtime.KnobCPUWeight:
		ch, r = weight(l.Node, ch)
	case runtime.KnobMemoryLimit:
		return memory(k, l.Node, c, ch)
	case runtime.KnobGPU:
	default:
		r = Rejection{Gate: GateKnob, Text: fmt.Sprintf("trimtab does not move %s", ch.Knob)}
	}
	return []policies.Change{ch}, r
}

// together are the gates that look at the whole plan.
func together(k *policies.Constants, l Limits, find func(key string) *Container, p policies.Plan) Rejection {
	fresh := map[string]bool{} // containers
	for _, ch := range p.Changes {
		if c := find(ch.Key); !c.Changed {
			fresh[ch.Key] = true
		}
	}
	switch {
	case p.Kind == policies.KindReturn:
		return Rejection{}
	case len(fresh) > max(0, l.MaxTunedLeft):
		return Rejection{Gate: GateMaxTuned, Text: "as many containers as may be (maxTuned) are tuned already"}
	case p.Kind == policies.KindLoan:
		return Rejection{}
	case len(p.Changes) > l.ChangesLeft:
		return Rejection{Gate: GateRate, Value: float64(len(p.Changes)), Threshold: float64(l.ChangesLeft), Text: "the node's limit of changes a minute is reached"}
	}
	for _, ch := range p.Changes {
		c := find(ch.Key)
		switch open := l.Trials(ch.Key); {
		case c.CoolSeconds > 0:
			return Rejection{Gate: GateCoolDown, Value: c.CoolSeconds, Text: fmt.Sprintf("cool-down %.0f s", math.Ceil(c.CoolSeconds))}
		case open != "":
			return Rejection{Gate: GateTrial, Text: open}
		case ch.Criterion == "" && float64(c.Readings) < k.TrialBaseline:
			return Rejection{Gate: GateMeasuring, Value: float64(c.Readings), Threshold: k.TrialBaseline, Text: cmp.Or(c.Unseen, fmt.Sprintf("measuring: %d of %.0f readings of its progress", c.Readings, k.TrialBaseline))}
		}
	}
	if l.Rights != nil {
		if why := l.Rights(p.Changes); why != "" {
			return Rejection{Gate: GateRights, Text: why}
		}
	}
	return Rejection{}
}

// quota: within the owner's bounds and the node's, never below the owner's value unless the
// container is best-effort, and none where the owner set none.
func quota(k *policies.Constants, node policies.Node, c *Container, ch policies.Change) (policies.Change, Rejection) {
	own, limited := original(c, ch.Knob).CPUs()
	now, nowLimited := ch.From.CPUs()
	to, toLimited := ch.To.CPUs()
	_, periodUs, err := runtime.ParseQuota(ch.From)
	if !limited || !nowLimited || !toLimited || err != nil {
		return ch, Rejection{Gate: GateBounds, Text: "no CPU quota to move: its owner set none"}
	}
	ceiling := node.MostCPUs(c.Enrolment, c.Crowds)
	floor := max(c.Enrolment.CPU.Min, 0)
	if !c.Enrolment.BestEffort {
		floor = max(floor, own)
	}
	if !ch.Take {
		to = min(to, ceiling)
	}
	to = max(to, floor)
	switch {
	case !ch.Take && now >= ceiling*(1-k.MinStep):
		return ch, Rejection{Gate: GateBounds, Value: now, Threshold: ceiling, Text: fmt.Sprintf("at its CPU ceiling of %.2f", ceiling)}
	case math.Abs(to-now) < k.MinStep/2*now && to != own:
		return ch, Rejection{Gate: GateStep, Value: to, Threshold: now, Text: "nothing to gain"}
	case (to < now) != ch.Take || to == now:
		return ch, Rejection{Gate: GateBounds, Text: "its bounds leave no room"}
	}
	ch.To = runtime.QuotaFromCPUs(to, periodUs)
	return ch, Rejection{}
}

// weight: a loan and a trial may lower it, since a share is no limit; below its right nobody falls.
func weight(node policies.Node, ch policies.Change) (policies.Change, Rejection) {
	to, okTo := ch.To.Int()
	now, okNow := ch.From.Int()
	switch {
	case !okTo || !okNow || to < 1:
		return ch, Rejection{Gate: GateBounds, Text: "no CPU weight to move"}
	case float64(to) > node.MaxWeight:
		return ch, Rejection{Gate: GateBounds, Value: float64(to), Threshold: node.MaxWeight, Text: "beyond the kernel's largest weight"}
	case to == now:
		return ch, Rejection{Gate: GateStep, Text: "nothing to gain"}
	}
	return ch, Rejection{}
}

// original is a knob's value before trimtab touched it.
func original(c *Container, k runtime.Knob) runtime.Value {
	if v, ok := c.Original[k]; ok {
		return v
	}
	return c.Now[k]
}
