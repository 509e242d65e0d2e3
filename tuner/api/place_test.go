package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

func (f *fake) Place(_ context.Context, req state.PlaceRequest) (state.Placement, error) {
	f.asked = append(f.asked, req)
	return state.Placement{Jobs: []state.PlacedJob{{Job: req.Jobs[0], Choices: []state.PlaceChoice{}, Chosen: []string{}, Evidence: []state.PlaceEvidence{}}}}, f.err
}

func (f full) Place(context.Context, state.PlaceRequest) (state.Placement, error) {
	out := filled[state.Placement]()
	if f.deep == 0 {
		out = state.Placement{Jobs: []state.PlacedJob{}}
	}
	return out, nil
}

// TestPlaceNeedsRightsToHold: who may look is answered, and at once; who may act may have a device held.
func TestPlaceNeedsRightsToHold(t *testing.T) {
	req := state.PlaceRequest{Jobs: []state.PlaceJob{{Image: "train", Args: []string{"--lr", "\x1b[31m"}}}}
	for name, c := range map[string]struct {
		access     api.Access
		look, hold bool
	}{"nobody": {api.AccessNone, false, false}, "who may look": {api.AccessRead, true, false}, "who may act": {api.AccessWrite, true, true}} {
		b := &fake{snapshot: snapshot(), late: math.MaxInt} // the same for ever: an answer that waits for another takes seconds
		h := api.NewServer(b, slog.New(slog.DiscardHandler), time.Now).HandlerFor(c.access)
		for _, hold := range []bool{false, true} {
			req.Hold = hold
			text, _ := json.Marshal(req)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/place", bytes.NewReader(text)))
			want, got := http.StatusOK, state.Placement{}
			if !c.look || hold && !c.hold {
				want = http.StatusForbidden
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != want || err != nil || len(b.asked) != map[int]int{200: 1}[want] {
				t.Errorf("%s, hold %v: status %d, asked %v, %v", name, hold, w.Code, b.asked, err)
			}
			if want == http.StatusOK && (got.Why == "" || len(got.Jobs) != 1 || got.Jobs[0].Job.Args[1] != "\x1b[31m") {
				t.Errorf("%s, hold %v: %+v", name, hold, got)
			}
			b.asked = nil
		}
	}
}

func TestPlaceRefusesWhatItCannotMean(t *testing.T) {
	job := state.PlaceJob{Image: "train"}
	with := func(change func(*state.PlaceJob)) state.PlaceRequest {
		j := job
		change(&j)
		return state.PlaceRequest{Jobs: []state.PlaceJob{j}}
	}
	for want, req := range map[string]state.PlaceRequest{
		"0 jobs":             {},
		"an image is needed": with(func(j *state.PlaceJob) { j.Image = "" }),
		"at most 4096 bytes": with(func(j *state.PlaceJob) { j.Image = strings.Repeat("x", 5000) }),
		"not begin with -":   with(func(j *state.PlaceJob) { j.Image = "--privileged" }),
		"-1 GPUs":            with(func(j *state.PlaceJob) { j.GPUs = -1 }),
		"count 100000":       with(func(j *state.PlaceJob) { j.Count = 100_000 }),
		"numbers from 0":     with(func(j *state.PlaceJob) { j.Steps = math.Inf(1) }),
		"1001 jobs":          {Jobs: append(slices.Repeat([]state.PlaceJob{job}, 1), state.PlaceJob{Image: "x", Count: 1000})},
		`policy "best"`:      {Jobs: []state.PlaceJob{job}, Policy: "best"},
		"one GPU each":       {Jobs: []state.PlaceJob{job, {Image: "x", GPUs: 2}}},
		"for one job alone":  {Jobs: []state.PlaceJob{job, job}, Hold: true},
		"held for one job":   with(func(j *state.PlaceJob) { j.Count = 2 }),
		"":                   {Jobs: []state.PlaceJob{job}, Policy: "fifo", Hold: true},
	} {
		if want == "held for one job" {
			req.Hold = true
		}
		err := api.CheckPlace(req)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// slow answers a place when it is let, or when who asked has gone.
type slow struct {
	fake
	began chan bool // with a hold
	end   chan struct{}
}

func (s *slow) Place(ctx context.Context, req state.PlaceRequest) (state.Placement, error) {
	s.began <- req.Hold
	select {
	case <-s.end:
		return state.Placement{Jobs: []state.PlacedJob{}}, nil
	case <-ctx.Done():
		return state.Placement{}, ctx.Err()
	}
}

// TestPlacesAreAnsweredOneAtATime: those who look wait for each other, until they go; who acts waits for none of them.
func TestPlacesAreAnsweredOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slow{fake: fake{snapshot: snapshot()}, began: make(chan bool, 9), end: make(chan struct{})}
		h := api.NewServer(b, slog.New(slog.DiscardHandler), time.Now).HandlerFor(api.AccessWrite)
		ask := func(hold bool) (status *int, leave context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			text, _ := json.Marshal(state.PlaceRequest{Jobs: []state.PlaceJob{{Image: "train"}}, Hold: hold})
			status = new(int)
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/place", bytes.NewReader(text)))
				*status = w.Code
			}()
			synctest.Wait()
			return status, cancel
		}
		first, leaveFirst := ask(false)
		second, leaveSecond := ask(false)
		third, leaveThird := ask(false)
		defer leaveThird()
		if len(b.began) != 1 {
			t.Errorf("%d are worked out at once", len(b.began))
		}
		acts, leaveActs := ask(true)
		defer leaveActs()
		if len(b.began) != 2 {
			t.Error("who acts waits for who looks")
		}
		leaveSecond()
		synctest.Wait()
		if *second == 0 || *first != 0 || len(b.began) != 2 {
			t.Errorf("who went while it waited: status %d", *second)
		}
		leaveFirst()
		synctest.Wait()
		if *first == 0 || len(b.began) != 3 {
			t.Errorf("who went while it was worked out: status %d, %d began", *first, len(b.began))
		}
		close(b.end)
		synctest.Wait()
		if *third != http.StatusOK || *acts != http.StatusOK {
			t.Errorf("status %d and %d", *third, *acts)
		}
	})
}
