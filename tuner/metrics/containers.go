package metrics

import (
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/state"
	"strconv"
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
				e.setBool(nPending, true, e.label(c.Key, c.Name), e.c.team(c.Enrolment.Team))
			}
			continue
		}
		exported++
		e.container(c, e.label(c.Key, c.Name), e.c.team(c.Enrolment.Team))
	}
	e.set(nNotExported, float64(left))
}

func (e *emitter) container(c state.Container, name, team string) {
	e.set(nInfo, 1, name, team, clean(c.Engine), clean(c.Image), string(c.Enrolment.Mode), string(c.State))
	for p := range policies.NumParts {
		e.set(nBreakdown, float64(c.PartNs[p])/1e9, name, team, p.String())
	}
	if c.Rate.PerSecond > 0 && c.RateWhy == "" {
		e.set(nRate, c.Rate.PerSecond, name, team, clean(c.Rate.Source), strconv.FormatBool(c.Rate.Steps))
	}
	if c.HasGain && !c.Doubt {
		e.set(nSpeedup, 1+c.Gain, name, team)
		e.set(nGain, c.Gain, name, team)
	}
	if c.Verdict.Class != "" {
		e.set(nBottleneck, 1, name, team, string(c.Verdict.Class), string(c.Verdict.Cause))
		e.set(nSeverity, c.Verdict.Severity, name, team)
		e.set(nConfidence, c.Verdict.Confidence, name, team)
	}
	if c.Knee > 0 {
		e.set(nSaturation, c.Knee, name, team)
	}
	if c.Paging.Enough {
		e.set(nWorkingSet, c.Paging.Set, name, team)
	}
	e.set(nUsage, c.UsedCPUs, name, team)
	e.set(nProbeShare, c.ProbeShare, name, team)
	if c.Similar != nil {
		e.set(nNearest, c.Similar.Distance, name, team)
		e.set(nNearestSure, c.Similar.Confidence, name, team)
	}
	if r := c.LastRuns; r != nil && r.PerSecond > 0 {
		e.set(nUsualRate, r.PerSecond, name, team)
		if r.Low > 0 {
			e.set(nSlower, r.Slower, name, team)
		}
	}
	for _, d := range c.Devices {
		e.set(nDeviceSpeed, d.Ratio, name, team, clean(d.Model), strconv.FormatBool(d.HostBound))
	}
	e.set(nWindows, float64(c.Windows), name, team)
	e.setBool(nTunable, c.Gate != string(guard.GateFixed) && c.Enrolment.Mode == policies.ModeTune, name, team)
	lent := 0.0
	if c.Loan != nil {
		lent = c.Loan.CPUs
	}
	e.set(nLoan, lent, name, team)
	if c.Tuning != "" {
		e.set(nTuning, 1, name, team, clean(c.Tuning))
	}
	if c.Work != nil && c.Work.Ratio > 0 {
		e.set(nWork, c.Work.Ratio-1, name, team)
	}
	e.setBool(nTrialOpen, c.Trial != nil, name, team)
	e.setBool(nSuspended, c.Held, name, team)
	e.setBool(nPending, c.Pending != "", name, team)
	if len(c.GPUs) > 0 {
		e.setBool(nPreflight, c.Preflight == "", name, team)
		e.setBool(nGPUAccess, c.GPULost == "", name, team)
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
			e.set(originalOf(metric), value, name, team, string(k))
		}
	}
	for _, k := range c.Changed {
		e.set(nChanged, 1, name, team, string(k))
	}
	for _, k := range c.Yielded {
		e.set(nYielded, 1, name, team, string(k))
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
	case runtime.KnobCPUBurst:
		return nBurst, float64(n) / 1e6, ok
	case runtime.KnobMemoryLimit, runtime.KnobMemorySwap, runtime.KnobMemoryHigh, runtime.KnobMemoryLow:
		return nLimitBytes, float64(n), ok
	case runtime.KnobCPUWeight, runtime.KnobIOWeight:
		return nWeight, float64(n), ok
	}
	return "", 0, false
}

// originalOf names the metric of a knob's original value.
func originalOf(metric string) string {
	switch metric {
	case nLimitCPUs:
		return nOrigCPUs
	case nLimitBytes:
		return nOrigBytes
	case nBurst:
		return nOrigBurst
	default:
		return nOrigWeight
	}
}
