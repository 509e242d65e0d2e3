package loop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/budget"
)

// missingProbe is a probe that says what it does not count.
type missingProbe struct {
	probes.Probe
	missing []string
}

func (p missingProbe) Missing(string) []string { return p.missing }

// What probes leave out shows with what the budget thins, each reason once.
func TestThinnedSaysWhatIsMissing(t *testing.T) {
	l := &Loop{budget: budget.New()}
	l.o.Probes = []Probe{
		{Probe: missingProbe{missing: []string{"libraries: a", "launches: more than 20000 a second"}}},
		{Probe: struct{ probes.Probe }{}},
		{Probe: missingProbe{missing: []string{"libraries: a"}}},
	}
	if diff := cmp.Diff([]string{"libraries: a", "launches: more than 20000 a second"}, l.thinned("c")); diff != "" {
		t.Error(diff)
	}
}
