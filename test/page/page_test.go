// Package page_test looks at the web page as people do: in a browser, with a keyboard, on a
// phone, in the dark. It needs Chromium, and axe-core for what a screen reader needs.
package page_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/browser"
	"github.com/trimtab/trimtab/tuner/state"
)

var screenshots = flag.Bool("screenshots", false, "rewrite the pictures in docs")

func scheme(name string) browser.Action {
	return browser.Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// views are those of a node, with a job of it.
func views(key string) map[string]string {
	return map[string]string{"node": "#/", "job": "#/job/" + key, "history": "#/history", "moment": "#/history/train/2038-01-19T03:14:07Z", "devices": "#/devices", "report": "#/report",
		"team": "#/report/24h/team/vision", "evidence": "#/report/24h/container/train"}
}

func TestPage(t *testing.T) {
	in := browser.Start(t)
	t.Run("recording", func(t *testing.T) { testRecording(t, in) })
	t.Run("hour", func(t *testing.T) { testHour(t, in) })
	t.Run("long steps", func(t *testing.T) { testLongSteps(t, in) })
	t.Run("hostile", func(t *testing.T) { testHostile(t, in) })
	t.Run("accessible", func(t *testing.T) { testAccessible(t, in) })
	t.Run("keyboard", func(t *testing.T) { testKeyboard(t, in) })
	t.Run("phone", func(t *testing.T) { testPhone(t, in) })
	t.Run("live", func(t *testing.T) { testLive(t, in) })
	t.Run("report", func(t *testing.T) { testReport(t, in) })
	t.Run("report choices", func(t *testing.T) { testReportChoices(t, in) })
	t.Run("moment", func(t *testing.T) { testMoment(t, in) })
	t.Run("older records", func(t *testing.T) { testOlderRecords(t, in) })
	t.Run("absent", func(t *testing.T) { testAbsent(t, in) })
	t.Run("at once", func(t *testing.T) { testAtOnce(t, in) })
	t.Run("clocks", func(t *testing.T) { testClocks(t, in) })
	t.Run("figures", func(t *testing.T) { testFigures(t, in) })
}

// What a recording's node did stands on the page.
func testRecording(t *testing.T, in context.Context) {
	d := new(daemon)
	s := play(t, d, "../../cmd/trimtab/testdata/recordings/zoo-weka.trimtab")
	c := s.Containers[0]
	url := serve(t, d)
	p := browser.Open(t, in, 1200, 900)
	p.View(url, "#/")
	if text := browser.Eval[string](p, "document.querySelector('table.jobs').innerText"); !strings.Contains(text, c.Name) {
		t.Errorf("%s is not listed:\n%s", c.Name, text)
	}
	p.Run(chromedp.Click(chromedp.CSS("table.jobs a")))
	p.Until("document.querySelector('.records li')")
	p.Until("[...document.querySelectorAll('.breakdown .part')].some((a) => a.getAttribute('d'))")
	marks := 0
	for _, r := range d.records {
		if r.Key == c.Key && r.Kind != "verdict" && r.Kind != "refused" && r.Kind != "enrol" {
			marks++
		}
	}
	if n := browser.Eval[int](p, "document.querySelectorAll('.records li').length"); n != marks || n == 0 {
		t.Errorf("%d records stand below the chart, want %d", n, marks)
	}
	p.Run(chromedp.Click(chromedp.CSS(".records li:last-child summary")))
	p.Until("document.querySelector('.records li:last-child details[open] dl')")
	for _, r := range d.records {
		if text := browser.Eval[string](p, "document.querySelector('.records').innerText"); r.Key == c.Key && r.Plan != "" && !strings.Contains(text, r.Plan) {
			t.Errorf("an open record does not name its plan %s:\n%s", r.Plan, text)
			break
		}
	}
	p.Fine()
}

// An hour is drawn whole, and each point can be read in words.
func testHour(t *testing.T, in context.Context) {
	d := new(daemon)
	hour(t, d, time.Now())
	url := serve(t, d)
	p := browser.Open(t, in, 1000, 820, scheme("light"))
	p.View(url, "#/job/docker-train")
	if n := browser.Eval[int](p, "document.querySelectorAll('.marks line').length"); n != 6 {
		t.Errorf("%d lines of changes are drawn, want 6", n)
	}
	told := 0 // marks that stand on each other have a label together: 4–6
	for _, label := range browser.Eval[[]string](p, "[...document.querySelectorAll('.numbers span')].map((n) => n.innerText)") {
		from, to, many := strings.Cut(label, "–")
		first, err := strconv.Atoi(from)
		last := first
		if many && err == nil {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first != told+1 || last < first {
			t.Errorf("the label %q follows the mark %d", label, told)
		}
		told = last
	}
	if told != 6 {
		t.Errorf("labels tell of %d marks, want 6", told)
	}
	if n := browser.Eval[int](p, "document.querySelectorAll('.trials rect').length"); n != 1 {
		t.Errorf("%d trials are drawn, want one", n)
	}
	read := func(point string) string {
		return browser.Eval[string](p, fmt.Sprintf("(() => { const s = document.getElementById('point'); s.value = %s; s.dispatchEvent(new Event('input')); return s.getAttribute('aria-valuetext'); })()", point))
	}
	first, judged, lent, last := read("5"), read("60"), read("130"), read("s.max")
	if !strings.Contains(first, "for data: loaders out of quota") || !strings.Contains(last, "lent") || !strings.Contains(last, "steps/s") {
		t.Errorf("points read %q and %q", first, last)
	}
	// What was thought then, and what was last done and why: of each point its own.
	const verdict, done = "input: throttled; its loaders are out of CPU quota 52 %", "1. lent CPU 0.4→1.8: its quota of 0.40 CPUs stops it for 62 % of the time; 2. loan's weight"
	if strings.Contains(first, "verdict") || !strings.Contains(judged, verdict) || strings.Contains(judged, "last done") || !strings.Contains(lent, verdict) || !strings.Contains(lent, done) || strings.Contains(last, done) {
		t.Errorf("before the verdict %q, after it %q, after a loan %q, in the end %q", first, judged, lent, last)
	}
	if text := browser.Eval[string](p, "document.querySelector('.headline').innerText"); !strings.Contains(text, "Lent 1.1 CPUs") || !strings.Contains(text, "+61 %") {
		t.Errorf("what stands: %q", text)
	}
	p.View(url, "#/job/docker-eval") // why nothing was done, in explain's words; a gate's bare numbers are no words
	if text := browser.Eval[string](p, "document.querySelector('.headline').innerText"); text != "Nothing was changed: "+noneIdle+"." {
		t.Errorf("what stands: %q", text)
	}
	if text := browser.Eval[string](p, "document.getElementById('main').innerText"); !strings.Contains(text, "idle") || strings.Contains(text, "0.02") || strings.Contains(text, "0.05") {
		t.Errorf("a gate's numbers without their unit:\n%s", text)
	}
	p.View(url, "#/job/docker-train")
	p.Fine()
	if *screenshots {
		p.Picture("../../docs/page-job.png")
		p.Run(chromedp.EmulateViewport(1000, 560), scheme("dark"))
		p.View(url, "#/")
		p.Picture("../../docs/page-node.png")
	}
}

// A job with long steps has shares seldom: they hold since those before.
func testLongSteps(t *testing.T, in context.Context) {
	d := new(daemon)
	end := time.Now()
	for i := range 361 {
		at := end.Add(time.Duration(i-360) * 10 * time.Second)
		s, c := node(at), job("docker-slow", "slow", at, 0)
		c.PartNs[policies.PartCompute] = int64(1+i/6) * 60e9
		c.Rate.Steps = i < 180
		s.Containers = []state.Container{c}
		d.publish(s)
	}
	p := browser.Open(t, in, 1000, 820)
	p.View(serve(t, d), "#/job/docker-slow")
	p.Until("document.querySelector('.part.compute')?.getAttribute('d')")
	drawn := browser.Eval[float64](p, `[...document.querySelector('.part.compute').getAttribute('d').matchAll(/M([\d.]+) [\d.]+H([\d.]+)/g)].reduce((sum, m) => sum + (m[2] - m[1]), 0) / 720`)
	if drawn < 0.95 {
		t.Errorf("%.0f %% of the hour is drawn", 100*drawn)
	}
	if n := browser.Eval[int](p, "document.querySelector('path.rate').getAttribute('d').split('M').length - 1"); n != 2 {
		t.Errorf("the rate is drawn in %d lines, want one for steps and one for what else was counted", n)
	}
	p.Fine()
}

// Whatever a container is called, it is text.
func testHostile(t *testing.T, in context.Context) {
	d := new(daemon)
	s := crowd(len(hostileNames()), time.Now())
	for _, c := range s.Containers {
		d.records = append(d.records, hostileRecord(c.Key, c.Name, s.UnixNs))
	}
	d.publish(s)
	held(d, s, 2)
	address := serve(t, d)
	p := browser.Open(t, in, 1000, 800)
	hashes := []string{"#/", "#/history", "#/history/x/y/z", "#/devices", "#/job/%00%ff", "#/<img src=x onerror=window.pwned=1>", "#/report/24h/team", "#/report/24h/container", "#/report/24h/image"}
	for i, c := range s.Containers {
		by := []string{"team", "image", "container"}[i%3]
		if i%4 == 0 {
			hashes = append(hashes, "#/history/"+url.PathEscape(c.Name)+"/2038-01-19T03:14:07Z")
		}
		hashes = append(hashes, "#/job/"+c.Key, "#/report/24h/"+by+"/"+url.PathEscape(c.Name))
	}
	for _, hash := range hashes {
		p.View(address, hash)
		if strings.HasPrefix(hash, "#/history") {
			p.Do("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
		}
		if browser.Eval[bool](p, "'pwned' in window || document.querySelector('main img, main script, main iframe, main object, main style') !== null") {
			t.Errorf("%s: a name became markup", hash)
		}
		if bad := browser.Eval[string](p, `(document.body.innerText.match(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/) ?? [""])[0]`); bad != "" {
			t.Errorf("%s: the character %q is shown as it is", hash, bad)
		}
		if over := browser.Eval[int](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
			t.Errorf("%s: %d pixels wider than the window", hash, over)
		}
	}
	p.View(address, "#/")
	if text := browser.Eval[string](p, "document.querySelector('table.jobs').innerText"); !strings.Contains(text, "<img src=x") {
		t.Errorf("the name is not shown as it is:\n%.500s", text)
	}
	for hash, want := range map[string]string{"#/": "cannot be told since", "#/job/" + s.Containers[2].Key: "Its last runs", "#/devices": "kept for"} {
		p.View(address, hash)
		if text := browser.Eval[string](p, "document.querySelector('main').innerText"); !strings.Contains(text, want) {
			t.Errorf("%s lacks %q:\n%.2000s", hash, want, text)
		}
	}
	p.Fine()
}

func testPhone(t *testing.T, in context.Context) {
	d := new(daemon)
	hour(t, d, time.Now())
	accounted(d, time.Now())
	url := serve(t, d)
	for _, width := range []int64{320, 390} {
		p := browser.Open(t, in, width, 844)
		for name, hash := range views("docker-train") {
			p.View(url, hash)
			if over := browser.Eval[int](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				t.Errorf("%s at %d: %d pixels wider than the screen", name, width, over)
			}
		}
		p.Fine()
	}
}

// testAccessible holds each view, in both schemes, wide and narrow, against axe's rules.
func testAccessible(t *testing.T, in context.Context) {
	axe, err := os.ReadFile("../../.cache/axe/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Skip("needs axe-core: scripts/npm.sh fetches it from the registry of npm")
	}
	d := new(daemon)
	hour(t, d, time.Now())
	accounted(d, time.Now())
	hostile := new(daemon)
	hostile.publish(crowd(25, time.Now()))
	held(hostile, hostile.Snapshot(), 2)
	for name, node := range map[string]struct {
		d   *daemon
		key string
	}{"hour": {d, "docker-train"}, "hostile": {hostile, hostile.Snapshot().Containers[1].Key}} {
		url := serve(t, node.d)
		for _, colours := range []string{"light", "dark"} {
			for _, width := range []int64{1100, 390} {
				p := browser.Open(t, in, width, 900, scheme(colours))
				for view, hash := range views(node.key) {
					p.View(url, hash)
					p.Do("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
					p.Do(string(axe))
					found := browser.Eval[json.RawMessage](p, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + (n.any[0]?.message ?? ""))})))`)
					if string(found) != "[]" {
						t.Errorf("%s, %s, %s, %d wide: %s", name, view, colours, width, found)
					}
				}
				p.Fine()
			}
		}
	}
}

// active says what has the focus.
const active = "(() => { const a = document.activeElement; return [a.tagName, a.id, a.textContent.trim().slice(0, 40)].join(' '); })()"

// testKeyboard walks the page without a mouse.
func testKeyboard(t *testing.T, in context.Context) {
	d := new(daemon)
	hour(t, d, time.Now())
	url := serve(t, d)
	p := browser.Open(t, in, 1000, 800)
	p.View(url, "#/")
	press := func(keys string) string {
		p.Run(chromedp.KeyEvent(keys))
		return browser.Eval[string](p, active)
	}
	var walk []string
	for range 20 {
		walk = append(walk, press(kb.Tab))
	}
	all := strings.Join(walk, "\n")
	for _, want := range []string{"A skip", "A  Node", "A  History", "A  Report", "A  Devices", "BUTTON pause", "INPUT filter", "INPUT unwatched", "BUTTON  Name", "A  train"} {
		if !strings.Contains(all, want) {
			t.Errorf("Tab does not reach %s:\n%s", want, all)
		}
	}
	if !strings.HasPrefix(walk[0], "A skip") {
		t.Errorf("the first is %s, want the link past the header", walk[0])
	}
	p.View(url, "#/")
	press(kb.Tab)
	if at := press(kb.Enter); !strings.HasPrefix(at, "MAIN main") {
		t.Errorf("past the header is %s", at)
	}
	p.Run(chromedp.Focus(chromedp.CSS("table.jobs a[href*=train]")))
	press(kb.Enter)
	p.Until("document.getElementById('point')?.max > 0")
	if at := browser.Eval[string](p, active); !strings.HasPrefix(at, "MAIN main") {
		t.Errorf("in another view the focus is at %s", at)
	}
	p.Run(chromedp.Focus(chromedp.CSS("#point")))
	before := browser.Eval[string](p, "document.querySelector('.reading').textContent")
	press(kb.ArrowLeft)
	if after := browser.Eval[string](p, "document.querySelector('.reading').textContent"); after == before || after == "" {
		t.Errorf("the slider reads %q after an arrow, as before", after)
	}
	p.Run(chromedp.Focus(chromedp.CSS(".records summary")))
	press(kb.Enter)
	p.Until("document.querySelector('.records details[open] dl')")
	outlined := browser.Eval[bool](p, "getComputedStyle(document.activeElement).outlineStyle !== 'none'")
	if !outlined {
		t.Error("what has the focus is not to be seen")
	}
	many := new(daemon)
	many.publish(plain(40, time.Now()))
	p.View(serve(t, many), "#/") // rows that come when the browser is idle leave the focus where it is
	p.Do("(() => { document.getElementById('filter').dispatchEvent(new Event('input')); window.was = document.querySelectorAll('table.jobs a')[4]; window.was.focus(); })()")
	p.Until("document.querySelectorAll('table.jobs tbody tr').length === 40")
	if !browser.Eval[bool](p, "document.activeElement === window.was && window.was.isConnected") {
		t.Errorf("when the other rows came the focus went to %s", browser.Eval[string](p, active))
	}
	p.Fine()
}

// testLive: news come by themselves, until somebody pauses.
func testLive(t *testing.T, in context.Context) {
	d := new(daemon)
	end := time.Now()
	hour(t, d, end)
	url := serve(t, d)
	p := browser.Open(t, in, 1000, 800)
	p.View(url, "#/")
	p.Until("document.getElementById('live').textContent === 'live'")
	publish := func(name string, at time.Time) {
		s := node(at)
		s.Containers = append(s.Containers, job("docker-new", name, at, 0))
		d.publish(s)
	}
	publish("newcomer", end.Add(time.Second))
	p.Until("document.querySelector('table.jobs').innerText.includes('newcomer')")
	p.Run(chromedp.Click(chromedp.CSS("#pause")))
	p.Until("document.getElementById('live').textContent === 'paused'")
	publish("renamed", end.Add(2*time.Second))
	if text := browser.Eval[string](p, "new Promise((done) => setTimeout(() => done(document.querySelector('table.jobs').innerText), 4000))"); !strings.Contains(text, "newcomer") || strings.Contains(text, "renamed") {
		t.Errorf("paused, it shows:\n%s", text)
	}
	p.Run(chromedp.Click(chromedp.CSS("#pause")))
	p.Until("document.querySelector('table.jobs').innerText.includes('renamed') && document.querySelectorAll('table.jobs tbody tr').length === 1 && document.getElementById('live').textContent === 'live'")
	publish("stale", end.Add(-time.Hour))
	p.Until("document.getElementById('old').textContent.endsWith('old')")
	p.Fine()
}

// testFigures holds the weight with 1,000 containers within its bound, and logs the waits: they are the machine's
// too, so docs/page.md has their figures, and no test fails by them.
func testFigures(t *testing.T, in context.Context) {
	figures(t, in, "hostile", crowd(1000, time.Now()))
	figures(t, in, "plain", plain(1000, time.Now()))
}

func figures(t *testing.T, in context.Context, kind string, s *state.Snapshot) {
	d := new(daemon)
	d.publish(s)
	held(d, s, 2)
	url := serve(t, d)
	p := browser.Open(t, in, 1200, 900)
	p.View(url, "#/")
	first := browser.Eval[float64](p, "performance.now()") // since the navigation began, as seen when it was ready
	marks := browser.Eval[float64](p, "Math.round(performance.getEntriesByType('paint').find((e) => e.name === 'first-contentful-paint')?.startTime ?? 0)")
	p.Until("document.querySelectorAll('table.jobs tbody tr').length === 50")
	filter := `new Promise((done) => { const f = document.getElementById('filter'); f.value = %q; const began = performance.now(); f.dispatchEvent(new Event('input'));
		requestAnimationFrame(() => setTimeout(() => done(performance.now() - began))); })`
	var typed []float64
	for _, text := range []string{"l", "lo", "lon", "long", "", "w", "", "7", "77", ""} {
		typed = append(typed, math.Round(browser.Eval[float64](p, fmt.Sprintf(filter, text))))
	}
	sorted := browser.Eval[float64](p, `new Promise((done) => { const began = performance.now(); document.querySelectorAll('thead button')[4].click(); requestAnimationFrame(() => setTimeout(() => done(performance.now() - began))); })`)
	// A view answers a click with who or what it is of, and is whole when the daemon has answered: each as painted.
	view := `new Promise(async (done) => { const title = () => document.querySelector('main h1')?.textContent, before = title(), began = performance.now(), at = [];
		%s;
		do {
			await new Promise((painted) => requestAnimationFrame(() => setTimeout(painted)));
			if (!at.length && title() !== before) at.push(Math.round(performance.now() - began));
		} while (!document.querySelector(%q));
		done([...at, Math.round(performance.now() - began)]); })`
	job := browser.Eval[[]float64](p, fmt.Sprintf(view, "document.querySelector('table.jobs a').click()", ".headline"))
	report := browser.Eval[[]float64](p, fmt.Sprintf(view, "document.querySelector('nav a[href$=report]').click()", "table.figures tbody tr"))
	p.Run(chromedp.Focus(chromedp.CSS("#by")))
	p.Until(atHand("container"))
	byContainer := browser.Eval[float64](p, `new Promise(async (done) => { const began = performance.now(), by = document.getElementById('by'); by.value = 'container'; by.dispatchEvent(new Event('change'));
		do {
			await new Promise((painted) => requestAnimationFrame(() => setTimeout(painted)));
		} while (!document.querySelector("table.figures a[href*='/container/']"));
		done(performance.now() - began); })`)
	files, data := 0.0, 0.0
	for address, n := range p.Bytes() {
		if path := strings.TrimPrefix(address, url); strings.HasPrefix(path, "/v1/") || path == "/events" {
			data += n
		} else if strings.HasPrefix(address, url) {
			files += n
		}
	}
	t.Logf("1,000 %s containers: page %.0f bytes, first answers %.0f bytes; first paint %.0f ms, first view %.0f ms; filter %v ms, sort %.0f ms, a job's view %v ms, the report %v ms, by container %.0f ms",
		kind, files, data, marks, first, typed, sorted, job, report, byContainer)
	if files <= 0 || files > 300<<10 {
		t.Errorf("the page weighs %.0f bytes, more than 300 KiB", files)
	}
	p.Fine()
}
