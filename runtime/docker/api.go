package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

const (
	// withContainerd is the way out of everything that Docker's API cannot express.
	withContainerd = "make containerd's socket reachable, or give its path"
	// minMemoryBytes is the least that Docker takes (moby daemon, linuxMinMemory).
	minMemoryBytes = 6 << 20
	// nanoPerUs is how many of Docker's NanoCPUs make a microsecond of quota in the period of 100 ms.
	nanoPerUs = 1_000_000_000 / runtime.DefaultPeriodUs
)

// apiUpdater writes through Docker's update API, where 0 and "" mean unchanged.
type apiUpdater struct {
	engine  *Engine
	stopped bool // the container does not run: nothing of it holds memory
}

func (apiUpdater) name() string { return "docker-api" }

func (d apiUpdater) apply(ctx context.Context, c runtime.Container, stands, set runtime.Values, _ []runtime.Values) error {
	ctx, cancel := context.WithTimeout(ctx, d.engine.opts.CallTimeout)
	defer cancel()
	info, err := d.engine.record(ctx, c.ID.Container)
	if err != nil {
		return fmt.Errorf("container %q: %w", c.Name, err)
	}
	if err := d.room(c, stands, set); err != nil {
		return err
	}
	r, err := apiResources(c, info.HostConfig.Resources, stands, set)
	if err != nil {
		return err
	}
	updated, err := d.engine.client.ContainerUpdate(ctx, c.ID.Container, client.ContainerUpdateOptions{Resources: r})
	if err != nil {
		return fmt.Errorf("container %q: %s: %w", c.Name, engine.KnobNames(set), classifyDocker(err))
	}
	for _, warning := range updated.Warnings { // said of what this host's Docker cannot set, in an answer of success
		if strings.Contains(strings.ToLower(warning), "discarded") {
			return fmt.Errorf("container %q: %s: Docker warns: %s: %w", c.Name, engine.KnobNames(set), warning, runtime.ErrRefused)
		}
	}
	return nil
}

// room refuses a memory limit that only a kill would make room for.
func (d apiUpdater) room(c runtime.Container, stands, set runtime.Values) error {
	limit, limited := set[runtime.KnobMemoryLimit].Int()
	if !limited || d.stopped {
		return nil
	}
	return engine.CheckRoom(c, limit, stands[runtime.KnobMemoryLimit])
}

// apiResources expresses the changes; stored is Docker's own record, which it
// checks them against.
func apiResources(c runtime.Container, stored container.Resources, stands, set runtime.Values) (*container.Resources, error) {
	r := &container.Resources{}
	steps := map[runtime.Knob]func() error{
		runtime.KnobCPUWeight: func() error { return apiWeight(c, r, set[runtime.KnobCPUWeight]) },
		runtime.KnobCPUQuota:  func() error { return apiQuota(c, r, stored, set[runtime.KnobCPUQuota]) },
		runtime.KnobCpuset:    func() error { r.CpusetCpus = string(set[runtime.KnobCpuset]); return nil },
		runtime.KnobMemoryLimit: func() error {
			return apiMemory(c, r, runtime.KnobMemoryLimit, stands, set)
		},
		runtime.KnobMemorySwap: func() error { return apiMemory(c, r, runtime.KnobMemorySwap, stands, set) },
	}
	for _, knob := range set.Sorted() {
		step, ok := steps[knob]
		if !ok {
			return nil, engine.Refused(c, knob, "Docker's API cannot set it: %s", withContainerd)
		}
		if err := step(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func apiWeight(c runtime.Container, r *container.Resources, value runtime.Value) error {
	if c.Cgroup.Mode == runtime.CgroupV2 {
		return engine.Refused(c, runtime.KnobCPUWeight, "Docker's API sets shares, which runtimes convert in different ways: %s", withContainerd)
	}
	shares, _ := value.Int()
	if shares < 2 {
		return engine.Refused(c, runtime.KnobCPUWeight, "%s is below 2", value)
	}
	r.CPUShares = shares
	return nil
}

// apiQuota stays in the family that the container was made with: Docker refuses
// one where the other is stored. A container with neither gets quota and period,
// the family that can be lifted again.
func apiQuota(c runtime.Container, r *container.Resources, stored container.Resources, value runtime.Value) error {
	quotaUs, periodUs, err := runtime.ParseQuota(value)
	if err != nil {
		return engine.Refused(c, runtime.KnobCPUQuota, "%v", err)
	}
	if stored.NanoCPUs == 0 {
		r.CPUQuota = quotaUs
		if stored.CPUPeriod != 0 || periodUs != runtime.DefaultPeriodUs { // a period that nobody set stays unset
			r.CPUPeriod = periodUs
		}
		return nil
	}
	if quotaUs < 0 {
		return engine.Refused(c, runtime.KnobCPUQuota, "Docker's API cannot lift the limit of a container made with --cpus: %s", withContainerd)
	}
	// Docker makes it a quota in a period of 100 ms, rounding down: round up.
	r.NanoCPUs = (quotaUs*runtime.DefaultPeriodUs + periodUs - 1) / periodUs * nanoPerUs
	return nil
}

// apiMemory sends limit and swap together, as Docker checks one against the
// other's stored value otherwise.
func apiMemory(c runtime.Container, r *container.Resources, knob runtime.Knob, stands, set runtime.Values) error {
	all := engine.Merge(stands, set)
	if err := engine.CheckTogether(c, all, set); err != nil {
		return err
	}
	limit, limited := all[runtime.KnobMemoryLimit].Int()
	if !limited {
		return engine.Refused(c, knob, "Docker's API cannot set memory to unlimited, nor swap without a memory limit: %s", withContainerd)
	}
	if limit < minMemoryBytes {
		return engine.Refused(c, knob, "Docker's least memory limit is 6 MiB: %s", withContainerd)
	}
	if _, isLimited := stands[runtime.KnobMemorySwap].Int(); isLimited && all[runtime.KnobMemorySwap] == runtime.ValueMax {
		return engine.Refused(c, knob, "Docker stores an unlimited swap and does not pass it on: %s", withContainerd)
	}
	r.Memory, r.MemorySwap = limit, -1
	if swap, ok := all[runtime.KnobMemorySwap].Int(); ok {
		r.MemorySwap = swap
		if c.Cgroup.Mode == runtime.CgroupV2 { // swap alone there, both together here
			r.MemorySwap += limit
		}
	}
	return nil
}

// classifyDocker adds the class that a caller acts on. Docker passes runc's
// complaints on as internal errors.
func classifyDocker(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errdefs.IsNotFound(err):
		return fmt.Errorf("%w: %w", err, runtime.ErrGone)
	case client.IsErrConnectionFailed(err), errdefs.IsUnavailable(err), errors.Is(err, context.DeadlineExceeded),
		errdefs.IsPermissionDenied(err), errdefs.IsUnauthorized(err):
		return fmt.Errorf("%w: %w", err, runtime.ErrUnavailable)
	case errdefs.IsInvalidArgument(err), errdefs.IsConflict(err), errdefs.IsInternal(err), errdefs.IsFailedPrecondition(err),
		errdefs.IsNotImplemented(err):
		return fmt.Errorf("%w: %w", err, runtime.ErrRefused)
	}
	return fmt.Errorf("%w: %w", err, runtime.ErrUnavailable)
}
