package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/control"
)

// What the example file documents as default is what the parts have by default.
func TestDefaultsAgree(t *testing.T) {
	got, want := coreConfig(config.Default()), control.Defaults()
	if got.ReserveCPUShare != 0.1 || got.LeftCPUShare != 0.03 {
		t.Errorf("%.2f and %.2f of the host's CPUs are kept, want 0.10 and 0.03", got.ReserveCPUShare, got.LeftCPUShare)
	}
	got.ReserveCPUShare, got.LeftCPUShare = want.ReserveCPUShare, want.LeftCPUShare // simulations and older recordings keep none
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config's defaults change the core's (-core +config):\n%s", diff)
	}
}
