package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/workload"
)

// TestMakeChaosTellsABrokenLaw runs the target as docs/conformance.md has it: it sets itself up, breaks a
// law on purpose, tells that one, and fails.
func TestMakeChaosTellsABrokenLaw(t *testing.T) {
	needPrograms(t)
	if err := workload.Ready(t.Context()); err != nil {
		t.Skip(err) // the target would build the image
	}
	cmd := exec.CommandContext(t.Context(), "make", "-C", "../..", "chaos", "CHAOS_FLAGS=-for 25s -seed 7 -break limit")
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err == nil {
		t.Errorf("it does not fail:\n%s", text)
	}
	for _, want := range []string{"a law is broken on purpose: limit", "each limit is the owner's or recorded", "chaos: steps "} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
}
