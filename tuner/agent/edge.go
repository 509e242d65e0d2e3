package agent

import (
	"slices"

	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/state"
)

// writeCounters are the counters of what was written.
type writeCounters struct {
	changes, restores, repairs map[state.Count]float64
	apply                      state.Histogram
	foreign, gpuLost           uint64
}

func newWriteCounters() writeCounters {
	bounds := []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	return writeCounters{changes: map[state.Count]float64{}, restores: map[state.Count]float64{}, repairs: map[state.Count]float64{},
		apply: state.Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds))}}
}

func (e *writeCounters) change(policy string, r actuator.ChangeResult) {
	e.changes[state.Count{Policy: policy, Knob: r.Change.Knob, Result: string(r.Outcome)}]++
	if r.Latency <= 0 {
		return
	}
	secs := r.Latency.Seconds()
	for i, bound := range e.apply.Bounds {
		if secs <= bound {
			e.apply.Counts[i]++
		}
	}
	e.apply.Sum += secs
	e.apply.Count++
}

func (e *writeCounters) restore(r actuator.RestoreResult) {
	if len(r.Knobs) > 0 || r.Outcome != actuator.Restored {
		e.restores[state.Count{Result: string(r.Outcome)}]++
	}
}

// show copies the counters into a snapshot.
func (e *writeCounters) show(t *state.Totals) {
	t.Changes, t.Restores = state.Counts(e.changes), state.Counts(e.restores)
	t.ApplySeconds = e.apply
	t.ApplySeconds.Counts = slices.Clone(e.apply.Counts)
	t.ForeignWrites, t.GPUAccessLost, t.GPURepairs = e.foreign, e.gpuLost, state.Counts(e.repairs)
}
