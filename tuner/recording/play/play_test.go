package play

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/recording"
)

func none(*policies.Constants) []policies.Policy { return nil }

// written is a recording of so many records, each a kind and what it holds.
func written(t *testing.T, state string, records ...any) *recording.Reader {
	t.Helper()
	config, err := json.Marshal(control.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := recording.NewWriter(&out, recording.Header{Config: config, State: json.RawMessage(state)})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(records); i += 2 {
		if err := w.Write(records[i].(string), records[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := recording.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// A reload is in force for the tick after it, and is none of what Next returns.
func TestConfigIsInForce(t *testing.T) {
	p, err := New(written(t, `{"epoch":"a"}`, "tick", control.Input{}, "config", map[string]int{"ramp": 7}, "tick", control.Input{}), none)
	if err != nil {
		t.Fatal(err)
	}
	want := control.Defaults()
	for range 2 {
		kind, raw, err := p.Next()
		if err != nil || kind != "tick" {
			t.Fatal(kind, err)
		}
		if _, err := p.Replay(raw); err != nil {
			t.Fatal(err)
		}
		if p.Config.MaxTuned != want.MaxTuned || p.Config.ReserveCPUs != want.ReserveCPUs {
			t.Errorf("%+v, want ramp %d", p.Config, want.MaxTuned)
		}
		want.MaxTuned = 7
	}
	if _, _, err := p.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// What cannot be read is said with what it is.
func TestDamage(t *testing.T) {
	for state, want := range map[string]string{`{"epoch":1}`: "recording's state", `{"known":"x"}`: "recording's state"} {
		if _, err := New(written(t, state), none); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", state, err)
		}
	}
	p, err := New(written(t, `{}`, "config", "x"), none)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Next(); err == nil || !strings.Contains(err.Error(), "recording's config") {
		t.Error(err)
	}
}
