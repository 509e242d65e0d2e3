package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes/procfs"
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
	up := time.Duration(procfs.BootNs())
	for name, c := range map[string]struct {
		mark handoverMark
		want bool
	}{
		"of an earlier version, a moment ago": {handoverMark{Boot: boot, UnixNs: now.UnixNano()}, true},
		"of an earlier version, long ago":     {handoverMark{Boot: boot, UnixNs: now.Add(-2 * handoverFor).UnixNano()}, false},
		"a moment ago":                        {handoverMark{Boot: boot, UnixNs: now.UnixNano(), SinceBootNs: int64(up)}, true},
		"the clock was set back since":        {handoverMark{Boot: boot, UnixNs: now.UnixNano(), SinceBootNs: int64(up - 2*handoverFor)}, false},
		"the clock was set forward since":     {handoverMark{Boot: boot, UnixNs: now.Add(-2 * handoverFor).UnixNano(), SinceBootNs: int64(up)}, true},
		"after this boot's time":              {handoverMark{Boot: boot, UnixNs: now.UnixNano(), SinceBootNs: int64(up + time.Hour)}, false},
		"another boot":                        {handoverMark{Boot: "another", UnixNs: now.UnixNano(), SinceBootNs: int64(up)}, false},
		"no mark":                             {handoverMark{}, false},
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
