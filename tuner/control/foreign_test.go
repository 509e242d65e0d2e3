package control

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// TestForeignWriteTakesTheLoan: an owner who sets his quota himself decides, and the verdict is
// of what he set.
func TestForeignWriteTakesTheLoan(t *testing.T) {
	n := newNode(4)
	j := n.addProgram("train", 0.4, 3, 1e6)
	c := started()
	run(c, n, 20, nil)
	j.c.Now = j.c.Now.Clone()
	j.c.Now[runtime.KnobCPUQuota] = "70000 100000"
	j.c.Original, j.c.Yielded = nil, []runtime.Knob{runtime.KnobCPUQuota}
	nothing := func(_ int, d Decision) {
		for _, o := range d.Apply {
			t.Fatalf("%+v", o)
		}
	}
	lent := shownAs(t, c, j).Verdict
	run(c, n, 8, nothing)
	if v := shownAs(t, c, j).Verdict; lent.Relief == policies.ReliefQuota || v.Relief != policies.ReliefQuota {
		t.Errorf("8 s after its owner set 0.7 CPUs: %+v; while it was lent to: %+v", v, lent)
	}
	run(c, n, 120, nothing)
	if v := shownAs(t, c, j); v.Loan != nil {
		t.Errorf("still shown as lent: %+v", v.Loan)
	}
}

// TestChangesItsQuotaItself: a container that writes its own quota is read anew each time, and
// what it wrote is its owner's.
func TestChangesItsQuotaItself(t *testing.T) {
	n := newNode(4)
	j := n.addProgram("train", 0.4, 3, 1e6)
	c := started()
	run(c, n, 100, func(i int, d Decision) {
		if i%10 == 3 { // before and after it is lent to
			j.c.Now, j.c.Original = j.c.Now.Clone(), nil
			j.c.Now[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(0.3+float64(i%4)/10, quotaPeriod)
		}
		for _, o := range d.Apply {
			for _, ch := range o.Changes {
				if from := ch.From.Quantity(); ch.Knob == runtime.KnobCPUQuota && ch.To.Quantity() < 0.3 {
					t.Fatalf("tick %d: %.2f→%s, below anything its owner set", i, from, ch.To)
				}
			}
		}
	})
}
