package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWritten: what packages bring is what this program writes.
func TestWritten(t *testing.T) {
	for _, d := range dashboards() {
		want, err := d.render()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../packaging/grafana", d.file))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is of another state: go run ./tools/dashboards", d.file)
		}
	}
}
