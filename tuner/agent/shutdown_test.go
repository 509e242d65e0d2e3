package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/tuner/actuator"
)

// TestWhatIsNotBackIsNamed: a limit that is not safe to lower is no success either.
func TestWhatIsNotBackIsNamed(t *testing.T) {
	pending := []actuator.KnobResult{{Outcome: actuator.Restored, Text: "fine"}, {Outcome: actuator.Pending, Text: "memory.limit 1000 is pending: memory in use needs 2000 MiB"}}
	for outcome, want := range map[actuator.Outcome]string{
		actuator.Restored: "", actuator.Yielded: "", actuator.Gone: "",
		actuator.Pending: `container "train": memory.limit 1000 is pending`, actuator.Failed: `container "train" could not be restored: full`, actuator.Unavailable: "could not be restored",
	} {
		err := notBack(actuator.RestoreResult{Name: "train", Outcome: outcome, Knobs: pending, Err: errors.New("full")})
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "fine")) {
			t.Errorf("%s: %v, want %q", outcome, err, want)
		}
	}
	if err := notBack(actuator.RestoreResult{Name: "train", Outcome: actuator.Failed}); err == nil || strings.Contains(err.Error(), "%!") {
		t.Errorf("failed without an error of its own: %v", err)
	}
}
