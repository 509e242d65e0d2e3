package verdict

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// TestLoweredHarm: what is read again is a limit's doing where that is hit, or stood at: cgroup v1 counts no
// hits where swap is forbidden.
func TestLoweredHarm(t *testing.T) {
	const second, limit = 1_000_000_000, 512 << 20
	k := policies.DefaultConstants()
	for name, c := range map[string]struct {
		current, hits, reread float64
		harms                 bool
	}{
		"read again, hit":              {0.90, 7, 8, true},
		"read again, stood at":         {0.99, 0, 8, true},
		"read again, far from it":      {0.90, 0, 8, false},
		"nothing read again, stood at": {0.99, 7, 0, false},
	} {
		tick := observe.MemoryTick{EndNs: second, Current: c.current * limit, Hits: c.hits, Reread: c.reread * (1 << 20)}
		if why := LoweredHarm(k, tick, observe.MemoryMeans{}, limit); (why != "") != c.harms {
			t.Errorf("%s: %q", name, why)
		}
	}
}
