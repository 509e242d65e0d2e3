package main

import (
	"strings"
	"testing"
)

// pair is Gavel's form, with a job on two GPUs, which is left out.
const pair = `{
 "k80":  {"('A (batch size 16)', 1)": {"null": 2.000049, "('A (batch size 16)', 1)": [1.5, 1.5], "('B', 1)": [1.25, 0.5]},
          "('B', 1)": {"null": 4, "('A (batch size 16)', 1)": [0.5, 1.25], "('B', 1)": [0.0, 0.0]},
          "('A (batch size 16)', 2)": {"null": 9}},
 "p100": {"('B', 1)": {"null": 8, "('B', 1)": [3.0, 3.0]}},
 "v100": {"('B', 1)": {"null": 16, "('B', 1)": [5.0, 5.0]}}}`

func TestTranscribes(t *testing.T) {
	var out strings.Builder
	if err := transcribe([]byte(pair), &out); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), "\n")
	want := "k80,A,16,2,1.5,1.25\nk80,B,0,4,0.5,0\np100,B,0,8,3\nv100,B,0,16,5\n"
	if table != want {
		t.Errorf("got\n%swant\n%s", table, want)
	}
}

func TestRefusesAnotherFile(t *testing.T) {
	for name, raw := range map[string]string{
		"no JSON": "x", "no devices": "{}",
		"a pair is missing": `{"k80": {"('B', 1)": {"null": 4}}}`,
	} {
		if err := transcribe([]byte(raw), &strings.Builder{}); err == nil {
			t.Errorf("%s: transcribed", name)
		}
	}
}
