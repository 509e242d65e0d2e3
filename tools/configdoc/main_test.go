package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/config"
)

// TestPageIsUpToDate: docs/config.md is what the code makes today.
func TestPageIsUpToDate(t *testing.T) {
	want, err := page()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/config.md is old: `go run ./tools/configdoc` makes it anew (-today +file):\n%s", diff)
	}
}

// TestEveryKeyIsExplained: the example says of each key what it does.
func TestEveryKeyIsExplained(t *testing.T) {
	all, err := sections()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, s := range all {
		for _, k := range s.keys {
			if seen++; k.text == "" {
				t.Errorf("the example says nothing of %s", k.name)
			}
		}
	}
	if seen < 85 {
		t.Errorf("%d keys were found: there are more", seen)
	}
}

// TestSharesAreWrittenSo: a share is a number, but where an amount may stand. There it has a percent sign.
func TestSharesAreWrittenSo(t *testing.T) {
	all, err := sections()
	if err != nil {
		t.Fatal(err)
	}
	file, seen := filepath.Join(t.TempDir(), "trimtab.yaml"), 0
	taken := func(k key, value string) bool {
		if err := os.WriteFile(file, []byte(nested(k.name, value)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := config.Load(file, "")
		return err == nil
	}
	for _, s := range all {
		for _, k := range s.keys {
			if !strings.HasSuffix(k.typed(), "share") {
				continue
			}
			seen++
			if percent := strings.Contains(k.typed(), "or a share"); taken(k, `"5%"`) != percent || !percent && !taken(k, "0.05") {
				t.Errorf("%s, %s: 5%% is taken: %v, 0.05: %v", k.name, k.typed(), taken(k, `"5%"`), taken(k, "0.05"))
			}
		}
	}
	if seen < 7 {
		t.Errorf("%d keys are shares: there are more", seen)
	}
	for _, said := range []string{"A share is as `0.05`.", "A share is as `\"10%\"` there, and nowhere else."} {
		if !strings.Contains(intro, said) {
			t.Errorf("the page does not say %q", said)
		}
	}
}
