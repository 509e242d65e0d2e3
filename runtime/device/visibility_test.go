package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/runtimetest"
)

func TestGPURules(t *testing.T) {
	for name, tc := range map[string]struct{ list, want []string }{
		"ordinary":   {[]string{"c *:* m", "b *:* m", "c 1:3 rwm", "c 136:* rwm"}, nil},
		"wildcard":   {[]string{"c *:* m", "c 195:* rwm"}, []string{"c 195:* rwm"}},
		"nodes":      {[]string{"c 195:255 rw", "c 195:0 rw", "c 511:0 rwm"}, []string{"c 195:0 rw", "c 195:255 rw", "c 511:0 rwm"}},
		"privileged": {[]string{"a *:* rwm"}, []string{"c 195:* rwm", "c 511:* rwm"}},
		"all chars":  {[]string{"c *:* rw"}, []string{"c 195:* rw", "c 511:* rw"}},
		"other":      {[]string{"c 510:0 rwm", "b 195:0 rwm", "c 195:0 m"}, nil},
	} {
		got := gpuRules(rulesFrom(t, tc.list...), []int{195, 511})
		if diff := cmp.Diff(rulesFrom(t, tc.want...), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMissing(t *testing.T) {
	for name, tc := range map[string]struct{ had, list, want []string }{
		"all there":      {[]string{"c 195:0 rw"}, []string{"c 195:0 rw"}, nil},
		"a wider rule":   {[]string{"c 195:0 rw"}, []string{"c 195:* rwm"}, nil},
		"two rules":      {[]string{"c 195:0 rwm"}, []string{"c 195:0 rw", "c *:* m"}, nil},
		"gone":           {[]string{"c 195:0 rw", "c 195:255 rw"}, []string{"c 195:0 rw"}, []string{"c 195:255 rw"}},
		"half gone":      {[]string{"c 195:* rwm"}, []string{"c 195:* m"}, []string{"c 195:* rwm"}},
		"node for group": {[]string{"c 195:* rw"}, []string{"c 195:0 rw", "c 195:255 rw"}, []string{"c 195:* rw"}},
		"block for char": {[]string{"c 195:0 rw"}, []string{"b 195:0 rw"}, []string{"c 195:0 rw"}},
	} {
		if diff := cmp.Diff(rulesFrom(t, tc.want...), missing(rulesFrom(t, tc.had...), rulesFrom(t, tc.list...))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestMissingNeverInvents: what goes back is a part of what was had.
func TestMissingNeverInvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		had := rapid.SliceOfN(rapid.Custom(drawRule), 0, 6).Draw(t, "had")
		list := rapid.SliceOfN(rapid.Custom(drawRule), 0, 6).Draw(t, "list")
		back := missing(had, list)
		for _, r := range back {
			if len(missing([]runtime.DeviceRule{r}, had)) > 0 {
				t.Errorf("%s goes back, which it never had", r)
			}
		}
		if left := missing(had, append(list, back...)); len(left) > 0 {
			t.Errorf("still missing: %v", left)
		}
	})
}

// host is a Visibility on a host where NVIDIA's uvm has a number too.
func hostWithUVM(t *testing.T, units Units) *Visibility {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "devices"), "Character devices:\n  1 mem\n195 nvidia-frontend\n509 nvidia-uvm\n\nBlock devices:\n")
	return NewVisibility(Options{ProcRoot: root, Units: units})
}

// dockerContainer is a real one that holds a GPU, as far as rules go.
func dockerContainer(t *testing.T, args ...string) runtime.Container {
	t.Helper()
	host := runtimetest.NeedDocker(t)
	id := host.Start(t, args...)
	pid, err := strconv.Atoi(host.Run(t, "inspect", "--format", "{{.State.Pid}}", id))
	if err != nil {
		t.Fatal(err)
	}
	cg, err := cgroup.Locate("/proc", cgroup.DefaultRoot, pid)
	if err != nil {
		t.Fatal(err)
	}
	if cg.V1["devices"] == "" || cg.Unified == "" {
		t.Skip("needs v1's devices controller beside a cgroup2 tree")
	}
	return runtime.Container{ID: runtime.ID{Engine: "docker", Container: id}, Name: id[:12], InitPID: pid, Cgroup: cg, GPUs: []string{"0"}, GPUVia: "devices"}
}

// deny takes a rule away, as systemd does and as anybody may.
func deny(t *testing.T, c runtime.Container, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.Cgroup.V1["devices"], "devices.deny"), []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// look is Look without an error.
func look(t *testing.T, v *Visibility, c runtime.Container, had []runtime.DeviceRule) (stands, lost []runtime.DeviceRule) {
	t.Helper()
	stands, lost, err := v.Look(t.Context(), c, had)
	if err != nil {
		t.Fatal(err)
	}
	return stands, lost
}

// wantRepaired repairs, and checks that all that was had stands again.
func wantRepaired(t *testing.T, v *Visibility, c runtime.Container, had []runtime.DeviceRule, how string) {
	t.Helper()
	got, err := v.Repair(t.Context(), c, had)
	if err != nil || got != how {
		t.Fatalf("repaired by %q, %v; want %q", got, err, how)
	}
	stands, lost := look(t, v, c, had)
	if diff := cmp.Diff(had, stands); diff != "" || len(lost) > 0 {
		t.Errorf("lost %v; rules (-had +have):\n%s", lost, diff)
	}
	if access, err := CheckAccess(t.Context(), c); access != AccessAllowed {
		t.Errorf("an open says %s, %v", access, err)
	}
}

func TestRepairV1(t *testing.T) {
	v := hostWithUVM(t, fakeUnits{})
	c := dockerContainer(t, "--device-cgroup-rule", "c 195:0 rw", "--device-cgroup-rule", "c 195:255 rw", "--device-cgroup-rule", "c 509:* rwm", "--device-cgroup-rule", "c 10:229 rw")
	list := filepath.Join(c.Cgroup.V1["devices"], "devices.list")
	original, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	had, lost := look(t, v, c, nil)
	if diff := cmp.Diff(rulesFrom(t, "c 195:0 rw", "c 195:255 rw", "c 509:* rwm"), had); diff != "" || lost != nil {
		t.Fatalf("at first sight (-want +got):\n%s", diff)
	}
	for _, gone := range []string{"c 195:255 rw", "c 195:0 rwm", "c 509:* rwm", "c 195:255 w"} {
		deny(t, c, gone)
		if _, lost := look(t, v, c, had); len(lost) != 1 {
			t.Errorf("after %q: lost %v", gone, lost)
		}
		wantRepaired(t, v, c, had, "devices.allow")
	}
	deny(t, c, "c 195:0 rw")
	deny(t, c, "c 509:* rwm")
	deny(t, c, "c 10:229 rw") // not NVIDIA's: not ours to put back
	wantRepaired(t, v, c, had, "devices.allow")
	now, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	want := sortedLines(strings.Replace(string(original), "c 10:229 rw\n", "", 1))
	if diff := cmp.Diff(want, sortedLines(string(now))); diff != "" {
		t.Errorf("devices.list (-before +after):\n%s", diff)
	}
	if how, err := v.Repair(t.Context(), c, had); how != "" || err != nil {
		t.Errorf("nothing to repair: %q, %v", how, err)
	}
}

func sortedLines(s string) []runtime.DeviceRule {
	var out []runtime.DeviceRule
	for line := range strings.Lines(s) {
		if r, err := runtime.ParseDeviceRule(line); err == nil {
			out = append(out, r)
		}
	}
	return sorted(out)
}

// TestRepairPrivileged: the list of a privileged container says "everything" whatever
// was taken from it, so only an open tells. A bare group stands for one.
func TestRepairPrivileged(t *testing.T) {
	dir, err := os.MkdirTemp("/sys/fs/cgroup/devices", "trimtab-test-")
	if err != nil {
		t.Skipf("needs root: and v1's devices controller: %v", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	v := hostWithUVM(t, fakeUnits{})
	c := runtime.Container{Name: "c", GPUs: []string{"0"}, Cgroup: runtime.Cgroup{V1: map[string]string{"devices": dir}}}
	had, _ := look(t, v, c, nil)
	if diff := cmp.Diff(rulesFrom(t, "c 195:* rwm", "c 509:* rwm"), had); diff != "" {
		t.Fatalf("at first sight (-want +got):\n%s", diff)
	}
	look(t, v, c, had)
	for _, gone := range []string{"c 195:* rwm", "c 195:255 rwm", "c 195:0 rw"} {
		deny(t, c, gone)
		v.Forget(c.Key()) // the next open is due
		if _, lost := look(t, v, c, had); len(lost) == 0 {
			t.Errorf("after %q: nothing lost", gone)
		}
		wantRepaired(t, v, c, had, "devices.allow")
	}
	deny(t, c, "a")
	wantRepaired(t, v, c, had, "devices.allow")
	list, err := readRules(dir)
	if err != nil || allowsAll(list) {
		t.Errorf("more than NVIDIA's devices went back: %v, %v", list, err)
	}
}

func TestRepairV2(t *testing.T) {
	v := hostWithUVM(t, fakeUnits{})
	c := dockerContainer(t)
	c.Cgroup = runtime.Cgroup{Mode: runtime.CgroupV2, Unified: c.Cgroup.Unified} // as a v2 host shows it
	attach(t, c.Cgroup.Unified, runcLike(rulesFrom(t, "c *:* m", "c 1:3 rwm", "c 195:0 rw", "c 195:255 rw", "c 509:* rw")...))
	had, lost := look(t, v, c, nil)
	if diff := cmp.Diff(rulesFrom(t, "c 195:0 rw", "c 195:255 rw", "c 509:* rw"), had); diff != "" || lost != nil {
		t.Fatalf("at first sight (-want +got):\n%s", diff)
	}
	if r := Preflight(t.Context(), c, v.o); !r.Green || r.Driver != DriverCgroupfs {
		t.Errorf("preflight: %+v", r)
	}
	for range 3 { // somebody makes the runtime write its own rules anew, again and again
		replaceOwn(t, v, c.Cgroup.Unified, runcLike(rulesFrom(t, "c *:* m", "c 1:3 rwm")...))
		if _, lost := look(t, v, c, had); len(lost) != 3 {
			t.Errorf("lost %v", lost)
		}
		if r := Preflight(t.Context(), c, v.o); r.Green || !r.Lost {
			t.Errorf("preflight of a lost one: %+v", r)
		}
		wantRepaired(t, v, c, had, "its device program")
	}
	want := []bool{true, true, true, true, false, false}
	for i, got := range openedIn(t, c.Cgroup.Unified, [2]int{195, 0}, [2]int{195, 255}, [2]int{509, 7}, [2]int{1, 3}, [2]int{195, 1}, [2]int{10, 229}) {
		if got != want[i] {
			t.Errorf("node %d: opened %v, want %v", i, got, want[i])
		}
	}
}

// replaceOwn does what a runtime does that writes its rules anew.
func replaceOwn(t *testing.T, v *Visibility, dir string, code []asmInstruction) {
	t.Helper()
	programs, err := v.programs.of(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if p.here {
			if err := replace(dir, p, code); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no program of its own")
}

// TestRepairV2BothPrograms: with systemd's driver there are two; its own is systemd's to write.
func TestRepairV2BothPrograms(t *testing.T) {
	dir := unifiedGroup(t)
	scope := filepath.Join(dir, "docker-0123.scope")
	if err := os.Mkdir(scope, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(scope) })
	c := runtime.Container{Name: "c", GPUs: []string{"all"}, Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: scope}}
	attach(t, scope, runcLike(rulesFrom(t, "c *:* m", "c 195:* rwm")...))
	attachNamed(t, scope, systemdProgram, runcLike(rulesFrom(t, "c *:* rwm")...))
	units := &recordingUnits{}
	v := hostWithUVM(t, units)
	had, _ := look(t, v, c, nil)
	if diff := cmp.Diff(rulesFrom(t, "c 195:* rw"), had); diff != "" {
		t.Fatalf("at first sight (-want +got):\n%s", diff)
	}
	// A daemon-reload: systemd's program knows no GPU any more, runc's stands.
	systemdReplaces(t, scope, runcLike(rulesFrom(t, "c *:* m")...))
	if _, err := v.Repair(t.Context(), c, had); err == nil || !strings.Contains(err.Error(), "systemd") {
		t.Errorf("systemd did nothing, and yet: %v", err)
	}
	units.then = func() { systemdReplaces(t, scope, runcLike(rulesFrom(t, "c *:* m", "c 195:* rw")...)) }
	wantRepaired(t, v, c, had, "systemd's DeviceAllow")
	if diff := cmp.Diff([]Allow{{"char-195", "rw"}}, units.last); diff != "" {
		t.Errorf("asked of systemd (-want +got):\n%s", diff)
	}
	// Both lost at once.
	systemdReplaces(t, scope, runcLike(rulesFrom(t, "c *:* m")...))
	replaceNamed(t, scope, "", runcLike(rulesFrom(t, "c *:* m")...))
	wantRepaired(t, v, c, had, "systemd's DeviceAllow, its device program")
}

// TestRepairAbove: what a group above refuses is not the container's to repair.
func TestRepairAbove(t *testing.T) {
	dir := unifiedGroup(t)
	below := filepath.Join(dir, "0123")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(below) })
	v := hostWithUVM(t, fakeUnits{})
	c := runtime.Container{Name: "c", GPUs: []string{"all"}, Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: below}}
	had := rulesFrom(t, "c 195:* rw")
	attach(t, dir, runcLike(rulesFrom(t, "c *:* m")...))
	if _, err := v.Repair(t.Context(), c, had); err == nil || !strings.Contains(err.Error(), "above") {
		t.Errorf("%v", err)
	}
}

