package account

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/state"
)

// stored is what a book has on disk of one container after so many seconds.
func stored(h *host) Row {
	h.run(120)
	all := h.b.Take()
	return all[len(all)-1].Rows[0]
}

// What a container wanted at the most is known on under the daemon after, and the one after that: from
// when the first read it, with what either saw.
func TestPeakOutlivesARestart(t *testing.T) {
	first := newHost()
	first.c.PeakCPUs, first.c.PeakSinceUnixNs = 1.5, noon-7*24*nsInHour
	row := stored(first)
	if want := (Peak{1.5, noon - 7*24*nsInHour, first.now}); row.Peak != want {
		t.Fatalf("stored %+v, want %+v", row.Peak, want)
	}
	for name, tt := range map[string]struct {
		away, read int64 // until it was looked for, and read again
		peak       float64
		want       Peak
	}{
		"at once, and it wants less":      {second, 2 * second, 0.5, Peak{1.5, noon - 7*24*nsInHour, 0}},
		"at once, and it wants more":      {second, 2 * second, 2.5, Peak{2.5, noon - 7*24*nsInHour, 0}},
		"after a quarter of an hour":      {maxUnwatchedNs, maxUnwatchedNs, 0.5, Peak{1.5, noon - 7*24*nsInHour, 0}},
		"after more":                      {maxUnwatchedNs + second, maxUnwatchedNs + second, 0.5, Peak{0.5, first.now + maxUnwatchedNs + second, 0}},
		"watched again after more":        {second, maxUnwatchedNs + second, 0.5, Peak{0.5, first.now + maxUnwatchedNs + second, 0}},
		"the clock was ahead, and is not": {-second, second, 0.5, Peak{0.5, first.now + second, 0}},
	} {
		b := NewBook()
		b.RecallPeaks(Hour{Rows: []Row{row, {Key: othersKey}}}, first.now+tt.away)
		c := first.c
		c.PeakCPUs, c.PeakSinceUnixNs = tt.peak, first.now+tt.read
		s := &state.Snapshot{UnixNs: first.now + tt.read, Containers: []state.Container{c}}
		b.Step(s, 0)
		if got := (Peak{s.Containers[0].PeakCPUs, s.Containers[0].PeakSinceUnixNs, 0}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// Of one that is not read nothing is told, and the others beyond the bound of rows have no peak.
func TestPeakThatIsNotRead(t *testing.T) {
	h := newHost()
	h.b.RecallPeaks(Hour{Rows: []Row{{Key: h.c.Key, Peak: Peak{3, noon - nsInHour, noon}}}}, noon)
	if row := stored(h); row.Peak.Told() {
		t.Errorf("stored %+v", row.Peak)
	}
	if h.c.PeakCPUs != 0 {
		t.Errorf("%g CPUs are told of one that is not read", h.c.PeakCPUs)
	}
}

// What two stretches tell of a peak is what the later does, if it does.
func TestPeaksOfTwoStretches(t *testing.T) {
	early, late := Peak{2, 5, 6}, Peak{1, 8, 9}
	for _, tt := range []struct{ a, b, want Peak }{{early, late, late}, {early, Peak{}, early}, {Peak{}, late, late}} {
		got := Merge(Hour{Hours: 1, Rows: []Row{{Key: "a", Peak: tt.a}}}, Hour{Hours: 1, Rows: []Row{{Key: "a", Peak: tt.b}}})
		if d := cmp.Diff([]Row{{Key: "a", Peak: tt.want}}, got.Rows); d != "" {
			t.Error(d)
		}
	}
}
