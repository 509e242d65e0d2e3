package docker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

// ownersValues is Docker's record of a container as knobs; a quota that it does not name is none.
func ownersValues(r container.Resources, mode runtime.CgroupMode) runtime.Values {
	values := storedValues(r, mode)
	if _, limited := values[runtime.KnobCPUQuota]; !limited {
		values[runtime.KnobCPUQuota] = runtime.Quota(-1, cmp.Or(max(0, r.CPUPeriod), runtime.DefaultPeriodUs))
	}
	return values
}

// recordTimeout bounds the look at Docker's record: writes go on while Docker hangs.
const recordTimeout = time.Second

// keepUpdates writes what somebody stored in Docker's record while a write of trimtab's was
// under way: that carried all values, and the older ones of those. stood is what it read.
// Docker stores first and tells the runtime then, so what the runtime heard before our write
// ended is in the record by now; what it hears later has the last word anyway. A value that had
// reached the kernel by the time of the reading was carried, or overwritten knowingly.
func (e *Engine) keepUpdates(ctx context.Context, c runtime.Container, stood runtime.Values, inFlight []runtime.Values) error {
	id := c.ID.Container
	for range 3 { // who updates it in a loop has the last word without us
		now, err := e.owners(ctx, c)
		if err != nil { // it ended, or no Docker is there to update it
			return nil
		}
		stands, err := e.host.Read(ctx, c)
		if err != nil {
			return nil // it ended
		}
		told, known := e.updates.Load(id)
		before, _ := told.(runtime.Values)
		changed := runtime.Values{}
		for knob, v := range now {
			if v != before[knob] && !knob.Same(v, stood[knob]) && !knob.Same(v, stands[knob]) {
				changed[knob] = v
			}
		}
		if !known || len(changed) == 0 {
			e.updates.Store(id, now)
			return nil
		}
		e.opts.Logger.Info("it was updated while trimtab wrote: its owner's values stand", "container", c.Name, "knobs", engine.KnobNames(changed))
		if stood, err = e.write(ctx, c, changed, inFlight); err != nil {
			return fmt.Errorf("container %q: it was updated while trimtab wrote: %w", c.Name, err)
		}
		e.updates.Store(id, now)
		inFlight = append(inFlight, changed)
	}
	return nil
}

func (e *Engine) owners(ctx context.Context, c runtime.Container) (runtime.Values, error) {
	ctx, cancel := context.WithTimeout(ctx, min(e.opts.CallTimeout, recordTimeout))
	defer cancel()
	info, err := e.record(ctx, c.ID.Container)
	if err != nil {
		return nil, err
	}
	return ownersValues(info.HostConfig.Resources, c.Cgroup.Mode), nil
}
