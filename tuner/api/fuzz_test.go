package api_test

import (
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
)

// A time that was asked for is one that nanoseconds can count, or refused with what is allowed.
func FuzzSince(f *testing.F) {
	for _, s := range []string{"2h", "7d", "2026-01-02", "2026-01-02T15:04:05Z", "-1h", "99999999999h", "1600-01-01", "9999-12-31T23:59:59Z", ""} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if at, err := api.ParseSince(s, now); err == nil && !time.Unix(0, at.UnixNano()).Equal(at) {
			t.Fatalf("%q is %v, which is told on as %v", s, at, time.Unix(0, at.UnixNano()))
		}
	})
}
