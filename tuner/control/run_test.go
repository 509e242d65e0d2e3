package control

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/policies/lend"
	"github.com/trimtab/trimtab/policies/share"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// builtin are the daemon's policies.
func builtin(k *policies.Constants) []policies.Policy {
	return []policies.Policy{lend.New(k), knee.New(k), share.New(k)}
}

// started is a controller with the defaults.
func started() *Controller { return New(Defaults(), builtin, "t") }

// world is what a controller decides about: it ticks, and does what was decided.
type world interface {
	tick() Input
	apply(Decision) []Result
	base() *node
}

func (n *node) base() *node { return n }

// run steps a controller through seconds of a simulated node, and returns all records.
func run(c *Controller, w world, seconds int, each func(i int, d Decision)) []state.Record {
	var records []state.Record
	n := w.base()
	for i := range seconds {
		in := w.tick()
		in.Results, n.results = n.results, nil
		d := c.Step(in)
		for _, o := range d.Apply { // nobody says which of the two would be written last
			for _, ch := range o.Changes {
				if slices.ContainsFunc(d.Rollback, func(r Order) bool {
					return slices.ContainsFunc(r.Changes, func(was policies.Change) bool { return was.Key == ch.Key && was.Knob == ch.Knob })
				}) {
					panic(fmt.Sprintf("tick %d: %s of %s is changed and reverted at once: %+v", i, ch.Knob, ch.Key, d))
				}
			}
		}
		n.results = w.apply(d)
		records = append(records, d.Records...)
		if each != nil {
			each(i, d)
		}
	}
	return records
}

func outcomes(records []state.Record) (out []state.Outcome) {
	for _, r := range records {
		if r.Kind == state.RecordTrial {
			out = append(out, r.Outcome)
		}
	}
	return out
}

// shownAs is a container as people see it.
func shownAs(t *testing.T, c *Controller, j *simJob) state.Container {
	t.Helper()
	var s state.Snapshot
	c.Show(&s)
	for _, v := range s.Containers {
		if v.Key == j.c.Key() {
			return v
		}
	}
	t.Fatalf("%s is not shown", j.c.Name)
	return state.Container{}
}

func (j *simJob) quota() float64 {
	cpus, _ := j.c.Now[runtime.KnobCPUQuota].CPUs()
	return cpus
}

func (j *simJob) weight() float64 { return number(j.c.Now[runtime.KnobCPUWeight]) }
