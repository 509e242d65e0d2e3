package actuator_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
)

// TestSetBetweenDeathAndLanding: the daemon dies in a write, and somebody sets another limit before that lands, which
// carries the older one. It lands during the recovery, where it is not taken for somebody's.
func TestSetBetweenDeathAndLanding(t *testing.T) {
	for name, tt := range map[string]struct {
		earlier []actuator.Order // plans that were kept
		last    actuator.Order   // the one of the death
		theirs  runtime.Values
	}{
		"in a first plan": {last: order(item(container("a"), tune("cpu"), quotaUp())), theirs: runtime.Values{runtime.KnobMemoryLimit: bytes(2048 * mib)}},
		"in a later plan": {earlier: []actuator.Order{order(item(container("a"), tune("cpu"), quotaUp()))},
			last:   order(item(container("a"), tune("cpu"), change(runtime.KnobCPUQuota, "150000 100000", "200000 100000"))),
			theirs: runtime.Values{runtime.KnobCpuset: "0-1", runtime.KnobMemoryLimit: bytes(2048 * mib)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			c := b.start(container("a"), owner())
			for _, o := range tt.earlier {
				if r := b.actuator().Apply(t.Context(), o); !r.Applied {
					t.Fatalf("%+v", r)
				}
			}
			b.engine.onApply = func(c runtime.Container, set runtime.Values) error {
				carried := b.stands(c)
				for knob, v := range set {
					carried[knob] = v
				}
				b.engine.later(c, carried)
				panic(crash{})
			}
			dies(t, func() { b.actuator().Apply(t.Context(), tt.last) })
			b.engine.onApply = nil
			b.start(c, tt.theirs)
			results, err := b.actuator().Recover(t.Context(), actuator.Recovery{Running: []runtime.Container{c}, Synced: []string{"fake"}})
			if err != nil || len(results) != 1 || results[0].Outcome != actuator.Restored {
				t.Errorf("%+v, %v", results, err)
			}
			want := owner()
			for knob, v := range tt.theirs {
				want[knob] = v
			}
			if diff := cmp.Diff(want, b.stands(c)); diff != "" || b.files() != 0 {
				t.Errorf("%d files, %s", b.files(), diff)
			}
		})
	}
}
