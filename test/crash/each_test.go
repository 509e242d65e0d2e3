package crash

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/actuator"
)

// TestEachKnob: every knob that this host has is moved on real containers by one plan, is
// read back, and goes back: all of them where there are limits, and where there are none
// those that impose none.
func TestEachKnob(t *testing.T) {
	const mib = 1 << 20
	amount := func(n int64) runtime.Value { return runtime.IntValue(n * mib) }
	all := runtime.Values{
		runtime.KnobCPUWeight: "700", runtime.KnobCPUQuota: "80000 100000", runtime.KnobCpuset: "0",
		runtime.KnobMemoryLimit: amount(192), runtime.KnobMemorySwap: amount(384),
	}
	if goruntime.NumCPU() < 2 {
		delete(all, runtime.KnobCpuset) // there is no other set
	}
	host := runtimetest.NeedDocker(t)
	h, err := newHands(t.TempDir(), "", nil)
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
		"limited":    {[]string{cpus, "--cpus=0.5", "--cpu-shares=512", "--memory=128m", "--memory-swap=256m"}, nil},
		"no limits":  {[]string{cpus}, []runtime.Knob{runtime.KnobCPUQuota, runtime.KnobMemoryLimit}},
		"low is set": {[]string{cpus, "--memory=128m", "--memory-reservation=64m"}, []runtime.Knob{runtime.KnobCPUQuota}},
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
				e := policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu", "cpuset", "memory"}, BestEffort: bestEffort}
				return h.actuator.Apply(t.Context(), actuator.Order{Items: []actuator.Item{{Container: c, Enrolment: e, Changes: changes}}})
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

// TestLimitGoesBackInSteps: a raised limit goes back over page cache in several writes,
// each of which evicts a part of it, and nobody is killed.
func TestLimitGoesBackInSteps(t *testing.T) {
	const mib, own, cached = 1 << 20, 128, 300
	host := runtimetest.NeedDocker(t)
	writes := 0
	h, err := newHands(t.TempDir(), "", func(point string) {
		if point == "apply.before" {
			writes++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.engine.Close()
	c := runtimetest.Find(t, h.engine, host.StartCommand(t, []string{fmt.Sprintf("--memory=%dm", own), fmt.Sprintf("--memory-swap=%dm", own)}, "sleep", "1000000"))
	owners := h.read(t, c)
	var changes []policies.Change
	for _, knob := range []runtime.Knob{runtime.KnobMemoryLimit, runtime.KnobMemorySwap} {
		if from, ok := owners[knob].Int(); ok && from > 0 { // v2 counts swap alone: none
			changes = append(changes, policies.Change{Key: c.Key(), Name: c.Name, Knob: knob, From: owners[knob], To: runtime.IntValue(4 * own * mib)})
		}
	}
	e := policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"memory"}}
	if r := h.actuator.Apply(t.Context(), actuator.Order{Items: []actuator.Item{{Container: c, Enrolment: e, Changes: changes}}}); !r.Applied {
		t.Fatalf("%+v", r.Changes)
	}
	host.Run(t, "exec", c.ID.Container, "sh", "-c", fmt.Sprintf("dd if=/dev/zero of=/cached bs=%d count=%d 2>/dev/null && sync", mib, cached))
	use, err := memoryUse(t.Context(), c)
	if err != nil || use.Usage < 2*own*mib {
		t.Skipf("needs page cache: %d bytes are charged of the %d MiB that were written (%v)", use.Usage, cached, err)
	}
	writes = 0
	if back := h.actuator.Restore(t.Context(), c, "the test's end"); back.Err != nil || back.Outcome != actuator.Restored {
		t.Errorf("%+v", back)
	}
	if writes < 3 {
		t.Errorf("%d MiB of %d went in %d writes", own, use.Usage/mib, writes)
	}
	if diff := cmp.Diff(owners, h.read(t, c)); diff != "" {
		t.Errorf("(-owner +now):\n%s", diff)
	}
	// Who was killed ran the shell: a container that lost its init process is gone.
	if use, err = memoryUse(t.Context(), c); err != nil || use.Usage > own*mib {
		t.Errorf("%d bytes are charged under %d MiB: %v", use.Usage, own, err)
	}
	t.Logf("to %d MiB in %d writes; %d MiB are left", own, writes, use.Usage/mib)
}
