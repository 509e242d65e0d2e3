package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
)

// TestUndoFromAnyPoint dies between any two writes of hide, hide more and show on real
// v1 groups; another Visibility with the same records restores everything.
func TestUndoFromAnyPoint(t *testing.T) {
	host, c := gpuContainer(t)
	rules, nodes := listOf(t, c), nodesOf(t, host, c)
	points := 0
	for point := 1; ; point++ {
		records := &memRecords{}
		v := hider(t, records, fakeUnits{})
		passed := 0
		v.o.Fault = func(string) {
			if passed++; passed == point {
				panic(errDied)
			}
		}
		ended := func() (ended bool) {
			defer func() {
				if r := recover(); r != nil {
					if r != any(errDied) {
						panic(r)
					}
				}
			}()
			hide(t, v, c, 0)
			hide(t, v, c, 0, 1)
			hide(t, v, c, 1)
			return true
		}()
		if got := len(records.all); got != 1 {
			t.Fatalf("point %d: %d records", point, got)
		}
		next := hider(t, records, fakeUnits{}) // the daemon after it
		if next.Unsettled(c.Key()) == ended {
			t.Errorf("point %d: unsettled %v, at the end %v", point, !ended, ended)
		}
		restore(t, next, c)
		if diff := cmp.Diff(rules, listOf(t, c)); diff != "" {
			t.Fatalf("point %d: devices.list (-before +after):\n%s", point, diff)
		}
		if now := nodesOf(t, host, c); now != nodes {
			t.Fatalf("point %d: nodes:\n%s\nwere:\n%s", point, now, nodes)
		}
		if ended {
			break
		}
		points = point
	}
	if points < 20 {
		t.Errorf("only %d points", points)
	}
	t.Logf("%d points", points)
}

// TestUndoFromAnyPointV2 is the same with programs.
func TestUndoFromAnyPointV2(t *testing.T) {
	_, c := gpuContainer(t)
	c.Cgroup = runtime.Cgroup{Mode: runtime.CgroupV2, Unified: c.Cgroup.Unified}
	attach(t, c.Cgroup.Unified, runcLike(rulesFrom(t, "c *:* m", "c 1:3 rwm", "c 195:* rwm", "c 509:* rw")...))
	code := func(v *Visibility) []slot {
		p, err := v.ownProgram(c.Cgroup.Unified)
		if err != nil {
			t.Fatal(err)
		}
		return bytesOf(t, plain(p.code))
	}
	original := code(hider(t, &memRecords{}, fakeUnits{}))
	for point, ended := 1, false; !ended; point++ {
		records := &memRecords{}
		v := hider(t, records, fakeUnits{})
		passed := 0
		v.o.Fault = func(string) {
			if passed++; passed == point {
				panic(errDied)
			}
		}
		func() {
			defer func() {
				if r := recover(); r != nil && r != any(errDied) {
					panic(r)
				}
			}()
			hide(t, v, c, 0)
			hide(t, v, c, 0, 1)
			hide(t, v, c, 1)
			ended = true
		}()
		restore(t, hider(t, records, fakeUnits{}), c)
		if now := code(v); !slices.Equal(now, original) {
			t.Fatalf("point %d: the program is\n%v, was\n%v", point, now, original)
		}
	}
}

// errDied stands for SIGKILL.
var errDied = errors.New("died")

// systemdLike is a systemd that keeps a list and rewrites its own program at each write.
type systemdLike struct {
	recordingUnits
	allow []Allow
	apply func([]Allow)
	order *[]string
}

func (s *systemdLike) DeviceAllow(context.Context, string) ([]Allow, error) { return s.allow, nil }

func (s *systemdLike) SetDeviceAllow(_ context.Context, _ string, all []Allow) error {
	s.allow = all
	*s.order = append(*s.order, "unit")
	if s.apply != nil {
		s.apply(all)
	}
	return nil
}

