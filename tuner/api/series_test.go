package api_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/series"
)

func TestSeries(t *testing.T) {
	c := client.New(start(t, &fake{snapshot: snapshot()}))
	ctx := context.Background()
	want := series.Series{Key: "k2", Name: "odd name/../?", EveryNs: 10e9, Parts: series.PartNames(), Points: []series.Point{{UnixNs: 7, Used: 2}}}
	for _, name := range []string{"odd name/../?", "k2", "abcd2"} {
		got, err := c.Series(ctx, name)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	for name, status := range map[string]int{"": 400, "none": 404, "abcd": 409} {
		_, err := c.Series(ctx, name)
		if e := new(api.Error); !errors.As(err, &e) || e.Status != status {
			t.Errorf("%q: %v, want status %d", name, err, status)
		}
	}
}

// Of all that the API can do, Looking lets nothing through but what the page shows.
func TestLookingChangesNothing(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	h := api.NewServer(b, slog.New(slog.DiscardHandler), time.Now).Looking()
	shown := []string{"GET /v1/status", "GET /v1/list", "GET /v1/containers", "GET /v1/containers/{name}", "GET /v1/devices", "GET /v1/history", "GET /v1/series", "GET /v1/report"}
	for _, route := range api.Routes() {
		_, path, _ := strings.Cut(route, " ")
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"} {
			r := httptest.NewRequest(method, strings.ReplaceAll(path, "{name}", "k1")+"?name=k1", strings.NewReader("{}"))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if want := slices.Contains(shown, method+" "+path); (w.Code == http.StatusOK) != want {
				t.Errorf("%s %s: status %d", method, path, w.Code)
			}
		}
	}
	for _, asked := range b.asked {
		switch asked.(type) {
		case api.HistoryQuery, api.ReportQuery:
		default:
			t.Errorf("the daemon was asked %v", asked)
		}
	}
}
