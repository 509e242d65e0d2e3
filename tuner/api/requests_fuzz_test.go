package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// noting is a backend that also notes how long recordings are to be.
type noting struct {
	*fake
	recorded []time.Duration
}

func (n *noting) Record(_ context.Context, w io.Writer, d time.Duration) error {
	n.recorded = append(n.recorded, d)
	_, err := w.Write([]byte("TT"))
	return err
}

// counting is a body that counts what is read of it.
type counting struct {
	*bytes.Reader
	read int
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.read += n
	return n, err
}

func (*counting) Close() error { return nil }

// Whatever a peer asks for is answered: what reaches the daemon is within the bounds that docs/api.md
// gives, from who may ask for it, and of a body that is one value and not too long.
func FuzzRequests(f *testing.F) {
	operations := api.Operations()
	route := func(path string) byte {
		return byte(slices.IndexFunc(operations, func(o api.Operation) bool { return o.Path == path }))
	}
	const read, write = byte(api.AccessRead), byte(api.AccessWrite)
	for _, s := range []struct {
		path, query, body string
		access            byte
	}{
		{"/v1/status", "", "", read}, {"/v1/containers/{name}", "odd name/../?", "", read}, {"/v1/advice", "name=ffff", "", read}, {"/v1/series", "name=a", "", read},
		{"/v1/history", "since=7d&changed=true&limit=10&name=%00", "", read}, {"/v1/history", "since=1600-01-01&limit=100001", "", read}, {"/v1/history", "since=1600-01-01&until=2262-04-11", "", read},
		{"/v1/report", "since=1969-12-31&by=image", "", read}, {"/v1/report", "since=1600-01-01T00:00:00%2B23:59", "", read}, {"/v1/record", "seconds=3600", "", read},
		{"/v1/record", "seconds=9223372037", "", read}, {"/v1/record", "seconds=18446744074", "", read}, {"/v1/fingerprints", "%zz;", "", read}, {"/v1/status", "", "", byte(api.AccessNone)},
		{"/v1/place", "", `{"jobs":[{"image":"train","gpus":1,"count":1000,"steps":1e15}]}`, read}, {"/v1/place", "", `{"jobs":[{"image":"-x"}],"hold":true}`, read},
		{"/v1/place", "", `{"jobs":[{"image":"x","count":1000},{"image":"y","gpus":-1}],"policy":"fifo"}`, write}, {"/v1/place", "", `{"jobs":[{"image":"x"}],"hold":true}`, read},
		{"/v1/enable", "", `{"name":"a","knobs":["cpu"],"for":-1}`, write}, {"/v1/enable", "", `{"name":"a"}`, read}, {"/v1/disable", "", `{"Name":"a","name":"b"}`, write},
		{"/v1/restore", "", ``, write}, {"/v1/restore", "", `{"name":"a"}}`, write}, {"/v1/resume", "", `{"name":"a"} {"name":"b"}`, write}, {"/v1/pause", "", `{"x":1}`, write}, {"/v1/pause", "", "null", write},
		{"/v1/gpus/hide", "", `{"name":"a","devices":["0"],"all":true}`, write}, {"/v1/gpus/show", "", `{"name":"a","all":true}`, write},
		{"/v1/gpus/hide", "", `{"name":"a","devices":[` + strings.Repeat(`"0",`, 256) + `"0"]}`, write}, {"/v1/fingerprints/forget", "", `{"id":-1}`, write},
		{"/v1/restore", "", strings.Repeat(" ", 64<<10) + `{"name":"a"}`, write},
	} {
		f.Add(route(s.path), s.access, s.query, []byte(s.body))
	}
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, which, who byte, query string, body []byte) {
		o, access := operations[int(which)%len(operations)], api.Access(who%3)
		b := &noting{fake: &fake{snapshot: snapshot()}}
		sent := &counting{Reader: bytes.NewReader(body)}
		r := &http.Request{Method: o.Method, URL: &url.URL{Path: o.Path, RawQuery: query}, Header: http.Header{}, Body: sent, ContentLength: int64(len(body))}
		if path, named := strings.CutSuffix(o.Path, "{name}"); named {
			r.URL = &url.URL{Path: path + query, RawPath: path + url.PathEscape(query)}
		}
		w := httptest.NewRecorder()
		api.NewServer(b, slog.New(slog.DiscardHandler), func() time.Time { return now }).HandlerFor(access).ServeHTTP(w, r.WithContext(t.Context()))

		asked := len(b.asked) + len(b.recorded)
		switch {
		case sent.read > 64<<10+1:
			t.Fatalf("%d bytes of a body are read", sent.read)
		case asked > 1 || w.Code != http.StatusOK && asked > 0:
			t.Fatalf("%s %s is answered by %d, and the daemon was asked for %v %v", o.Method, o.Path, w.Code, b.asked, b.recorded)
		case access == api.AccessNone && o.Path != "/healthz" && (w.Code == http.StatusOK || asked > 0):
			t.Fatalf("a peer without access is answered %s by %d", o.Path, w.Code)
		case o.Method == http.MethodPost && o.Path != "/v1/place" && access != api.AccessWrite && w.Code != http.StatusForbidden:
			t.Fatalf("a peer who may only look is answered %s by %d", o.Path, w.Code)
		case o.Method == http.MethodPost && asked > 0 && len(bytes.TrimSpace(body)) > 0 && !json.Valid(body):
			t.Fatalf("%q is acted upon", body)
		}
		checkAnswer(t, o, w)
		for _, what := range b.asked {
			checkAsked(t, what, now, access)
		}
		for _, d := range b.recorded {
			if d < time.Second || d > time.Hour {
				t.Fatalf("%s: a recording of %v", query, d)
			}
		}
	})
}

// checkAnswer: it is JSON, a recording aside, of a status that is documented, and an error says what is wrong.
func checkAnswer(t *testing.T, o api.Operation, w *httptest.ResponseRecorder) {
	t.Helper()
	switch w.Code {
	case http.StatusOK, http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge:
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if strings.HasSuffix(o.Path, "{name}") { // ".." is another path
			return
		}
		fallthrough
	default:
		t.Fatalf("%s is answered by %d: %s", o.Path, w.Code, w.Body)
	}
	if w.Code == http.StatusOK && o.Answer == nil {
		return
	}
	var said struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || (said.Error == "") != (w.Code == http.StatusOK) {
		t.Fatalf("%s is answered by %d and %q, %v", o.Path, w.Code, w.Body, err)
	}
}

// checkAsked holds what reached the daemon against the bounds.
func checkAsked(t *testing.T, what any, now time.Time, access api.Access) {
	t.Helper()
	ok := true
	switch q := what.(type) {
	case api.HistoryQuery:
		ok = q.Limit >= 1 && q.Limit <= 100_000
	case api.ReportQuery:
		ok = q.SinceUnixNs <= now.UnixNano() && slices.Contains(account.AllBy(), q.By)
	case state.GPURequest:
		ok = q.Name != "" && len(q.Devices) <= 256 && q.All == (len(q.Devices) == 0)
	case state.PlaceRequest:
		jobs := 0
		for _, j := range q.Jobs {
			jobs += max(1, j.Count)
			ok = ok && j.Image != "" && j.Image[0] != '-' && j.GPUs >= 0 && j.GPUs <= 256 && j.Count >= 0 && j.Steps >= 0 && j.Seconds >= 0
		}
		ok = ok && jobs >= 1 && jobs <= 1000 && (!q.Hold || access == api.AccessWrite && jobs == 1)
	}
	if !ok {
		t.Fatalf("the daemon was asked for %+v", what)
	}
}
