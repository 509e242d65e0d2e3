package top

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// row is a container in the table.
type row struct {
	container             *state.Container
	cells                 render.Cells
	standing, loan, trial string
	duty                  string // of each of its devices: "0 92 %"
}

// column is a column of the table. Those of the least rank stay where the terminal is narrow.
type column struct {
	title string
	width int // that it has, or for the column of names the least
	rank  int
	cell  func(*row) string
	// number sorts, largest first; nil: the cell does, in the order of the alphabet.
	number func(*row) float64
}

// sortName is how a column is named on the command line: "cpu" of "CPU←ORIG".
func (c column) sortName() string {
	title, _, _ := strings.Cut(strings.ToLower(c.title), "←")
	return title
}

// names is the index of the column that grows.
const names = 0

// columns of the lowest eight ranks take 80 columns.
func columns() []column {
	return []column{
		{"NAME", 13, 0, func(r *row) string { return r.cells.Name }, nil},
		{"TEAM", 8, 10, func(r *row) string { return cmp.Or(r.cells.Team, "-") }, nil},
		{"GPUS", 4, 7, func(r *row) string { return r.cells.GPUs }, func(r *row) float64 { return float64(len(r.container.GPUs)) }},
		{"DUTY", 11, 9, func(r *row) string { return r.duty }, nil},
		{"STATE", 8, 1, func(r *row) string { return r.standing }, nil},
		{"RATE", 12, 2, func(r *row) string { return r.cells.Rate }, rated},
		{"STALLED", 7, 5, func(r *row) string { return r.cells.Stalled }, func(r *row) float64 { return r.container.Breakdown.Stalled() }},
		{"CAUSE", 9, 3, func(r *row) string { return r.cells.Cause }, nil},
		{"CPU←ORIG", 9, 4, func(r *row) string { return strings.TrimSuffix(r.cells.CPU, " lent") }, limit},
		{"LOAN", 7, 8, func(r *row) string { return r.loan }, lent},
		{"SPEEDUP", 11, 6, func(r *row) string { return r.cells.Speedup }, faster},
		{"TRIAL", 15, 11, func(r *row) string { return r.trial }, nil},
		{"JOB", 10, 12, func(r *row) string { return cmp.Or(render.ASCII(r.container.Enrolment.Job), "-") }, nil},
		{"REASON", 20, 13, func(r *row) string { return cmp.Or(r.cells.Reason, "-") }, nil},
	}
}

// rated, limit, lent and faster sort by what their columns show; where that is nothing they are 0.
func rated(r *row) float64 {
	if r.container.RateWhy != "" {
		return 0
	}
	return r.container.Rate.PerSecond
}

func limit(r *row) float64 {
	quota, known := r.container.Now[runtime.KnobCPUQuota]
	if cpus, limited := quota.CPUs(); limited || !known {
		return cpus
	}
	return math.Inf(1)
}

func faster(r *row) float64 {
	switch c, w := r.container, r.container.Work; {
	case c.HasGain || c.Doubt:
		return c.Gain
	case c.Trial != nil || w == nil:
		return 0
	case w.Ratio > 0:
		return w.Ratio - 1
	case w.CPUs > 0:
		return w.CPUs - 1
	}
	return 0
}

func lent(r *row) float64 {
	if r.container.Loan == nil {
		return 0
	}
	return r.container.Loan.CPUs
}

// list is the table of containers.
type list struct {
	rows     []row  // of the latest answer, in its order
	shown    []*row // those that fit the filter, sorted
	hidden   int    // that are not watched
	filter   string
	typing   bool // keys go to the filter
	all      bool
	sort     int
	reverse  bool
	selected string // key
	at       int    // where that stood
	top      int    // the first that is on the screen
}

// fill takes a new answer.
func (l *list) fill(d Data) {
	duties := dutyByKey(d.Devices)
	l.rows = make([]row, len(d.Containers))
	for i := range d.Containers {
		c := &d.Containers[i]
		l.rows[i] = row{container: c, cells: render.CellsOf(*c), standing: render.Standing(*c), loan: render.Loan(*c), trial: render.LatestTrial(*c),
			duty: cmp.Or(duties[c.Key], "-")}
	}
	l.arrange()
}

