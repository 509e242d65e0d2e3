package metrics

import (
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/state"
)

// containers renders the watched ones, up to the cap, in the snapshot's order.
func (e *emitter) containers(all []state.Container) {
	exported, left := 0, 0
	for _, c := range all {
		if !c.Watched || exported == MaxContainers {
			if c.Watched {
				left++
			}
			if c.Pending != "" { // a pending restore is told of whoever looks at the container
				e.setBool("trimtab_container_restore_pending", true, e.label(c.Key, c.Name), e.c.team(c.Enrolment.Team))
			}
			continue
		}
		exported++
		e.container(c, e.label(c.Key, c.Name), e.c.team(c.Enrolment.Team))
	}
	e.set("trimtab_containers_not_exported", float64(left))
}

func (e *emitter) container(c state.Container, name, team string) {
	e.set("trimtab_container_info", 1, name, team, clean(c.Engine), clean(c.Image), string(c.Enrolment.Mode), string(c.State))
	for p := range policies.NumParts {
		e.set("trimtab_container_breakdown_seconds_total", float64(c.PartNs[p])/1e9, name, team, p.String())
	}
	if c.Rate.PerSecond > 0 && c.RateWhy == "" {
		e.set("trimtab_container_rate", c.Rate.PerSecond, name, team, clean(c.Rate.Source), strconv.FormatBool(c.Rate.Steps))
	}
	if c.HasGain && !c.Doubt {
		e.set("trimtab_container_speedup_ratio", 1+c.Gain, name, team)
		e.set("trimtab_container_gain_ratio", c.Gain, name, team)
	}
	if c.Verdict.Class != "" {
		e.set("trimtab_container_bottleneck_info", 1, name, team, string(c.Verdict.Class), string(c.Verdict.Cause))
		e.set("trimtab_container_severity_ratio", c.Verdict.Severity, name, team)
		e.set("trimtab_container_confidence_ratio", c.Verdict.Confidence, name, team)
	}
	if c.Knee > 0 {
		e.set("trimtab_container_cpu_saturation_cores", c.Knee, name, team)
	}
	if c.Paging.Enough {
		e.set("trimtab_container_memory_working_set_bytes", c.Paging.Set, name, team)
	}
	e.set("trimtab_container_cpu_usage_cores", c.UsedCPUs, name, team)
	e.set("trimtab_container_probe_cost_ratio", c.ProbeShare, name, team)
	if c.Similar != nil {
		e.set("trimtab_similarity_nearest_distance", c.Similar.Distance, name, team)
		e.set("trimtab_similarity_nearest_confidence_ratio", c.Similar.Confidence, name, team)
	}
	if r := c.LastRuns; r != nil && r.PerSecond > 0 {
		e.set("trimtab_container_usual_rate_per_second", r.PerSecond, name, team)
		if r.Low > 0 {
			e.set("trimtab_container_slower_than_usual_ratio", r.Slower, name, team)
		}
	}
	for _, d := range c.Devices {
		e.set("trimtab_device_predicted_speed_ratio", d.Ratio, name, team, clean(d.Model), strconv.FormatBool(d.HostBound))
	}
	e.set("trimtab_container_windows_total", float64(c.Windows), name, team)
	e.setBool("trimtab_container_tunable", c.Gate != string(guard.GateFixed) && c.Enrolment.Mode == policies.ModeTune, name, team)
	lent := 0.0
	if c.Loan != nil {
		lent = c.Loan.CPUs
	}
	e.set("trimtab_container_loan_cpus", lent, name, team)
	if c.Tuning != "" {
		e.set("trimtab_container_tuning_info", 1, name, team, clean(c.Tuning))
	}
	if c.Work != nil && c.Work.Ratio > 0 {
		e.set("trimtab_container_work_ratio", c.Work.Ratio-1, name, team)
	}
	e.setBool("trimtab_container_trial_open", c.Trial != nil, name, team)
	e.setBool("trimtab_container_tuning_suspended", c.Held, name, team)
	e.setBool("trimtab_container_restore_pending", c.Pending != "", name, team)
	if len(c.GPUs) > 0 {
		e.setBool("trimtab_container_preflight_ok", c.Preflight == "", name, team)
		e.setBool("trimtab_container_gpu_access_ok", c.GPULost == "", name, team)
	}
	e.knobs(c, name, team)
}

// knobs renders the values that stand, the originals, and whose they are.
func (e *emitter) knobs(c state.Container, name, team string) {
	for _, k := range runtime.Knobs() {
		if metric, value, ok := limit(k, c.Now[k]); ok {
			e.set(metric, value, name, team, string(k))
		}
		if metric, value, ok := limit(k, c.Original[k]); ok {
			e.set(strings.Replace(metric, "_container_", "_container_original_", 1), value, name, team, string(k))
		}
	}
	for _, k := range c.Changed {
		e.set("trimtab_container_knob_changed", 1, name, team, string(k))
	}
	for _, k := range c.Yielded {
		e.set("trimtab_container_knob_yielded", 1, name, team, string(k))
	}
}

// limit reads a knob's value in base units and names its metric; ok is false for
// "no limit", for a knob that is absent, and for one without a number.
func limit(k runtime.Knob, v runtime.Value) (metric string, value float64, ok bool) {
	switch k {
	case runtime.KnobCPUQuota:
		cpus, ok := v.CPUs()
		return nLimitCPUs, cpus, ok
	case runtime.KnobCpuset:
		list, err := runtime.ParseCPUList(string(v))
		return nLimitCPUs, float64(len(list)), err == nil && len(list) > 0
	}
	n, ok := v.Int()
	switch k {
	case runtime.KnobMemoryLimit, runtime.KnobMemorySwap:
		return nLimitBytes, float64(n), ok
	case runtime.KnobCPUWeight:
		return nWeight, float64(n), ok
	}
	return "", 0, false
}
