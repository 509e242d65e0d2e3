package books

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func (h host) numbered(t *testing.T, made, serial int64) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, h.name, made, serial, known(1), false, h.key); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestReplayed: what was signed once and is put back is not taken for current, whatever the clocks say.
// The steps are of one directory over restarts of the daemon.
func TestReplayed(t *testing.T) {
	h, anew, other, stranger := newHost(t, "gpu-7"), newHost(t, "gpu-7"), newHost(t, "gpu-8"), newHost(t, "gpu-9")
	dir, serials := t.TempDir(), Serials(filepath.Join(t.TempDir(), "state", "serials"))
	nobody := host{name: "gpu-7"}
	for _, step := range []struct {
		what  string
		text  []byte
		trust Trust
		want  Reason
	}{
		{"of an earlier trimtab", h.book(t, 2*day, known(1)), trusting(t, h, other), ""},
		{"an older one of an earlier trimtab", h.book(t, day, known(1)), trusting(t, h, other), ""},
		{"the first with a serial", h.numbered(t, 9*day, 500), trusting(t, h, other), ""},
		{"put back, of an earlier trimtab, by a clock ahead", h.book(t, 400*day, known(1)), trusting(t, h, other), Replayed},
		{"put back, of an earlier trimtab, by a clock behind", h.book(t, 0, known(1)), trusting(t, h, other), Replayed},
		{"put back, made later", h.numbered(t, 10*day, 499), trusting(t, h, other), Replayed},
		{"of a hostile host", h.numbered(t, 9*day, -1<<63), trusting(t, h, other), Replayed},
		{"the same again", h.numbered(t, 9*day, 500), trusting(t, h, other), ""},
		{"another host, by its own numbers", other.numbered(t, day, 1), trusting(t, h, other), ""},
		{"a serial that nobody signed", packed(t, strings.Replace(string(unpacked(t, h.numbered(t, day, 501))), `"serial":501`, `"serial":999`, 1)), trusting(t, h, other), Damaged},
		{"a changed one of a stranger", packed(t, strings.Replace(string(unpacked(t, stranger.numbered(t, day, 1<<60))), `"host":"gpu-9"`, `"host":"gpu-7"`, 1)), trusting(t, h, other), Damaged},
		{"of a stranger", stranger.numbered(t, day, 1<<60), trusting(t, h, other), UnknownKey},
		{"unsigned, where that is allowed", nobody.numbered(t, day, 1<<60), Trust{unsigned: true}, ""},
		{"unsigned, with a lower one: anybody may number it", nobody.numbered(t, day, 1), Trust{unsigned: true}, ""},
		{"unsigned, with one below zero", nobody.numbered(t, day, -1), Trust{unsigned: true}, ""},
		{"after all of these, by a clock set back", h.numbered(t, day, 501), trusting(t, h, other), ""},
		{"made while the clock was ahead", h.numbered(t, 400*day, 400*day), trusting(t, h, other), ""},
		{"the one after, by the right clock", h.numbered(t, 9*day, 400*day+1), trusting(t, h, other), ""},
		{"that one put back", h.numbered(t, 400*day, 400*day), trusting(t, h, other), Replayed},
		{"of a new key", anew.numbered(t, day, 7), trusting(t, anew, other), ""},
	} {
		put(t, dir, "b"+Suffix, step.text)
		d := NewDirectory(dir, step.trust, serials)
		for _, use := range []func(Found){nil, func(Found) { t.Errorf("%s: it is used", step.what) }} {
			if use != nil && step.want == "" {
				use = func(Found) {}
			}
			files, err := d.Read(time.Unix(0, 10*day), use)
			if err != nil || len(files) != 1 || files[0].Reason != step.want {
				t.Fatalf("%s: %+v, %v; want %q", step.what, files, err, step.want)
			}
			if step.want == Replayed && (!strings.Contains(files[0].Text, "gpu-7") || !strings.Contains(files[0].Text, "profiles export")) {
				t.Errorf("%s: %q names neither host nor fix", step.what, files[0].Text)
			}
			if earlier := strings.Contains(step.what, "of an earlier trimtab"); step.want == Replayed && earlier != strings.Contains(files[0].Text, "upgrade trimtab on gpu-7") {
				t.Errorf("%s: %q", step.what, files[0].Text)
			}
		}
	}
}

