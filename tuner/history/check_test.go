package history

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/tuner/state"
)

// unclean is a history of a few MiB as a killed daemon leaves it, and how many records it has.
func unclean(t *testing.T) (path string, records int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "history.db")
	if err := os.WriteFile(path, wellFormed(t, 100, false), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, 100 * 50
}

// A file that a killed daemon left is read by Check, not by Open; meanwhile queries say so, and
// afterwards all is there.
func TestCheckReadsWhatOpenDoesNot(t *testing.T) {
	path, records := unclean(t)
	began, goOn := make(chan struct{}), make(chan struct{})
	read, now := 0, startNs
	each := func() {
		if read++; read == 1 {
			close(began)
			<-goOn
		}
	}
	s, err := Open(path, Options{Now: clock(&now), each: each}) // would not return if it read a record
	if err != nil {
		t.Fatal(err)
	}
	checked := make(chan error, 1)
	go func() { checked <- s.Check(t.Context()) }()
	<-began
	if _, err := s.Query(t.Context(), Filter{}); !errors.Is(err, ErrUnchecked) {
		t.Errorf("a query meanwhile: %v", err)
	}
	if err := s.Append(rec(startNs, state.RecordChange, "a")); !errors.Is(err, ErrUnchecked) {
		t.Errorf("a write meanwhile: %v", err)
	}
	close(goOn)
	if err := errors.Join(<-checked, s.Append(rec(startNs+1e9, state.RecordChange, "z"))); err != nil {
		t.Fatal(err)
	}
	if got := query(t, s, Filter{}); len(got) != records+1 || read != records {
		t.Errorf("%d records, %d of them read by the check, want %d", len(got), read, records)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	read = 1 // closed well: nobody waits
	s, err = Open(path, Options{each: each})
	if err == nil {
		err = errors.Join(s.Check(t.Context()), s.Close())
	}
	if err != nil || read != 1 {
		t.Errorf("%d records of a file that was closed well were read; %v", read-1, err)
	}
}

// A check that was ended leaves the file to the next one, however it is closed.
func TestCheckThatIsEndedIsRepeated(t *testing.T) {
	path, records := unclean(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Open(path, Options{each: cancel})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	if _, err := s.Query(t.Context(), Filter{}); !errors.Is(err, ErrUnchecked) {
		t.Errorf("a query after it: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	read := 0
	s = openAt(t, path, Options{each: func() { read++ }})
	if got := query(t, s, Filter{}); len(got) != records || read != records {
		t.Errorf("%d records, %d read, want %d", len(got), read, records)
	}
}

// A compaction ends with ctx too, and nothing of it is left.
func TestCompactionEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	s := openAt(t, path, Options{})
	fill(t, s, 0, 1, 100)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.compact(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path + ".compact"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished copy: %v", err)
	}
	if got := query(t, s, Filter{}); len(got) != 50 {
		t.Errorf("%d records, want 50", len(got))
	}
}
