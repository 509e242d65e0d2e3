package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// testMemoryInUse: a limit below what cannot be reclaimed is refused, and nobody is
// killed; above it, it is taken. v1's kernel refuses by itself, v2's would kill: there it
// is the write path that looks last.
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
// once did: cgroups' devices/systemd_test.go). Where systemd keeps the group and does not
// know of a rule, any property that is written takes it away: there the preflight is not
// green beforehand, and nothing but this suite would write.
func testDeviceRules(t *testing.T, s suite) {
	s.tally.count(t)
	spec := Spec{CPUs: 0.5, MemoryBytes: 64 * mib, NVIDIA: true}
	c := s.start(t, spec)
	if len(c.GPUs) == 0 || c.GPUVia != "devices" {
		t.Errorf("a container with NVIDIA's rule holds %v via %q", c.GPUs, c.GPUVia)
	}
	nodes := []string{fmt.Sprintf("/dev/trimtab-test-%08x", rand.Uint32()), "/dev/kmsg"} // its rule allows one of them
	if err := unix.Mknod(nodes[0], unix.S_IFCHR|0o600, int(unix.Mkdev(195, 0))); err != nil {
		t.Skipf("needs to make device nodes: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(nodes[0]) })
	rules, may := deviceRules(t, c), opens(c, nodes)
	if may[0] == refused || may[1] != refused {
		t.Fatalf("opening %q gives %q", nodes, may)
	}
	green, why := s.Preflight(t, c)
	unchanged := func(by string) {
		t.Helper()
		now := deviceRules(t, c)
		// A unit's first property has systemd write the rules that it was told, beside runc's.
		now = slices.DeleteFunc(now, func(rule string) bool { return strings.Contains(rule, " sd_devices ") && !slices.Contains(rules, rule) })
		got := opens(c, nodes)
		switch same := slices.Equal(now, rules) && slices.Equal(got, may); {
		case got[1] != refused:
			t.Errorf("%s: %s can be opened", by, nodes[1])
		case !same && green:
			t.Errorf("%s, the preflight was green: rules were %q, are %q; opening %q gave %q, gives %q", by, rules, now, nodes, may, got)
		case !same:
			t.Logf("%s took NVIDIA's devices, as the preflight says: %s", by, why)
		}
	}
	has := s.read(t, c)
	for _, set := range usualSets() {
		ours := without(set.first, has)
		if len(ours) > 0 && (s.Refuses == nil || !s.Refuses(spec, ours)) {
			s.apply(t, c, ours, nil)
			unchanged("our write of " + set.name)
		}
	}
	s.Foreign(t, c, one(runtime.KnobCPUWeight, "500"))
	unchanged("a foreign write")
}

const refused = "Operation not permitted"

// opens tries to open devices as a process of the container's control group would, and
// returns the reason that the shell gave for each.
func opens(c runtime.Container, paths []string) (reasons []string) {
	for _, path := range paths {
		try := exec.Command("sh", "-c", `echo $$ >"$0"/cgroup.procs && : <"$1"`, c.Cgroup.Dir("devices"), path)
		out, _ := try.CombinedOutput()
		said := strings.Split(strings.TrimSpace(string(out)), ": ")
		reasons = append(reasons, said[len(said)-1])
	}
	return reasons
}

// deviceRules are v1's list, or v2's programs: those of the group and of all above it, each
// by its number, its name and the tag that the kernel makes of its instructions.
func deviceRules(t *testing.T, c runtime.Container) (out []string) {
	t.Helper()
	if dir, isV1 := c.Cgroup.V1["devices"]; isV1 {
		text, err := os.ReadFile(filepath.Join(dir, "devices.list"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	group, err := os.Open(c.Cgroup.Unified)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	found, err := link.QueryPrograms(link.QueryOptions{Target: int(group.Fd()), Attach: ebpf.AttachCGroupDevice, QueryFlags: unix.BPF_F_QUERY_EFFECTIVE})
	if err != nil || len(found.Programs) == 0 {
		t.Fatalf("device programs of %s: %v, %v", c.Cgroup.Unified, found, err)
	}
	for _, p := range found.Programs {
		program, err := ebpf.NewProgramFromID(p.ID)
		if err != nil {
			t.Fatal(err)
		}
		info, err := program.Info()
		if err := errors.Join(err, program.Close()); err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%d %s %s", p.ID, info.Name, info.Tag))
	}
	return out
}

// testParentQuota: what a group above the container leaves it is read. A quota beyond is
// refused where the kernel refuses it (v1), and taken where it takes it, to no use (v2).
func testParentQuota(t *testing.T, s suite) {
	s.tally.count(t)
	spec := Spec{CPUs: 0.5, Parent: fmt.Sprintf("trimtababove%08x", rand.Uint32())}
	t.Cleanup(func() { // after the container's own
		_ = exec.Command("systemctl", "stop", spec.Parent+".slice").Run() // no slice where systemd does not keep groups
		for _, pattern := range []string{cgroup.DefaultRoot, cgroup.DefaultRoot + "/*"} {
			groups, _ := filepath.Glob(filepath.Join(pattern, spec.Parent))
			for _, group := range groups {
				_ = os.Remove(group) // a test's own containerd removes its groups as it ends
			}
		}
	})
	c := s.start(t, spec)
	if cpus, group, err := cgroup.QuotaAbove(c.Cgroup); err != nil || group != "" {
		t.Skipf("needs a host without a quota above the container: %s has %.2f (%v)", group, cpus, err)
	}
	own := c.Cgroup.Dir("cpu")
	above := filepath.Dir(own)
	file, quota := "cpu.max", "80000 100000"
	if _, isV1 := c.Cgroup.V1["cpu"]; isV1 {
		file, quota = "cpu.cfs_quota_us", "80000"
	}
	if strings.HasSuffix(above, ".slice") {
		if out, err := exec.Command("systemctl", "set-property", "--runtime", filepath.Base(above), "CPUQuota=80%").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	} else if err := os.WriteFile(filepath.Join(above, file), []byte(quota), 0); err != nil {
		t.Fatal(err)
	}
	if cpus, group, err := cgroup.QuotaAbove(c.Cgroup); err != nil || cpus != 0.8 || group != above {
		t.Errorf("above it %.2f CPUs by %s (%v), want 0.8 by %s", cpus, group, err, above)
	}
	s.stands(t, c, one(runtime.KnobCPUQuota, "50000 100000"))
	s.apply(t, c, one(runtime.KnobCPUQuota, "70000 100000"), nil)
	beyond := one(runtime.KnobCPUQuota, "120000 100000")
	if c.Cgroup.Mode == runtime.CgroupV2 {
		s.apply(t, c, beyond, nil)
	} else {
		s.refused(t, c, beyond)
	}
	s.apply(t, c, one(runtime.KnobCPUQuota, "50000 100000"), nil)
}

// testSystemdWritesAnew: where systemd keeps the control group, what was set stands
// through its reloads and through somebody's write of another property.
func testSystemdWritesAnew(t *testing.T, s suite) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("needs systemd: /run/systemd/system is not there")
	}
	for _, set := range []runtime.Values{
		one(runtime.KnobCPUWeight, "700"), one(runtime.KnobCPUQuota, "70000 100000"), one(runtime.KnobCpuset, "0"),
		memory(80*mib, 160*mib),
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
				t.Skip("needs a write path that can set it")
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