func TestLookWithoutARecord(t *testing.T) {
	v := hostWithUVM(t, fakeUnits{})
	c := dockerContainer(t) // Docker never gave it a device
	stands, lost := look(t, v, c, nil)
	if len(stands)+len(lost) > 0 {
		t.Errorf("stands %v, lost %v", stands, lost)
	}
	if how, err := v.Repair(t.Context(), c, nil); how != "" || err != nil {
		t.Errorf("repaired by %q, %v", how, err)
	}
	if access, _ := CheckAccess(t.Context(), c); access != AccessRefused {
		t.Errorf("access is %s", access)
	}
}

// TestStaleMajor: a number that is another driver's by now is not given back.
func TestStaleMajor(t *testing.T) {
	v := hostWithUVM(t, fakeUnits{})
	c := dockerContainer(t, "--device-cgroup-rule", "c 195:* rwm")
	had := rulesFrom(t, "c 10:* rwm", "c 195:* rwm") // 10 was nvidia-uvm's before its module was loaded anew
	if _, lost := look(t, v, c, had); lost != nil {
		t.Errorf("lost %v", lost)
	}
	deny(t, c, "c 195:* rwm")
	if _, err := v.Repair(t.Context(), c, had); err != nil {
		t.Fatal(err)
	}
	list, err := readRules(c.Cgroup.V1["devices"])
	if err != nil || len(missing(had[:1], list)) == 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// A change that is under way says nothing of what a container can reach.
func TestLookWhileItIsChanged(t *testing.T) {
	v := hostWithUVM(t, fakeUnits{})
	c := runtime.Container{ID: runtime.ID{Engine: "docker", Container: "c"}, Name: "job"}
	turn, err := v.ledger.turns.Take(t.Context(), c.Key())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Look(t.Context(), c, nil); !errors.Is(err, runtime.ErrBusy) {
		t.Errorf("while it is changed: %v", err)
	}
	turn.Give()
	if _, _, err := v.Look(t.Context(), c, nil); errors.Is(err, runtime.ErrBusy) {
		t.Errorf("after it: %v", err)
	}
}

func TestRepairOfGone(t *testing.T) {
	v := hostWithUVM(t, fakeUnits{})
	c := dockerContainer(t, "--device-cgroup-rule", "c 195:* rwm")
	had, _ := look(t, v, c, nil)
	host := runtimetest.NeedDocker(t)
	host.Run(t, "kill", c.ID.Container)
	host.Run(t, "wait", c.ID.Container)
	if _, _, err := v.Look(t.Context(), c, had); !errors.Is(err, runtime.ErrGone) {
		t.Errorf("look: %v", err)
	}
	if _, err := v.Repair(t.Context(), c, had); !errors.Is(err, runtime.ErrGone) {
		t.Errorf("repair: %v", err)
	}
	v2 := c
	v2.Cgroup = runtime.Cgroup{Mode: runtime.CgroupV2, Unified: c.Cgroup.Unified}
	if _, _, err := v.Look(t.Context(), v2, had); !errors.Is(err, runtime.ErrGone) {
		t.Errorf("look on v2: %v", err)
	}
}

// recordingUnits is a systemd that does as it is told, at once.
type recordingUnits struct {
	last []Allow
	then func()
}

func (u *recordingUnits) DeviceAllow(context.Context, string) ([]Allow, error) { return u.last, nil }

func (u *recordingUnits) AddDeviceAllow(_ context.Context, _ string, more []Allow) error {
	u.last = more
	if u.then != nil {
		u.then()
	}
	return nil
}

func (u *recordingUnits) SetDeviceAllow(_ context.Context, _ string, all []Allow) error {
	u.last = all
	if u.then != nil {
		u.then()
	}
	return nil
}

// TestByUnitOnV1: systemd writes v1's list from what it knows; the rules that others
// had added come back with the GPU's.
func TestByUnitOnV1(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "docker-0123.scope")
	list := filepath.Join(dir, "devices.list")
	write(t, list, "c 1:3 rwm\nc 231:* rw\n")
	write(t, filepath.Join(dir, "devices.allow"), "")
	units := &recordingUnits{then: func() { write(t, list, "c 1:3 rwm\nc 195:255 rw\n") }}
	v := hostWithUVM(t, units)
	c := runtime.Container{Name: "c", GPUs: []string{"all"}, Cgroup: runtime.Cgroup{V1: map[string]string{"devices": dir}}}
	done, err := v.byUnit(t.Context(), c, rulesFrom(t, "c 195:255 rw"))
	if !done || err != nil {
		t.Fatal(done, err)
	}
	back, err := os.ReadFile(filepath.Join(dir, "devices.allow"))
	if string(back) != "c 231:* rw" || err != nil {
		t.Errorf("put back %q, %v", back, err)
	}
	if diff := cmp.Diff([]Allow{{"/dev/char/195:255", "rw"}}, units.last); diff != "" {
		t.Error(diff)
	}
	units.then = nil
	if _, err := hostWithUVM(t, fakeUnits{err: errors.New("no bus")}).byUnit(t.Context(), c, rulesFrom(t, "c 195:255 rw")); err == nil {
		t.Error("systemd was away, and nobody said so")
	}
}

