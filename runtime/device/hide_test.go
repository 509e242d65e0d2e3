package device

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// memRecords outlive a Visibility, as a disk does.
type memRecords struct {
	mu     sync.Mutex
	all    map[string]Hidden
	unread map[string]error
	err    error
}

func (m *memRecords) Load() (map[string]Hidden, map[string]error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.all), m.unread, nil
}

func (m *memRecords) Save(key string, h Hidden) error {
	return m.change(func(all map[string]Hidden) { all[key] = h })
}

func (m *memRecords) Remove(key string) error {
	return m.change(func(all map[string]Hidden) { delete(all, key) })
}

func (m *memRecords) change(edit func(all map[string]Hidden)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.all == nil {
		m.all = map[string]Hidden{}
	}
	edit(m.all)
	return nil
}

// hider is a Visibility of a host with nvidia-uvm, and records that outlive it.
func hider(t *testing.T, records *memRecords, units Units) *Visibility {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "devices"), "Character devices:\n  1 mem\n195 nvidia-frontend\n509 nvidia-uvm\n\nBlock devices:\n")
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries { // the host's, but for the devices
		if e.Name() != "devices" {
			if err := os.Symlink(filepath.Join("/proc", e.Name()), filepath.Join(root, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	v := NewVisibility(Options{ProcRoot: root, Units: units, Records: records})
	v.hostDev = root // no GPU of the machine that the tests run on counts
	return v
}

// gpuContainer is a real one with rules for two GPUs, and nodes for them.
func gpuContainer(t *testing.T, args ...string) (runtimetest.DockerHost, runtime.Container) {
	t.Helper()
	host := runtimetest.NeedDocker(t)
	if len(args) == 0 {
		args = []string{"--device-cgroup-rule", "c 195:* rwm", "--device-cgroup-rule", "c 509:* rwm"}
	}
	c := dockerContainer(t, args...)
	c.GPUs = []string{"all"}
	tick, err := cgroup.StartTick("/proc", c.InitPID)
	if err != nil {
		t.Fatal(err)
	}
	c.ID.StartTick = tick
	host.Run(t, "exec", c.ID.Container, "sh", "-c", "cd /dev && mknod -m 640 nvidia0 c 195 0 && mknod -m 666 nvidia1 c 195 1 && mknod -m 666 nvidiactl c 195 255 && mknod -m 666 nvidia-uvm c 509 0 && chown 7:8 nvidia0")
	return host, c
}

// finds says what a process in the container finds at a path: "open" is what only a
// driver could answer.
func finds(t *testing.T, host runtimetest.DockerHost, c runtime.Container, path string) string {
	t.Helper()
	out := host.Run(t, "exec", c.ID.Container, "sh", "-c", "cat "+path+" 2>&1; true")
	for text, word := range map[string]string{"Operation not permitted": "refused", "No such device or address": "open", "No such file": "gone"} {
		if strings.Contains(out, text) {
			return word
		}
	}
	return out
}

func wantFinds(t *testing.T, host runtimetest.DockerHost, c runtime.Container, want map[string]string) {
	t.Helper()
	for path, word := range want {
		if got := finds(t, host, c, path); got != word {
			t.Errorf("%s: %s, want %s", path, got, word)
		}
	}
}

func listOf(t *testing.T, c runtime.Container) []runtime.DeviceRule {
	t.Helper()
	list, err := readRules(c.Cgroup.V1["devices"])
	if err != nil {
		t.Fatal(err)
	}
	return sorted(list)
}

// hide hides, and wants no complaint.
func hide(t *testing.T, v *Visibility, c runtime.Container, minors ...int) {
	t.Helper()
	notes, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: minors, UUIDs: map[int]string{0: "GPU-a", 1: "GPU-b"}})
	if err != nil || len(notes) > 0 {
		t.Fatalf("hide %v: %v, %v", minors, notes, err)
	}
}

func restore(t *testing.T, v *Visibility, c runtime.Container) {
	t.Helper()
	if _, notes, err := v.Restore(t.Context(), c.Key()); err != nil || len(notes) > 0 {
		t.Fatalf("restore: %v, %v", notes, err)
	}
}

// dirStat is what `ls -l` tells of the container's nodes.
func nodesOf(t *testing.T, host runtimetest.DockerHost, c runtime.Container) string {
	return host.Run(t, "exec", c.ID.Container, "sh", "-c", "cd /dev && stat -c '%n %a %u %g %t %T' nvidia*")
}

func TestHideAndShowV1(t *testing.T) {
	host, c := gpuContainer(t)
	host.Run(t, "exec", c.ID.Container, "sh", "-c", "mknod /tmp/own0 c 195 0; mknod /tmp/own1 c 195 1")
	records := &memRecords{}
	v := hider(t, records, fakeUnits{})
	rules, nodes := listOf(t, c), nodesOf(t, host, c)
	had, _ := look(t, v, c, nil)

	hide(t, v, c, 0)
	wantFinds(t, host, c, map[string]string{"/dev/nvidia0": "gone", "/tmp/own0": "refused", "/tmp/own1": "open", "/dev/nvidia1": "open", "/dev/nvidiactl": "open", "/dev/nvidia-uvm": "open"})
	if text := host.Run(t, "exec", c.ID.Container, "cat", "/run/trimtab/gpus"); text != "GPU-b" {
		t.Errorf("the file says %q", text)
	}
	if stands, lost := look(t, v, c, had); len(lost) > 0 || cmp.Diff(had, stands) != "" {
		t.Errorf("a repair would find %v lost, %v standing", lost, stands)
	}
	if how, err := v.Repair(t.Context(), c, had); how != "" || err != nil {
		t.Errorf("the repair fights: %q, %v", how, err)
	}
	// What somebody takes beside it is lost, and comes back alone.
	deny(t, c, "c 195:255 rwm")
	wantRepaired(t, v, c, had, "devices.allow")
	wantFinds(t, host, c, map[string]string{"/tmp/own0": "refused", "/dev/nvidiactl": "open"})

	hide(t, v, c, 0, 1) // the last one takes the rest along
	wantFinds(t, host, c, map[string]string{"/dev/nvidia1": "gone", "/dev/nvidiactl": "gone", "/dev/nvidia-uvm": "gone", "/tmp/own0": "refused", "/tmp/own1": "refused"})
	if text := host.Run(t, "exec", c.ID.Container, "cat", "/run/trimtab/gpus"); text != "" {
		t.Errorf("the file says %q", text)
	}
	if _, lost := look(t, v, c, had); len(lost) > 0 {
		t.Errorf("a repair would find %v lost", lost)
	}
	hide(t, v, c, 1)
	wantFinds(t, host, c, map[string]string{"/dev/nvidia0": "open", "/dev/nvidia1": "gone", "/dev/nvidiactl": "open"})
	hide(t, v, c)
	if diff := cmp.Diff(rules, listOf(t, c)); diff != "" {
		t.Errorf("devices.list (-before +after):\n%s", diff)
	}
	if text := host.Run(t, "exec", c.ID.Container, "cat", "/run/trimtab/gpus"); text != "GPU-a\nGPU-b" {
		t.Errorf("the file says %q", text)
	}
	restore(t, v, c)
	if now := nodesOf(t, host, c); now != nodes {
		t.Errorf("nodes:\n%s\nwere:\n%s", now, nodes)
	}
	if out := host.Run(t, "exec", c.ID.Container, "sh", "-c", "ls -d /run/trimtab 2>&1; true"); !strings.Contains(out, "No such file") {
		t.Errorf("left behind: %s", out)
	}
	if len(records.all) > 0 {
		t.Errorf("records: %v", records.all)
	}
}

func TestHideAndShowV2(t *testing.T) {
	host, c := gpuContainer(t)
	c.Cgroup = runtime.Cgroup{Mode: runtime.CgroupV2, Unified: c.Cgroup.Unified} // as a v2 host shows it
	own := runcLike(rulesFrom(t, "c *:* m", "c 1:3 rwm", "c 195:* rwm", "c 509:* rw")...)
	attach(t, c.Cgroup.Unified, own)
	v := hider(t, &memRecords{}, fakeUnits{})
	code := func() asm.Instructions {
		p, err := v.ownProgram(c.Cgroup.Unified)
		if err != nil {
			t.Fatal(err)
		}
		return plain(p.code)
	}
	original := code()
	had, _ := look(t, v, c, nil)
	numbers := [][2]int{{195, 0}, {195, 1}, {195, 255}, {509, 0}, {1, 3}, {10, 229}}
	wantOpen := func(when string, want ...bool) {
		t.Helper()
		if diff := cmp.Diff(want, openedIn(t, c.Cgroup.Unified, numbers...)); diff != "" {
			t.Errorf("%s: opens (-want +got):\n%s", when, diff)
		}
	}
	hide(t, v, c, 0)
	wantOpen("hidden", false, true, true, true, true, false)
	wantFinds(t, host, c, map[string]string{"/dev/nvidia0": "gone"})
	if _, lost := look(t, v, c, had); len(lost) > 0 {
		t.Errorf("a repair would find %v lost", lost)
	}
	// A loss beside it: the runtime's own rules lose all GPUs.
	p, _ := v.ownProgram(c.Cgroup.Unified)
	front, _ := splitRefusing(p.code)
	replaceOwn(t, v, c.Cgroup.Unified, append(plain(front), numbered(t, runcLike(rulesFrom(t, "c *:* m", "c 1:3 rwm")...))...))
	if _, err := v.Repair(t.Context(), c, had); err != nil {
		t.Fatal(err)
	}
	wantOpen("repaired beside what is hidden", false, true, true, true, true, false)
	p, _ = v.ownProgram(c.Cgroup.Unified)
	front, _ = splitRefusing(p.code)
	replaceOwn(t, v, c.Cgroup.Unified, append(plain(front), original...)) // as before the loss
	hide(t, v, c, 0, 1)
	wantOpen("all hidden", false, false, false, false, true, false)
	hide(t, v, c, 1)
	wantOpen("one shown", true, false, true, true, true, false)
	p, _ = v.ownProgram(c.Cgroup.Unified)
	v.programs.known[p.id] = program{id: p.id, err: errors.New("not to be read")}
	if _, _, err := v.Restore(t.Context(), c.Key()); err == nil || !strings.Contains(err.Error(), "not to be read") || len(v.Hiding()) != 1 {
		t.Errorf("restored what could not be read: %v, %v", err, v.Hiding())
	}
	delete(v.programs.known, p.id)
	restore(t, v, c)
	wantOpen("restored", true, true, true, true, true, false)
	if now := bytesOf(t, code()); !slices.Equal(now, bytesOf(t, original)) {
		t.Errorf("the program is\n%v, was\n%v", now, original)
	}
}

func bytesOf(t *testing.T, p asm.Instructions) []slot {
	slots, err := slotsOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return slots
}

// TestRefusingFirst: in front of any program, what is refused is refused, and no other answer changes.
func TestRefusingFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(rapid.Custom(drawRule), 0, 5).Draw(t, "rules")
		var refuse []runtime.DeviceRule
		for _, minor := range rapid.SliceOfNDistinct(rapid.IntRange(-1, 3), 1, 3, rapid.ID).Draw(t, "refuse") {
			refuse = append(refuse, runtime.DeviceRule{Kind: "c", Major: 195, Minor: minor, Access: "rw"})
		}
		rest := numbered(t, runcLike(rules...))
		code, err := refusingFirst(refuse, rest)
		if err != nil {
			t.Fatal(err)
		}
		front, back := splitRefusing(code)
		if len(front)+len(rest) != len(code) || !slices.Equal(resolved(t, back), resolved(t, plain(rest))) {
			t.Fatal("the program cannot be told from what is in front of it")
		}
		program := resolved(t, code)
		r := request{kind: rapid.SampledFrom([]uint32{devChar, devBlock}).Draw(t, "kind"), access: rapid.Uint32Range(1, 7).Draw(t, "access"),
			major: rapid.SampledFrom([]uint32{1, 195, 509}).Draw(t, "major"), minor: rapid.Uint32Range(0, 4).Draw(t, "minor")}
		got, err := decide(program, r)
		if err != nil {
			t.Fatal(err)
		}
		hit := r.kind == devChar && r.access&(accRead|accWrite) != 0 && slices.ContainsFunc(refuse, func(x runtime.DeviceRule) bool {
			return uint32(x.Major) == r.major && (x.Minor == runtime.AnyDevice || uint32(x.Minor) == r.minor)
		})
		if want := !hit && allowedBy(rules, r); got != want {
			t.Errorf("%+v: %v, want %v", r, got, want)
		}
	})
}

