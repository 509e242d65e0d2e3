package containerd

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/trimtab/trimtab/runtime"
)

// standsV2 is a container on v2 with something in each knob.
func standsV2() runtime.Values {
	return runtime.Values{
		runtime.KnobCPUWeight: "39", runtime.KnobCPUQuota: "150000 100000", runtime.KnobCpuset: "",
		runtime.KnobMemoryLimit: "1073741824", runtime.KnobMemorySwap: "0",
	}
}

func TestResourcesAreComplete(t *testing.T) {
	v2 := standsV2()
	v2[runtime.KnobCPUQuota] = "max 100000"
	v2[runtime.KnobMemoryLimit] = "536870912"
	v1 := runtime.Values{
		runtime.KnobCPUWeight: "1024", runtime.KnobCPUQuota: "max 50000", runtime.KnobCpuset: "0-3",
		runtime.KnobMemoryLimit: "max", runtime.KnobMemorySwap: "max",
	}
	cases := []struct {
		name string
		mode runtime.CgroupMode
		all  runtime.Values
		want specs.LinuxResources
	}{
		{"v2", runtime.CgroupV2, v2, specs.LinuxResources{
			CPU:     &specs.LinuxCPU{Quota: new(int64(-1)), Period: new(uint64(100000))},
			Memory:  &specs.LinuxMemory{Limit: new(int64(536870912)), Swap: new(int64(536870912)), CheckBeforeUpdate: new(true)},
			Unified: map[string]string{"cpu.weight": "39", "memory.swap.max": "0"},
		}},
		{"v2 with swap", runtime.CgroupV2, runtime.Values{runtime.KnobMemoryLimit: "1000", runtime.KnobMemorySwap: "500"}, specs.LinuxResources{
			CPU:     &specs.LinuxCPU{},
			Memory:  &specs.LinuxMemory{Limit: new(int64(1000)), Swap: new(int64(1500)), CheckBeforeUpdate: new(true)},
			Unified: map[string]string{"memory.swap.max": "500"},
		}},
		{"v2 with any swap", runtime.CgroupV2, runtime.Values{runtime.KnobMemoryLimit: "1000", runtime.KnobMemorySwap: "max"}, specs.LinuxResources{
			CPU:     &specs.LinuxCPU{},
			Memory:  &specs.LinuxMemory{Limit: new(int64(1000)), Swap: new(int64(-1)), CheckBeforeUpdate: new(true)},
			Unified: map[string]string{"memory.swap.max": "max"},
		}},
		{"v2 without a limit", runtime.CgroupV2, runtime.Values{runtime.KnobMemoryLimit: "max", runtime.KnobMemorySwap: "500"}, specs.LinuxResources{
			CPU:     &specs.LinuxCPU{},
			Memory:  &specs.LinuxMemory{Limit: new(int64(-1)), Swap: new(int64(-1))},
			Unified: map[string]string{"memory.swap.max": "500"},
		}},
		{"v1", runtime.CgroupV1, v1, specs.LinuxResources{
			CPU:    &specs.LinuxCPU{Shares: new(uint64(1024)), Quota: new(int64(-1)), Period: new(uint64(50000)), Cpus: "0-3"},
			Memory: &specs.LinuxMemory{Limit: new(int64(-1)), Swap: new(int64(-1))},
		}},
		{"v1 without memory", runtime.CgroupV1, runtime.Values{runtime.KnobCPUWeight: "2"}, specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(uint64(2))}}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			stands := tc.all.Clone()
			if tc.mode == runtime.CgroupV2 {
				stands = standsV2()
			}
			if diff := cmp.Diff(&tc.want, LinuxResources(runtime.Cgroup{Mode: tc.mode}, stands, tc.all)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClasses(t *testing.T) {
	for code, want := range map[codes.Code]error{
		codes.NotFound: runtime.ErrGone, codes.Unknown: runtime.ErrRefused, codes.InvalidArgument: runtime.ErrRefused,
		codes.FailedPrecondition: runtime.ErrRefused, codes.Unavailable: runtime.ErrUnavailable,
		codes.DeadlineExceeded: runtime.ErrUnavailable, codes.Canceled: context.Canceled,
	} {
		got := classify(status.Error(code, "why"))
		for _, class := range []error{runtime.ErrGone, runtime.ErrRefused, runtime.ErrUnavailable, context.Canceled} {
			if errors.Is(got, class) != (class == want) {
				t.Errorf("%s: %v: is %v: %v", code, got, class, errors.Is(got, class))
			}
		}
	}
}

// TestNoAnswer: absent, refusing and hanging containerds are all unavailable, and
// only the last takes the time limit.
func TestNoAnswer(t *testing.T) {
	dir := t.TempDir()
	hangs, err := net.Listen("unix", filepath.Join(dir, "hangs"))
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	refuses, err := net.Listen("unix", filepath.Join(dir, "refuses"))
	if err != nil {
		t.Fatal(err)
	}
	refuses.(*net.UnixListener).SetUnlinkOnClose(false)
	refuses.Close()
	for name, hung := range map[string]bool{"absent": false, "refuses": false, "hangs": true} {
		timeout := time.Minute
		if hung {
			timeout = 100 * time.Millisecond
		}
		tasks := Tasks{Address: filepath.Join(dir, name), Namespace: "moby", Timeout: timeout}
		_, err := tasks.InitPID(t.Context(), "0123")
		if !errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) != hung {
			t.Errorf("%s: %v", name, err)
		}
	}
}
