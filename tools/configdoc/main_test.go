package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
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
