package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// TestConforms and TestConformsUnderSystemd are run with this host's containerd and,
// where `make test-runtimes` built them, with current ones.
func TestConforms(t *testing.T) { conforms(t, false) }

func TestConformsUnderSystemd(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("needs systemd: /run/systemd/system is not there")
	}
	conforms(t, true)
}

func conforms(t *testing.T, systemd bool) {
	for _, v := range runtimetest.Runtimes() {
		t.Run(v.Name, func(t *testing.T) {
			d := runtimetest.NeedContainerd(t, v.Bin)
			d.Start(t)
			runtimetest.Conformance(t, func(t *testing.T) runtimetest.Subject { return subject(t, d, systemd, v.ContainerdVersions()) })
		})
	}
}

const namespace = "conform"

func subject(t *testing.T, d *runtimetest.Containerd, systemd bool, versions string) runtimetest.Subject {
	e := newEngine(t, containerd.Options{Address: d.Address})
	r := watch(t, e)
	return runtimetest.Subject{
		Engine: e, Lister: newEngine(t, containerd.Options{Address: d.Address}), WritePath: "containerd", Versions: versions,
		Start: func(t *testing.T, spec runtimetest.Spec) runtime.Container {
			c, _ := r.expect(t, 0, runtime.EventSeen, d.RunContainer(t, runtimetest.ContainerdSpec{
				Namespace: namespace, Command: spec.Command(), Resources: ownerResources(spec), Systemd: systemd, Parent: spec.Parent}))
			if got := e.WritePath(t.Context(), c); got != "containerd/"+namespace {
				t.Fatalf("the write path is %q", got)
			}
			return c
		},
		Foreign: func(t *testing.T, c runtime.Container, set runtime.Values) {
			d.Update(t, namespace, c.ID.Container, foreignResources(c, set))
		},
		Preflight: func(t *testing.T, c runtime.Container) (bool, string) {
			r := device.Preflight(t.Context(), c, device.Options{})
			return r.Green, r.String()
		},
		ForeignPIDs: func(t *testing.T, c runtime.Container, n int64) {
			d.Update(t, namespace, c.ID.Container, specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &n}})
		},
		Pause:   func(t *testing.T, c runtime.Container) { d.Pause(t, namespace, c.ID.Container) },
		Unpause: func(t *testing.T, c runtime.Container) { d.Resume(t, namespace, c.ID.Container) },
		Stop:    func(t *testing.T, c runtime.Container) { d.End(t, namespace, c.ID.Container) },
		Remove:  func(t *testing.T, c runtime.Container) { d.Remove(t, namespace, c.ID.Container) },
		Restart: func(t *testing.T, c runtime.Container) runtime.Container {
			from := len(r.snapshot())
			d.End(t, namespace, c.ID.Container)
			d.StartTask(t, namespace, c.ID.Container)
			again, _ := r.expect(t, from, runtime.EventSeen, c.ID.Container)
			return again
		},
	}
}

func ownerResources(spec runtimetest.Spec) (r specs.LinuxResources) {
	r.CPU, r.Memory = &specs.LinuxCPU{}, &specs.LinuxMemory{}
	if spec.CPUs > 0 {
		r.CPU.Quota, r.CPU.Period = new(int64(spec.CPUs*100_000)), new(uint64(100_000))
	}
	if spec.QuotaUs > 0 {
		r.CPU.Quota, r.CPU.Period = &spec.QuotaUs, new(uint64(spec.PeriodUs))
	}
	if spec.MemoryBytes > 0 {
		r.Memory.Limit = &spec.MemoryBytes
	}
	if spec.SwapBytes > 0 {
		r.Memory.Swap = &spec.SwapBytes
	}
	if spec.PIDs > 0 {
		r.Pids = &specs.LinuxPids{Limit: &spec.PIDs}
	}
	if spec.NVIDIA {
		r.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: new(int64(195)), Access: "rwm"}}
	}
	return r
}

// foreignResources says only what is set, as people's tools do.
func foreignResources(c runtime.Container, set runtime.Values) specs.LinuxResources {
	r := *containerd.LinuxResources(c.Cgroup, set, set)
	if r.Memory != nil {
		r.Memory.CheckBeforeUpdate = nil
	}
	return r
}

// patience is how long a test waits for what must come; only a failure takes it all.
const patience = 30 * time.Second

// recorder runs an engine and keeps what it says.
type recorder struct {
	mu     sync.Mutex
	events []runtime.Event
}

func newEngine(t *testing.T, opts containerd.Options) *containerd.Engine {
	t.Helper()
	e, err := containerd.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// watch runs e until the test ends.
func watch(t *testing.T, e *containerd.Engine) *recorder {
	t.Helper()
	r := &recorder{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, r.add) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
	return r
}

func (r *recorder) add(event runtime.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *recorder) snapshot() []runtime.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]runtime.Event(nil), r.events...)
}

// find waits for the first event from index from on that matches, and returns it
// with the index after it.
func (r *recorder) find(t *testing.T, from int, what string, match func(runtime.Event) bool) (runtime.Event, int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		events := r.snapshot()
		for i := from; i < len(events); i++ {
			if match(events[i]) {
				return events[i], i + 1
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no event: %s; had %s", what, brief(events))
		}
	}
}

// expect waits for an event of one kind about one container.
func (r *recorder) expect(t *testing.T, from int, kind runtime.EventKind, id string) (runtime.Container, int) {
	t.Helper()
	event, next := r.find(t, from, fmt.Sprintf("%s of %s", kind, id), func(e runtime.Event) bool {
		return e.Kind == kind && e.Container.ID.Container == id
	})
	return event.Container, next
}

func (r *recorder) expectKind(t *testing.T, from int, kind runtime.EventKind) (runtime.Event, int) {
	t.Helper()
	return r.find(t, from, string(kind), func(e runtime.Event) bool { return e.Kind == kind })
}

func brief(events []runtime.Event) (out []string) {
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s %s %s %s", e.Kind, e.Container.Name, e.Container.State, e.Reason))
	}
	return out
}
