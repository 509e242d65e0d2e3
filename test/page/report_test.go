package page_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/browser"
	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/state"
)

// cells are hours of causes as a row of an hour has them.
func cells(causes map[account.Cause]float64) (u account.Use) {
	for c, h := range causes {
		u[c][account.Held] = int64(h * 3600e3)
	}
	return u
}

// accounted gives a daemon two hours of accounts: a job whose quota was raised with proof, one that
// holds a device idle, and a group that nobody named a team for. What the first did stands in the history.
func accounted(d *daemon, end time.Time) {
	throttled := account.Cause(policies.PartInputThrottled)
	for i := range 2 {
		hour := account.Hour{StartUnixNs: end.Truncate(time.Hour).Add(time.Duration(i-2) * time.Hour).UnixNano(), Hours: 1, Observed: 3600e3}
		train := account.Row{Key: "docker-train", Name: "train", Image: "registry.example.com/vision/resnet:7", Team: "vision", Sums: account.Sums{Lent: 1800e3,
			GPU: cells(map[account.Cause]float64{account.Cause(policies.PartDevice): 0.7, throttled: 0.2, account.Idle: 0.1}),
			CPU: cells(map[account.Cause]float64{account.Cause(policies.PartCompute): 0.3, throttled: 0.1})}}
		train.GPU[throttled][account.Actionable], train.GPU[throttled][account.Proven], train.GPU[throttled][account.Saved] = 360e3, 1800e3, 900e3
		train.GPU[throttled][account.Tried], train.GPU[throttled][account.Lost] = 180e3, 36e3
		hour.Rows = append(hour.Rows, train,
			account.Row{Key: "docker-notebook", Name: "notebook", Image: "jupyter:3", Team: "research", Sums: account.Sums{GPU: cells(map[account.Cause]float64{account.Idle: 0.9, account.Unknown: 0.1})}},
			account.Row{Key: "docker-cron", Name: "cron", Image: "debian:12", Sums: account.Sums{CPU: cells(map[account.Cause]float64{account.Idle: 0.001})}})
		d.hours = append(d.hours, hour)
	}
	trial := state.Record{UnixNs: end.Add(-90 * time.Minute).UnixNano(), Key: "docker-train", Name: "train", Team: "vision", Kind: state.RecordTrial, Plan: "0101-9", Policy: "knee", Knob: runtime.KnobCPUQuota,
		From: "40000 100000", To: "80000 100000", Outcome: state.OutcomeKept, Before: 15, After: 22, Gain: 0.467, Low: 1.4, High: 1.53, Text: "15.0 to 22.0 steps/s, between +40 % and +53 %"}
	loan := state.Record{UnixNs: end.Add(-3 * 24 * time.Hour).UnixNano(), Key: "docker-train", Name: "train", Team: "vision", Kind: state.RecordLoan, Plan: "0100-1", Policy: "lend",
		Knob: runtime.KnobCPUQuota, From: "40000 100000", To: "90000 100000", Text: "three days before"}
	d.records = append([]state.Record{loan, trial}, d.records...)
}

// held gives a daemon accounts of all containers of a snapshot, for so many hours up to it.
func held(d *daemon, s *state.Snapshot, hours int) {
	for i := range hours {
		hour := account.Hour{StartUnixNs: time.Unix(0, s.UnixNs).Truncate(time.Hour).Add(-time.Duration(hours-i) * time.Hour).UnixNano(), Hours: 1, Observed: 3600e3}
		for j, c := range s.Containers {
			use := cells(map[account.Cause]float64{account.Cause(policies.PartDevice): 0.5, account.Cause(policies.PartInputThrottled): 0.2 + float64(j%7)/100, account.Idle: float64(j%11) / 40})
			use[policies.PartInputThrottled][account.Proven], use[policies.PartInputThrottled][account.Saved] = int64(j%5)*100e3, int64(j%5)*30e3
			hour.Rows = append(hour.Rows, account.Row{Key: c.Key, Name: c.Name, Image: c.Image, Team: c.Enrolment.Team, Sums: account.Sums{GPU: use, CPU: use, Lent: int64(j) * 1000}})
		}
		d.hours = append(d.hours, hour)
	}
}

