//go:build man

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManualPages: one for each command that is listed, none for hidden ones, and the
// same whenever they are made.
func TestManualPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	dir := t.TempDir()
	if code := execute(context.Background(), newRoot(), []string{"man", dir}, io.Discard, os.Stderr); code != 0 {
		t.Fatalf("exit %d", code)
	}
	for _, command := range newRoot().Commands() {
		page := filepath.Join(dir, "trimtab-"+command.Name()+".1")
		text, err := os.ReadFile(page)
		if command.Hidden {
			if err == nil {
				t.Errorf("%s is hidden and has a page", command.Name())
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", command.Name(), err)
			continue
		}
		if !strings.Contains(string(text), `"Jan 1970"`) || !strings.Contains(string(text), "trimtab-"+command.Name()) {
			t.Errorf("%s says\n%s", page, text)
		}
	}
}

func TestManualPagesRefuse(t *testing.T) {
	for name, tc := range map[string]struct{ epoch, dir, want string }{
		"a date that is none":   {"yesterday", t.TempDir(), "no number of seconds"},
		"a folder that is none": {"0", "/nonexistent/man", "/nonexistent/man"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SOURCE_DATE_EPOCH", tc.epoch)
			var stderr strings.Builder
			code := execute(context.Background(), newRoot(), []string{"man", tc.dir}, io.Discard, &stderr)
			if code == 0 || !strings.Contains(stderr.String(), tc.want) {
				t.Errorf("exit %d, said %q, want it to name %q", code, stderr.String(), tc.want)
			}
		})
	}
}
