package render

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/state"
)

// reportPage stands alone: no script, nothing from elsewhere. html/template escapes all that is
// put in.
const reportPage = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>trimtab report by {{.By}}</title>
<style>
:root { color-scheme: light dark; --text: #1c2430; --dim: #5b6675; --line: #d5dae1; --page: #ffffff;
  --work: #2f7d5b; --stalled: #c9822b; --idle: #a8b1bd; --unknown: #e3e6ea; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e8ee; --dim: #9aa5b4; --line: #38414e; --page: #161b22;
    --work: #4fa37d; --stalled: #d9974a; --idle: #66707d; --unknown: #333b46; } }
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin-bottom: .3rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p, dd { color: var(--dim); } dt { font-weight: 600; } dd { margin: 0 0 .4rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th { font-weight: 600; color: var(--dim); font-size: .85rem; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; unicode-bidi: isolate; }
tr:last-child td { font-weight: 600; border-bottom: 0; }
.bar { display: flex; width: 9rem; height: .7rem; background: var(--unknown); }
.work { background: var(--work); } .stalled { background: var(--stalled); } .idle { background: var(--idle); }
.key span { display: inline-block; width: .7rem; height: .7rem; margin: 0 .3rem 0 .8rem; } .unknown { background: var(--unknown); }
</style>
</head>
<body>
<h1>What it was worth, by {{.By}}</h1>
<p>{{.Sentence}}{{with .Gap}}; {{.}}{{end}}.</p>
{{range .Tables}}<h2>{{.Title}}</h2>
{{if .Rows}}<div class="wide"><table>
<thead><tr><th scope="col">{{.By}}</th>{{range .Columns}}<th scope="col">{{.}}</th>{{end}}<th scope="col">of held</th></tr></thead>
<tbody>
{{range .Rows}}<tr><td>{{.Name}}</td>{{range .Cells}}<td>{{.}}</td>{{end}}<td><div class="bar" role="img" aria-label="{{.Label}}">{{range .Bars}}<div class="{{.Class}}" style="width: {{.Percent}}%"></div>{{end}}</div></td></tr>
{{end}}</tbody>
</table></div>
{{else}}<p>None held.</p>
{{end}}{{end}}<p class="key"><span class="work"></span>working<span class="stalled"></span>stalled<span class="idle"></span>idle<span class="unknown"></span>not known</p>
<h2>What the columns say</h2>
<dl>
{{range .Terms}}<dt>{{.Title}}</dt><dd>{{.Means}}</dd>
{{end}}</dl>
</body>
</html>
`

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
	Title, By string
	Columns   []string
	Rows      []pageRow
}

type pageTerm struct{ Title, Means string }

type page struct {
	By, Sentence, Gap string
	Tables            []pageTable
	Terms             []pageTerm
}

// ReportHTML is the report as one page that can be mailed.
func ReportHTML(r state.Report, clock Clock) (string, error) {
	p := page{By: Clean(r.By), Sentence: reportSentence(r, clock), Gap: longestGap(r, clock)}
	for _, c := range append(account.Columns(), account.LentColumn()) {
		p.Terms = append(p.Terms, pageTerm{c.Title, c.Means})
	}
	for _, x := range reportResources() {
		p.Tables = append(p.Tables, reportTable(r, x))
	}
	t, err := template.New("report").Parse(reportPage)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if err := t.Execute(&out, p); err != nil {
		return "", fmt.Errorf("report: %w", err)
	}
	return out.String(), nil
}

func reportTable(r state.Report, x reportResource) pageTable {
	t := pageTable{Title: x.title, By: Clean(r.By)}
	for _, c := range account.Columns() {
		t.Columns = append(t.Columns, c.Title)
	}
	if x.lent {
		t.Columns = append(t.Columns, account.LentColumn().Title)
	}
	if x.nothing(r.Total) {
		return t
	}
	for _, g := range x.groups(r) {
		u := x.use(g)
		row := pageRow{Name: Clean(groupName(r.By, g.Name))}
		for _, c := range account.Columns() {
			row.Cells = append(row.Cells, hours(c.Value(u)))
		}
		if x.lent {
			row.Cells = append(row.Cells, hours(g.LentCPUSeconds))
		}
		row.Bars, row.Label = bars(u)
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
