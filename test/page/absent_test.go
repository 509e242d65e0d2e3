package page_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/trimtab/trimtab/test/browser"
)

// A daemon that is slow is waited for, and one that is gone is told: what was shown stays.
func testAbsent(t *testing.T, in context.Context) {
	d := new(daemon)
	now := time.Now()
	hour(t, d, now)
	accounted(d, now)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	url, ended := serveUntil(t, ctx, d)
	p := browser.Open(t, in, 1000, 760)
	d.mu.Lock()
	d.hang = make(chan struct{})
	d.mu.Unlock()
	p.Run(chromedp.Navigate(url + "/#/report"))
	p.Until("document.body?.innerText.includes('Waiting for the daemon.')")
	d.mu.Lock()
	close(d.hang)
	d.hang = nil
	d.mu.Unlock()
	p.Until("document.querySelector('table.figures tbody tr') && !document.body.innerText.includes('Waiting for the daemon.')")
	stop()
	<-ended
	p.Until("document.getElementById('live').textContent === 'reconnecting'")
	p.Do("(() => { const s = document.getElementById('since'); s.value = '7d'; s.dispatchEvent(new Event('change')); })()")
	p.Until("document.querySelector('.problem')?.textContent.includes('The daemon does not answer.')")
	if n := browser.Eval[int](p, "document.querySelectorAll('table.figures tbody tr').length"); n != 4 {
		t.Errorf("%d rows stand where the daemon is gone, want 4", n)
	}
	p.Until("document.getElementById('old').textContent.endsWith('old')")
	p.Fine()
}

// A job's view begins with what the list says of it, before the daemon has answered.
func testAtOnce(t *testing.T, in context.Context) {
	d := new(daemon)
	hour(t, d, time.Now())
	p := browser.Open(t, in, 1000, 760)
	p.View(serve(t, d), "#/")
	p.Until("document.querySelector('table.jobs a[href*=train]')")
	got := browser.Eval[string](p, "(() => { window.fetch = () => new Promise(() => {}); document.querySelector('table.jobs a[href*=train]').click(); return document.getElementById('main').innerText; })()")
	for _, want := range []string{"train\n", "vision", "steps/s", "+61 %"} {
		if !strings.Contains(got, want) {
			t.Errorf("within the click it does not show %q:\n%s", want, got)
		}
	}
	p.Fine()
}

// A browser's clock may be wrong by any time: figures are old by the daemon's own.
func testClocks(t *testing.T, in context.Context) {
	d := new(daemon)
	hour(t, d, time.Now())
	p := browser.Open(t, in, 1000, 760)
	url := serve(t, d)
	p.View(url, "#/")
	p.Do("(() => { const real = Date.now; Date.now = () => real() + 86400e3; })()")
	tell := func(name string, at time.Time) {
		s := node(at)
		s.Containers = append(s.Containers, job("docker-new", name, at, 0))
		d.publish(s)
		p.Until(fmt.Sprintf("document.querySelector('table.jobs').innerText.includes(%q)", name))
	}
	for i, step := range []time.Duration{0, 26 * time.Hour, -26 * time.Hour} { // the host's, forth and back
		tell(fmt.Sprint("a-day-ahead-", i), time.Now().Add(step))
		want := step < 0
		if old := browser.Eval[bool](p, "new Promise((done) => setTimeout(() => done(document.getElementById('old').textContent !== ''), 1500))"); old != want {
			t.Errorf("with a snapshot of %s from now and a browser a day ahead: old is %v", step, old)
		}
	}
	p.View(url, "#/job/docker-new")
	p.Until("document.querySelector('.headline')")
	p.Fine()
}
