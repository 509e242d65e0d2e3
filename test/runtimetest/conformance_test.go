package runtimetest_test

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// TestFakeConforms: as a hybrid host, and as one of v2.
func TestFakeConforms(t *testing.T) {
	t.Run("hybrid", func(t *testing.T) { fakeConforms(t, runtime.Container{}) })
	t.Run("v2", func(t *testing.T) {
		fakeConforms(t, runtime.Container{Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: "/sys/fs/cgroup/fake"}})
	})
}

// fakeConforms runs the suite on containers of that kind.
func fakeConforms(t *testing.T, kind runtime.Container) {
	runtimetest.Conformance(t, func(*testing.T) runtimetest.Subject {
		fake := runtimetest.NewFake()
		setState := func(state runtime.State) func(*testing.T, runtime.Container) {
			return func(_ *testing.T, c runtime.Container) {
				fake.Change(c.ID.Container, func(c *runtime.Container) { c.State = state })
			}
		}
		return runtimetest.Subject{
			Engine: fake, Lister: fake, WritePath: "fake", InMemory: true,
			Start: func(_ *testing.T, spec runtimetest.Spec) runtime.Container {
				if spec.HoldBytes > 0 {
					fake.OnApply(holds(spec.HoldBytes))
				}
				return fake.Add(kind, valuesOf(spec))
			},
			Foreign: func(_ *testing.T, c runtime.Container, set runtime.Values) { fake.ForeignWrite(c.ID.Container, set) },
			Pause:   setState(runtime.StatePaused),
			Unpause: setState(runtime.StateRunning),
			Stop:    func(_ *testing.T, c runtime.Container) { fake.Remove(c.ID.Container) },
			Remove:  func(*testing.T, runtime.Container) {}, // it is gone as it ends
			Restart: func(_ *testing.T, c runtime.Container) runtime.Container { return fake.Restart(c.ID.Container) },
		}
	})
}

// holds refuses memory limits below what is in use, as v1's kernel does, and the write paths on v2.
func holds(bytes int64) func(runtime.Container, runtime.Values) error {
	return func(_ runtime.Container, set runtime.Values) error {
		if limit, ok := set[runtime.KnobMemoryLimit].Int(); ok && limit < bytes {
			return fmt.Errorf("device or resource busy: %w", runtime.ErrRefused)
		}
		return nil
	}
}

// valuesOf is what a host makes of the owner's wishes.
func valuesOf(spec runtimetest.Spec) runtime.Values {
	v := runtimetest.DefaultValues()
	if spec.CPUs > 0 {
		v[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(spec.CPUs, runtime.DefaultPeriodUs)
	}
	if spec.QuotaUs > 0 {
		v[runtime.KnobCPUQuota] = runtime.Quota(spec.QuotaUs, spec.PeriodUs)
	}
	if spec.MemoryBytes > 0 {
		v[runtime.KnobMemoryLimit] = runtime.IntValue(spec.MemoryBytes)
		v[runtime.KnobMemorySwap] = runtime.IntValue(2 * spec.MemoryBytes) // Docker's default
	}
	if spec.SwapBytes > 0 {
		v[runtime.KnobMemorySwap] = runtime.IntValue(spec.SwapBytes)
	}
	return v
}
