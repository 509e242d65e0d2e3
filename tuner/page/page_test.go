package page

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon is an API that counts what it is asked.
type daemon struct {
	unixNs  atomic.Int64
	asked   atomic.Int64
	answer  func(w http.ResponseWriter, r *http.Request)
	queries sync.Map
}

func (d *daemon) latest() *state.Snapshot { return &state.Snapshot{UnixNs: d.unixNs.Load()} }

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.asked.Add(1)
	d.queries.Store(r.URL.RequestURI(), true)
	w.Header().Set("Content-Type", "application/json")
	if d.answer != nil {
		d.answer(w, r)
		return
	}
	_, _ = fmt.Fprintf(w, "{\"path\":%q}\n", r.URL.Path)
}

func handler(t *testing.T, d *daemon) http.Handler {
	t.Helper()
	return Handler("node7:9478", []string{"Node7.Example.com."}, d.latest, d)
}

func ask(h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "localhost:9478"
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestOnlyLooking(t *testing.T) {
	d := new(daemon)
	h := handler(t, d)
	for _, target := range []string{"/", "/v1/status", "/v1/restore", "/v1/pause", "/v1/enable", "/events", "/anything"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"} {
			if w := ask(h, method, target); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, target, w.Code)
			}
		}
	}
	if n := d.asked.Load(); n > 0 {
		t.Errorf("%d of these came to the API", n)
	}
}

func TestFiles(t *testing.T) {
	h := handler(t, new(daemon))
	for target, contentType := range map[string]string{"/": "text/html", "/app.js": "text/javascript", "/terms.js": "text/javascript", "/page.css": "text/css", "/icon.svg": "image/svg+xml"} {
		w := ask(h, "GET", target)
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), contentType) || w.Body.Len() == 0 {
			t.Errorf("%s: %d %s, %d bytes", target, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
		}
		again := ask(h, "GET", target, "If-None-Match", w.Header().Get("ETag"))
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d, %d bytes", target, again.Code, again.Body.Len())
		}
	}
	for _, target := range []string{"/index.html", "/assets/app.js", "/app.js/", "/../page.go", "/.git/config"} {
		if w := ask(h, "GET", target); w.Code != http.StatusNotFound && w.Code/100 != 3 {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
}

// Who asks for headers alone takes no place for long.
func TestHeadOfEvents(t *testing.T) {
	if w := ask(handler(t, new(daemon)), "HEAD", "/events"); w.Code != 200 || w.Body.Len() > 0 || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d, %d bytes, %v", w.Code, w.Body.Len(), w.Header())
	}
}

// TestWeight: all files of the page, as they are sent.
func TestWeight(t *testing.T) {
	all, sum := newFiles(), 0
	for _, f := range all {
		sum += len(f.zipped)
	}
	t.Logf("%d files, %d bytes compressed", len(all), sum)
	if sum > 300<<10 {
		t.Errorf("the page weighs %d bytes, more than 300 KiB", sum)
	}
}

func TestHeaders(t *testing.T) {
	h := handler(t, new(daemon))
	for _, target := range []string{"/", "/v1/status", "/nothing", "/app.js"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			w := ask(h, method, target)
			got := w.Header().Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
				if !strings.Contains(got, want) {
					t.Errorf("%s %s: the policy lacks %s", method, target, want)
				}
			}
			if strings.Contains(got, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("X-Frame-Options") != "DENY" ||
				w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %s: %v", method, target, w.Header())
			}
		}
	}
}

// No markup that the policy forbids stands in the files, and no way for a text to become one.
func TestFilesKeepThePolicy(t *testing.T) {
	entries, err := assets.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := assets.ReadFile("assets/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "<style", " style=", "onclick=\"", "http://", "https://", "@import", "localStorage"} {
			text := strings.ReplaceAll(string(content), "http://www.w3.org/2000/svg", "")
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q", e.Name(), bad)
			}
		}
		if e.Name() == "index.html" && strings.Count(string(content), "<script") != strings.Count(string(content), "<script type=\"module\" src=\"/") {
			t.Error("index.html has a script of its own")
		}
	}
}

