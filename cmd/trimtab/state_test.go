package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// A disk that became read-only keeps nobody from putting originals back, and a second daemon is
// still refused there.
func TestLockOnAReadOnlyDisk(t *testing.T) {
	for name, before := range map[string]func(dir string) error{
		"with a lock file":    func(dir string) error { return os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600) },
		"without a lock file": func(string) error { return nil },
	} {
		dir := t.TempDir()
		if err := unix.Mount("trimtab-test", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Skipf("needs root: mount a tmpfs: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		if err := errors.Join(before(dir), unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
			t.Fatal(err)
		}
		held, err := lockDir(dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if second, err := lockDir(dir); err == nil || !strings.Contains(err.Error(), "another trimtab daemon") {
			t.Errorf("%s: a second daemon: %v, %v", name, second, err)
		}
		if err := held.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLockRefused: a disk's own trouble with a lock is not told as another daemon.
func TestLockRefused(t *testing.T) {
	if err := lockRefused("/d", unix.EWOULDBLOCK); !strings.Contains(err.Error(), "another trimtab daemon works on /d") {
		t.Errorf("held: %v", err)
	}
	for _, cause := range []error{unix.ENOLCK, unix.EOPNOTSUPP, unix.EIO} {
		if err := lockRefused("/d", cause); !errors.Is(err, cause) || !strings.Contains(err.Error(), "/d/lock") || strings.Contains(err.Error(), "another") {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

// refusing is a state directory on which nothing can be written.
func refusing(t *testing.T) *statefile.Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	store, err := statefile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return store
}

// What a person froze is frozen though the disk refuses to store it; what is lifted is lifted only
// where that is stored.
func TestHoldsWithoutADisk(t *testing.T) {
	h := newHolds(refusing(t), heldState{})
	if err := h.SetHeld(true, "docker-a"); err == nil || !h.Held("docker-a") {
		t.Errorf("held %v, %v", h.Held("docker-a"), err)
	}
	if err := h.SetPaused(true); err == nil || !h.Paused() {
		t.Errorf("paused %v, %v", h.Paused(), err)
	}
	if err := errors.Join(h.SetHeld(false, "docker-a"), h.SetPaused(false)); err == nil || !h.Held("docker-a") || !h.Paused() {
		t.Errorf("lifted without a word on disk: held %v, paused %v, %v", h.Held("docker-a"), h.Paused(), err)
	}
}

// Holds of a daemon before lie in any order; many are lifted and set together.
func TestHoldsOfMany(t *testing.T) {
	store, err := statefile.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.PutState(topicHolds, heldState{Held: []string{"docker-c", "docker-a", "docker-b"}}); err != nil {
		t.Fatal(err)
	}
	h := openHolds(store, slog.New(slog.DiscardHandler))
	keys := []string{"docker-b", "docker-a"}
	if err := errors.Join(h.SetHeld(true, "docker-d", "docker-a"), h.SetHeld(false, keys...)); err != nil || keys[0] != "docker-b" {
		t.Fatalf("%v, %v", err, keys)
	}
	for key, want := range map[string]bool{"docker-a": false, "docker-b": false, "docker-c": true, "docker-d": true, "docker-e": false} {
		if h.Held(key) != want || openHolds(store, slog.New(slog.DiscardHandler)).Held(key) != want {
			t.Errorf("%s: held %v", key, h.Held(key))
		}
	}
}

// Who was taken out, or held, by hand is not known any more: nothing is changed until a person
// resumes, also by the daemon after.
func TestUnreadableStatePauses(t *testing.T) {
	for _, topics := range [][]string{{topicManuals}, {topicHolds}, {topicManuals, topicHolds}} {
		dir := t.TempDir()
		store, err := statefile.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range topics {
			if err := store.PutState(topic, []string{"not what it should be"}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			p := &components{state: store, log: slog.New(slog.DiscardHandler)}
			p.cfg = config.Default()
			p.cfg.StateDir, p.cfg.Record.Ring = dir, 0
			p.openState()
			if !p.holds.Paused() {
				t.Errorf("%v: not paused", topics)
			}
			if err := p.history.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Yields and prunes are in force at once and on disk after Save; what comes to its end is not
// written over and over.
func TestYieldsAreSavedLater(t *testing.T) {
	store, err := statefile.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	discard := slog.New(slog.DiscardHandler)
	h := openHolds(store, discard)
	h.AddYield("docker-a", runtime.KnobCPUQuota)
	h.AddYield("docker-b", runtime.KnobCPUQuota)
	if next := openHolds(store, discard); len(h.Yielded("docker-a")) != 1 || next.Yielded("docker-a") != nil {
		t.Errorf("before Save: in force %v, on disk %v", h.Yielded("docker-a"), next.Yielded("docker-a"))
	}
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	h.Prune(func(key string) bool { return key == "docker-b" })
	if next := openHolds(store, discard); h.Yielded("docker-a") != nil || len(next.Yielded("docker-a")) != 1 {
		t.Errorf("pruned before Save: in force %v, on disk %v", h.Yielded("docker-a"), next.Yielded("docker-a"))
	}
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	if next := openHolds(store, discard); next.Yielded("docker-a") != nil || len(next.Yielded("docker-b")) != 1 {
		t.Errorf("on disk: %v, %v", next.Yielded("docker-a"), next.Yielded("docker-b"))
	}
}

// Recordings are few at a time, each bounded.
func TestRecordingsAreFew(t *testing.T) {
	r, err := openRecorder(t.TempDir(), 1<<20, control.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, maxTees)
	for range maxTees {
		go func() { ended <- r.Tee(ctx, io.Discard, time.Hour) }()
	}
	for begun := 0; begun < maxTees; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		begun = len(r.tees)
		r.mu.Unlock()
	}
	if err := r.Tee(t.Context(), io.Discard, time.Hour); err == nil || !strings.Contains(err.Error(), "run already") {
		t.Errorf("one more: %v", err)
	}
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	for range 64 { // who finds no place may ask in a loop
		_ = r.Tee(t.Context(), io.Discard, time.Hour)
	}
	if goruntime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 4<<20 {
		t.Errorf("64 that found no place took %d MiB", (after.TotalAlloc-before.TotalAlloc)>>20)
	}
	cancel()
	for range maxTees {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestHostIsLocked: the host's own daemon, whose state directory is the default one, runs beside no
// other; others run beside each other.
func TestHostIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "host.lock")
	log := slog.New(slog.DiscardHandler)
	hosts, other := config.Default(), config.Default()
	other.StateDir = t.TempDir()
	for _, tc := range []struct {
		first, second config.Config
		refused       bool
	}{{hosts, other, true}, {other, hosts, true}, {hosts, hosts, true}, {other, other, false}} {
		first, err := lockHost(path, tc.first, log)
		if err != nil {
			t.Fatal(err)
		}
		second, err := lockHost(path, tc.second, log)
		if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), "another trimtab daemon") {
			t.Errorf("%s beside %s: %v", tc.second.StateDir, tc.first.StateDir, err)
		}
		_, _ = first.Close(), second.Close() // closing nil is an error, and harmless
	}
	if f, err := lockHost("/proc/none/host.lock", hosts, log); f != nil || err != nil {
		t.Errorf("where it cannot be made: %v, %v", f, err)
	}
}