// TestLookingRemembersNothing: who only tells of books, as the doctor does, changes nothing.
func TestLookingRemembersNothing(t *testing.T) {
	h := newHost(t, "gpu-7")
	dir, serials := t.TempDir(), Serials(filepath.Join(t.TempDir(), "serials"))
	put(t, dir, "b"+Suffix, h.numbered(t, day, 5))
	if _, err := NewDirectory(dir, trusting(t, h), serials).Read(time.Unix(0, day), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(string(serials)); err == nil {
		t.Error("looking wrote the serials")
	}
}

// TestBesideTheLatest: of two of one host the higher serial goes before, in a directory and in a merged file.
func TestBesideTheLatest(t *testing.T) {
	h := newHost(t, "gpu-7")
	dir := t.TempDir()
	put(t, dir, "a"+Suffix, h.numbered(t, day, 2)) // by a clock set back
	put(t, dir, "b"+Suffix, h.numbered(t, 9*day, 1))
	put(t, dir, "c"+Suffix, h.book(t, 10*day, known(2)))
	found, files := read1(t, NewDirectory(dir, trusting(t, h), Serials(filepath.Join(t.TempDir(), "serials"))))
	if len(found) != 1 || found[0].Serial != 2 || files[1].Reason != Older || files[2].Reason != Older {
		t.Errorf("%+v", files)
	}
	var all []Found
	for _, f := range files {
		some, _ := ReadFile(filepath.Join(dir, f.Name), trusting(t, h))
		all = append(all, some...)
	}
	text, _, err := Merge(all, time.Unix(0, 10*day))
	if err != nil {
		t.Fatal(err)
	}
	if merged, _ := Read(bytes.NewReader(text), trusting(t, h)); len(merged) != 1 || merged[0].Serial != 2 {
		t.Errorf("%+v", merged)
	}
}

// TestSerialsLost: where nobody can tell what was used, or remember it, none is used until a person has looked.
func TestSerialsLost(t *testing.T) {
	h := newHost(t, "gpu-7")
	dir, state := t.TempDir(), t.TempDir()
	put(t, dir, "b"+Suffix, h.numbered(t, day, 5))
	junk, null, fifo := filepath.Join(state, "junk"), filepath.Join(state, "null"), filepath.Join(state, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{junk: "\x1b[31m{", null: "null"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, fix := range map[string]string{junk: "remove the file to begin anew", null: "", fifo: "remove the file to begin anew", filepath.Join(junk, "below"): "see to the disk", state: "remove the file to begin anew"} {
		good := fix == ""
		d := NewDirectory(dir, trusting(t, h), Serials(path))
		used := 0
		err := ends(t, path, func() error {
			_, err := d.Read(time.Unix(0, day), func(Found) { used++ })
			return err
		})
		if (err == nil) != good || (used == 1) != good || d.Changed() == good {
			t.Errorf("%s: %d used, %v, looked at again: %t", path, used, err, d.Changed())
		}
		if !good && (!errors.Is(err, ErrSerials) || !strings.HasSuffix(err.Error(), fix) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %v; want the fix %q", path, err, fix)
		}
	}
}

// TestSerialsFix: only what is damaged is to be removed: removing what was not lets old books be put back.
func TestSerialsFix(t *testing.T) {
	for cause, fix := range map[error]string{
		syscall.EACCES: "ask as root, who must be able to read and write it", syscall.EIO: "see to the disk", syscall.ENOSPC: "see to the disk",
		syscall.EROFS: "see to the disk", syscall.EWOULDBLOCK: "end the process that `lslocks` names",
	} {
		err := Serials("/s/serials").failed(&os.PathError{Op: "open", Path: "/s/serials", Err: cause})
		if !errors.Is(err, ErrSerials) || !errors.Is(err, cause) || !strings.HasSuffix(err.Error(), ": "+fix) {
			t.Errorf("%v; want the fix %q", err, fix)
		}
	}
}

// TestNext: serials of one key rise, by clocks that go back, by several at once, and where the file is lost.
func TestNext(t *testing.T) {
	h := newHost(t, "gpu-7")
	serials := Serials(filepath.Join(t.TempDir(), "serials"))
	next := func(unixNs int64) int64 {
		n, err := serials.Next(h.key.PublicKey(), time.Unix(0, unixNs))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if a, b, c := next(9*day), next(day), next(10*day); a != 9*day || b != a+1 || c != 10*day {
		t.Errorf("%d, %d, %d", a, b, c)
	}
	all := make([]int64, 8)
	var done sync.WaitGroup
	for i := range all {
		done.Go(func() { all[i] = next(day) })
	}
	done.Wait()
	if slices.Sort(all); len(slices.Compact(all)) != 8 || all[0] <= 10*day {
		t.Errorf("%v", all)
	}
	if err := os.Remove(string(serials)); err != nil {
		t.Fatal(err)
	}
	if n := next(11 * day); n <= all[7] {
		t.Errorf("%d, once the file was lost", n)
	}
}

// ends fails the test where something waits for ever; it is left waiting then.
func ends(t *testing.T, what string, do func() error) (err error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err = <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: it waits for ever", what)
	}
	return err
}

// locked holds a file or folder, as flock(1) does, until the test ends.
func locked(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
}

// TestLocked: who holds the state directory, as a daemon on a read-only disk does, holds up nothing. Who holds
// the lock itself is waited for, but not for ever, and not where there is nothing to write.
func TestLocked(t *testing.T) {
	h := newHost(t, "gpu-7")
	serials := Serials(filepath.Join(t.TempDir(), "serials"))
	locked(t, filepath.Dir(string(serials)))
	book := &Found{Key: "k", Serial: 5}
	if err := ends(t, "the directory is held", func() error { return serials.take(book) }); err != nil {
		t.Fatal(err)
	}
	locked(t, string(serials)+".lock")
	synctest.Test(t, func(t *testing.T) {
		if err := serials.take(book); err != nil {
			t.Errorf("nothing rises: %v", err)
		}
		_, next := serials.Next(h.key.PublicKey(), time.Now())
		for _, err := range []error{next, serials.take(&Found{Key: "k", Serial: 6})} {
			if err == nil || !strings.Contains(err.Error(), string(serials)+".lock") || !strings.Contains(err.Error(), "`lslocks`") {
				t.Errorf("%v names neither file nor fix", err)
			}
		}
	})
	if last, err := serials.load(); err != nil || last["k"] != 5 {
		t.Errorf("%v, %v", last, err)
	}
}
