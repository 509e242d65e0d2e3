package played

import (
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

func playedTrial(t *testing.T) *Daemon {
	t.Helper()
	d := &Daemon{As: map[string]Called{"acc-starved": {Name: "train", Team: "vision"}}}
	if err := d.Play("../../cmd/trimtab/testdata/recordings/trial-kept.trimtab"); err != nil {
		t.Fatal(err)
	}
	return d
}

// What was written then is in the history: the two times that a trial made its change, the time
// that it reverted it, and how it ended.
func TestHistory(t *testing.T) {
	d := playedTrial(t)
	all, err := d.History(t.Context(), api.HistoryQuery{Name: "train"})
	if err != nil {
		t.Fatal(err)
	}
	count := map[state.RecordKind]int{}
	for _, r := range all {
		if r.Kind == state.RecordTrial || r.Knob == "cpu.quota" {
			count[r.Kind]++
		}
		if r.Changed() && (r.Actual == "" || r.Team != "" && r.Team != "vision") {
			t.Errorf("%+v", r)
		}
	}
	if count[state.RecordChange] != 2 || count[state.RecordRollback] != 1 || count[state.RecordTrial] != 1 {
		t.Errorf("%v: want the quota changed twice, reverted once, and one trial", count)
	}
	none, err := d.History(t.Context(), api.HistoryQuery{SinceUnixNs: time.Now().UnixNano()})
	if err != nil || len(none) > 0 {
		t.Errorf("%d records are later than the last tick, %v", len(none), err)
	}
}

// A report of the hour before now is of what was played, whenever that was.
func TestReport(t *testing.T) {
	r, err := playedTrial(t).Report(t.Context(), api.ReportQuery{By: account.ByTeam, SinceUnixNs: time.Now().Add(-time.Hour).UnixNano()})
	if err != nil || len(r.Groups) != 2 { // the job, and its neighbour of no team
		t.Fatalf("%+v, %v", r, err)
	}
	for _, g := range r.Groups {
		if g.Name == "vision" && (g.CPU.Held <= 0 || g.CPU.Saved <= 0) {
			t.Errorf("of vision: %+v", g.CPU)
		}
	}
}
