package event

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestKindsOfRecords(t *testing.T) {
	loan := func(knob runtime.Knob, from, to runtime.Value) state.Record {
		return state.Record{Kind: state.RecordLoan, Knob: knob, From: from, To: to}
	}
	trial := func(o state.Outcome) state.Record { return state.Record{Kind: state.RecordTrial, Outcome: o} }
	for _, tt := range []struct {
		r    state.Record
		want Kind
	}{
		{trial(state.OutcomeKept), Kept}, {trial(state.OutcomeRolledBack), Reverted}, {trial(state.OutcomeInconclusive), Reverted},
		{trial(state.OutcomeUnproven), Unproven}, {trial(state.OutcomeWithdrawn), Reverted}, {trial(state.OutcomeAborted), Void}, {trial("later"), Void},
		{loan(runtime.KnobCPUQuota, "100000 100000", "150000 100000"), Lent}, {loan(runtime.KnobCPUQuota, "150000 100000", "100000 100000"), CalledIn},
		{loan(runtime.KnobCPUQuota, "max 100000", "100000 100000"), CalledIn}, {loan(runtime.KnobMemoryLimit, "1024", "2048"), Lent},
		{loan(runtime.KnobCPUWeight, "10", "20"), Changed},
		{state.Record{Kind: state.RecordChange}, Changed}, {state.Record{Kind: state.RecordRollback}, KnobReverted},
		{state.Record{Kind: state.RecordRestore}, Restored}, {state.Record{Kind: state.RecordYield}, Yielded},
		{state.Record{Kind: state.RecordPending}, Pending}, {state.Record{Kind: state.RecordRefused}, Refused},
		{state.Record{Kind: state.RecordWould}, Would}, {state.Record{Kind: state.RecordEnrol}, Enrolment},
		{state.Record{Kind: state.RecordVerdict}, Verdict}, {state.Record{Kind: state.RecordGPULost}, GPULost},
		{state.Record{Kind: state.RecordGPURepair}, GPURepaired}, {state.Record{Kind: state.RecordGPUView}, GPUView}, {state.Record{Kind: state.RecordGPUError}, GPUError}, {state.Record{Kind: state.RecordSlower}, Slower},
		{state.Record{Kind: "of-tomorrow"}, "of-tomorrow"},
	} {
		e := Of(tt.r, "node7")
		if e.Kind != tt.want || e.Host != "node7" || e.Kind != "of-tomorrow" && !slices.Contains(Kinds(), e.Kind) {
			t.Errorf("%s %s %s → %s: %q of %q, want %q", tt.r.Kind, tt.r.Outcome, tt.r.From, tt.r.To, e.Kind, e.Host, tt.want)
		}
	}
}

// An error of a GPU that a program's own fault explains asks nobody to look; any other does.
func TestAlarmsOfGPUErrors(t *testing.T) {
	for _, own := range []bool{false, true} {
		if e := Of(state.Record{Kind: state.RecordGPUError, ByProgram: own}, "node7"); e.Alarming() == own {
			t.Errorf("a program's own: %v, alarming: %v", own, e.Alarming())
		}
	}
}

// hostile are names that somebody may give a container.
func hostile() []string {
	return []string{"\x1b[2J\x1b]0;owned\a", "<script>alert(1)</script>", strings.Repeat("é", 4096), "\u202eevil\u2066", "🚀👩‍🚀", "a\nb\r\tc\x00", "\xff\xfe", "{\"event\":\"kept\"}", "\u2028"}
}

// Whatever a record holds, an event is bounded, valid and of one line, and reads back as it was.
func TestEventsOfHostileRecords(t *testing.T) {
	text := rapid.OneOf(rapid.SampledFrom(hostile()), rapid.String(), rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) }))
	rapid.Check(t, func(t *rapid.T) {
		r := state.Record{Kind: state.RecordTrial, Name: text.Draw(t, "name"), Team: text.Draw(t, "team"), Text: text.Draw(t, "text"), To: runtime.Value(text.Draw(t, "to")), Key: text.Draw(t, "key")}
		before := r
		e := Of(r, "node7")
		if r != before {
			t.Fatal("the record was changed")
		}
		body, err := json.Marshal(e)
		if err != nil || len(body) > 64<<10 {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		var back Event
		if err := json.Unmarshal(body, &back); err != nil || back.Text != e.Text || *back.Record != *e.Record {
			t.Fatalf("%v: %q, was %q", err, back.Text, e.Text)
		}
		for _, s := range []string{e.Text, e.Container(), e.Record.Team, string(e.Record.To), e.Record.Key} {
			if !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\x1b\n\r\u202e\u2066\u2028") || len(s) > maxText {
				t.Fatalf("%q", s)
			}
		}
	})
}

func TestHealthTellsChangesOnce(t *testing.T) {
	now := int64(1e18)
	part := func(name string, ok bool, since int64) state.Part {
		return state.Part{Name: name, OK: ok, Since: since, Lost: name + " is gone"}
	}
	s := &state.Snapshot{Daemon: state.Daemon{Engines: []state.Part{part("docker", true, now)}, Probes: []state.Part{part("nvml", false, 0)}}}
	var h Health
	next := func(stuck error) (out []string) {
		for _, e := range h.Next(s, stuck, "node7", now) {
			if e.Host != "node7" || e.UnixNs != now || e.Record != nil || e.Container() != "" {
				t.Errorf("%+v", e)
			}
			out = append(out, string(e.Kind)+": "+e.Text)
		}
		return out
	}
	want := func(when string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	want("what was never there", next(nil))
	s.Daemon.Engines[0] = part("docker", false, now)
	want("gone just now", next(nil))
	now += lostForNs
	want("gone for long", next(nil), "unwell: engine docker: docker is gone")
	want("told before", next(nil))
	want("stuck", next(errors.New("the agent has not ticked for 12s")), "unwell: trimtab: the agent has not ticked for 12s")
	s.Daemon.Engines[0] = part("docker", true, now)
	s.Daemon.ConfigError = "line 3\x1b[2J"
	want("back", next(nil), "well: trimtab is well again; it was: the agent has not ticked for 12s", "unwell: config: line 3�[2J",
		"well: engine docker is well again; it was: docker is gone")
	want("the same refusal", next(nil))
	s.Daemon.ConfigError = "line 5"
	want("another refusal", next(nil), "unwell: config: line 5")
	want("stuck again", next(errors.New("the agent has not ticked for 12s")), "unwell: trimtab: the agent has not ticked for 12s")
	want("stuck for longer", next(errors.New("the agent has not ticked for 17s")))
	s.Daemon.ConfigError = ""
	want("accepted", next(errors.New("the agent has not ticked for 22s")), "well: config is well again; it was: line 5")
}
