package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// TestHandoverIsTakenOnce: by the daemon that comes next, of this boot, within minutes.
func TestHandoverIsTakenOnce(t *testing.T) {
	boot, err := cgroup.BootID("/proc")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for name, c := range map[string]struct {
		mark handoverMark
		want bool
	}{
		"a moment ago": {handoverMark{Boot: boot, UnixNs: now.UnixNano()}, true},
		"long ago":     {handoverMark{Boot: boot, UnixNs: now.Add(-2 * handoverFor).UnixNano()}, false},
		"another boot": {handoverMark{Boot: "another", UnixNs: now.UnixNano()}, false},
		"no mark":      {handoverMark{}, false},
	} {
		store, err := statefile.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := store.PutState(topicHandover, c.mark); err != nil {
			t.Fatal(err)
		}
		p := &components{state: store, log: slog.New(slog.DiscardHandler)}
		if got := p.takeHandover(); got != c.want {
			t.Errorf("%s: handed over %v, want %v", name, got, c.want)
		}
		if p.takeHandover() {
			t.Errorf("%s: handed over twice", name)
		}
	}
}

func TestHandoverMarkIsTaken(t *testing.T) {
	store, err := statefile.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &components{state: store, log: slog.New(slog.DiscardHandler)}
	if err := p.markHandover(); err != nil || !p.takeHandover() {
		t.Errorf("the mark that a daemon leaves is not taken: %v", err)
	}
}