// TestSignal: the init process is sent it, and never another that bears its number.
func TestSignal(t *testing.T) {
	child := exec.Command("sh", "-c", "trap 'exit 7' USR1; echo ready; while :; do sleep 0.05; done")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill() })
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	c := runtime.Container{Name: "c", InitPID: child.Process.Pid}
	if c.ID.StartTick, err = cgroup.StartTick("/proc", c.InitPID); err != nil {
		t.Fatal(err)
	}
	v := hider(t, &memRecords{}, fakeUnits{})
	other := c
	other.ID.StartTick--
	if err := v.Signal(other, unix.SIGKILL); !errors.Is(err, runtime.ErrGone) {
		t.Errorf("%v", err)
	}
	if err := v.Signal(c, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	exit := &exec.ExitError{}
	if err := child.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("ended with %v", err)
	}
}

// TestInUse: a device that a process of the container has open is not hidden. No
// driver answers for NVIDIA's number here, so /dev/null stands in for its node.
func TestInUse(t *testing.T) {
	host, c := gpuContainer(t)
	v := hider(t, &memRecords{}, fakeUnits{})
	v.useMajor = 1
	rules := listOf(t, c)
	host.Run(t, "exec", "-d", c.ID.Container, "sh", "-c", "mknod /tmp/any c 1 3; exec 9</tmp/any; touch /tmp/opened; exec sleep 1000")
	for range 100 {
		if host.Run(t, "exec", c.ID.Container, "sh", "-c", "ls /tmp") != "any" {
			break
		}
	}
	_, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: []int{3}, UUIDs: map[int]string{3: "GPU-c"}})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "device 1:3 open") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff(rules, listOf(t, c)); diff != "" {
		t.Errorf("devices.list changed:\n%s", diff)
	}
	// One that slips in between the check and the write is found afterwards.
	v.useMajor = 195
	v.o.Fault = func(point string) {
		if point == "written" {
			v.useMajor = 1
		}
	}
	if _, err := v.Hide(t.Context(), c, runtime.GPUView{Hidden: []int{3}, UUIDs: map[int]string{3: "GPU-c"}}); !errors.Is(err, ErrInUse) {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff(rules, listOf(t, c)); diff != "" {
		t.Errorf("devices.list after the second check:\n%s", diff)
	}
	if len(v.Hiding()) > 0 {
		t.Errorf("records: %v", v.Hiding())
	}
}