// dutyByKey shows for each holder the devices that it is on, with their duty.
func dutyByKey(d api.Devices) map[string]string {
	out := map[string]string{}
	for _, dev := range d.Devices {
		text := dev.Label()
		if dev.Duty != nil {
			text += " " + strconv.FormatFloat(*dev.Duty*100, 'f', 0, 64) + "%"
		}
		for _, h := range dev.Holders {
			switch was := out[h.Key]; {
			case h.Host:
			case was == "":
				out[h.Key] = text
			default:
				out[h.Key] = was + "," + text
			}
		}
	}
	return out
}

// arrange chooses and sorts what is shown; what is selected stays so.
func (l *list) arrange() {
	l.shown, l.hidden = l.shown[:0], 0
	filter := strings.ToLower(l.filter)
	for i := range l.rows {
		r := &l.rows[i]
		c := r.container
		switch {
		case !l.all && !c.Watched && c.Enrolment.Mode != policies.ModeTune && c.Pending == "":
			l.hidden++
		case filter == "" || r.fits(filter):
			l.shown = append(l.shown, r)
		}
	}
	by := columns()[l.sort]
	slices.SortStableFunc(l.shown, func(a, b *row) int {
		order := 0
		if by.number != nil {
			order = cmp.Compare(by.number(b), by.number(a))
		} else {
			order = strings.Compare(by.cell(a), by.cell(b))
		}
		if l.reverse {
			order = -order
		}
		return cmp.Or(order, strings.Compare(a.cells.Name, b.cells.Name), strings.Compare(a.container.Key, b.container.Key))
	})
	l.find()
}

// fits reports whether any word of a row holds the text, which is in lower case.
func (r *row) fits(filter string) bool {
	return slices.ContainsFunc([]string{r.cells.Name, r.cells.Team, r.standing, r.cells.Cause, r.cells.Mode, r.cells.Reason, r.container.Image, r.container.Enrolment.Job},
		func(word string) bool { return strings.Contains(strings.ToLower(word), filter) })
}

// find looks up what is selected; where it is gone, what took its place is.
func (l *list) find() {
	i := slices.IndexFunc(l.shown, func(r *row) bool { return r.container.Key == l.selected })
	if i < 0 {
		i = min(l.at, len(l.shown)-1)
	}
	l.choose(i)
}

func (l *list) choose(i int) {
	l.at, l.selected = max(i, 0), ""
	if r := l.current(); r != nil {
		l.selected = r.container.Key
	}
}

// current is the selected row; nil: the table is empty.
func (l *list) current() *row {
	if l.at < len(l.shown) {
		return l.shown[l.at]
	}
	return nil
}

func (l *list) move(by int) { l.choose(min(max(l.at+by, 0), len(l.shown)-1)) }

// follow keeps the selection among so many rows of the screen.
func (l *list) follow(rows int) {
	rows = max(rows, 1)
	l.top = min(l.top, l.at, max(len(l.shown)-rows, 0))
	l.top = max(l.top, l.at-rows+1)
}

func (l *list) sortBy(i int) {
	n := len(columns())
	l.sort = (i + n) % n
	l.arrange()
}

// placed is a column and the columns of the terminal that it has.
type placed struct {
	column
	index, width int
}

// place chooses the columns that fit into so much, the lowest ranks first. What is left over
// goes to the names, and then to the last column.
func place(width int) []placed {
	all := columns()
	byRank := make([]int, len(all))
	for i := range all {
		byRank[i] = i
	}
	slices.SortFunc(byRank, func(a, b int) int { return cmp.Compare(all[a].rank, all[b].rank) })
	left, chosen := width+1, map[int]bool{}
	for _, i := range byRank {
		need := all[i].width + 1
		if all[i].rank >= 12 {
			need += 11 // names come before them
		}
		if need > left {
			break
		}
		chosen[i] = true
		left -= all[i].width + 1
	}
	var out []placed
	for i, c := range all {
		if chosen[i] {
			out = append(out, placed{c, i, c.width})
		}
	}
	if len(out) == 0 {
		return []placed{{all[names], names, width}}
	}
	more := min(left, 19)
	out[0].width += more
	out[len(out)-1].width += left - more
	return out
}
