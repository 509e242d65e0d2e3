package uprobe

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/fusetest"
	"github.com/trimtab/trimtab/test/uprobetest"
)

// A layer that stops answering costs the container that has it its probes, and nothing
// else: a neighbour is found, calls of both are counted, and the host can fork.
func TestFilesThatHangCostTheirContainer(t *testing.T) {
	for name, found := range map[string]bool{"looked into": false, "attached to": true} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t)
			dir := t.TempDir()
			lib := uprobetest.BuildCode(t, dir, "liblayer.so", probedCode, "-shared", "-fPIC")
			layer := fusetest.Mount(t, lib)
			victim, other := uprobetest.Cgroup(t, "stuck"), uprobetest.Cgroup(t, "stuck-other")
			hangs := job(t, victim, dir)
			hangs.Do("load %s", filepath.Join(layer.Overlay(t), "liblayer.so"))
			if found {
				c.watch(victim)
				c.until("found", c.has(hangs.PID))
				c.client.SetDutyCycle(victim.Key, "test.hook", 0)
				c.until("off", func() bool { _, on := c.client.Attached(hangs.PID, 0); return !on && c.attachedTo(hangs.PID) == 0 })
				layer.Hang()
				c.client.SetDutyCycle(victim.Key, "test.hook", 1)
			} else {
				layer.Hang()
				c.watch(victim)
			}
			c.until("stuck", layer.Met)
			c.neighbourIsCounted(t, other, dir)
			c.until("said", func() bool {
				return slices.ContainsFunc(c.client.Missing(victim.Key), func(m string) bool { return strings.Contains(m, errStuck.Error()) })
			})
			// Switched off, on and off while it is stuck: what comes of it is taken off.
			c.client.SetDutyCycle(victim.Key, "test.hook", 0)
			c.until("off while it is stuck", func() bool { _, on := c.client.Attached(hangs.PID, 0); return !on })
			layer.Answer()
			c.until("nothing is left of it", func() bool { return c.finder.laneOf(victim.Key).work == nil && c.attachedTo(hangs.PID) == 0 })
			c.client.SetDutyCycle(victim.Key, "test.hook", 1)
			c.until("found once it answers", func() bool { _, on := c.client.Attached(hangs.PID, 0); return on && c.has(hangs.PID)() })
			before := c.count(hangs.PID)
			hangs.Do("call probed 5")
			if n := c.count(hangs.PID) - before; n != 5 {
				t.Errorf("counted %d, want 5", n)
			}
		})
	}
}

// neighbourIsCounted: another container is found and counted meanwhile.
func (c *counter) neighbourIsCounted(t *testing.T, target probes.Target, dir string) {
	t.Helper()
	if err := exec.Command("true").Run(); err != nil { // a fork
		t.Error(err)
	}
	j := job(t, target, dir)
	j.Do("load %s", uprobetest.BuildCode(t, dir, "libother.so", probedCode, "-shared", "-fPIC"))
	c.watch(target)
	c.until("the other found", c.has(j.PID))
	j.Do("call probed 7")
	if n := c.count(j.PID); n != 7 {
		t.Errorf("counted %d of the other, want 7", n)
	}
	c.client.Unwatch(target.Key)
}

// attachedTo is how many attachments of a process are there, or on their way.
func (c *counter) attachedTo(pid int32) int {
	p := c.finder.processes[pid]
	if p == nil || p.members[c.client] == nil {
		return 0
	}
	h := &p.members[c.client].hooks[0]
	if h.busy() {
		return 1
	}
	return len(h.attached)
}

// A library that is probed is not open here: closing it would ask its layer, and each exec
// closes a copy. One whose layer hangs is left, and children are started.
func TestLibrariesAreNotHeldOpen(t *testing.T) {
	c := newCounter(t)
	dir := t.TempDir()
	layer := fusetest.Mount(t, uprobetest.BuildCode(t, dir, "liblayer.so", probedCode, "-shared", "-fPIC"))
	target, other := uprobetest.Cgroup(t, "stuck-close"), uprobetest.Cgroup(t, "stuck-close-other")
	j := job(t, target, dir)
	j.Do("load %s", filepath.Join(layer.Overlay(t), "liblayer.so"))
	c.watch(target)
	c.until("found", c.has(j.PID))
	layer.Hang()
	c.neighbourIsCounted(t, other, dir)
	c.client.Unwatch(target.Key)
	c.neighbourIsCounted(t, other, dir)
	layer.Answer()
}

// A process that ends while its container is stuck is left all the same.
func TestProcessesOfAStuckContainerEnd(t *testing.T) {
	c := newCounter(t)
	dir := t.TempDir()
	lib := uprobetest.BuildCode(t, dir, "liblayer.so", probedCode, "-shared", "-fPIC")
	layer := fusetest.Mount(t, lib)
	target := uprobetest.Cgroup(t, "stuck-ended")
	ends, hangs := job(t, target, dir), job(t, target, dir)
	ends.Do("load %s", uprobetest.BuildCode(t, dir, "libends.so", probedCode, "-shared", "-fPIC"))
	c.watch(target)
	c.until("found", c.has(ends.PID))
	hangs.Do("load %s", filepath.Join(layer.Overlay(t), "liblayer.so"))
	layer.Hang()
	c.until("stuck", layer.Met)
	ends.End()
	c.until("left", func() bool { return c.left[ends.PID] == 1 })
	layer.Answer()
}

