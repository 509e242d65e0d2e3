package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestReport(t *testing.T) {
	day := Hour{StartUnixNs: Day(noon) - 24*nsInHour, Hours: 24, Observed: 3600_000, Rows: []Row{{Key: "a", Name: "old", Image: "i", Team: "x", Sums: Sums{GPU: use(map[Cause]Cell{0: {Held: 1000}})}}}}
	hour := Hour{StartUnixNs: noon, Hours: 1, Observed: 1800_000, Rows: []Row{{Key: "b", Name: "new", Image: "i", Sums: Sums{Lent: 500, Given: 250,
		GPU: use(map[Cause]Cell{Idle: {Held: 3000}, Unknown: {Held: 500}, Cause(policies.PartReclaim): {Held: 2000, Actionable: 2000, Tried: 70, Lost: 7}})}}}}
	tally := NewTally(ByTeam, noon-13*nsInHour+5, noon+nsInHour/2)
	tally.Add(Hour{StartUnixNs: noon - 900*nsInHour, Hours: 1, Rows: day.Rows})
	tally.Add(Hour{StartUnixNs: noon + 900*nsInHour, Hours: 1, Rows: day.Rows})
	tally.Add(day)
	tally.Add(hour)
	got := tally.Report()
	x := state.ReportGroup{Name: "x", GPU: state.ReportUse{Held: 1, Causes: map[string]float64{"compute": 1}}}
	none := state.ReportGroup{LentCPUSeconds: 0.5, GivenCPUSeconds: 0.25, GPU: state.ReportUse{Held: 5.5, Idle: 3, Stalled: 2, Actionable: 2, NotKnown: 0.5, Tried: 0.07, Lost: 0.007,
		Causes: map[string]float64{"idle": 3, "reclaim": 2, "not_known": 0.5}, ActionableCauses: map[string]float64{"reclaim": 2}, LostCauses: map[string]float64{"reclaim": 0.007}}}
	total := none
	total.GPU.Held, total.GPU.Causes = 6.5, map[string]float64{"compute": 1, "idle": 3, "reclaim": 2, "not_known": 0.5}
	want := state.Report{FromUnixNs: day.StartUnixNs, ToUnixNs: noon + nsInHour/2, By: "team", Source: "history", ObservedSeconds: 5400,
		UnobservedSeconds: 36.5*3600 - 5400,
		Gaps:              []state.Gap{{FromUnixNs: day.StartUnixNs + 24*nsInHour, ToUnixNs: noon}}, Groups: []state.ReportGroup{none, x}, Total: total}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	byCause := NewTally(ByCause, noon, noon+nsInHour)
	byCause.Add(hour)
	for _, g := range byCause.Report().Groups {
		if above := g.LentCPUSeconds + g.GivenCPUSeconds; above != map[string]float64{LentName: 0.5, GivenName: 0.25}[g.Name] || above > 0 && g.GPU.Held+g.CPU.Held > 0 {
			t.Errorf("by cause: %+v", g)
		}
	}
}

// A container's line says who had its name last.
func TestReportOfContainersSaysWhoTheyAre(t *testing.T) {
	tally := NewTally(ByContainer, noon, noon+3*nsInHour)
	for i, team := range []string{"old", "new"} {
		tally.Add(Hour{StartUnixNs: noon + int64(i)*nsInHour, Hours: 1, Rows: []Row{{Key: "docker-" + team, Name: "train", Team: team, Image: "v" + team, Sums: Sums{Lent: 1000}}}})
	}
	want := []state.ReportGroup{{Name: "train", LentCPUSeconds: 2, Key: "docker-new", Team: "new", Image: "vnew"}}
	if d := cmp.Diff(want, tally.Report().Groups); d != "" {
		t.Error(d)
	}
}

// What people are shown is a field of what is answered.
func TestColumnsAreFields(t *testing.T) {
	use := state.ReportUse{Held: 1, Idle: 2, Stalled: 3, Actionable: 4, NotKnown: 5, Saved: 6, Lost: 7}
	text, err := json.Marshal(state.ReportGroup{GPU: use, LentCPUSeconds: 8, GivenCPUSeconds: 9})
	var shown struct{ GPU map[string]any }
	var group map[string]any
	if err := errors.Join(err, json.Unmarshal(text, &shown), json.Unmarshal(text, &group)); err != nil {
		t.Fatal(err)
	}
	for i, c := range AboveColumns() {
		if want := float64(8 + i); group[c.Field] != want || c.Of(state.ReportGroup{LentCPUSeconds: 8, GivenCPUSeconds: 9}) != want || c.Title == "" || c.Means == "" {
			t.Errorf("%s is %v", c.Key, group[c.Field])
		}
	}
	for i, c := range Columns() {
		if c.Value(use) != float64(i+1) || shown.GPU[c.Field] != float64(i+1) || c.Title == "" || c.Means == "" {
			t.Errorf("%s: %g, and in JSON %v", c.Key, c.Value(use), shown.GPU[c.Field])
		}
	}
}

func TestReportHasBoundedGroups(t *testing.T) {
	tally := NewTally(ByContainer, 0, noon)
	for i := range 3 * MaxGroups {
		tally.Add(Hour{Hours: 1, Rows: []Row{{Key: "k", Name: fmt.Sprint(i), Sums: Sums{Lent: 1000}}}})
	}
	r := tally.Report()
	var sum float64
	for _, g := range r.Groups {
		sum += g.LentCPUSeconds
	}
	for _, g := range r.Groups {
		if g.Name == othersKey && g.Key+g.Team+g.Image != "" {
			t.Errorf("the others are %+v", g)
		}
	}
	if len(r.Groups) != MaxGroups+1 || sum != 3*MaxGroups || r.Total.LentCPUSeconds != sum {
		t.Errorf("%d groups, %.0f s", len(r.Groups), sum)
	}
}

func TestGaps(t *testing.T) {
	tally := NewTally(ByTeam, noon, noon+10*nsInHour)
	for _, h := range []int64{5, 2, 6} { // as they come
		tally.Add(Hour{StartUnixNs: noon + h*nsInHour, Hours: 1})
	}
	want := []state.Gap{{FromUnixNs: noon + 7*nsInHour, ToUnixNs: noon + 10*nsInHour}, {FromUnixNs: noon, ToUnixNs: noon + 2*nsInHour}, {FromUnixNs: noon + 3*nsInHour, ToUnixNs: noon + 5*nsInHour}}
	if d := cmp.Diff(want, tally.Report().Gaps); d != "" {
		t.Error(d)
	}
}
