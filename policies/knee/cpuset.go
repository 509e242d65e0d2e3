package knee

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// nearGain is what is expected of CPUs near the device; no model tells, the trial does.
const nearGain = 0.05

// nearby moves a job that works far from its device, or queues there, to the CPUs
// near it, where these are enough for it.
func (k Policy) nearby(node policies.Node, j policies.Job) []policies.Change {
	now, present := j.Now[runtime.KnobCpuset]
	if !present || j.NearCPUs == "" || !j.Enrolment.Allows(runtime.KnobCpuset) || j.Rate.PerSecond <= 0 ||
		j.Verdict.Cause != policies.CauseHost && j.Verdict.Cause != policies.CauseContended && j.Verdict.Cause != policies.CauseWorkers {
		return nil
	}
	near, err := runtime.ParseCPUList(j.NearCPUs)
	allowed, errAllowed := runtime.ParseCPUList(string(now))
	if err != nil || errAllowed != nil {
		return nil
	}
	if len(allowed) > 0 {
		near = slices.DeleteFunc(near, func(cpu int) bool { return !slices.Contains(allowed, cpu) })
	}
	// An unset list means all of the node's.
	if len(near) == 0 || len(near) == len(allowed) || float64(len(near)) >= node.CPUs || float64(len(near)) < max(need(j), j.Entitlement) {
		return nil
	}
	return []policies.Change{{Key: j.Key, Name: j.Name, Knob: runtime.KnobCpuset, From: now, To: runtime.Value(cpuList(near)),
		Gain: max(nearGain, k.p.MinGain), RateAfter: j.Rate.PerSecond * (1 + max(nearGain, k.p.MinGain)),
		Reason: fmt.Sprintf("CPUs %s are near its device, and it needs %.2f", cpuList(near), need(j))}}
}

// cpuList writes sorted CPUs as the kernel does: 0-3,8.
func cpuList(cpus []int) string {
	var out []string
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}
		part := strconv.Itoa(cpus[i])
		if end > i {
			part += "-" + strconv.Itoa(cpus[end])
		}
		out = append(out, part)
		i = end + 1
	}
	return strings.Join(out, ",")
}
