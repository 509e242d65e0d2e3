package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/userland"
)

// TestPlainCallsWhatADriverHas: a driver that was seen exports all that the plain program looks for.
func TestPlainCallsWhatADriverHas(t *testing.T) {
	code, err := os.ReadFile("../workloads/gpu/plain.c")
	if err != nil {
		t.Fatal(err)
	}
	driver := userland.Seen(t, "libcuda")
	names := regexp.MustCompile(`X\((cu\w+),`).FindAllStringSubmatch(string(code), -1)
	if len(names) < 20 {
		t.Fatalf("only %d calls are found in it", len(names))
	}
	for _, n := range names {
		if !slices.Contains(driver, n[1]) {
			t.Errorf("%s is exported by no driver that was seen", n[1])
		}
	}
}

// TestRealAssemblerTakesThePlainKernel: NVIDIA's own assembler takes the plain program's kernel, in each of the
// forms that it tries and this assembler knows.
func TestRealAssemblerTakesThePlainKernel(t *testing.T) {
	code, err := os.ReadFile("../workloads/gpu/plain.c")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(code), "static const char ptx[] =")
	text, _, _ := strings.Cut(rest, ";\n\n")
	kernel := ""
	for _, line := range regexp.MustCompile(`"(?:[^"\\]|\\.)*"`).FindAllString(text, -1) {
		part, err := strconv.Unquote(line)
		if err != nil {
			t.Fatal(err)
		}
		kernel += part
	}
	forms := regexp.MustCompile(`\{"([0-9.]+)", "(sm_\d+)"\}`).FindAllStringSubmatch(string(code), -1)
	tried := 0
	for _, g := range userland.Generations(t) {
		ptxas := g.Library("ptxas")
		if ptxas == "" {
			continue
		}
		for _, form := range forms {
			file := filepath.Join(t.TempDir(), "kernel.ptx")
			image := strings.NewReplacer("%%", "%").Replace(strings.Replace(strings.Replace(kernel, "%s", form[1], 1), "%s", form[2], 1))
			if err := os.WriteFile(file, []byte(image), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), ptxas, "-arch", form[2], "-o", file+".cubin", file).CombinedOutput()
			switch {
			case err == nil:
				tried++
			case !strings.Contains(string(out), "is not defined for option") && !strings.Contains(string(out), "Unsupported .version"):
				t.Errorf("%s, PTX %s for %s: %v\n%s", g.Name, form[1], form[2], err, out)
			}
		}
	}
	if tried == 0 {
		t.Skip("needs NVIDIA's assembler: make test-cuda-userland fetches it")
	}
	t.Logf("%d times", tried)
}

// TestAMissedCallIsAProblem: the counts are to be the same, one by one.
func TestAMissedCallIsAProblem(t *testing.T) {
	truth, err := parseCalls("launches=1000 graphs=2 in=3 out=4 waits=5")
	if err != nil || truth != (calls{1000, 2, 3, 4, 5}) {
		t.Fatalf("%+v %v", truth, err)
	}
	counted := callsOf(probes.CUDAProcess{Launches: 1010, Graphs: 2, Copies: [probes.NumDirections]uint64{1: 3, 2: 4}, Threads: []probes.CUDAThread{{Syncs: 2}, {Syncs: 3}}})
	judged := func(ours calls) bool {
		c := check{report: report{out: new(bytes.Buffer)}}
		c.judgeCalls("plain-async", truth, ours, nil)
		return c.report.problems() == 0
	}
	if ours := counted.since(calls{launches: 10}); !judged(ours) {
		t.Errorf("%+v is %+v", ours, truth)
	}
	for _, wrong := range []calls{{1001, 2, 3, 4, 5}, {999, 2, 3, 4, 5}, {1000, 1, 3, 4, 5}, {1000, 2, 2, 4, 5}, {1000, 2, 3, 5, 5}, {1000, 2, 3, 4, 4}} {
		if judged(wrong) {
			t.Errorf("%+v passes for %+v", wrong, truth)
		}
	}
	for _, words := range []string{"", "launches=many", "launches=1 graphs=2"} {
		if n, err := parseCalls(words); err == nil || !strings.Contains(err.Error(), "counts") {
			t.Errorf("%q: %+v %v", words, n, err)
		}
	}
}
