package observe

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// TestLaunchersAreThoseByDefinition: sums that are made in one walk are those over all that is below.
func TestLaunchersAreThoseByDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &Window{EndNs: 1e9}
		n := rapid.IntRange(2, 12).Draw(t, "processes")
		for pid := 1; pid <= n; pid++ {
			th := Thread{}
			th.TID, th.TGID, th.PPID = int32(pid), int32(pid), int32(rapid.IntRange(0, n).Draw(t, "parent")) // loops too
			th.Ns[probes.StateRun] = rapid.Uint64Range(0, 1e9).Draw(t, "ran")
			w.Threads = append(w.Threads, th)
			w.Facts = append(w.Facts, probes.Process{TGID: int32(pid), Forked: rapid.Bool().Draw(t, "forked")})
		}
		f := processes(w)
		want := map[int32]bool{}
		for _, p := range f.all {
			var below, programs uint64
			for _, o := range f.all {
				if p.runNs < p.belowNs && f.above(o, func(up *process) bool { return up == p }) {
					below += o.runNs
					if !o.facts.Forked {
						programs += o.runNs
					}
				}
			}
			want[p.tgid] = float64(p.runNs) < launcherShare*float64(below) || p.runNs < programs
		}
		f.roots(policies.DefaultConstants(), w)
		for _, p := range f.all {
			if p.launches() != want[p.tgid] {
				t.Fatalf("process %d: a launcher %v, want %v\n%+v", p.tgid, p.launches(), want[p.tgid], w.Threads)
			}
		}
		if !slices.IsSortedFunc(f.all, func(a, b *process) int { return int(a.tgid - b.tgid) }) {
			t.Fatal("out of order")
		}
	})
}
