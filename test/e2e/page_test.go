package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/trimtab/trimtab/test/browser"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/promtest"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestPageOfADaemon: the daemon serves the page where its config says, with the job in it, to whom the
// config names, and takes no wish there.
func TestPageOfADaemon(t *testing.T) {
	address := promtest.FreeAddress(t)
	j := job(t, "trimtab.mode=observe")
	d := daemon(t, daemontest.Options{Config: fmt.Sprintf("page: {listen: %q, hosts: [page.example]}\n", address)})
	until(t, d, j.Name, "watched", func(c state.Container) bool { return c.Watched })

	if code, body := browse(t, http.MethodGet, address, "/", ""); code != http.StatusOK || !strings.Contains(body, "app.js") {
		t.Errorf("/: %d\n%s", code, body)
	}
	if code, body := browse(t, http.MethodGet, address, "/app.js", ""); code != http.StatusOK || !strings.Contains(body, "import") {
		t.Errorf("/app.js: %d\n%s", code, body)
	}
	var all api.Containers
	code, body := browse(t, http.MethodGet, address, "/v1/containers", "page.example")
	err := json.Unmarshal([]byte(body), &all)
	if listed := slices.ContainsFunc(all.Containers, func(c state.Container) bool { return c.Name == j.Name }); code != http.StatusOK || err != nil || !listed {
		t.Errorf("/v1/containers: %d, %v, the job is listed %v\n%s", code, err, listed, body)
	}
	if s := firstEvent(t, address); s.Containers.Watched < 1 || s.UnixNs == 0 {
		t.Errorf("/events: %+v", s)
	}
	for _, wish := range []string{"/v1/pause", "/v1/restore", "/"} {
		if code, body := browse(t, http.MethodPost, address, wish, ""); code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d\n%s", wish, code, body)
		}
	}
	if code, body := browse(t, http.MethodGet, address, "/v1/containers", "elsewhere.example"); code != http.StatusMisdirectedRequest || strings.Contains(body, j.Name) {
		t.Errorf("by a name that the config does not list: %d\n%s", code, body)
	}
	if s, err := d.Client().Status(t.Context()); err != nil || s.Daemon.Paused {
		t.Errorf("after the wishes: paused %v, %v", s.Daemon.Paused, err)
	}
}

// TestPageOfALiveJob: in a browser a starved job shows up, and what is done for it as it is done, without a click.
func TestPageOfALiveJob(t *testing.T) {
	in := browser.Start(t)
	address := promtest.FreeAddress(t)
	j := job(t, "trimtab.mode=tune", "trimtab.team=vision")
	d := daemon(t, daemontest.Options{Config: fmt.Sprintf("page: {listen: %q}\n", address)})
	until(t, d, j.Name, "watched", func(c state.Container) bool { return c.Watched })

	p := browser.Open(t, in, 1000, 820)
	p.View("http://"+address, "#/")
	p.Until(fmt.Sprintf("document.querySelector('table.jobs')?.innerText.includes(%q)", j.Name))
	p.Run(chromedp.Click(chromedp.CSS("table.jobs a")))
	p.Until("document.querySelector('.headline')")
	until(t, d, j.Name, "a loan", func(c state.Container) bool { return c.Loan != nil })
	p.Until("/Lent [0-9.]+ CPUs/.test(document.querySelector('.headline').innerText)")
	p.Until("document.querySelectorAll('.marks line').length > 0 && document.querySelectorAll('.records li').length > 0")
	p.Until("[...document.querySelectorAll('.breakdown .part')].some((a) => a.getAttribute('d'))")
	newest := "(() => { const s = document.getElementById('point'); s.value = s.max; s.dispatchEvent(new Event('input')); return s.getAttribute('aria-valuetext'); })()"
	p.Until(newest + ".includes('lent')")
	p.View("http://"+address, "#/history")
	if text := browser.Eval[string](p, "document.getElementById('main').innerText"); !strings.Contains(text, j.Name) {
		t.Errorf("the history does not name the job:\n%.1000s", text)
	}
	p.Fine()
}

// browse asks a page, by the name host if there is one.
func browse(t *testing.T, method, address, path, host string) (code int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer := request(t, ctx, method, "http://"+address+path, host)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer.StatusCode, string(text)
}

func request(t *testing.T, ctx context.Context, method, url, host string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host // "": the URL's
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return answer
}

// firstEvent waits for what a page sends first.
func firstEvent(t *testing.T, address string) (s api.Status) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer := request(t, ctx, http.MethodGet, "http://"+address+"/events", "")
	defer answer.Body.Close()
	for lines := bufio.NewReader(answer.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("/events: %d, %v after %q", answer.StatusCode, err, line)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &s); err != nil {
				t.Fatalf("/events: %v in %q", err, data)
			}
			return s
		}
	}
}
