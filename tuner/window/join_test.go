package window

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/probes"
)

// Merging gives what joining by name gives, whichever threads came and went.
func TestJoinThreadsMerges(t *testing.T) {
	edges := func(rt *rapid.T) (out []probes.Edge) {
		for range rapid.IntRange(0, 3).Draw(rt, "edges") {
			out = append(out, probes.Edge{Waker: rapid.Int32Range(1, 4).Draw(rt, "waker"), State: probes.State(rapid.IntRange(0, 1).Draw(rt, "state")),
				Count: rapid.Uint64Range(1, 9).Draw(rt, "count"), Ns: rapid.Uint64Range(0, 9).Draw(rt, "ns")})
		}
		sortEdges(out)
		for i := 1; i < len(out); i++ {
			if out[i].Waker == out[i-1].Waker && out[i].State == out[i-1].State {
				return nil // the kernel names each once
			}
		}
		return out
	}
	threads := func(rt *rapid.T) (out []Thread) {
		for range rapid.IntRange(0, 6).Draw(rt, "threads") {
			th := Thread{TID: rapid.Int32Range(1, 5).Draw(rt, "tid"), StartNs: rapid.Uint64Range(1, 2).Draw(rt, "start"), WallNs: rapid.Int64Range(0, 9).Draw(rt, "wall"), Edges: edges(rt)}
			th.Ns[1], th.FromNs[1], th.LastNs[1] = rapid.Uint64Range(0, 9).Draw(rt, "state"), rapid.Int64Range(0, 9).Draw(rt, "from"), rapid.Int64Range(0, 9).Draw(rt, "last")
			out = append(out, th)
		}
		sortThreads(out)
		return out
	}
	rapid.Check(t, func(rt *rapid.T) {
		as, bs := threads(rt), threads(rt)
		before := cmp.Diff(as, bs)
		got, want := joinThreads(as, bs), joinThreadsByName(as, bs)
		if len(got)+len(want) > 0 {
			if d := cmp.Diff(want, got); d != "" {
				rt.Fatalf("merged, not by name:\n%s", d)
			}
		}
		if cmp.Diff(as, bs) != before {
			rt.Fatal("joining wrote to what it joined")
		}
	})
}
