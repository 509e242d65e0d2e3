package sidebyside

import (
	"testing"

	"github.com/trimtab/trimtab/runtime"
)

func at(second int64, key string, knob runtime.Knob, to runtime.Value) Change {
	return Change{UnixNs: second * 1e9, key: key, Container: key, Knob: knob, To: to}
}

func TestPairByHand(t *testing.T) {
	recorded := []Change{
		at(10, "a", runtime.KnobCPUQuota, "100000 100000"), // the other does the same, 5 s earlier
		at(20, "b", runtime.KnobCPUQuota, "100000 100000"), // the other moves its weight
		at(200, "a", runtime.KnobCPUQuota, "50000 100000"), // too late for the other's at 5 s, and alone
	}
	other := []Change{
		at(5, "a", runtime.KnobCPUQuota, "105000 100000"),
		at(20, "b", runtime.KnobCPUWeight, "400"),
		at(139, "a", runtime.KnobCPUQuota, "50000 100000"), // 61 s before
	}
	s := Shadow{recorded: recorded, other: other}
	got := s.Report("f", "x", "y")
	if want := (Counts{Recorded: 3, Other: 3, Both: 1, Alike: 1, OnlyRecorded: 2, OnlyOther: 2}); got.Counts != want {
		t.Errorf("%+v, want %+v", got.Counts, want)
	}
	if first := got.Rows[0]; first.UnixNs() != 5e9 || first.Recorded == nil || first.Other == nil {
		t.Errorf("first row %+v", first)
	}
	for i := range got.Rows[1:] {
		if got.Rows[i+1].UnixNs() < got.Rows[i].UnixNs() {
			t.Errorf("row %d is out of order", i+1)
		}
	}
}

func TestAlike(t *testing.T) {
	for _, c := range []struct {
		a, b runtime.Value
		want bool
	}{
		{"100000 100000", "90000 100000", true}, {"100000 100000", "89000 100000", false}, {"max 100000", "max 100000", true},
		{"max 100000", "90000 100000", false}, {"1024", "1100", true}, {"1024", "4096", false},
	} {
		if got := alike(Change{To: c.a}, Change{To: c.b}); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}
