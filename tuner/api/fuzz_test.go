package api_test

import (
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
)

// A time that was asked for is a time, or refused with what is allowed.
func FuzzSince(f *testing.F) {
	for _, s := range []string{"2h", "7d", "2026-01-02", "2026-01-02T15:04:05Z", "-1h", "99999999999h", ""} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if at, err := api.ParseSince(s, now); err == nil && at.IsZero() && s[0] != '0' {
			t.Fatalf("%q is no time", s)
		}
	})
}
