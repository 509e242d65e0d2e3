package control

import (
	"encoding/json"
	"math"
	"testing"
)

// FuzzStep: whatever a tick brings between others, the controller goes on, and orders no quota
// that is no number.
func FuzzStep(f *testing.F) {
	n := newNode(2)
	n.addJob("train", 0.4, tune())
	n.addSpinner("noise", 1)
	for range 4 {
		raw, err := json.Marshal(n.tick())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		n := newNode(2)
		n.addJob("train", 0.4, tune())
		c := started()
		run(c, n, 6, nil)
		tick, err := c.Replay(raw)
		if err != nil {
			return
		}
		for _, o := range tick.Decision.Apply {
			for _, ch := range o.Changes {
				if cpus, ok := ch.To.CPUs(); ok && !(cpus > 0 && cpus < math.Inf(1)) {
					t.Fatalf("%+v", ch)
				}
			}
		}
		for range 6 {
			c.Step(n.tick())
		}
	})
}
