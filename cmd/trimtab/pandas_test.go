package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/played"
)

const pandasPage = "../../docs/pandas.md"

// TestPandas runs docs/pandas.md from its first line to its last: the commands against a daemon
// that was played recordings, and the Python of it. What the page shows is what that prints;
// -update writes it anew.
func TestPandas(t *testing.T) {
	const python = "/usr/bin/python3" // Debian's, which has Debian's pandas
	if out, err := exec.Command(python, "-c", "import pandas").CombinedOutput(); err != nil {
		t.Skipf("needs Debian's python3-pandas: %v: %s", err, lastLine(string(out)))
	}
	text, err := os.ReadFile(pandasPage)
	if err != nil {
		t.Fatal(err)
	}
	const recordings = "testdata/recordings/"
	d := &played.Daemon{Backend: fake{}, Recording: recordings + "zoo-vision.trimtab", As: map[string]played.Called{
		"acc-gpu-starved": {Name: "finetune", Team: "nlp"}, "zoo-vision": {Name: "resnet", Team: "vision"}, "acc-starved": {Name: "train", Team: "vision"}}}
	for _, name := range []string{"gpu-starved", "zoo-vision", "trial-kept"} {
		if err := d.Play(recordings + name + ".trimtab"); err != nil {
			t.Fatal(err)
		}
	}
	sh := newShell(t, d)
	page, script := pandas(string(text))
	for _, line := range script.shell {
		if out, code := sh.run(line); code != 0 {
			t.Fatalf("$ %s\nended with %d\n%s", line, code, out)
		}
	}
	if err := os.WriteFile(filepath.Join(sh.dir, "page.py"), []byte(script.python), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := sh.run(python + " page.py")
	if code != 0 {
		t.Fatalf("the page's Python ended with %d\n%s", code, out)
	}
	parts := strings.Split(strings.TrimSuffix(out, pandasMark+"\n"), pandasMark+"\n")
	if len(parts) != script.blocks || script.blocks < 5 {
		t.Fatalf("%d blocks printed %d parts", script.blocks, len(parts))
	}
	got := page(parts)
	if *update {
		if err := os.WriteFile(pandasPage, []byte(got), 0o644); err != nil { //nolint:gosec // a page is for all
			t.Fatal(err)
		}
		return
	}
	if got != string(text) {
		t.Errorf("the page shows something else than is printed (go test ./cmd/trimtab -run Pandas -update):\n%s", out)
	}
}

// pandasMark is what the script prints after each block of the page.
const pandasMark = "--- end of block ---"

type pandasScript struct {
	shell  []string
	python string
	blocks int
}

// pandas takes a page apart: the lines for a shell, the Python as one script, and how the page
// reads with another answer after each block of Python.
func pandas(text string) (with func(answers []string) string, s pandasScript) {
	const fence, end = "```python\n", "```\n"
	pieces, fenced := strings.Split(text, fence), false
	for line := range strings.Lines(pieces[0]) {
		if line == end {
			fenced = !fenced
		} else if fenced {
			s.shell = append(s.shell, strings.TrimSpace(line))
		}
	}
	var code, after []string
	for _, piece := range pieces[1:] {
		python, rest, _ := strings.Cut(piece, end)
		s.python += python + "\nprint(" + `"` + pandasMark + `"` + ")\n"
		s.blocks++
		if answer, is := strings.CutPrefix(rest, "\n"+end); is { // that was there
			_, rest, _ = strings.Cut(answer, end)
		}
		code, after = append(code, python), append(after, rest)
	}
	return func(answers []string) string {
		out := pieces[0]
		for i := range code {
			out += fence + code[i] + end + "\n" + end
			for line := range strings.Lines(answers[i]) {
				out += strings.TrimRight(line, " \n") + "\n"
			}
			out += end + after[i]
		}
		return out
	}, s
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
