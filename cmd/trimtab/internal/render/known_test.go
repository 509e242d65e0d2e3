package render

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestHostileProfiles: what other hosts' books call jobs, units and devices moves no terminal.
func TestHostileProfiles(t *testing.T) {
	var all []state.Fingerprint
	for _, n := range hostileNames() {
		all = append(all, state.Fingerprint{ID: 1 << 52, Name: n, Host: n, Print: profiles.Print{Unit: n, Device: n}, Jobs: 1,
			Learned: profiles.Learned{Devices: profiles.CostsOf(map[string]policies.Cost{n: {}})}})
	}
	text := Fingerprints(all, Clock{Now: time.Unix(0, 0), Zone: time.UTC})
	if bad := slices.IndexFunc([]rune(text), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); bad >= 0 {
		t.Errorf("%q is printed", []rune(text)[bad])
	}
	if n := strings.Count(text, "\n"); n != len(all)+3 {
		t.Errorf("%d lines of %d jobs:\n%s", n, len(all), text)
	}
}