func TestWhoMayAsk(t *testing.T) {
	h := handler(t, new(daemon))
	for _, tt := range []struct {
		headers []string
		want    int
	}{
		{nil, 200},
		{[]string{"Host", "127.0.0.1:9478"}, 200},
		{[]string{"Host", "[::1]:9478"}, 200},
		{[]string{"Host", "node7"}, 200},
		{[]string{"Host", "NODE7.example.com:443"}, 200},
		{[]string{"Host", "node7.example.com."}, 200},
		{[]string{"Host", "rebound.example.net:9478"}, 421},
		{[]string{"Host", "localhost.example.net"}, 421},
		{[]string{"Host", ""}, 421},
		{[]string{"Origin", "http://localhost:9478"}, 200},
		{[]string{"Origin", "http://evil.example"}, 403},
		{[]string{"Origin", "null"}, 403},
		{[]string{"Sec-Fetch-Site", "same-origin"}, 200},
		{[]string{"Sec-Fetch-Site", "none"}, 200},
		{[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{[]string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
	} {
		for _, target := range []string{"/", "/v1/containers"} {
			if w := ask(h, "GET", target, tt.headers...); w.Code != tt.want {
				t.Errorf("%s %q: %d, want %d", target, tt.headers, w.Code, tt.want)
			}
		}
	}
}

// A snapshot is encoded once, whoever looks, and its bytes are the API's.
func TestViewersShareAnswers(t *testing.T) {
	d := new(daemon)
	h := handler(t, d)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if w := ask(h, "GET", "/v1/containers"); w.Body.String() != "{\"path\":\"/v1/containers\"}\n" {
				t.Errorf("plain: %q", w.Body)
			}
			w := ask(h, "GET", "/v1/containers", "Accept-Encoding", "gzip")
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Error(err)
				return
			}
			if text, err := io.ReadAll(z); err != nil || string(text) != "{\"path\":\"/v1/containers\"}\n" {
				t.Errorf("compressed: %q, %v", text, err)
			}
		})
	}
	wg.Wait()
	if n := d.asked.Load(); n != 1 {
		t.Errorf("the API was asked %d times for one snapshot", n)
	}
	tag := ask(h, "GET", "/v1/containers").Header().Get("ETag")
	if w := ask(h, "GET", "/v1/containers", "If-None-Match", tag); w.Code != http.StatusNotModified {
		t.Errorf("known already: %d", w.Code)
	}
}

// Whatever is asked, all answers together cost at most a share of a CPU beside the first ones,
// and who waits gets one in the end. Each costs 20 ms here; so twenty come at once, then one each 5 s.
func TestCostIsBounded(t *testing.T) {
	for name, question := range map[string]func(i int) string{
		"one":   func(int) string { return "/v1/containers" },
		"many":  func(i int) string { return fmt.Sprintf("/v1/containers/%d", i) },
		"plain": func(i int) string { return fmt.Sprintf("/v1/series?name=%d", i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := new(daemon)
				s := newShared(d, d.latest)
				var spent time.Duration
				s.snapshot.clock = func() time.Duration { spent += 20 * time.Millisecond; return spent } // called twice for each
				answered := 0
				began := time.Now()
				for i := 0; time.Since(began) < 10*time.Minute; i++ {
					d.unixNs.Add(1)
					headers := []string{"Accept-Encoding", "gzip"}
					if name == "plain" {
						headers = nil
					}
					if w := ask(s, "GET", question(i), headers...); w.Code == 200 {
						answered++
					}
					time.Sleep(100 * time.Millisecond)
				}
				if most := maxUnpaid + 10*time.Minute/snapshotFactor + 40*time.Millisecond; spent/2 > most {
					t.Errorf("%s of CPU in 10 min, more than %s", spent/2, most)
				}
				if answered < 50 {
					t.Errorf("%d are answered in 10 min", answered)
				}
			})
		})
	}
}

