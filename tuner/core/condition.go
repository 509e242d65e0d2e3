package core

import (
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// condition is what a change of a container depended on.
type condition struct {
	class         policies.Class
	cause         policies.Cause
	knee, others  float64 // CPUs
	quota, weight runtime.Value
}

func (j *job) condition(n policies.Node) condition {
	return condition{class: j.verdict.Class, cause: j.verdict.Cause, knee: j.reading.Cost.Knee(), others: n.OtherCPUs,
		quota: j.c.Now[runtime.KnobCPUQuota], weight: j.c.Now[runtime.KnobCPUWeight]}
}

// like reports whether nothing that a failed change depended on is different.
func (a condition) like(b condition) bool {
	return a.class == b.class && a.cause == b.cause && a.stands(b)
}

// stands is like whatever the verdict: the knee within a fifth, the others' use within half
// a CPU, beyond noise.
func (a condition) stands(b condition) bool {
	return a.quota == b.quota && a.weight == b.weight && math.Abs(a.knee-b.knee) <= 0.2*a.knee && math.Abs(a.others-b.others) <= 0.5
}

const (
	// keptFailures are the failed changes of a knob that are remembered.
	keptFailures = 4
	// byAnyVerdict is how often a change fails until the verdict says nothing new: where a job
	// stands on the edge between causes, they take turns.
	byAnyVerdict = 2
)

// hasFailed remembers what a change of this knob depended on.
func (j *job) hasFailed(k runtime.Knob, on condition) {
	j.failed[k] = last(append(slices.Clone(j.failed[k]), on), keptFailures)
}

// failedAlready reports whether a change of this knob failed under like conditions.
func (c *Core) failedAlready(j *job, k runtime.Knob) bool {
	if len(j.failed[k]) == 0 {
		return false
	}
	now, alike := j.condition(c.node), 0
	for _, was := range j.failed[k] {
		if was.like(now) {
			return true
		}
		if was.stands(now) {
			alike++
		}
	}
	return alike >= byAnyVerdict
}
