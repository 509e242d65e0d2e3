package runtimetest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// testMemoryInUse: a limit below what cannot be reclaimed is refused, and nobody is
// killed; above it, it is taken. v1's kernel refuses by itself, v2's would kill: there it
// is the door that looks last.
func testMemoryInUse(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{MemoryBytes: 128 * mib, SwapBytes: 128 * mib, HoldBytes: 40 * mib})
	s.uses(t, c, 40*mib)
	s.refused(t, c, memory(16*mib, 16*mib))
	s.refused(t, c, runtime.Values{runtime.KnobCPUWeight: "700", runtime.KnobMemoryLimit: runtime.IntValue(16 * mib), runtime.KnobMemorySwap: runtime.IntValue(16 * mib)})
	s.apply(t, c, memory(96*mib, 96*mib), nil)
	s.apply(t, c, memory(128*mib, 128*mib), nil)
	s.nobodyKilled(t, c)
}

// testPageCache: a limit below what is used is taken where page cache is all that has to go.
func testPageCache(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{MemoryBytes: 128 * mib, SwapBytes: 128 * mib, CacheBytes: 64 * mib})
	s.uses(t, c, 60*mib)
	s.apply(t, c, memory(32*mib, 32*mib), nil)
	if n := s.usage(t, c); n > 32*mib {
		t.Errorf("%d bytes are used under a limit of 32 MiB", n)
	}
	s.nobodyKilled(t, c)
	s.apply(t, c, memory(128*mib, 128*mib), nil)
}

// uses waits until so much memory is charged.
func (s suite) uses(t *testing.T, c runtime.Container, bytes int64) {
	t.Helper()
	for end := time.Now().Add(callLimit); !s.InMemory && s.usage(t, c) < bytes; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the container uses %d bytes, want %d", s.usage(t, c), bytes)
		}
	}
}

// usage is what is charged, page cache included; 0 of a container that is none.
func (s suite) usage(t *testing.T, c runtime.Container) int64 {
	t.Helper()
	if s.InMemory {
		return 0
	}
	path := filepath.Join(c.Cgroup.Unified, "memory.current")
	if dir := c.Cgroup.V1["memory"]; dir != "" {
		path = filepath.Join(dir, "memory.usage_in_bytes")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := runtime.Value(strings.TrimSpace(string(text))).Int()
	return n
}

// nobodyKilled asks the kernel.
func (s suite) nobodyKilled(t *testing.T, c runtime.Container) {
	t.Helper()
	if s.InMemory {
		return
	}
	path := filepath.Join(c.Cgroup.Unified, "memory.events")
	if dir := c.Cgroup.V1["memory"]; dir != "" {
		path = filepath.Join(dir, "memory.oom_control")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Split(string(text), "\n"), "oom_kill 0") {
		t.Errorf("somebody was killed: %s", text)
	}
}

// testDeviceRules: no write changes which devices may be opened (runc's updates
// once did: cgroups' devices/systemd_test.go).
func testDeviceRules(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{CPUs: 0.5, NVIDIA: true})
	dir, isV1 := c.Cgroup.V1["devices"]
	if !isV1 {
		t.Skip("needs v1's devices controller")
	}
	rules := func() string {
		text, err := os.ReadFile(dir + "/devices.list")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := rules()
	if !strings.Contains(before, "c 195:* rwm") || len(c.GPUs) == 0 || c.GPUVia != "devices" {
		t.Errorf("a container with NVIDIA's rule has rules %q and holds %v via %q", before, c.GPUs, c.GPUVia)
	}
	s.apply(t, c, runtime.Values{runtime.KnobCPUWeight: "600", runtime.KnobCPUQuota: "50000 100000"}, nil)
	s.Foreign(t, c, one(runtime.KnobCPUWeight, "500"))
	s.apply(t, c, one(runtime.KnobCpuset, "0"), nil)
	if after := rules(); after != before {
		t.Errorf("rules were %q, are %q", before, after)
	}
}

// testSystemdWritesAnew: where systemd keeps the control group, what was set stands
// through its reloads and through somebody's write of another property.
func testSystemdWritesAnew(t *testing.T, s suite) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("needs systemd: /run/systemd/system is not there")
	}
	for _, set := range []runtime.Values{
		one(runtime.KnobCPUWeight, "700"), one(runtime.KnobCPUQuota, "70000 100000"), one(runtime.KnobCPUBurst, "20000"), one(runtime.KnobCpuset, "0"),
		memory(80*mib, 160*mib), one(runtime.KnobMemoryHigh, runtime.IntValue(48*mib)), one(runtime.KnobMemoryLow, runtime.IntValue(16*mib)), one(runtime.KnobIOWeight, "300"),
	} {
		t.Run(string(set.Sorted()[0]), func(t *testing.T) {
			s.tally.count(t)
			spec := Spec{CPUs: 0.5, MemoryBytes: 64 * mib}
			c := s.start(t, spec)
			unit := filepath.Base(c.Cgroup.Dir("cpu"))
			if !strings.HasSuffix(unit, ".scope") {
				t.Skip("needs systemd's cgroup driver")
			}
			if set = without(set, s.read(t, c)); len(set) == 0 {
				t.Skip("needs a host with that knob")
			}
			if s.Refuses != nil && s.Refuses(spec, set) {
				t.Skip("needs a door that can set it")
			}
			s.apply(t, c, set, nil)
			stand := s.read(t, c)
			for _, command := range [][]string{{"daemon-reload"}, {"set-property", "--runtime", unit, "TasksMax=4000"}, {"daemon-reload"}} {
				if out, err := exec.Command("systemctl", command...).CombinedOutput(); err != nil {
					t.Fatalf("systemctl %v: %v\n%s", command, err, out)
				}
				s.stands(t, c, stand)
			}
		})
	}
}

// testPaused: a frozen container takes values and stays frozen (cgroups'
// systemd/freeze_test.go, runc's update.bats).
func testPaused(t *testing.T, s suite) {
	s.tally.count(t)
	c := s.start(t, Spec{CPUs: 0.5})
	set := runtime.Values{runtime.KnobCPUQuota: "70000 100000", runtime.KnobCPUWeight: "400"}
	if s.Refuses != nil && s.Refuses(Spec{CPUs: 0.5}, set) {
		delete(set, runtime.KnobCPUWeight)
	}
	s.Pause(t, c)
	s.apply(t, c, set, nil)
	if got := s.listed(t, c).State; got != runtime.StatePaused {
		t.Errorf("a write to a paused container left it %q", got)
	}
	s.Unpause(t, c)
	s.stands(t, c, set)
}

// listed is the container as the engine lists it now.
func (s suite) listed(t *testing.T, c runtime.Container) (found runtime.Container) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	err := s.Lister.Run(ctx, func(e runtime.Event) {
		if e.Kind == runtime.EventSeen && e.Container.ID == c.ID {
			found = e.Container
		}
		if e.Kind == runtime.EventSynced {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || found.ID != c.ID {
		t.Fatalf("the container is not listed: %v", err)
	}
	return found
}