// A report that is dear is made as seldom as it may cost, in all ways that it can be sorted; who looks
// has the one before meanwhile. So an open one keeps nobody from another, nor from history. One that
// failed is made again.
func TestReportsAreDear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(daemon)
		s := newShared(d, d.latest)
		const cost, day, open = 700 * time.Millisecond, 24 * time.Hour, "/v1/report?since=7d&by=team"
		var spent atomic.Int64
		costs := func() { spent.Add(int64(cost) / int64(len(account.AllBy()))) }
		d.answer = func(http.ResponseWriter, *http.Request) { costs() }
		s.reports.clock = func() time.Duration { return time.Duration(spent.Load()) }
		made := func(target string) int64 {
			t.Helper()
			before, began := d.asked.Load(), time.Now()
			d.unixNs.Add(1)
			if w := ask(s, "GET", target, "Accept-Encoding", "gzip"); w.Code != 200 {
				t.Fatalf("%s: %d", target, w.Code)
			}
			if waited := time.Since(began); waited > time.Second {
				t.Fatalf("%s waits %s", target, waited)
			}
			synctest.Wait() // until it is sorted otherwise too
			return (d.asked.Load() - before) / int64(len(account.AllBy()))
		}
		look := func(of time.Duration) (n int64) {
			for began := time.Now(); time.Since(began) < of; time.Sleep(time.Second) {
				n += made(open)
			}
			return n
		}
		if n := look(10 * time.Minute); n != 1 {
			t.Errorf("%d reports are made in the first ten minutes", n)
		}
		for _, by := range account.AllBy() {
			if n := made("/v1/report?since=7d&by=" + string(by)); n != 0 {
				t.Errorf("by %s it is made anew", by)
			}
		}
		if n, most := look(day), int64(day/(diskFactor*cost))+1; n > most || n < most/2 {
			t.Errorf("%d reports are made in a day, which would cost %s of CPU", n, time.Duration(n)*cost)
		}
		for _, since := range []string{"24h", "30d", "1h"} {
			if n := made("/v1/report?by=container&since=" + since); n != 1 {
				t.Errorf("of %s, beside one that was open for a day, %d are made", since, n)
			}
		}
		if w := ask(s, "GET", "/v1/history"); w.Code != 200 {
			t.Errorf("history beside reports: %d", w.Code)
		}
		time.Sleep(day)
		failing := true
		d.answer = func(w http.ResponseWriter, _ *http.Request) {
			costs()
			if failing {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
		for _, want := range []int{503, 200} {
			before := d.asked.Load()
			if w := ask(s, "GET", "/v1/report?since=7d&by=image", "Accept-Encoding", "gzip"); w.Code != want {
				t.Errorf("where it failed before: %d, want %d", w.Code, want)
			}
			synctest.Wait() // until it is sorted otherwise too
			if n := d.asked.Load() - before; failing && n != 1 {
				t.Errorf("of a report that fails, %d others are tried", n-1)
			}
			failing = false
			d.unixNs.Add(1)
		}
	})
}

// Who asks for a report waits for no other: how it may be sorted is made after it was sent.
func TestAReportWaitsForNoOther(t *testing.T) {
	d, hang := new(daemon), make(chan struct{})
	d.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("by") != "team" {
			<-hang
		}
	}
	s := newShared(d, d.latest)
	done := make(chan int)
	go func() { done <- ask(s, "GET", "/v1/report?since=7d&by=team", "Accept-Encoding", "gzip").Code }()
	select {
	case code := <-done:
		if code != http.StatusOK {
			t.Errorf("beside others that hang: %d", code)
		}
	case <-time.After(30 * time.Second):
		t.Error("a report waits for the others")
	}
	close(hang)
	if w := ask(s, "GET", "/v1/report?since=7d&by=cause", "Accept-Encoding", "gzip"); w.Code != http.StatusOK || d.asked.Load() != int64(len(account.AllBy())) {
		t.Errorf("another: %d, made %d times", w.Code, d.asked.Load())
	}
}

// Who waits for the disk keeps nobody from the snapshot.
func TestHistoryHangsAlone(t *testing.T) {
	d, hang := new(daemon), make(chan struct{})
	d.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/history" {
			<-hang
		}
	}
	s := newShared(d, d.latest)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { ask(s, "GET", fmt.Sprintf("/v1/history?limit=%d", i+1), "Accept-Encoding", "gzip") })
	}
	for d.asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	done := make(chan int)
	go func() { done <- ask(s, "GET", "/v1/containers").Code }()
	select {
	case code := <-done:
		if code != http.StatusOK {
			t.Errorf("beside hanging history: %d", code)
		}
	case <-time.After(30 * time.Second):
		t.Error("history that hangs holds up the containers")
	}
	close(hang)
	wg.Wait()
}

