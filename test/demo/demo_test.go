package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/built"
	"github.com/trimtab/trimtab/test/workload"
)

// TestABrokenPolicyIsAMiss runs the demo with a daemon that lends nothing: it must say so, and
// end with exit status 1.
func TestABrokenPolicyIsAMiss(t *testing.T) {
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: the daemon loads BPF programs")
	}
	dir := t.TempDir()
	binary, err := built.Trimtab(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	demo := filepath.Join(dir, "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", demo, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), demo, "-trimtab", binary, "-config", "loans: off\n", "-settled-within", "8s").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("%v, want exit status 1:\n%s", err, out)
	}
	text := string(out)
	if strings.Contains(text, "try again when it is quiet") {
		t.Skip("needs a quiet machine: " + text[strings.LastIndex(text, "demo:"):])
	}
	for _, want := range []string{"MISS rate is", "MISS granted", "ok   every limit is back", "demo: a promise was not kept"} {
		if !strings.Contains(text, want) {
			t.Errorf("the demo does not say %q:\n%s", want, text)
		}
	}
}