// TestHideRefused: with nothing written.
func TestHideRefused(t *testing.T) {
	_, c := gpuContainer(t, "--device-cgroup-rule", "c 195:0 rw", "--device-cgroup-rule", "c 195:255 rw")
	rules := listOf(t, c)
	full := &memRecords{err: errors.New("disk full")}
	lossy := c
	lossy.Cgroup.V1 = map[string]string{"devices": filepath.Join(t.TempDir(), "none")}
	for name, tc := range map[string]struct {
		v     *Visibility
		c     runtime.Container
		minor int
		want  string
	}{
		"not granted":  {hider(t, &memRecords{}, fakeUnits{}), c, 1, "nothing to hide"},
		"unknown":      {hider(t, &memRecords{}, fakeUnits{}), c, 9, "nothing to hide"},
		"disk full":    {hider(t, full, fakeUnits{}), c, 0, "disk full"},
		"gone":         {hider(t, &memRecords{}, fakeUnits{}), lossy, 0, "gone"},
		"cannot store": {hider(t, &memRecords{}, fakeUnits{}), c, 0, ""},
	} {
		if name == "cannot store" {
			tc.v.ledger = openLedger(nil)
			tc.want = "cannot be remembered"
		}
		if _, err := tc.v.Hide(t.Context(), tc.c, runtime.GPUView{Hidden: []int{tc.minor}, UUIDs: map[int]string{1: "GPU-b"}}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(rules, listOf(t, c)); diff != "" {
		t.Errorf("devices.list changed:\n%s", diff)
	}
}

// TestYielded: somebody else's rule is not fought.
func TestYielded(t *testing.T) {
	_, c := gpuContainer(t)
	v := hider(t, &memRecords{}, fakeUnits{})
	rules := listOf(t, c)
	hide(t, v, c, 0)
	if got := v.Yielded(t.Context(), c.Key()); got != nil {
		t.Errorf("yielded %v to nobody", got)
	}
	if err := writeRule(c.Cgroup.V1["devices"], allowFile, rule(t, "c 195:* rwm")); err != nil {
		t.Fatal(err)
	}
	if got := v.Yielded(t.Context(), c.Key()); !slices.Equal(got, []int{0}) {
		t.Errorf("yielded %v", got)
	}
	restore(t, v, c)
	if diff := cmp.Diff(rules, listOf(t, c)); diff != "" {
		t.Errorf("devices.list (-before +after):\n%s", diff)
	}
}
