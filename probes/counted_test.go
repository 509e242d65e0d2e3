package probes_test

import (
	"os"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/probes"
)

// TestDocsListWhatIsCounted: docs/rate.md has one row for each, in their order, and says of each
// whether it is a step.
func TestDocsListWhatIsCounted(t *testing.T) {
	doc, err := os.ReadFile("../docs/rate.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(doc)) {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| `") && len(cells) == 7 {
			rows = append(rows, cells)
		}
	}
	events := probes.CountedEvents()
	if len(rows) != len(events) {
		t.Fatalf("docs/rate.md has %d rows of %d", len(rows), len(events))
	}
	for i, e := range events {
		source, step := strings.Trim(rows[i][1], " `"), strings.HasPrefix(strings.TrimSpace(rows[i][3]), "yes")
		if place, is := probes.Preference(e.Source); source != e.Source || step != e.Step || place != i || is != e.Step {
			t.Errorf("row %d says %s, a step: %v; counted is %s, %v", i, source, step, e.Source, e.Step)
		}
	}
	if place, step := probes.Preference("hand-offs"); place != len(events) || step {
		t.Errorf("an unknown source: place %d, a step: %v", place, step)
	}
}
