package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/profiles/books"
)

// knownThere are jobs of a host that is so many times as fast.
func knownThere(times float64) []profiles.Known {
	var out []profiles.Known
	for i := range 5 {
		c := policies.Cost{TrainerCPU: 0.02 * float64(i+1) / times, LoaderCPU: 0.05 / times, Device: 0.05, Batch: 0.05 / times, Loaders: 2, Ticks: 50}
		p := profiles.Print{Unit: fmt.Sprint("source ", i), Steps: 50}.With(profiles.TrainerCPU, c.TrainerCPU).With(profiles.LoaderCPU, c.LoaderCPU).With(profiles.Loaders, 2).
			With(profiles.Ranks, 1).With(profiles.Processes, 3).With(profiles.Threads, 9).With(profiles.ReadBytes, 1e6).With(profiles.RxBytes, 0)
		at := time.Now().UnixNano()
		out = append(out, profiles.Known{ID: uint64(i + 1), Print: p, Jobs: 1, FirstUnixNs: at, LastUnixNs: at, Learned: profiles.Learned{Cost: c, Correction: 1}})
	}
	return out
}

// bookedHost is a config that trusts another host, whose book is in the directory.
func bookedHost(t *testing.T, jobs []profiles.Known, made time.Time) config.Config {
	t.Helper()
	key, err := books.HostKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.StateDir = t.TempDir()
	cfg.Profiles.Trust = []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))) + " gpu-7"}
	var text bytes.Buffer
	if err := books.Write(&text, "x", made.UnixNano(), 0, jobs, false, key); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(booksDir(cfg), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := books.Place(filepath.Join(booksDir(cfg), "b"+books.Suffix), text.Bytes()); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestTakenBooks: what is told of a book is what became of it, its clock and its ratio with it.
func TestTakenBooks(t *testing.T) {
	now := time.Now()
	broken := append(knownThere(2), profiles.Known{ID: 9, Jobs: -1})
	cfg := bookedHost(t, broken, now.Add(48*time.Hour))
	trust, err := trusted(cfg)
	if err != nil {
		t.Fatal(err)
	}
	taken := newTakenBooks(knownThere(1), now)
	files, err := books.NewDirectory(booksDir(cfg), trust, "").Read(now, taken.take)
	if err != nil {
		t.Fatal(err)
	}
	foreign, told := taken.foreign, taken.told(files)
	if len(foreign) != 5 || len(told) != 1 {
		t.Fatalf("%d jobs, %+v", len(foreign), told)
	}
	if b := told[0]; b.Host != "gpu-7" || b.Jobs != 5 || b.Refused != 1 || b.Shared != 5 || b.Ratio < 1.9 || b.Ratio > 2.1 || b.AheadNs != 48*time.Hour.Nanoseconds() {
		t.Errorf("%+v", b)
	}
}

// TestDoctorReadsBooks: one that is refused is named with its reason, a key is not made by looking.
func TestDoctorReadsBooks(t *testing.T) {
	cfg := bookedHost(t, knownThere(1), time.Now())
	if f := examineBooks(t.Context(), cfg); f.Level != levelOK || !strings.Contains(f.Text, "1 of other hosts are used, with 5 known jobs") {
		t.Errorf("%+v", f)
	}
	if err := syscall.Mkfifo(filepath.Join(booksDir(cfg), "\x1b[31mred"+books.Suffix), 0o644); err != nil {
		t.Fatal(err)
	}
	f := examineBooks(t.Context(), cfg)
	if f.Level != levelDegraded || !strings.Contains(f.Text, "is no regular file") || strings.Contains(f.Text, "\x1b") {
		t.Errorf("%+v", f)
	}
	if _, err := os.Stat(keyFile(cfg)); err == nil {
		t.Error("the doctor made a key")
	}
	if err := os.WriteFile(string(serials(cfg)), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := examineBooks(t.Context(), cfg); f.Level != levelDegraded || !strings.Contains(f.Text, string(serials(cfg))) || !strings.HasSuffix(f.Text, "remove the file to begin anew") || f.Hint != "" {
		t.Errorf("%+v", f)
	}
	cfg.StateDir = filepath.Join(t.TempDir(), "none")
	if f := examineBooks(t.Context(), cfg); f.Level != levelOK {
		t.Errorf("%+v", f)
	}
}

// TestReplayedIsTold: the log and the doctor name file, host and fix of a book that was put back.
func TestReplayedIsTold(t *testing.T) {
	cfg := bookedHost(t, knownThere(1), time.Now())
	key, _, err := books.ParseKey(cfg.Profiles.Trust[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(string(serials(cfg)), fmt.Appendf(nil, "{%q:1}", ssh.FingerprintSHA256(key)), 0o600); err != nil {
		t.Fatal(err)
	}
	trust, err := trusted(cfg)
	if err != nil {
		t.Fatal(err)
	}
	taken := newTakenBooks(nil, time.Now())
	files, err := books.NewDirectory(booksDir(cfg), trust, serials(cfg)).Read(taken.now, taken.take)
	if err != nil || len(files) != 1 || len(taken.foreign) != 0 {
		t.Fatalf("%+v, %v, %d jobs are used", files, err, len(taken.foreign))
	}
	var log bytes.Buffer
	r := bookReader{log: slog.New(slog.NewTextHandler(&log, nil)), said: map[string]string{}}
	for _, b := range taken.told(files) {
		r.say(b.File, b.Reason, b.Text)
	}
	f := examineBooks(t.Context(), cfg)
	for _, text := range []string{log.String(), f.Text} {
		if f.Level != levelDegraded || !strings.Contains(text, "b"+books.Suffix) || !strings.Contains(text, "gpu-7") || !strings.Contains(text, "trimtab profiles export") {
			t.Errorf("%q", text)
		}
	}
}