// A question has one way to be asked: what is unknown, or asked twice, is refused.
func TestQuestionsAreKnown(t *testing.T) {
	d := new(daemon)
	s := newShared(d, d.latest)
	for _, target := range []string{"/v1/containers?x=1", "/v1/status?name=a", "/v1/devices?%00", "/v1/series?name=a&name=b", "/v1/history?limit=1&x", "/v1/containers/a?_=7", "/v1/report?since=7d&name=a",
		"/v1/report?since=169h", "/v1/report?since=2026-11-27", "/v1/report?by=name", "/v1/report?by=%3Cimg%3E"} {
		if w := ask(s, "GET", target); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	if n := d.asked.Load(); n > 0 {
		t.Errorf("%d of these came to the API", n)
	}
	for _, target := range []string{"/v1/history?limit=7&since=1h", "/v1/history?since=1h&limit=7", "/v1/history?since=%31h&limit=7", "/v1/history?limit=7&since=1h&"} {
		ask(s, "GET", target)
	}
	for _, target := range []string{"/v1/containers", "/v1/containers?", "/v1/%63ontainers"} {
		ask(s, "GET", target)
	}
	if n := d.asked.Load(); n != 2 {
		t.Errorf("two questions, written in seven ways, were made %d times", n)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	d := new(daemon)
	s := newShared(d, d.latest)
	s.snapshot.factor, s.disk.factor = 0, 0 // TestCostIsBounded
	for i := range 10 * maxAnswers {
		ask(s, "GET", fmt.Sprintf("/v1/series?name=%d", i))
	}
	if len(s.answers) > maxAnswers || s.kept > maxKept || s.kept <= 0 {
		t.Errorf("%d answers of %d bytes are kept", len(s.answers), s.kept)
	}
	for target, want := range map[string]string{
		"/v1/history": "/v1/history?limit=500", "/v1/history?limit=7": "/v1/history?limit=7", "/v1/history?limit=100000": "/v1/history?limit=2000",
		"/v1/history?limit=x": "/v1/history?limit=x", // the API says what is wrong
	} {
		ask(s, "GET", target)
		if _, ok := d.queries.Load(want); !ok {
			t.Errorf("%s is not asked as %s", target, want)
		}
	}
}

// Who gives up while an answer waits to be made leaves it to be made by the next.
func TestWhoGivesUpHoldsUpNobody(t *testing.T) {
	d := new(daemon)
	s := newShared(d, d.latest)
	s.snapshot.slot <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "/v1/status", nil).WithContext(ctx))
		gone <- w.Code
	}()
	cancel()
	if code := <-gone; code != http.StatusServiceUnavailable {
		t.Errorf("given up: %d", code)
	}
	<-s.snapshot.slot
	if w := ask(s, "GET", "/v1/status"); w.Code != 200 || d.asked.Load() != 1 {
		t.Errorf("the next: %d", w.Code)
	}
}

// The page offers the times that it is answered for.
func TestReportTimesAreOffered(t *testing.T) {
	text, err := assets.ReadFile("assets/report.js")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "const times = {")
	list, _, _ = strings.Cut(list, "};")
	var got []string
	for _, m := range regexp.MustCompile(`"(\w+)": "`).FindAllStringSubmatch(list, -1) {
		got = append(got, m[1])
	}
	if want := reportTimes(); !slices.Equal(got, want) {
		t.Errorf("report.js has %q, want %q", got, want)
	}
}

// The page's parts are the API's, in its order: shares come without names.
func TestPartsAreTheAPIs(t *testing.T) {
	text, err := assets.ReadFile("assets/words.js")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "export const parts = {")
	list, _, _ = strings.Cut(list, "};")
	var got []string
	for _, m := range regexp.MustCompile(`(\w+): "`).FindAllStringSubmatch(list, -1) {
		got = append(got, m[1])
	}
	if want := series.PartNames(); !slices.Equal(got, want) {
		t.Errorf("words.js has %q, want %q", got, want)
	}
}
