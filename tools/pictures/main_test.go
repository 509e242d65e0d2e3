package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDrawn: the pages' pictures are what this program makes of the recordings, and well-formed.
func TestDrawn(t *testing.T) {
	page, err := os.ReadFile("../../docs/decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pictures() {
		want, err := p.draw(filepath.Join("../..", recordings, p.recording))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../docs", p.file))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is of another state: go run ./tools/pictures", p.file)
		}
		if !strings.Contains(string(page), "("+p.file+")") {
			t.Errorf("docs/decisions.md does not show %s", p.file)
		}
		var svg struct {
			Title       string `xml:"title"`
			Description string `xml:"desc"`
		}
		if err := xml.Unmarshal(got, &svg); err != nil || svg.Title == "" || len(svg.Description) < 60 {
			t.Errorf("%s: %v; titled %q, described as %q", p.file, err, svg.Title, svg.Description)
		}
		if strings.Contains(want, "NaN") || strings.Contains(want, "Inf") {
			t.Errorf("%s has figures that are none", p.file)
		}
	}
}
