package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFuzzTellsACrashFromABusyMachine: scripts/fuzz.sh in a module of its own, with a target that
// holds, one that crashes, one whose seed fails, one at whose end Go's fuzzer is late, and one that
// takes ten seconds for an input, once. Each has a number of inputs, not a time, so that a busy machine
// leaves out none.
func TestFuzzTellsACrashFromABusyMachine(t *testing.T) {
	dir := t.TempDir()
	const late = `
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		fmt.Print("--- FAIL: FuzzLate (1.01s)\n    context deadline exceeded\nFAIL\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
}
`
	const once = `if _, err := os.Stat("hung"); err != nil && string(b) != "seed" {
			os.WriteFile("hung", nil, 0o600)
			os.Exit(2)
		}`
	for name, target := range map[string]struct{ imports, body, more string }{
		"Holds": {}, "Crashes": {"", `if len(b) > 5 { panic("no room\x1b") }`, ""}, "Seed": {"", `if string(b) == "seed" { t.Fatal("bad seed") }`, ""},
		"Late": {`"flag"; "fmt"; "os"; `, "", late}, "Once": {`"os"; `, once, ""},
	} {
		write(t, filepath.Join(dir, "cmd", strings.ToLower(name), "fuzz_test.go"), "package p\nimport ("+target.imports+"\"testing\")\nfunc Fuzz"+name+
			"(f *testing.F) {\n\tf.Add([]byte(\"seed\"))\n\tf.Fuzz(func(t *testing.T, b []byte) {\n"+target.body+"\n})\n}\n"+target.more)
	}
	for _, empty := range []string{"probes", "runtime", "tuner", "tools"} {
		if err := os.Mkdir(filepath.Join(dir, empty), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "go.mod"), "module example.org/m\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "scripts/fuzz.sh"), read(t, "../scripts/fuzz.sh"))
	cmd := exec.Command("bash", filepath.Join(dir, "scripts/fuzz.sh"), "5000x")
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("it passes")
	}
	for _, want := range []string{
		"ok   cmd/holds", "FAIL cmd/crashes FuzzCrashes\n", "CRASHED cmd/crashes FuzzCrashes\n", "go test fuzz v1\n[]byte(\"", "CRASHED cmd/seed FuzzSeed\n",
		"the fuzzer ended late", "By itself this input passes: once more.\nok   cmd/once", "\nfuzz: targets 5 crashes 2; 5000x each",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not say %q:\n%s", want, out)
			break
		}
	}
	kept, err := filepath.Glob(filepath.Join(dir, "cmd/*/testdata/fuzz/*/*"))
	if err != nil || len(kept) != 1 || !strings.Contains(kept[0], "FuzzCrashes") {
		t.Errorf("kept are %q (%v), expected is the crash", kept, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
