package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/trimtab/trimtab/runtime"
)

var _ runtime.StoringEngine = (*Engine)(nil)

// Stores implements runtime.StoringEngine: Docker stores what its API is told, and
// containerd tells it nothing.
func (e *Engine) Stores(ctx context.Context, c runtime.Container) bool {
	_, api := e.updater(ctx, c).(apiUpdater)
	return api
}

// Stored implements runtime.StoringEngine, from what `docker inspect` shows.
func (e *Engine) Stored(ctx context.Context, c runtime.Container) (runtime.Values, *runtime.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.CallTimeout)
	defer cancel()
	info, err := e.record(ctx, c.ID.Container)
	if err != nil {
		return nil, nil, fmt.Errorf("container %q: Docker's record of it: %w", c.Name, err)
	}
	values := storedValues(info.HostConfig.Resources, c.Cgroup.Mode)
	live, err := e.inspect(ctx, c.ID.Container)
	switch {
	case errors.Is(err, runtime.ErrGone):
		return values, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("container %q: %w", c.Name, classifyDocker(err))
	}
	return values, &live, nil
}

// Store implements runtime.StoringEngine. Docker updates its record of a container that
// is stopped, and record and control groups of one that runs.
func (e *Engine) Store(ctx context.Context, c runtime.Container, set runtime.Values) error {
	stored, live, err := e.Stored(ctx, c)
	if err != nil {
		return err
	}
	defer e.updates.Delete(c.ID.Container) // what its record holds next is trimtab's word, and no update of its owner's
	if live == nil {
		return apiUpdater{engine: e, stopped: true}.apply(ctx, c, stored, set, nil)
	}
	return e.writer.Apply(ctx, e.host, *live, set, func(ctx context.Context, stands, want runtime.Values) error {
		return apiUpdater{engine: e}.apply(ctx, *live, stands, want, nil)
	})
}

// record is what Docker stores of a container.
func (e *Engine) record(ctx context.Context, id string) (container.InspectResponse, error) {
	answer, err := e.client.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return answer.Container, classifyDocker(err)
	}
	if answer.Container.HostConfig == nil {
		return answer.Container, fmt.Errorf("Docker told no configuration: %w", runtime.ErrUnavailable)
	}
	return answer.Container, nil
}

// storedValues turns Docker's record into knobs; what it leaves to the runtime is missing.
func storedValues(r container.Resources, mode runtime.CgroupMode) runtime.Values {
	out := runtime.Values{}
	periodUs := cmp.Or(max(0, r.CPUPeriod), runtime.DefaultPeriodUs)
	switch {
	case r.NanoCPUs >= nanoPerUs: // moby turns them into a quota in a period of 100 ms; fewer are none to the kernel
		out[runtime.KnobCPUQuota] = runtime.Quota(r.NanoCPUs/nanoPerUs, runtime.DefaultPeriodUs)
	case r.CPUQuota > 0:
		out[runtime.KnobCPUQuota] = runtime.Quota(r.CPUQuota, periodUs)
	}
	if r.CPUShares > 0 && mode != runtime.CgroupV2 {
		out[runtime.KnobCPUWeight] = runtime.IntValue(r.CPUShares)
	}
	if cpus := strings.TrimSpace(r.CpusetCpus); cpus != "" {
		out[runtime.KnobCpuset] = runtime.Value(cpus)
	}
	if r.Memory <= 0 {
		return out
	}
	out[runtime.KnobMemoryLimit] = runtime.IntValue(r.Memory)
	switch {
	case r.MemorySwap < 0:
		out[runtime.KnobMemorySwap] = runtime.ValueMax
	case r.MemorySwap > 0 && mode == runtime.CgroupV2: // swap alone there, both together here
		out[runtime.KnobMemorySwap] = runtime.IntValue(max(0, r.MemorySwap-r.Memory))
	case r.MemorySwap > 0:
		out[runtime.KnobMemorySwap] = runtime.IntValue(r.MemorySwap)
	}
	return out
}
