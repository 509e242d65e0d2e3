package knee

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// stored waits for a disk that others use too.
func stored() policies.Job {
	j := cached()
	j.Now[runtime.KnobIOWeight] = "100"
	j.Verdict.Cause = policies.CauseStorage
	j.MemoryUse = policies.MemoryUse{Read: true, Current: gib}
	j.Disk = policies.Disk{Own: 10 * mib, Others: 30 * mib}
	return j
}

// displaced has no limit, and others on the host evict its pages.
func displaced() policies.Job {
	j := stored()
	delete(j.Now, runtime.KnobIOWeight)
	j.Now[runtime.KnobMemoryLimit], j.Now[runtime.KnobMemoryLow] = runtime.ValueMax, "0"
	j.MemoryUse = policies.MemoryUse{Read: true, Current: gib, Reread: 10 * mib, DiskRead: 10 * mib, LowReaches: true}
	return j
}

// TestOtherKnobs: when burst, I/O weight, CPU set and memory.low are asked for, and when not.
func TestOtherKnobs(t *testing.T) {
	bursty := func() policies.Job {
		j := starved(2) // of which it needs 1.5
		j.Enrolment.Knobs = []string{"cpu"}
		j.Now[runtime.KnobCPUBurst] = "0"
		j.UsedCPUs, j.ThrottledShare = 1.2, 0.3
		return j
	}
	far := func() policies.Job {
		j := starved(2)
		j.Enrolment.Knobs = []string{"cpu", "cpuset"}
		j.Now[runtime.KnobCpuset], j.NearCPUs = "", "0-3"
		j.Breakdown = policies.Breakdown{WallNs: 100}
		j.Verdict.Cause = policies.CauseWorkers
		return j
	}
	for name, c := range map[string]struct {
		job  policies.Job
		knob runtime.Knob // "": none of those
		to   runtime.Value
	}{
		"I/O weight beside others on the disk": {stored(), runtime.KnobIOWeight, "400"},
		"no others on the disk":                {with(stored(), func(j *policies.Job) { j.Disk.Others = 0 }), "", ""},
		"a kernel without I/O weights":         {with(stored(), func(j *policies.Job) { delete(j.Now, runtime.KnobIOWeight) }), "", ""},
		"I/O is not allowed":                   {with(stored(), func(j *policies.Job) { j.Enrolment.Knobs = []string{"cpu"} }), "", ""},
		"I/O weight at its kernel's ceiling":   {with(stored(), func(j *policies.Job) { j.Now[runtime.KnobIOWeight] = "1000" }), "", ""},

		"burst":                              {bursty(), runtime.KnobCPUBurst, "100000"},
		"it uses all of its quota":           {with(bursty(), func(j *policies.Job) { j.UsedCPUs = 1.95 }), "", ""},
		"it is not throttled":                {with(bursty(), func(j *policies.Job) { j.ThrottledShare = 0 }), "", ""},
		"a kernel or runtime without bursts": {with(bursty(), func(j *policies.Job) { delete(j.Now, runtime.KnobCPUBurst) }), "", ""},
		"no quota, no burst":                 {with(bursty(), func(j *policies.Job) { j.Now[runtime.KnobCPUQuota] = "max 100000" }), "", ""},
		"a burst of half the quota stands":   {with(bursty(), func(j *policies.Job) { j.Now[runtime.KnobCPUBurst] = "100000" }), "", ""},

		"CPUs near the device":       {far(), runtime.KnobCpuset, "0-3"},
		"within its owner's set":     {with(far(), func(j *policies.Job) { j.Now[runtime.KnobCpuset] = "2-7" }), runtime.KnobCpuset, "2-3"},
		"too few of them":            {with(far(), func(j *policies.Job) { j.NearCPUs = "0" }), "", ""},
		"near already":               {with(far(), func(j *policies.Job) { j.Now[runtime.KnobCpuset] = "0-3" }), "", ""},
		"one node":                   {with(far(), func(j *policies.Job) { j.NearCPUs = "" }), "", ""},
		"its device is busy anyway":  {with(far(), func(j *policies.Job) { j.Verdict.Cause = policies.CauseDevice }), "", ""},
		"the CPU set is not allowed": {with(far(), func(j *policies.Job) { j.Enrolment.Knobs = []string{"cpu"} }), "", ""},

		"memory.low":                      {displaced(), runtime.KnobMemoryLow, runtime.IntValue(gib + 600*mib)},
		"memory.low that reaches nothing": {with(displaced(), func(j *policies.Job) { j.MemoryUse.LowReaches = false }), "", ""},
		"memory.low under a limit": {with(displaced(), func(j *policies.Job) {
			j.MemoryUse.Limit, j.Now[runtime.KnobMemoryLimit] = 2*gib, runtime.IntValue(2*gib)
		}), runtime.KnobMemoryLimit, runtime.IntValue(2*gib + 600*mib)},
		"first touches":  {with(displaced(), func(j *policies.Job) { j.MemoryUse.Reread = 0 }), "", ""},
		"a kernel of v1": {with(displaced(), func(j *policies.Job) { delete(j.Now, runtime.KnobMemoryLow) }), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.job.Original = c.job.Now.Clone()
			if c.job.Now[runtime.KnobIOWeight] == "1000" {
				c.job.Original[runtime.KnobIOWeight] = "100"
			}
			p := New(Defaults()).Propose(bigNode, []policies.Job{c.job})
			if c.knob == "" {
				if len(p.Plans) > 0 {
					t.Fatalf("%+v", p.Plans)
				}
				return
			}
			if ch := only(t, p); ch.Knob != c.knob || ch.To != c.to || ch.Gain < Defaults().MinGain {
				t.Errorf("%+v, want %s %s", ch, c.knob, c.to)
			}
		})
	}
}

// TestLowThatCannotBe: people are told what would keep a displaced job's pages, where
// trimtab may not, or where it would have no effect; and nothing where nothing is lost.
func TestLowThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*policies.Job)
		says   string // "": nothing of memory.low
	}{
		"it can be":          {func(*policies.Job) {}, ""},
		"it reaches nothing": {func(j *policies.Job) { j.MemoryUse.LowReaches = false }, "reaches nothing here"},
		"it is not allowed":  {func(j *policies.Job) { j.Enrolment.Knobs = []string{"cpu"} }, "where the knob memory is allowed"},
		"nothing is lost":    {func(j *policies.Job) { j.MemoryUse.LowReaches, j.MemoryUse.Reread = false, 0 }, ""},
		"a kernel of v1":     {func(j *policies.Job) { delete(j.Now, runtime.KnobMemoryLow) }, ""},
		"it has a limit": {func(j *policies.Job) {
			j.MemoryUse.LowReaches, j.MemoryUse.Limit, j.Now[runtime.KnobMemoryLimit] = false, 2*gib, runtime.IntValue(2*gib)
		}, ""},
	} {
		j := displaced()
		c.change(&j)
		j.Original = j.Now.Clone()
		said := ""
		for _, a := range New(Defaults()).Propose(bigNode, []policies.Job{j}).Advice {
			if strings.Contains(a.Text, "memory.low") {
				said = a.Text
			}
		}
		if c.says == "" && said != "" || !strings.Contains(said, c.says) {
			t.Errorf("%s: %q, want %q", name, said, c.says)
		}
	}
}

func TestCPUList(t *testing.T) {
	for _, text := range []string{"", "0", "0-3", "0-3,8", "1,3,5-6"} {
		cpus, err := runtime.ParseCPUList(text)
		if err != nil || cpuList(cpus) != text {
			t.Errorf("%q came back as %q (%v)", text, cpuList(cpus), err)
		}
	}
}
