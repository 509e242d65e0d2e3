package policies

import "testing"

func TestMemoryEnough(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*MemoryUse)
		want bool
	}{
		"calm for a minute since": {func(*MemoryUse) {}, true},
		"no raise":                {func(m *MemoryUse) { m.Loan = MemoryLoan{} }, false},
		"calm for less":           {func(m *MemoryUse) { m.SparedSeconds = 59 }, false},
		"calm before it too":      {func(m *MemoryUse) { m.Loan.Seconds = 59 }, false},
		"full, and what was read again before is not":  {func(m *MemoryUse) { m.Current = m.Limit }, true},
		"full of what may have been read for once":     {func(m *MemoryUse) { m.Current, m.Loan.Before = m.Limit, 0 }, false},
		"known before anything was read, and not full": {func(m *MemoryUse) { m.Loan.Before = 0 }, true},
	} {
		m := MemoryUse{Read: true, Current: 700 << 20, Limit: 1 << 30, SparedSeconds: 60, Loan: MemoryLoan{From: 1 << 29, Before: 1 << 20, Seconds: 60}}
		c.edit(&m)
		if got := m.Enough(DefaultConstants()); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
