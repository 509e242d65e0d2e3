// Package counters keeps the counters of simulated threads as the kernel would keep them.
package counters

import (
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// Spend has a thread be so many seconds in a state, of those that are left to it.
func Spend(t *probes.Thread, left *float64, s probes.State, seconds float64) {
	seconds = max(0, min(seconds, *left))
	t.Ns[s] += uint64(seconds * 1e9)
	*left -= seconds
}

// Wait has it wait for the waker, so many times, for what its states leave of its time.
func Wait(t *probes.Thread, nowNs int64, waker int32, times uint64) {
	t.AtNs = nowNs
	rest := uint64(t.AtNs - t.SinceNs)
	for _, ns := range t.Ns {
		rest -= min(ns, rest)
	}
	t.Ns[probes.StatePoll] += rest
	if len(t.Edges) == 0 {
		t.Edges = []probes.Edge{{Waker: waker, State: probes.StatePoll}}
	}
	t.Edges[0].Ns += rest
	t.Edges[0].Count += times
}

// Read is what a probe would read of them: it shares nothing with what is counted on.
func Read(threads []probes.Thread) []probes.Thread {
	threads = slices.Clone(threads)
	for i := range threads {
		threads[i].Edges = slices.Clone(threads[i].Edges)
	}
	return threads
}
