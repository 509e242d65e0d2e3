package main

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/tuner/state"
)

// TestDoctorTellsOfLosses: what a daemon had no room for, by part, and nothing of those that had.
func TestDoctorTellsOfLosses(t *testing.T) {
	got := examineLosses(state.Daemon{Probes: []state.Part{{Name: "cgroup", OK: true}, {Name: "kernel\x1b[2J", OK: true, LostEvents: 12}}})
	if len(got) != 1 || got[0].Level != levelOK || worst(got) != 0 || !strings.HasPrefix(got[0].Text, "kernel?[2J had no room for 12 events") || !strings.Contains(got[0].Hint, "overhead.maps") {
		t.Errorf("%+v", got)
	}
}
