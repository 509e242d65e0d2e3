package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/profiles"
)

// fullDisk is a store that takes nothing while it is full.
type fullDisk struct{ full bool }

func (f *fullDisk) Save(Kept) error {
	if f.full {
		return errors.New("no space left on device")
	}
	return nil
}

// TestFullStoreIsSaidOnce: each failure is shown, the first of a row is logged, and
// the agent goes on.
func TestFullStoreIsSaidOnce(t *testing.T) {
	var log bytes.Buffer
	disk := &fullDisk{full: true}
	l := &Agent{o: Options{Known: disk, Log: slog.New(slog.NewTextHandler(&log, nil))}}
	for range 3 {
		if why := l.saveKnown(Kept{}); !strings.Contains(why, "no space") {
			t.Errorf("shown %q", why)
		}
	}
	if n := strings.Count(log.String(), "no space"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, log.String())
	}
	disk.full = false
	if why := l.saveKnown(Kept{}); why != "" {
		t.Errorf("shown %q once there is room", why)
	}
	disk.full = true
	l.saveKnown(Kept{})
	if n := strings.Count(log.String(), "no space"); n != 2 {
		t.Errorf("a second failure was said %d times in all, want 2", n)
	}
}

// TestStartIsHashedAtOnce: what a container was made of may hold secrets. It is asked for once, and kept no
// longer; a renamed container is the same.
func TestStartIsHashedAtOnce(t *testing.T) {
	asked := 0
	l := &Agent{containers: map[string]*tracked{}, o: Options{Identify: func(c runtime.Container) *profiles.Start {
		asked++
		return &profiles.Start{Host: c.Start.Command[0]}
	}}}
	c := runtime.Container{ID: runtime.ID{Engine: "docker", Container: "a"}, Name: "a", Start: &runtime.Start{Command: []string{"secret"}}}
	l.seen(c)
	c.Name = "b"
	l.seen(c)
	got := l.containers[c.Key()]
	if asked != 1 || got.start == nil || got.start.Host != "secret" || got.c.Start != nil || got.c.Name != "b" {
		t.Errorf("asked %d times, %+v", asked, got)
	}
}
