package core

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/trial"
)

// setByOthers is a knob that decides on a job's rate and that somebody set on it
// between two ticks; "" if there is none. What trimtab writes, or wrote, has an original.
func setByOthers(was, is Container) runtime.Knob {
	for _, k := range []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobCPUWeight, runtime.KnobCpuset, runtime.KnobMemoryLimit} {
		_, before := was.Original[k]
		_, now := is.Original[k]
		if !before && !now && was.Now[k] != is.Now[k] {
			return k
		}
	}
	before, had := was.Now[runtime.KnobGPU]
	now, has := is.Now[runtime.KnobGPU]
	if had && has && before != now && was.Original[runtime.KnobGPU] == "" && is.Original[runtime.KnobGPU] == "" {
		return runtime.KnobGPU
	}
	return ""
}

// disturbed ends the trials of a container on which somebody else set another knob:
// what its rate does from then on is not the plan's doing. The next plan, for what
// stands now, need not wait.
func (c *Core) disturbed(j *job, k runtime.Knob, d *Decision) {
	for _, t := range c.trialsOf(j.key) {
		c.abandon(t, fmt.Sprintf("%s was set by somebody else", k), d)
		j.cooledNs = 0
	}
}

const (
	// workRatio is how far what a job needs lies from what it needed where its work is
	// another: as for response curves (package response).
	workRatio = 1.5
	// excuseNs is how long after an excuse there is no other for the same job: one that
	// changes its work on purpose is not tried again and again.
	excuseNs = 120 * second
	// excuseSlices must tell what it needed before.
	excuseSlices = 4
)

// excused ends a trial that has not shown a gain, where a container of it does other
// work than when the plan was made: by the latest two readings it needs far more, or where its
// rate fell far also far less, than by any before. What the rate did is not the plan's doing then, and the trial would
// compare two kinds of work until its time is over. It goes back all the
// same, and the next plan, for what is needed now, need not wait; one of several containers is
// tried by itself then. A limit of memory makes steps cheaper, and excuses nothing.
func (c *Core) excused(t *openTrial, d *Decision) bool {
	if t.appliedNs == 0 || t.take || t.gaveMemory() {
		return false
	}
	fell := t.result.Outcome == trial.Inferior && t.result.Ratio <= 1-trial.DefaultParams(t.take).Regression
	for _, ch := range t.order.Changes {
		j := c.jobs[ch.Key]
		if j == nil || ch.Knob != runtime.KnobCPUQuota && ch.Knob != runtime.KnobCPUWeight || ch.Take {
			continue
		}
		recently := j.excusedNs != 0 && c.now()-j.excusedNs < excuseNs
		was := t.neededBefore[ch.Key]
		if recently || !dearer(was, j.works) && !(fell && otherWork(was, j.works)) {
			continue
		}
		j.excusedNs, j.alone = c.now(), j.alone || len(t.sides) > 1 && t.onlyGives()
		c.abandon(t, fmt.Sprintf("%s does other work: it needed %.2f CPUs and needs %.2f; %s", j.c.Name, slices.Max(was), j.works[len(j.works)-1], t.result.Why), d)
		for _, ch := range t.order.Changes {
			if o := c.jobs[ch.Key]; o != nil {
				o.cooledNs, o.obs, o.pace = 0, nil, nil
			}
		}
		return true
	}
	return false
}

// otherWork reports whether the latest two of a job's needs alone, in CPUs, lie apart from all
// that it had before. What it waits behind others is not in them, which plans change.
func otherWork(was, needs []float64) bool {
	if len(was) < excuseSlices || len(needs) < 2 {
		return false
	}
	return max(needs[len(needs)-2], needs[len(needs)-1]) <= slices.Min(was)/workRatio || dearer(was, needs)
}

// departs reports whether the latest of its needs alone lies apart from all before: what it
// does now, the next will tell, and a plan would be made for the mean of both.
func departs(needs []float64) bool {
	n := len(needs) - 1
	if n < excuseSlices {
		return false
	}
	before := needs[:n]
	return needs[n] >= slices.Max(before)*workRatio || needs[n] <= slices.Min(before)/workRatio
}

// dearer reports whether it needs more than before.
func dearer(was, needs []float64) bool {
	if len(was) < excuseSlices || len(needs) < 2 {
		return false
	}
	return min(needs[len(needs)-2], needs[len(needs)-1]) >= slices.Max(was)*workRatio
}
