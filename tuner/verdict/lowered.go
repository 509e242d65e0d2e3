package verdict

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// LoweredHarm says how a lowered limit hurts, by the latest tick over what was before; "" if it does not.
func LoweredHarm(k *policies.Constants, t observe.MemoryTick, calm observe.MemoryMeans, limit float64) string {
	m := observe.Means([]observe.MemoryTick{t})
	switch {
	case m.Kills > 0:
		return "a process was killed for want of memory"
	case t.Held > (1-k.MinStep)*limit || t.Held+2*t.Grew > limit:
		return fmt.Sprintf("it holds %.0f MiB and grows into the limit of %.0f MiB", t.Held/(1<<20), limit/(1<<20))
	case k.AtLimit(t.Hits, t.Current, limit) && m.Reread > calm.Reread+4*k.CalmReread:
		return fmt.Sprintf("it reads %.1f MiB/s again that were evicted, %.1f before", m.Reread/(1<<20), calm.Reread/(1<<20))
	case m.Some > calm.Some+2*k.Notable:
		return fmt.Sprintf("some of it waits for memory %.0f %% of the time", 100*m.Some)
	}
	return ""
}
