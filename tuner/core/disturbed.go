package core

import (
	"fmt"

	"github.com/trimtab/trimtab/runtime"
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
