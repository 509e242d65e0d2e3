// Package examples holds the worked examples of docs/examples to what they promise.
package examples

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each patch applies to this checkout, touches few files, builds, and passes its own tests.
func TestExamples(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git: applies the patches")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		files int // tests aside
		tests string
	}{
		"policy": {2, "go test ./policies/idlequota"},
		"probe":  {3, "go test ./probes/openfiles"},
		"label":  {3, "go test -run Contact|Label ./tuner/enrolment"},
		"knob":   {4, "go test -run Pids ./runtime/docker"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			copyTree(t, dir, root)
			run(t, dir, "git", "apply", "docs/examples/"+name+".patch")
			if n := touched(t, filepath.Join(root, "docs", "examples", name+".patch")); n > want.files {
				t.Errorf("it touches %d files, want %d at most", n, want.files)
			}
			run(t, dir, "go", "build", "-trimpath", "-buildvcs=false", "-o", os.DevNull, "./cmd/trimtab")
			words := strings.Fields(want.tests)
			run(t, dir, words[0], append([]string{words[1], "-trimpath", "-count=1"}, words[2:]...)...)
		})
	}
}

// copyTree copies what a build needs.
func copyTree(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch name := e.Name(); {
		case e.IsDir() && (rel == "bin" || name == "recordings" || rel != "." && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !e.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// touched counts the files of a patch, tests and docs aside.
func touched(t *testing.T, patch string) (n int) {
	t.Helper()
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range regexp.MustCompile(`(?m)^diff --git a/(\S+)`).FindAllStringSubmatch(string(text), -1) {
		if !strings.HasSuffix(file[1], "_test.go") && !strings.HasPrefix(file[1], "docs/") {
			n++
		}
	}
	return n
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