// Every term can be followed, from a node's total to the trial that it was proved by.
func testReport(t *testing.T, in context.Context) {
	d := new(daemon)
	now := time.Now()
	hour(t, d, now)
	accounted(d, now)
	url := serve(t, d)
	p := browser.Open(t, in, 1000, 760, scheme("light"))
	p.View(url, "#/report")
	p.Until("document.querySelectorAll('table.figures tbody tr').length === 4")
	if text := browser.Eval[string](p, "document.querySelector('table.figures').innerText"); !strings.Contains(text, "vision\t2.00\t0.20\t0.40\t0.20\t0\t0.50\t0.02") || !strings.Contains(text, "total\t4.00") {
		t.Errorf("the report says:\n%s", text)
	}
	if text := browser.Eval[string](p, "document.querySelectorAll('table.figures')[1].innerText"); !strings.Contains(text, "vision\t0.80\t0\t0.20\t0\t0\t0\t0\t1.00\t0") || !strings.Contains(text, "(no team)\t<0.01") {
		t.Errorf("of CPUs it says:\n%s", text)
	}
	columns := account.Columns()
	for _, c := range account.AboveColumns() {
		columns = append(columns, c.Column)
	}
	for _, c := range columns {
		if !browser.Eval[bool](p, fmt.Sprintf("[...document.querySelectorAll('table.figures thead button')].some((b) => b.textContent === %q && b.title === %q)", c.Title, c.Means)) ||
			!browser.Eval[bool](p, fmt.Sprintf("document.querySelector('.meanings').textContent.includes(%q)", c.Means)) {
			t.Errorf("no column says what %s means", c.Title)
		}
	}
	if *screenshots {
		p.Picture("../../docs/page-report.png")
	}
	p.Run(chromedp.Click(chromedp.CSS("table.figures a[href$=vision]")))
	p.Until("document.querySelector('table.figures a[href$=train]')")
	if text := browser.Eval[string](p, "document.querySelector('table.figures').innerText"); strings.Contains(text, "notebook") {
		t.Errorf("among the team's containers is another's:\n%s", text)
	}
	p.Run(chromedp.Click(chromedp.CSS("table.figures a[href$=train]")))
	p.Until("document.querySelector('.records summary')")
	p.Do("[...document.querySelectorAll('section')].find((s) => s.innerText.startsWith('Saved')).querySelector('summary').click()")
	p.Until("document.querySelector('.records details[open] dl')")
	for _, want := range []string{"0101-9", "+40 % and +53 %", "1.00 GPU-hours and 0 CPU-hours were in use under them", "for data: loaders out of quota\t0.40\t20 %"} {
		if text := browser.Eval[string](p, "document.getElementById('main').innerText"); !strings.Contains(text, want) {
			t.Errorf("what the report rests on lacks %q:\n%s", want, text)
		}
	}
	p.Do("[...document.querySelectorAll('section')].find((s) => s.innerText.startsWith('Actionable')).querySelector('summary').click()")
	p.Until("[...document.querySelectorAll('section')].find((s) => s.innerText.startsWith('Actionable')).innerText.includes('its loaders are out of CPU quota 52 %')")
	if text := browser.Eval[string](p, "[...document.querySelectorAll('section')].find((s) => s.innerText.startsWith('Lost')).innerText"); !strings.Contains(text, "trial inconclusive") {
		t.Errorf("what was lost rests on:\n%s", text)
	}
	if text := browser.Eval[string](p, "[...document.querySelectorAll('section')].find((s) => s.innerText.startsWith('Lent')).innerText"); strings.Count(text, "\n") < 3 {
		t.Errorf("what was lent rests on:\n%s", text)
	}
	loans := "[...document.querySelectorAll('section')].find((s) => s.innerText.startsWith('Lent')).querySelectorAll('li').length"
	ofDay := browser.Eval[int](p, loans)
	p.View(url, "#/report/7d/container/train")
	if ofWeek := browser.Eval[int](p, loans); ofDay != 3 || ofWeek != 4 {
		t.Errorf("what was lent rests on %d loans of a day and on %d of a week, want 3 and 4", ofDay, ofWeek)
	}
	p.View(url, "#/report/24h/container/notebook")
	p.Until("document.getElementById('main').innerText.includes('it does not run')")
	p.View(url, "#/report/24h/container/train")
	p.Run(chromedp.Click(chromedp.CSS("a[href='#/job/docker-train']")))
	p.Until("document.querySelector('.headline')")
	p.Run(chromedp.Click(chromedp.CSS("a[href='#/report/7d/container/train']")))
	p.Until("document.querySelector('.records summary')")
	p.Fine()
}

