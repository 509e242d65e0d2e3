package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestBooks: what others know is shown and never kept as this host's own; a book that is set aside
// is told once in the log, and each time in the state; its host can be forgotten.
func TestBooks(t *testing.T) {
	var log bytes.Buffer
	l := &Agent{o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, calls: make(chan func())}
	l.control = control.New(control.Defaults(), func(*policies.Constants) []policies.Policy { return nil }, "x")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for f := range l.calls {
			f()
		}
	}()
	defer func() { close(l.calls); <-done }()

	c := policies.Cost{TrainerCPU: 0.02, LoaderCPU: 0.05, Device: 0.05, Batch: 0.05, Loaders: 2, Ticks: 50}
	p := profiles.Print{Unit: "u", Steps: 50}.With(profiles.TrainerCPU, c.TrainerCPU).With(profiles.LoaderCPU, c.LoaderCPU).
		With(profiles.DeviceWait, c.Device).With(profiles.Loaders, 2).With(profiles.Ranks, 1)
	at := time.Now().UnixNano()
	var all []profiles.Known
	for id := range uint64(5) {
		all = append(all, profiles.Known{ID: id + 1, Print: p, Jobs: 1, FirstUnixNs: at, LastUnixNs: at, Learned: profiles.Learned{Cost: c, Correction: 1}})
	}
	foreign := profiles.Prepare(nil, profiles.Book{Host: "gpu-7", Known: all}, at).Known
	use := func() {
		t.Helper()
		if err := l.UseBooks(t.Context(), foreign, []state.Book{{File: "b.book.gz", Host: "gpu-7", Jobs: 5}}); err != nil {
			t.Fatal(err)
		}
	}
	use()
	if m := l.showKnown(); m.Known != 5 || m.Foreign != 5 || len(m.Books) != 1 || m.Books[0].Reason != "" {
		t.Fatalf("%+v", m)
	}
	if own, err := l.OwnProfiles(t.Context()); err != nil || len(own) != 0 {
		t.Errorf("%d own, %v", len(own), err)
	}
	for i := range 3 {
		l.control.Profiles().Judge([]uint64{foreign[i].ID}, false)
	}
	for range 2 {
		use()
		if m := l.showKnown(); m.Foreign != 0 || m.Books[0].Reason != "set-aside" || !strings.Contains(m.Books[0].Text, "--host gpu-7") {
			t.Errorf("%+v", m)
		}
	}
	if n := strings.Count(log.String(), "set aside"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	for _, bad := range []state.ForgetRequest{{}, {Host: "gpu-7", All: true}, {Host: "gpu-7", ID: 1}} {
		if _, err := l.Forget(t.Context(), bad); err == nil {
			t.Errorf("%+v is clear enough", bad)
		}
	}
	if _, err := l.Forget(t.Context(), state.ForgetRequest{Host: "gpu-7"}); err != nil || l.BooksForgotten() != 1 {
		t.Errorf("%v", err)
	}
	if use(); l.showKnown().Foreign != 5 {
		t.Error("what was forgotten of the host keeps its book out")
	}
	if gone, err := l.Forget(t.Context(), state.ForgetRequest{Name: foreign[0].Name}); err != nil || len(gone) != 1 {
		t.Errorf("%+v, %v", gone, err)
	}
}
