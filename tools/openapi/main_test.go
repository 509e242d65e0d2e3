package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/api"
)

// TestDescriptionIsUpToDate: what is embedded is what the code makes today.
func TestDescriptionIsUpToDate(t *testing.T) {
	t.Chdir("../..")
	want, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), api.OpenAPI()); diff != "" {
		t.Errorf("tuner/api/openapi.json is old: `go run ./tools/openapi` makes it anew (-today +file):\n%s", diff)
	}
}
