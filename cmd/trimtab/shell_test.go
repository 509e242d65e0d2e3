package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/tuner/api"
)

// shell runs command lines as the pages have them, in a folder of its own, where a daemon of the
// test's stands for the one at the usual socket.
type shell struct {
	t      testing.TB
	dir    string
	socket string
	hosts  map[string]string // what stands for them, by their addresses on the pages
}

func newShell(t testing.TB, backend api.Backend) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir(), socket: filepath.Join(t.TempDir(), "t.sock"), hosts: map[string]string{}}
	serveAt(t, s.socket, backend)
	bin := filepath.Join(s.dir, ".bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	trimtab, err := exec.LookPath("trimtab") // which testscript put there
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(bin, "trimtab"):   "#!/bin/sh\nexec '" + trimtab + "' --socket '" + s.socket + "' \"$@\"\n", // first: what follows an image is a job's own
		filepath.Join(s.dir, ".curlrc"): "fail-with-body\nsilent\nshow-error\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	return s
}

// run runs one line, and returns all that it printed.
func (s *shell) run(line string) (string, int) {
	s.t.Helper()
	line = strings.ReplaceAll(line, "/run/trimtab/trimtab.sock", s.socket)
	for there, here := range s.hosts {
		line = strings.ReplaceAll(line, there, here)
	}
	cmd := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(s.dir, ".bin")+":"+os.Getenv("PATH"), "HOME="+s.dir, "TZ=UTC", "LC_ALL=C.UTF-8", "COLUMNS=")
	out, err := cmd.CombinedOutput()
	exit := new(exec.ExitError)
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("$ %s\n%v", line, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// write puts a file into its folder.
func (s *shell) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}
