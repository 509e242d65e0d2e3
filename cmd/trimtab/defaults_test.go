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
	got.ReserveCPUShare = want.ReserveCPUShare // simulations keep none
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config's defaults change the core's (-core +config):\n%s", diff)
	}
}
