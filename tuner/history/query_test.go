package history

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/tuner/state"
)

// wentAway is a caller that is gone once its query has begun.
type wentAway struct{ context.Context }

func (wentAway) Err() error { return context.Canceled }

// TestQueryEndsWithItsCaller: who asks for a name that is in no record has all of the file read, and
// Append waits for it.
func TestQueryEndsWithItsCaller(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "history.db"), Options{})
	if err := s.Append(rec(startNs, state.RecordVerdict, "a")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Query(wentAway{context.Background()}, Filter{Name: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%d records, %v", len(got), err)
	}
}

// TestQueryByKey: two that bore one name are told apart by their keys.
func TestQueryByKey(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "history.db"), Options{})
	first, second := rec(startNs, state.RecordVerdict, "train"), rec(startNs+1, state.RecordVerdict, "train")
	first.Key, second.Key = "docker-1", "docker-2"
	if err := s.Append(first, second); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"train": 2, "docker-2": 1, "docker": 0, "text of train": 0} {
		if got := query(t, s, Filter{Name: name}); len(got) != want || want == 1 && got[0].Key != name {
			t.Errorf("%s: %+v, want %d", name, got, want)
		}
	}
}
