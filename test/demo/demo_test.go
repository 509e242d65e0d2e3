package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/workload"
)

// TestABrokenPolicyIsAMiss runs the target as the README has it, with a daemon that lends nothing: it
// sets itself up, must say so, and fails.
func TestABrokenPolicyIsAMiss(t *testing.T) {
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: the daemon loads BPF programs")
	}
	out, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "demo", "DEMO_FLAGS=-config 'loans: off' -settled-within 8s").CombinedOutput()
	text := string(out)
	if err == nil || !strings.Contains(text, "exit status 1") {
		t.Fatalf("%v, want the demo's exit status 1:\n%s", err, text)
	}
	if strings.Contains(text, "try again when it is quiet") {
		t.Skip("needs a quiet machine: " + text[strings.LastIndex(text, "demo:"):])
	}
	for _, want := range []string{"MISS rate is", "MISS granted", "ok   every limit is back", "demo: a promise was not kept"} {
		if !strings.Contains(text, want) {
			t.Errorf("the demo does not say %q:\n%s", want, text)
		}
	}
}