// TestByUnitThatAllowsAll: an entry for one device would take all others away.
func TestByUnitThatAllowsAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "docker-0123.scope")
	write(t, filepath.Join(dir, "devices.list"), "c 1:3 rwm\n")
	v1 := runtime.Cgroup{V1: map[string]string{"devices": dir}}
	all, named := []Allow{{"char-*", "rwm"}}, []Allow{{"char-nvidia*", "rwm"}}
	for name, tc := range map[string]struct {
		cgroup runtime.Cgroup
		allow  []Allow
		asks   bool
	}{
		"v1, all":         {v1, all, false},
		"v2, all":         {runtime.Cgroup{Unified: dir}, all, false},
		"v1, named":       {v1, named, false},
		"v2, named":       {runtime.Cgroup{Unified: dir}, named, true},
		"v1, only to see": {v1, []Allow{{"char-195", "r"}}, true},
		"v1, another":     {v1, []Allow{{"/dev/nvidia0", "rw"}}, true},
	} {
		asked := false
		units := &recordingUnits{last: tc.allow, then: func() { asked = true }}
		done, err := hostWithUVM(t, units).byUnit(t.Context(), runtime.Container{Name: "c", Cgroup: tc.cgroup}, rulesFrom(t, "c 195:255 rw"))
		if done != tc.asks || asked != tc.asks || err != nil {
			t.Errorf("%s: %v, asked %v, %v", name, done, asked, err)
		}
	}
}

