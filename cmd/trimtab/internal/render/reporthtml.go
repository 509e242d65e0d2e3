package render

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/state"
)

// reportPage stands alone: no script, nothing from elsewhere. html/template escapes all that is
// put in.
//
//go:embed report.html
var reportPage string

type pageBar struct {
	Class   string
	Percent float64
}

type pageRow struct {
	Name  string
	Cells []string
	Label string
	Bars  []pageBar
}

type pageTable struct {
	Title   string
	Columns []string
	Rows    []pageRow
}

type page struct {
	By, Sentence, Early, Gap string
	Tables                   []pageTable
	Terms                    []account.Column
}

// ReportHTML is the report as one page that can be mailed.
func ReportHTML(w io.Writer, r state.Report, clock Clock) error {
	p := page{By: Clean(r.By), Sentence: reportSentence(r, clock), Early: early(r, clock), Gap: longestGap(r, clock), Terms: account.Columns()}
	for _, t := range account.AboveColumns() {
		p.Terms = append(p.Terms, t.Column)
	}
	for _, x := range reportResources() {
		p.Tables = append(p.Tables, reportTable(r, x))
	}
	return template.Must(template.New("report").Parse(reportPage)).Execute(w, p)
}

func reportTable(r state.Report, x reportResource) pageTable {
	t := pageTable{Title: x.title, Columns: x.titles()}
	if x.nothing(r.Total) {
		return t
	}
	for _, g := range x.groups(r) {
		row := pageRow{Name: Clean(groupName(r.By, g.Name)), Cells: x.hours(g)}
		row.Bars, row.Label = bars(x.use(g))
		t.Rows = append(t.Rows, row)
	}
	return t
}

// bars divide what was held; what is not known is left over.
func bars(u state.ReportUse) (out []pageBar, label string) {
	if u.Held <= 0 {
		return nil, "nothing held"
	}
	work := max(0, u.Held-u.Idle-u.Stalled-u.NotKnown)
	for _, b := range []struct {
		class   string
		seconds float64
	}{{"work", work}, {"stalled", u.Stalled}, {"idle", u.Idle}} {
		out = append(out, pageBar{b.class, float64(int(1000*b.seconds/u.Held)) / 10})
	}
	return out, fmt.Sprintf("working %s, stalled %s, idle %s, not known %s", percent(work/u.Held), percent(u.Stalled/u.Held), percent(u.Idle/u.Held), percent(u.NotKnown/u.Held))
}
