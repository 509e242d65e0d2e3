package main

import (
	"log/slog"
	"testing"

	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// TestHandoverIsFromOnePolicyToItself: law 3, a change of policy restores.
func TestHandoverIsFromOnePolicyToItself(t *testing.T) {
	for name, c := range map[string]struct {
		left, next string
		want       bool
	}{
		"the same policy":              {"knee", "knee", true},
		"another policy":               {"knee", "bottleneck", false},
		"of a daemon that did not say": {"", "knee", false},
	} {
		store, err := statefile.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		daemon := func(policy string) *parts {
			cfg := config.Config{Policy: policy}
			return &parts{cfg: cfg, state: store, log: slog.New(slog.DiscardHandler)}
		}
		if err := daemon(c.left).markHandover(); err != nil {
			t.Fatal(err)
		}
		if got := daemon(c.next).takeHandover(); got != c.want {
			t.Errorf("%s: handed over %v, want %v", name, got, c.want)
		}
		if daemon(c.next).takeHandover() {
			t.Errorf("%s: handed over twice", name)
		}
	}
}