// TestNothingIsWrittenToAnother: where a container ended its control group's path, or
// its process's number, may be another's.
func TestNothingIsWrittenToAnother(t *testing.T) {
	tick, err := cgroup.StartTick("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	boot, err := cgroup.BootID("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		id   runtime.ID
		gone bool
	}{
		"this one":        {runtime.ID{Boot: boot, StartTick: tick}, false},
		"another process": {runtime.ID{Boot: boot, StartTick: tick + 1}, true},
		"another boot":    {runtime.ID{Boot: "5f0c2d1e-0000-4000-8000-000000000001", StartTick: tick}, true},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "devices.list"), "c 1:3 rwm\n")
		write(t, filepath.Join(dir, "devices.allow"), "")
		c := runtime.Container{Name: "c", ID: tc.id, InitPID: os.Getpid(), GPUs: []string{"all"}, Cgroup: runtime.Cgroup{V1: map[string]string{"devices": dir}}}
		records := &memRecords{all: map[string]Hidden{c.Key(): {Container: c, Minors: []int{0}, Removed: rulesFrom(t, "c 195:0 rw")}}}
		v := hider(t, records, fakeUnits{})
		if _, err := v.Repair(t.Context(), c, rulesFrom(t, "c 195:255 rw")); errors.Is(err, runtime.ErrGone) != tc.gone {
			t.Errorf("%s: repair: %v", name, err)
		}
		err := v.rewrite(t.Context(), records.all[c.Key()], Hidden{}, false)
		if errors.Is(err, runtime.ErrGone) != tc.gone {
			t.Errorf("%s: rewrite: %v", name, err)
		}
		wrote, err := os.ReadFile(filepath.Join(dir, "devices.allow"))
		if err != nil || (len(wrote) == 0) != tc.gone {
			t.Errorf("%s: wrote %q, %v", name, wrote, err)
		}
	}
}