// atHand is whether the report by something was answered.
func atHand(by string) string {
	return fmt.Sprintf("performance.getEntriesByType('resource').some((e) => e.name.endsWith('by=%s') && e.responseEnd > 0)", by)
}

// What is chosen is asked for at once, by keys too: the focus stays, and the address says it.
func testReportChoices(t *testing.T, in context.Context) {
	d := new(daemon)
	accounted(d, time.Now())
	d.publish(node(time.Now()))
	p := browser.Open(t, in, 1000, 760)
	p.View(serve(t, d), "#/report/7d/container")
	p.Until("document.querySelector('table.figures a[href$=notebook]')")
	p.Run(chromedp.Focus(chromedp.CSS("#by")))
	p.Until(atHand("cause")) // before it is chosen
	p.Run(chromedp.KeyEvent(kb.ArrowDown))
	p.Until("document.querySelector('table.figures')?.innerText.includes('for data: loaders out of quota')")
	if at := browser.Eval[string](p, active+" + location.hash"); !strings.HasPrefix(at, "SELECT by") || !strings.HasSuffix(at, "#/report/7d/cause") {
		t.Errorf("after a choice the focus and the address are %s", at)
	}
	p.Run(chromedp.Click(chromedp.CSS("table.figures a[href$=idle]")))
	p.Until("document.querySelectorAll('table.figures a[href$=notebook]').length === 1")
	if text := browser.Eval[string](p, "document.getElementById('main').innerText"); !strings.Contains(text, "Report: cause idle") || !strings.Contains(text, "Of the last week, by cause") {
		t.Errorf("a cause says:\n%s", text)
	}
	for cause, want := range map[string]string{"idle": "train\t0.20\t0.20\t0\t0\t0\t0\t0", "input_throttled": "train\t0.40\t0\t0.40\t0.20\t0\t0.50\t0.02", "lent": "train\t0\t0\t0\t0\t0\t0\t0\t1.00\t0"} {
		p.View(browser.Eval[string](p, "location.origin"), "#/report/24h/cause/"+cause)
		p.Until("document.querySelector('table.figures a[href$=train]')")
		if text := browser.Eval[string](p, "[...document.querySelectorAll('table.figures')].map((t) => t.innerText).join('\\n')"); !strings.Contains(text, want) {
			t.Errorf("of %s a container has %q, not what is of that cause alone:\n%s", cause, want, text)
		}
	}
	for _, nonsense := range []string{"#/report/9y/x", "#/report/__proto__/constructor", "#/report/24h/team/%ff", "#/report/1h/container/", "#/report/7d/image/<img src=x onerror=window.pwned=1>"} {
		p.View(browser.Eval[string](p, "location.origin"), nonsense)
		if browser.Eval[bool](p, "!document.querySelector('h1') || 'pwned' in window || document.querySelector('main img') !== null") {
			t.Errorf("%s shows %s", nonsense, browser.Eval[string](p, "document.getElementById('main').innerHTML.slice(0, 500)"))
		}
	}
	p.Fine()
}