// A container that is no longer watched, and a finder that is closed, wait for nothing
// that hangs.
func TestClosedWhileAFileHangs(t *testing.T) {
	c := newCounter(t)
	dir := t.TempDir()
	layer := fusetest.Mount(t, uprobetest.BuildCode(t, dir, "liblayer.so", probedCode, "-shared", "-fPIC"))
	target := uprobetest.Cgroup(t, "stuck-closed")
	j := job(t, target, dir)
	j.Do("load %s", filepath.Join(layer.Overlay(t), "liblayer.so"))
	layer.Hang()
	c.watch(target)
	c.until("stuck", layer.Met)
	c.client.Unwatch(target.Key)
	c.watch(target) // and it waits for the same file
	if err := c.client.Scan(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(c.finder.works); n != 1 {
		t.Errorf("%d works for one container that hangs", n)
	}
	c.client.Close() // returns
	layer.Answer()
	c.finder.settle()
	c.finder.awaitFiles()
	if used := c.finder.room.used.Load(); used != 0 || len(c.finder.libraries) > 0 {
		t.Errorf("%d descriptors and %d libraries are left", used, len(c.finder.libraries))
	}
}

// A container pays for what looks into it take, by its share of a CPU; others have their
// turn before it.
func TestLooksAreShared(t *testing.T) {
	now := time.Unix(1000, 0)
	k := &lane{}
	k.charge(now, time.Hour)
	if got := k.debtAt(now); got != maxDebt {
		t.Errorf("debt %v, want %v", got, maxDebt)
	}
	if got := k.debtAt(now.Add(10 * time.Second)); got != maxDebt-time.Second {
		t.Errorf("debt %v after ten seconds, want %v", got, maxDebt-time.Second)
	}
	if got := k.debtAt(now.Add(time.Hour)); got != 0 {
		t.Errorf("debt %v after an hour", got)
	}
}

// due is a finder with processes that are due for a look, by container.
func due(t *testing.T, all map[string][]int32) *Finder {
	t.Helper()
	f := &Finder{
		procRoot: t.TempDir(), files: newFiles(), room: newRoom(), problems: newProblems(), containers: map[string]*container{},
		processes: map[int32]*process{}, lanes: map[string]*lane{}, works: map[*work]bool{}, ended: make(chan *work, maxWorks),
	}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	for key, pids := range all {
		for _, pid := range pids {
			dir := filepath.Join(f.procRoot, strconv.Itoa(int(pid)))
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "stat"), stat, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		f.containers[key] = &container{key: key, clients: map[*Client]*clientState{}, processes: map[int32]*process{}, due: pids}
		f.laneOf(key)
	}
	return f
}

// TestWhoOwesIsNotLookedAt: beyond its credit a container is looked at no more, until its share has paid.
func TestWhoOwesIsNotLookedAt(t *testing.T) {
	f := due(t, map[string][]int32{"owes": {1}})
	l := f.laneOf("owes")
	l.charge(time.Now(), maxDebt)
	if f.next(l); l.work != nil {
		t.Errorf("looked at with a debt of %v", l.debtAt(time.Now()))
	}
	l.chargedAt = l.chargedAt.Add(-time.Minute)
	if f.next(l); l.work == nil {
		t.Fatal("not looked at once it has paid")
	}
	f.follow(<-f.ended)
}

// Where all places are taken, the one that gets free goes to who waited, not back to the
// container that had it.
func TestAPlaceGoesRound(t *testing.T) {
	f := due(t, map[string][]int32{"busy": {1, 2, 3}, "waits": {4}})
	for range maxWorks - 1 {
		f.works[&work{began: time.Now()}] = true
	}
	busy, waits := f.laneOf("busy"), f.laneOf("waits")
	f.next(busy)
	f.next(waits)
	if busy.work == nil || waits.work != nil {
		t.Fatalf("the last place: busy has %v, who waits has %v", busy.work, waits.work)
	}
	f.follow(<-f.ended)
	if busy.work != nil || waits.work == nil {
		t.Errorf("the place that got free: busy has %v, who waits has %v", busy.work, waits.work)
	}
	f.follow(<-f.ended)
	if busy.work == nil {
		t.Error("nobody else waits, and busy has no place")
	}
	<-f.ended
}

// Containers that want all of a client's room leave some to the next one, whether they come
// together or one after the other. One alone gets a fifth.
func TestProcessesAreShared(t *testing.T) {
	const room = 1000
	for _, tc := range []struct {
		greedy, free int
		together     bool
	}{{1, 800, true}, {8, 333, true}, {8, 167, false}, {16, 28, false}} {
		c := &Client{spec: Spec{Room: room}}
		enter := func(k *container) bool {
			if c.admits(k) != nil {
				return false
			}
			c.members++
			k.clients[c].members++
			return true
		}
		crowd := make([]*container, tc.greedy)
		for i := range crowd {
			crowd[i] = &container{clients: map[*Client]*clientState{c: {}}}
			for !tc.together && enter(crowd[i]) {
			}
		}
		for range room {
			for _, k := range crowd {
				enter(k)
			}
		}
		if free := room - c.members; free < tc.free-tc.greedy || free > tc.free+tc.greedy {
			t.Errorf("%+v: %d are free", tc, free)
		}
		modest := &container{clients: map[*Client]*clientState{c: {}}}
		for n := range tc.free / 6 {
			if !enter(modest) {
				t.Errorf("%+v: the modest one's process %d is refused", tc, n)
			}
		}
	}
}
