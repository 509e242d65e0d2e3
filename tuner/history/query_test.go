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
