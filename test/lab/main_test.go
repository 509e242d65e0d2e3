package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSimulateText is the same twice, and has a row for each policy.
func TestSimulateText(t *testing.T) {
	f := simulateFlags{seeds: 2, jobs: 20, loads: []float64{0.5, 2}}
	var texts []string
	for range 2 {
		out, err := f.simulate([]string{"cpu", "gpu"})
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, simulatedText(out))
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	for _, want := range []string{"trimtab", "proportional", "synergy-tune *", "oracle", "predicted+", "SEEN ON", "not the same measurement", "Not a measurement"} {
		if !strings.Contains(texts[0], want) {
			t.Errorf("no %q in it:\n%s", want, texts[0])
		}
	}
	for _, bad := range []simulateFlags{{loads: []float64{-1}}, {seeds: -1}, {probe: "h100", seeds: 1, jobs: 1, loads: []float64{1}}} {
		if _, err := bad.simulate([]string{"cpu", "gpu"}); err == nil {
			t.Errorf("%+v: simulated", bad)
		}
	}
}

// TestCommandsOfThePage: what docs/lab.md begins with simulates what it says, and what it names prints the sources.
func TestCommandsOfThePage(t *testing.T) {
	for line, good := range map[string]func(out string) bool{
		"go run ./test/lab sources":                func(out string) bool { return strings.Contains(out, "Apache") },
		"go run ./test/lab simulate gpu --seeds 1": func(out string) bool { return strings.Contains(out, "predicted+") && !strings.Contains(out, "synergy") },
		"go run ./test/lab simulate cpu day --jobs 20 --load 0.9 --seeds 1 --output json": func(out string) bool {
			var s simulated
			err := json.Unmarshal([]byte(out), &s)
			return err == nil && s.GPU == nil && s.CPU != nil && s.Day != nil && len(s.CPU.Rows) == len(s.Day.Rows) && s.Day.Setup.Jobs == 20
		},
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = "../.."
		if out, err := cmd.Output(); err != nil || !good(string(out)) {
			t.Errorf("$ %s\n%v\n%s", line, err, out)
		}
	}
}

// Bad words are refused by name, and the licenses come along.
func TestCommand(t *testing.T) {
	for args, want := range map[string]string{
		"simulate nope": `simulate "nope": allowed are cpu, day, gpu`, "simulate gpu --probe T4": "allowed: [k80 p100 v100]", "sources": "Apache", "sources -o xml": "allowed are table and json",
	} {
		cmd, out := command(), &strings.Builder{}
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(out)
		cmd.SetErr(out)
		if err := cmd.Execute(); err != nil {
			out.WriteString(err.Error())
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: no %q in %s", args, want, out)
		}
	}
}
