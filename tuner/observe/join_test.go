package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/probes"
)

func drawEdges(rt *rapid.T) (out []probes.Edge) {
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

func drawThreads(rt *rapid.T) (out []Thread) {
	for range rapid.IntRange(0, 6).Draw(rt, "threads") {
		th := Thread{TID: rapid.Int32Range(1, 5).Draw(rt, "tid"), StartNs: rapid.Uint64Range(1, 2).Draw(rt, "start"), WallNs: rapid.Int64Range(0, 9).Draw(rt, "wall"), Edges: drawEdges(rt)}
		th.Ns[1], th.FromNs[1], th.LastNs[1] = rapid.Uint64Range(0, 9).Draw(rt, "state"), rapid.Int64Range(0, 9).Draw(rt, "from"), rapid.Int64Range(0, 9).Draw(rt, "last")
		out = append(out, th)
	}
	sortThreads(out)
	return out
}

// Merging gives what joining by name gives, whichever threads came and went.
func TestJoinThreadsMerges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		as, bs := drawThreads(rt), drawThreads(rt)
		before := cmp.Diff(as, bs)
		got, want := joinThreads(as, bs, false), joinThreadsByName(as, bs)
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

// A builder that adds in place has what joining anew has, and writes neither to
// slices, which others have as well, nor to windows that were cut or kept apart.
func TestBuilderKeepsToItsOwn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var b, other Builder
		var want *Window
		copyOf := func(ts []Thread) []Thread { return append([]Thread(nil), ts...) }
		type kept struct {
			what    string
			window  *Window
			threads []Thread
		}
		var all []kept
		keep := func(what string, w *Window) { all = append(all, kept{what, w, copyOf(w.Threads)}) }
		last := drawThreads(rt)
		for range rapid.IntRange(1, 8).Draw(rt, "slices") {
			if !rapid.Bool().Draw(rt, "the same threads") {
				last = drawThreads(rt)
			}
			slice := &Window{HasKernel: true, Threads: copyOf(last)}
			keep("a slice", slice)
			got := b.Add(slice)
			other.Add(slice)
			if want == nil {
				want = slice
			} else {
				w := join(*want, *slice, false)
				want = &w
			}
			if d := cmp.Diff(want, got); d != "" {
				rt.Fatalf("in place, not anew:\n%s", d)
			}
			switch rapid.IntRange(0, 3).Draw(rt, "then") {
			case 0:
				keep("a cut window", got)
				b.Cut()
				want = nil
			}
		}
		for _, k := range all {
			if d := cmp.Diff(k.threads, copyOf(k.window.Threads)); d != "" {
				rt.Fatalf("%s was written to:\n%s", k.what, d)
			}
		}
	})
}
