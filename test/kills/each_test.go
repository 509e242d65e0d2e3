package kills

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/runtimetest"
	"github.com/trimtab/trimtab/tuner/actuator"
)

// TestEachKnob: every knob that this host has is moved on real containers by one plan, is
// read back, and goes back: all of them where there are limits, and where there are none
// those that impose none.
func TestEachKnob(t *testing.T) {
	const mib = 1 << 20
	amount := func(n int64) runtime.Value { return runtime.IntValue(n * mib) }
	all := runtime.Values{
		runtime.KnobCPUWeight: "700", runtime.KnobCPUQuota: "80000 100000", runtime.KnobCPUBurst: "20000", runtime.KnobCpuset: "0",
		runtime.KnobMemoryLimit: amount(192), runtime.KnobMemorySwap: amount(384), runtime.KnobMemoryHigh: amount(160), runtime.KnobMemoryLow: amount(16),
		runtime.KnobIOWeight: "300",
	}
	if goruntime.NumCPU() < 2 {
		delete(all, runtime.KnobCpuset) // there is no other set
	}
	host := runtimetest.NeedDocker(t)
	h, err := newHands(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.engine.Close()
	// On v2 a cpuset that nobody set goes back as what it means, its parent's.
	cpus := fmt.Sprintf("--cpuset-cpus=0-%d", goruntime.NumCPU()-1)
	for name, tc := range map[string]struct {
		args    []string
		imposed []runtime.Knob // what may not be where its owner set none
	}{
		"limited":    {[]string{cpus, "--cpus=0.5", "--cpu-shares=512", "--memory=128m", "--memory-swap=256m"}, []runtime.Knob{runtime.KnobMemoryHigh}},
		"no limits":  {[]string{cpus}, []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobMemoryLimit, runtime.KnobMemoryHigh}},
		"low is set": {[]string{cpus, "--memory=128m", "--memory-reservation=64m"}, []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobMemoryHigh}},
	} {
		t.Run(name, func(t *testing.T) {
			c := runtimetest.Find(t, h.engine, host.Start(t, tc.args...))
			owners := h.read(t, c)
			changes := func(knobs ...runtime.Knob) (out []policies.Change) {
				for _, knob := range knobs {
					if from, there := owners[knob]; there && all[knob] != "" {
						out = append(out, policies.Change{Key: c.Key(), Name: c.Name, Knob: knob, From: from, To: all[knob]})
					}
				}
				return out
			}
			apply := func(bestEffort bool, changes []policies.Change) actuator.Result {
				e := policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu", "cpuset", "memory", "io"}, BestEffort: bestEffort}
				return h.actuator.Apply(t.Context(), actuator.Order{Plan: "p", Items: []actuator.Item{{Container: c, Enrolment: e, Changes: changes}}})
			}
			for _, ch := range changes(tc.imposed...) {
				if r := apply(false, []policies.Change{ch}); r.Applied || !strings.Contains(r.Changes[0].Text, "never impose") {
					t.Errorf("%s imposed: %+v", ch.Knob, r.Changes)
				}
			}
			plan := changes(runtime.Knobs()...)
			r := apply(true, plan)
			if !r.Applied {
				t.Errorf("%+v", r.Changes)
			}
			now := h.read(t, c)
			for _, ch := range plan {
				if !ch.Knob.Same(ch.To, now[ch.Knob]) {
					t.Errorf("%s stands at %s, want %s", ch.Knob, now[ch.Knob], ch.To)
				}
			}
			t.Logf("%d knobs moved: %v", len(plan), now)
			if back := h.actuator.Restore(t.Context(), c, "the test's end"); back.Err != nil || back.Outcome != actuator.Restored {
				t.Errorf("%+v", back)
			}
			if diff := cmp.Diff(owners, h.read(t, c)); diff != "" {
				t.Errorf("(-owner +now):\n%s", diff)
			}
		})
	}
}

func (h hands) read(t *testing.T, c runtime.Container) runtime.Values {
	t.Helper()
	values, err := h.engine.Read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return values
}
