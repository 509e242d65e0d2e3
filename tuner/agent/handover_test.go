package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/control"
)

// TestFailedHandoverLeavesTimeForTheRestore: an engine that hangs takes its time once, not once for
// each container, and what is restored instead has all of its own.
func TestFailedHandoverLeavesTimeForTheRestore(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		const given = runtime.Value("80000 100000")
		orders := map[string]control.Order{}
		act := n.actuator()
		var all []runtime.Container
		for i := range 8 {
			c := n.job(fmt.Sprintf("train-%d", i))
			ch := policies.Change{Key: c.Key(), Name: c.Name, Knob: runtime.KnobCPUQuota, From: starvedQuota, To: given}
			r := act.Apply(t.Context(), actuator.Order{Items: []actuator.Item{{Container: c, Changes: []policies.Change{ch},
				Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu"}}}}})
			if !r.Applied {
				t.Fatalf("%+v", r)
			}
			plan := fmt.Sprintf("plan-%d", i/4) // four containers each
			o := orders[plan]
			o.Plan, o.Changes = plan, append(o.Changes, ch)
			orders[plan], all = o, append(all, c)
		}
		d := n.start(func(o *Options) { o.Handover, o.Policies = true, asking(nobody{}) })
		d.until("train-0", "taken over", isChanged)
		d.end()
		for plan, o := range orders {
			d.undoing[plan] = &wayBack{order: o}
		}
		n.engine.SetDelay(time.Hour)
		began := time.Now()
		if err := d.Shutdown(t.Context(), true); err == nil {
			t.Error("handed over though nothing could be taken back")
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s to see that the engine hangs", took)
		}
		n.engine.SetDelay(0)
		if err := d.Shutdown(t.Context(), false); err != nil {
			t.Error(err)
		}
		for _, c := range all {
			n.wantQuota(c, starvedQuota, c.Name)
		}
		n.wantNoOriginals("after the restore")
	})
}

// nobody is a policy that asks for nothing.
type nobody struct{}

func (nobody) Name() string                                            { return "nobody" }
func (nobody) Propose(policies.Node, []policies.Job) policies.Proposal { return policies.Proposal{} }
