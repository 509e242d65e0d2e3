package sidebyside

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/tuner/core"
	"github.com/trimtab/trimtab/tuner/recording"
)

// TestPlansAreRefused: on a recording of a job that was tuned, the other core's plan
// bears the name of the recorded one, since both are made in the same tick. What the
// actuator answered then must not answer it: no trial is ever open for longer than the
// tick after.
func TestPlansAreRefused(t *testing.T) {
	f, err := os.Open("../../../cmd/trimtab/testdata/recordings/starved.trimtab")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := recording.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var state struct {
		Epoch string `json:"epoch"`
	}
	cfg := core.Defaults()
	if err := errors.Join(json.Unmarshal(r.Header().Config, &cfg), json.Unmarshal(r.Header().State, &state)); err != nil {
		t.Fatal(err)
	}
	s := NewShadow(core.New(cfg, knee.New(knee.Defaults()), state.Epoch))
	plans, answered := 0, false
	for {
		kind, raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && kind == "tick" {
			answered = answered || holdsResult(t, raw)
			before := len(s.refuse)
			err = s.Tick(raw)
			plans += len(s.refuse)
			if open := len(s.core.Open()); open > len(s.refuse) {
				t.Errorf("%d plans are open, %d of them new, %d refused before", open, len(s.refuse), before)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if plans == 0 || !answered {
		t.Errorf("%d plans to refuse, the recording holds an actuator's answer: %v; want both", plans, answered)
	}
}

func holdsResult(t *testing.T, raw json.RawMessage) bool {
	t.Helper()
	var in core.Input
	if err := json.Unmarshal(raw, &in); err != nil {
		t.Fatal(err)
	}
	return len(in.Results) > 0
}