// TestHideUnderSystemdV2: hide replaces the program first and tells systemd then; show
// the other way round. A daemon-reload between finds systemd informed.
func TestHideUnderSystemdV2(t *testing.T) {
	dir := unifiedGroup(t)
	scope := filepath.Join(dir, "docker-0123.scope")
	if err := os.Mkdir(scope, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(scope) })
	c := runtime.Container{Name: "c", GPUs: []string{"all"}, Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: scope}}
	attach(t, scope, runcLike(rulesFrom(t, "c *:* m", "c 1:3 rwm", "c 195:* rwm", "c 509:* rw")...))
	attachNamed(t, scope, systemdProgram, runcLike(rulesFrom(t, "c *:* rwm")...))
	var order []string
	first := []Allow{{"/dev/char/1:3", "rwm"}, {"char-*", "m"}, {"char-195", "rw"}, {"char-nvidia-uvm", "rw"}}
	units := &systemdLike{allow: first, order: &order}
	units.apply = func(all []Allow) { // what a reload would write too
		rules := rulesFrom(t, "c 1:3 rwm")
		for _, a := range all {
			switch {
			case a.Device == "char-195":
				rules = append(rules, rule(t, "c 195:* rw"))
			case a.Device == "char-nvidia-uvm":
				rules = append(rules, rule(t, "c 509:* rw"))
			case strings.HasPrefix(a.Device, "/dev/char/195:"):
				rules = append(rules, rule(t, "c "+strings.TrimPrefix(a.Device, "/dev/char/")+" rw"))
			}
		}
		systemdReplaces(t, scope, runcLike(rules...))
	}
	v := hider(t, &memRecords{}, units)
	v.o.Fault = func(point string) {
		if point == "rules" {
			order = append(order, point)
		}
	}
	numbers := [][2]int{{195, 0}, {195, 1}, {195, 255}, {509, 0}, {1, 3}}
	wantOpen := func(when string, want ...bool) {
		t.Helper()
		if diff := cmp.Diff(want, openedIn(t, scope, numbers...)); diff != "" {
			t.Errorf("%s: opens (-want +got):\n%s", when, diff)
		}
	}
	view := runtime.GPUView{Hidden: []int{0}, UUIDs: map[int]string{0: "GPU-a", 1: "GPU-b"}}
	if _, err := v.Hide(t.Context(), c, view); err != nil {
		t.Fatal(err)
	}
	if want := []string{"rules", "unit"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	wantOpen("hidden", false, true, true, true, true)
	units.apply(units.allow) // daemon-reload
	wantOpen("after a reload", false, true, true, true, true)
	if slices.Contains(units.allow, Allow{"char-195", "rw"}) || !slices.Contains(units.allow, Allow{"/dev/char/195:255", "rw"}) || slices.Contains(units.allow, Allow{"/dev/char/195:0", "rw"}) {
		t.Errorf("systemd was told %v", units.allow)
	}
	view.Hidden = []int{0, 1}
	if _, err := v.Hide(t.Context(), c, view); err != nil {
		t.Fatal(err)
	}
	wantOpen("all hidden", false, false, false, false, true)
	if _, _, err := v.Restore(t.Context(), c.Key()); err != nil {
		t.Fatal(err)
	}
	wantOpen("restored", true, true, true, true, true)
	if diff := cmp.Diff(first, units.allow, cmp.Transformer("set", func(all []Allow) map[Allow]bool {
		out := map[Allow]bool{}
		for _, a := range all {
			out[a] = true
		}
		return out
	})); diff != "" {
		t.Errorf("DeviceAllow (-before +after):\n%s", diff)
	}
	units.allow = []Allow{{"char-*", "rwm"}}
	view.Hidden = []int{0}
	if _, err := v.Hide(t.Context(), c, view); err == nil || !strings.Contains(err.Error(), "more than NVIDIA's") {
		t.Errorf("%v", err)
	}
	wantOpen("refused", true, true, true, true, true)
}

// TestRulesComeBackWithoutSystemd: they count, and what systemd was not told is pending.
func TestRulesComeBackWithoutSystemd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), scope)
	write(t, filepath.Join(dir, "devices.list"), "c 195:1 rw\n")
	write(t, filepath.Join(dir, "devices.allow"), "")
	c := runtime.Container{Name: "c", Cgroup: runtime.Cgroup{V1: map[string]string{"devices": dir}}}
	records := &memRecords{all: map[string]Hidden{c.Key(): {Container: c, Minors: []int{0}, Removed: rulesFrom(t, "c 195:0 rw"), UnitRemoved: []Allow{{"/dev/char/195:0", "rw"}}}}}
	v := hider(t, records, fakeUnits{err: errors.New("no bus")})
	if _, _, err := v.Restore(t.Context(), c.Key()); err == nil || !strings.Contains(err.Error(), "no bus") || len(records.all) != 1 {
		t.Errorf("%v, records %v", err, records.all)
	}
	if back, err := os.ReadFile(filepath.Join(dir, "devices.allow")); string(back) != "c 195:0 rw" {
		t.Errorf("put back %q, %v", back, err)
	}
}

// TestRestoreKeepsNodesThatCannotBeMade: they stay on record until they stand. One whose name
// somebody else took is theirs.
func TestRestoreKeepsNodesThatCannotBeMade(t *testing.T) {
	host, c := gpuContainer(t)
	records := &memRecords{}
	v := hider(t, records, fakeUnits{})
	rules, nodes := listOf(t, c), nodesOf(t, host, c)
	hide(t, v, c, 0, 1)
	drivers := filepath.Join(v.o.ProcRoot, "devices")
	loaded, err := os.ReadFile(drivers)
	if err != nil {
		t.Fatal(err)
	}
	write(t, drivers, strings.ReplaceAll(string(loaded), "509 nvidia-uvm\n", ""))
	for range 2 {
		if did, _, err := v.Restore(t.Context(), c.Key()); !did || err == nil || !strings.Contains(err.Error(), "nvidia-uvm") {
			t.Errorf("without the driver: %v, %v", did, err)
		}
		if diff := cmp.Diff(rules, listOf(t, c)); diff != "" {
			t.Errorf("devices.list (-before +after):\n%s", diff)
		}
		pending := records.all[c.Key()]
		if !pending.Unsettled || len(pending.Minors) > 0 || len(pending.Nodes) != 1 || pending.Nodes[0].Name != "nvidia-uvm" {
			t.Errorf("pending: %+v", pending)
		}
	}
	write(t, drivers, string(loaded))
	restore(t, hider(t, records, fakeUnits{}), c) // the daemon after it
	if now := nodesOf(t, host, c); now != nodes || len(records.all) > 0 {
		t.Errorf("nodes:\n%s\nwere:\n%s\nrecords: %v", now, nodes, records.all)
	}
	v = hider(t, records, fakeUnits{})
	hide(t, v, c, 0)
	host.Run(t, "exec", c.ID.Container, "sh", "-c", "mknod /dev/nvidia0 c 1 3")
	if _, notes, err := v.Restore(t.Context(), c.Key()); err != nil || len(notes) != 1 || !strings.Contains(notes[0], "left alone") || len(records.all) > 0 {
		t.Errorf("taken: %v, %v, %v", notes, err, records.all)
	}
}
