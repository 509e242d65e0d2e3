package main

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A page goes through a link and into a pipe, which stay what they are; a file is as the umask and
// its owner would have it.
func TestPageIsWrittenToWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	link, target, pipe, file := filepath.Join(dir, "link"), filepath.Join(dir, "target"), filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	if err := os.WriteFile(target, []byte("an older and longer page"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // opens without a writer, and holds what is written
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close() //nolint:errcheck // only read
	page := func(w io.Writer) error {
		_, err := io.WriteString(w, "page")
		return err
	}
	for _, path := range []string{link, pipe, file, "/dev/null"} {
		if err := writeWhole(path, 0o666, page); err != nil {
			t.Fatal(path, err)
		}
	}
	for path, want := range map[string]os.FileMode{link: os.ModeSymlink, pipe: os.ModeNamedPipe, target: 0, file: 0, "/dev/null": os.ModeDevice | os.ModeCharDevice} {
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != want {
			t.Fatalf("%s is %v, want %v: %v", path, info.Mode(), want, err)
		}
	}
	got := make([]byte, 10)
	if n, err := reader.Read(got); err != nil || string(got[:n]) != "page" {
		t.Errorf("the pipe has %q, %v", got[:n], err)
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "page" {
		t.Errorf("the target has %q, %v", text, err)
	}
	umask := syscall.Umask(0)
	syscall.Umask(umask)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o666&^os.FileMode(umask) {
		t.Errorf("a new file is %v, %v, want %v", info.Mode(), err, 0o666&^os.FileMode(umask))
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeWhole(file, 0o666, page); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a file that was 0600 is %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeWhole(file, 0o600, page); err != nil { // a recording: it names containers
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a recording in place of a file that was 0644 is %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 {
		t.Errorf("%v are left, %v", left, err)
	}
	if err := writeWhole(dir, 0o666, page); err == nil {
		t.Error("a directory: no error")
	}
}
