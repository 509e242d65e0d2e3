package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTheWayOfOneDecision: docs/design.md's table names files and functions that are there, and
// counts its packages and files rightly.
func TestTheWayOfOneDecision(t *testing.T) {
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, way, found := strings.Cut(string(text), "## The way of one decision")
	if !found {
		t.Fatal("docs/design.md has no such section")
	}
	packages, files := map[string]bool{}, map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)` \\| `([^`]+)` \\|").FindAllStringSubmatch(way, -1) {
		file := filepath.Join(row[1], row[2])
		packages[row[1]], files[file] = true, true
		source, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Error(err)
			continue
		}
		name := regexp.QuoteMeta(row[3])
		if !regexp.MustCompile(`(?m)^(func (\([^)]*\) )?` + name + `\(|type ` + name + ` |static .*\b` + name + `\(|int BPF_PROG\(` + name + `,)`).Match(source) {
			t.Errorf("%s has no %s", file, row[3])
		}
	}
	said := regexp.MustCompile(`That is (\d+) packages and (\d+) files`).FindStringSubmatch(way)
	if said == nil || said[1] != strconv.Itoa(len(packages)) || said[2] != strconv.Itoa(len(files)) {
		t.Errorf("the table has %d packages and %d files, the text says %q", len(packages), len(files), said)
	}
}
