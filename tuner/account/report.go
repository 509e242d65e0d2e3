package account

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/tuner/state"
)

// By is what a report is sorted by.
type By string

// The ways to sort a report.
const (
	ByTeam      By = "team"
	ByImage     By = "image"
	ByContainer By = "container"
	ByCause     By = "cause"
)

// AllBy are the ways to sort one.
func AllBy() []By { return []By{ByTeam, ByImage, ByContainer, ByCause} }

// ParseBy reads one; "" is team.
func ParseBy(text string) (By, error) {
	if text == "" {
		return ByTeam, nil
	}
	if by := By(text); slices.Contains(AllBy(), by) {
		return by, nil
	}
	return "", fmt.Errorf("allowed are team, image, container, cause")
}

// LentName and GivenName are the groups of what was used above owners' quotas, which has no cause, in a
// report by cause.
const (
	LentName  = "lent"
	GivenName = "given"
)

// MaxGroups is how many groups a report tells apart: later ones are summed. Names are hostile
// input, and a query must not cost the daemon its memory.
const MaxGroups = 4096

// Tally adds stretches up to a report.
type Tally struct {
	by           By
	fromNs, toNs int64
	observed     int64       // ms
	seen         []state.Gap // the opposite of gaps: stretches that are stored
	groups       map[string]*group
	total        Sums
}

// group is one line of a report; of a container's, who had the name last.
type group struct {
	Sums
	key, team, image string
}

// FromHour begins the hour that an instant is in, unix ns: no report begins within one.
func FromHour(sinceNs int64) int64 { return floor(sinceNs, nsInHour) }

// NewTally begins a report from an instant to another, unix ns; that from the hour's beginning on.
func NewTally(by By, sinceNs, nowNs int64) *Tally {
	return &Tally{by: by, fromNs: FromHour(sinceNs), toNs: nowNs, groups: map[string]*group{}}
}

// Add takes a stretch in that overlaps the report's; another is left out.
func (t *Tally) Add(h Hour) {
	if h.StartUnixNs >= t.toNs || h.StartUnixNs+h.Hours*nsInHour <= t.fromNs {
		return
	}
	t.fromNs = min(t.fromNs, h.StartUnixNs)
	t.observed += h.Observed
	t.seen = append(t.seen, state.Gap{FromUnixNs: h.StartUnixNs, ToUnixNs: h.StartUnixNs + h.Hours*nsInHour})
	for i := range h.Rows {
		r := &h.Rows[i]
		t.total.add(&r.Sums)
		switch t.by {
		case ByCause:
			t.causes(r)
		case ByImage:
			t.group(r.Image).add(&r.Sums)
		case ByContainer:
			g := t.group(r.Name)
			g.add(&r.Sums)
			if t.groups[r.Name] == g { // else those beyond MaxGroups
				g.key, g.team, g.image = r.Key, r.Team, r.Image // the latest hour comes last
			}
		default:
			t.group(r.Team).add(&r.Sums)
		}
	}
}

func (t *Tally) group(name string) *group {
	g := t.groups[name]
	if g == nil && len(t.groups) >= MaxGroups {
		name = othersKey
		g = t.groups[name]
	}
	if g == nil {
		g = &group{}
		t.groups[name] = g
	}
	return g
}

// causes divides a row; what was lent and given has none, and is a group of its own.
func (t *Tally) causes(r *Row) {
	for c := range NumCauses {
		if r.GPU[c] == (Cell{}) && r.CPU[c] == (Cell{}) {
			continue
		}
		var one Sums
		one.GPU[c], one.CPU[c] = r.GPU[c], r.CPU[c]
		t.group(c.String()).add(&one)
	}
	if r.Lent > 0 {
		t.group(LentName).Lent += r.Lent
	}
	if r.Given > 0 {
		t.group(GivenName).Given += r.Given
	}
}

// Report is the sum so far.
func (t *Tally) Report() state.Report {
	out := state.Report{FromUnixNs: t.fromNs, ToUnixNs: t.toNs, By: string(t.by), Source: "history",
		ObservedSeconds: seconds(t.observed, 1e3), Groups: []state.ReportGroup{}, Total: shown("", &group{Sums: t.total})}
	out.Gaps = t.gaps()
	out.UnobservedSeconds = max(0, seconds(t.toNs-t.fromNs, 1e9)-out.ObservedSeconds)
	for _, name := range slices.Sorted(maps.Keys(t.groups)) {
		out.Groups = append(out.Groups, shown(name, t.groups[name]))
	}
	SortGroups(out.Groups)
	return out
}

const maxGaps = 100

// gaps are the times between what is stored, the longest first.
func (t *Tally) gaps() (out []state.Gap) {
	slices.SortFunc(t.seen, func(a, b state.Gap) int { return cmp.Compare(a.FromUnixNs, b.FromUnixNs) })
	from := t.fromNs
	for _, s := range append(t.seen[:len(t.seen):len(t.seen)], state.Gap{FromUnixNs: t.toNs}) {
		if s.FromUnixNs-from >= nsInHour {
			out = append(out, state.Gap{FromUnixNs: from, ToUnixNs: s.FromUnixNs})
		}
		from = max(from, s.ToUnixNs)
	}
	slices.SortStableFunc(out, func(a, b state.Gap) int { return cmp.Compare(b.ToUnixNs-b.FromUnixNs, a.ToUnixNs-a.FromUnixNs) })
	return out[:min(len(out), maxGaps)]
}

// SortGroups puts the most held first: of devices, then of CPUs.
func SortGroups(groups []state.ReportGroup) {
	slices.SortStableFunc(groups, func(a, b state.ReportGroup) int {
		return cmp.Or(cmp.Compare(b.GPU.Held, a.GPU.Held), cmp.Compare(b.CPU.Held, a.CPU.Held), strings.Compare(a.Name, b.Name))
	})
}

func shown(name string, g *group) state.ReportGroup {
	return state.ReportGroup{Name: name, GPU: shownUse(&g.GPU), CPU: shownUse(&g.CPU), LentCPUSeconds: seconds(g.Lent, 1e3), GivenCPUSeconds: seconds(g.Given, 1e3), Key: g.key, Team: g.team, Image: g.image}
}

func shownUse(u *Use) state.ReportUse {
	var out state.ReportUse
	for c := range NumCauses {
		AddCause(&out, c.String(), u[c].shown(1e3))
	}
	return out
}

// AddCause adds the counters of one cause to what a report shows.
func AddCause(u *state.ReportUse, cause string, x state.TeamUse) {
	u.Held += x.Held
	switch c := CauseOf(cause); {
	case c == Idle:
		u.Idle += x.Held
	case c == Unknown:
		u.NotKnown += x.Held
	case c.Stalled():
		u.Stalled += x.Held
	}
	u.Actionable += x.Actionable
	u.Proven += x.Proven
	u.Saved += x.Saved
	u.Tried += x.Tried
	u.Lost += x.Lost
	divide(&u.Causes, cause, x.Held)
	divide(&u.ActionableCauses, cause, x.Actionable)
	divide(&u.SavedCauses, cause, x.Saved)
	divide(&u.LostCauses, cause, x.Lost)
}

func divide(causes *map[string]float64, cause string, seconds float64) {
	if seconds <= 0 {
		return
	}
	if *causes == nil {
		*causes = map[string]float64{}
	}
	(*causes)[cause] += seconds
}
