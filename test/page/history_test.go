package page_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/browser"
	"github.com/trimtab/trimtab/tuner/state"
)

// lastWeek gives a daemon records of a container that ran a week ago and is gone, below a thousand
// others, and returns when it was lent CPU.
func lastWeek(d *daemon) time.Time {
	then := time.Now().Add(-7 * 24 * time.Hour).Truncate(time.Second)
	add := func(after time.Duration, r state.Record) {
		r.UnixNs, r.Key, r.Name = then.Add(after).UnixNano(), "docker-gone", "night-run"
		d.records = append(d.records, r)
	}
	add(-time.Hour, state.Record{Kind: state.RecordVerdict, Text: "input: throttled; its loaders are out of CPU quota 52 % of its time"})
	add(0, state.Record{Kind: state.RecordLoan, Plan: "0101-1", Policy: "lend", Knob: runtime.KnobCPUQuota, From: "40000 100000", To: "180000 100000", Text: "its quota of 0.40 CPUs stops it for 62 % of the time"})
	add(time.Hour, state.Record{Kind: state.RecordLoan, Plan: "0101-1", Policy: "lend", Knob: runtime.KnobCPUQuota, From: "180000 100000", To: "40000 100000", Text: "others want the CPU"})
	add(time.Hour, state.Record{Kind: state.RecordVerdict, Text: "balanced"})
	for i := range 1100 {
		at := then.Add(2*time.Hour + time.Duration(i)*time.Minute)
		d.records = append(d.records, state.Record{UnixNs: at.UnixNano(), Kind: state.RecordVerdict, Key: "docker-busy", Name: "busy", Text: fmt.Sprintf("verdict %d", i)})
	}
	return then
}

// A moment of last week is explained, whoever ran then, and however much was recorded since: what bounded
// the job, which limits stood, since when, and why.
func testMoment(t *testing.T, in context.Context) {
	d := new(daemon)
	then := lastWeek(d)
	d.publish(node(time.Now()))
	p := browser.Open(t, in, 1000, 820)
	p.View(serve(t, d), "#/history")
	text := func() string { return browser.Eval[string](p, "document.getElementById('main').innerText") }
	pick := func(at time.Time) {
		p.Do(fmt.Sprintf(`(() => { const at = new Date(%d), u = document.getElementById('until'); u.value = new Date(at - at.getTimezoneOffset() * 60e3).toISOString().slice(0, 19); u.dispatchEvent(new Event('change')); })()`, at.UnixMilli()))
	}
	if got := text(); strings.Contains(got, "night-run") || strings.Contains(got, "What stood") {
		t.Errorf("the last day is not of last week:\n%.600s", got)
	}
	pick(then.Add(30 * time.Minute))
	p.Until("document.querySelectorAll('.records li').length === 2")
	p.Run(chromedp.Click(chromedp.CSS(".records li:first-child summary")))
	p.Run(chromedp.Click(chromedp.CSS(".records li:first-child a[href^='#/history/night-run/']")))
	p.Until("document.getElementById('main').innerText.includes('Limits')||document.querySelector('.view table')")
	for _, want := range []string{"What stood at", "loaders are out of CPU quota 52 %", "CPU\t1.8\t0.4", "lent, lend", "stops it for 62 %"} {
		if got := text(); !strings.Contains(got, want) || strings.Contains(got, "others want") {
			t.Errorf("of the moment of the loan it lacks %q, or tells what came later:\n%s", want, got)
		}
	}
	pick(then.Add(2 * time.Hour))
	p.Until("document.querySelector('.view table').innerText.includes('others want the CPU')")
	if got := text(); !strings.Contains(got, "CPU\t0.4\t1.8") || !strings.Contains(got, "balanced (since") {
		t.Errorf("when the loan was over:\n%s", got)
	}
	if hash := browser.Eval[string](p, "location.hash"); hash != "#/history/night-run/"+then.Add(2*time.Hour).UTC().Format(time.RFC3339) {
		t.Errorf("the address is %s", hash)
	}
	pick(then.Add(-24 * time.Hour))
	p.Until("document.getElementById('main').innerText.includes('No record of it up to then is kept')")
	p.Fine()
}

// Whatever was recorded can be reached: the newest thousand, and those before.
func testOlderRecords(t *testing.T, in context.Context) {
	d := new(daemon)
	lastWeek(d)
	d.publish(node(time.Now()))
	p := browser.Open(t, in, 1000, 820)
	p.View(serve(t, d), "#/history")
	p.Do(`(() => { const s = document.getElementById('since'); s.value = ''; s.dispatchEvent(new Event('change')); })()`)
	p.Until("document.getElementById('main').innerText.includes('the newest 1000')")
	if got := browser.Eval[string](p, "document.querySelector('.records').textContent"); strings.Contains(got, "night-run") {
		t.Error("the newest thousand are all")
	}
	const all = "const [more, older] = document.querySelectorAll('.view > button'); while (!more.hidden) more.click();"
	p.Do("(() => { " + all + " older.click(); })()")
	p.Until("(() => { " + all + " return document.querySelector('.records').textContent.includes('night-run'); })()")
	p.Fine()
}
