package history

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/state"
)

// A clock that is set forward by years ages nothing: what goes is what is older by the time that
// has passed.
func TestAClockThatIsSetForwardRemovesNothing(t *testing.T) {
	now, passed := startNs, time.Duration(0)
	s := openAt(t, filepath.Join(t.TempDir(), "history.db"), Options{MaxAge: time.Hour, Now: clock(&now), since: func(time.Time) time.Duration { return passed }})
	for range 3 {
		if err := s.Append(rec(now, state.RecordChange, "a")); err != nil {
			t.Fatal(err)
		}
		now, passed = now+int64(10000*time.Hour), passed+10*time.Minute
	}
	if got := query(t, s, Filter{}); len(got) != 3 {
		t.Errorf("%d of 3 records are left after half an hour", len(got))
	}
	passed = 2 * time.Hour
	if err := s.Append(rec(now, state.RecordChange, "a")); err != nil {
		t.Fatal(err)
	}
	if got := query(t, s, Filter{}); len(got) != 3 || got[0].UnixNs == startNs {
		t.Errorf("after two hours: %v, want all but the first", got)
	}
}

// TestAClockThatWasAheadAtTheStartRemovesNothing: it is corrected once the daemon runs.
func TestAClockThatWasAheadAtTheStartRemovesNothing(t *testing.T) {
	now, passed := startNs+int64(2000*time.Hour), time.Duration(0)
	s := openAt(t, filepath.Join(t.TempDir(), "history.db"), Options{MaxAge: time.Hour, Now: clock(&now), since: func(time.Time) time.Duration { return passed }})
	now = startNs
	for range 3 {
		if err := s.Append(rec(now, state.RecordChange, "a")); err != nil {
			t.Fatal(err)
		}
		now, passed = now+int64(time.Minute), passed+time.Minute
	}
	if got := query(t, s, Filter{}); len(got) != 3 {
		t.Errorf("%d of 3 records are left", len(got))
	}
}
