package uprobe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
	"github.com/trimtab/trimtab/test/uprobetest"
)

// Two containers and a process of neither map one file: each counts its own, the
// stranger is not stopped, and with its last user the file has no uprobe.
func TestSharedLibrary(t *testing.T) {
	for name, options := range map[string][]func(*Finder){"by link": nil, "by perf events": {byPerfEvents}} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t, options...)
			if name == "by link" && !c.finder.attacher.multi {
				t.Skip("needs Linux 6.10: uprobe links that filter by process")
			}
			dir := t.TempDir()
			lib := uprobetest.BuildCode(t, dir, "libshared.so", probedCode, "-shared", "-fPIC")
			targets := []probes.Target{uprobetest.Cgroup(t, "shared-a"), uprobetest.Cgroup(t, "shared-b"), uprobetest.Cgroup(t, "shared-c")}
			var jobs []*uprobetest.Job
			for _, target := range targets {
				j := job(t, target, dir)
				j.Do("load %s", lib)
				jobs = append(jobs, j)
			}
			files, attached := c.files(), c.attachments()
			c.watch(targets[0])
			c.watch(targets[1])
			c.until("found", func() bool { return c.has(jobs[0].PID)() && c.has(jobs[1].PID)() })
			if n := c.attachments() - attached; n < 2 {
				t.Errorf("%d uprobes in two processes", n)
			}
			if len(c.finder.libraries) != 1 {
				t.Errorf("%d files are open for one library", len(c.finder.libraries))
			}
			jobs[0].Do("call probed 10")
			jobs[0].Do("threads probed 10")
			jobs[0].Do("fork probed 10")
			jobs[1].Do("call probed 7")
			jobs[2].Do("call probed 99")
			if a, b := c.count(jobs[0].PID), c.count(jobs[1].PID); a != 20 || b != 7 {
				t.Errorf("counted %d and %d, want 20 and 7", a, b)
			}
			c.client.Unwatch(targets[0].Key)
			jobs[1].Do("call probed 7")
			if b := c.count(jobs[1].PID); b != 14 {
				t.Errorf("counted %d after the other left, want 14", b)
			}
			jobs[1].End()
			c.until("left", func() bool { return c.left[jobs[1].PID] == 1 })
			c.finder.closers.Wait()
			if n := c.attachments(); n != attached {
				t.Errorf("%d uprobes are left", n-attached)
			}
			c.until(fmt.Sprintf("as few files open as before, %d", files), func() bool { return c.files() <= files && len(c.finder.libraries) == 0 })
		})
	}
}

// A library that is loaded later, and one that is unloaded by an exec.
func TestLoadedLater(t *testing.T) {
	c := newCounter(t)
	target := uprobetest.Cgroup(t, "later")
	c.watch(target)
	dir := t.TempDir()
	j := job(t, target, dir)
	c.until("looked at", func() bool { return c.finder.processes[j.PID] != nil })
	j.Do("load %s", uprobetest.BuildCode(t, dir, "liblater.so", probedCode, "-shared", "-fPIC"))
	c.until("found", c.has(j.PID))
	j.Do("call probed 3")
	if n := c.count(j.PID); n != 3 {
		t.Errorf("counted %d, want 3", n)
	}
	j.Exec(filepath.Join(dir, "job"))
	c.until("left", func() bool { return c.left[j.PID] == 1 })
}

// The file that a process maps is gone from its path, or another stands there: what
// is mapped is probed.
func TestDeletedAndSwapped(t *testing.T) {
	c := newCounter(t)
	target := uprobetest.Cgroup(t, "swapped")
	dir := t.TempDir()
	lib := uprobetest.BuildCode(t, dir, "libswapped.so", probedCode, "-shared", "-fPIC")
	deleted, swapped, fifo := job(t, target, dir), job(t, target, dir), job(t, target, dir)
	for _, j := range []*uprobetest.Job{deleted, swapped, fifo} {
		j.Do("load %s", lib)
		if err := os.Remove(lib); err != nil {
			t.Fatal(err)
		}
		lib = uprobetest.BuildCode(t, dir, "libswapped.so", "int shift(void) { return 1; }\n"+probedCode, "-shared", "-fPIC")
	}
	if err := os.Remove(lib); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(lib, 0o600); err != nil {
		t.Fatal(err)
	}
	c.watch(target)
	for _, j := range []*uprobetest.Job{deleted, swapped, fifo} {
		c.until("found", c.has(j.PID))
		j.Do("call probed 5")
		if n := c.count(j.PID); n != 5 {
			t.Errorf("counted %d, want 5", n)
		}
	}
}

// Without the capability for map_files a library is reached by its path, but only
// while the very file stands there.
func TestByPath(t *testing.T) {
	uprobetest.NeedsRoot(t)
	dir := t.TempDir()
	target := uprobetest.Cgroup(t, "bypath")
	lib := uprobetest.BuildCode(t, dir, "lib with blanks.so", probedCode, "-shared", "-fPIC")
	other := uprobetest.BuildCode(t, dir, "libother.so", probedCode, "-shared", "-fPIC")
	link := filepath.Join(dir, "liblink.so")
	if err := os.Symlink(lib, link); err != nil {
		t.Fatal(err)
	}
	j := job(t, target, dir)
	j.Do("load %s", link)
	text, err := procfs.Read(fmt.Sprintf("/proc/%d/maps", j.PID), maxMapsBytes)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(executableMaps(text, nil), func(m mapping) bool { return m.path == lib })
	if at < 0 {
		t.Fatalf("%s is not among the mappings", lib)
	}
	o := newOpener("/proc", j.PID)
	defer o.close()
	// As if map_files had been refused.
	if o.root, err = syscall.Open(fmt.Sprintf("/proc/%d/root", j.PID), syscall.O_DIRECTORY, 0); err != nil {
		t.Fatal(err)
	}
	o.byPath = true
	find := func() error {
		h, err := o.find(executableMaps(text, nil)[at], "")
		if err == nil {
			h.close()
		}
		return err
	}
	if err := find(); err != nil {
		t.Errorf("the library: %v", err)
	}
	if err := os.Rename(other, lib); err != nil {
		t.Fatal(err)
	}
	if err := find(); !errors.Is(err, errOtherFile) {
		t.Errorf("another file there: %v", err)
	}
	if err := os.Remove(lib); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(lib, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := find(); !errors.Is(err, errNotALibrary) {
		t.Errorf("a FIFO there: %v", err)
	}
}

// What the kernel refuses is said once, and shows as missing.
func TestRefusalIsSaidOnce(t *testing.T) {
	c := newCounter(t)
	target := uprobetest.Cgroup(t, "refused")
	dir := t.TempDir()
	j := job(t, target, dir)
	j.Do("load %s", uprobetest.BuildCode(t, dir, "librefused.so", probedCode, "-shared", "-fPIC"))
	c.client.spec.Enter = func(int32) error { return fmt.Errorf("no room: %w", syscall.EPERM) }
	c.watch(target)
	said := 0
	for range 8 {
		k := c.finder.containers[target.Key]
		k.nextRound, c.finder.scanned = time.Time{}, time.Time{}
		for _, p := range c.finder.processes {
			p.nextLook = time.Time{}
		}
		if err := c.client.Scan(context.Background()); err != nil {
			said++
		}
		c.finder.settle()
	}
	if said != 1 {
		t.Errorf("said %d times", said)
	}
	if missing := c.client.Missing(target.Key); len(missing) != 1 || !strings.Contains(missing[0], "CAP_SYS_PTRACE") {
		t.Errorf("missing %q", missing)
	}
}

func TestHitCostIsMeasured(t *testing.T) {
	uprobetest.NeedsRoot(t)
	a := newAttacher()
	cost, err := measureCost(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", cost)
	// Any machine: a trap takes more than a function call, less than a millisecond.
	if cost.Emulated < 50 || cost.Emulated > 1e6 || cost.Stepped < 50 || cost.Stepped > 1e6 {
		t.Errorf("%+v", cost)
	}
}

// TestAttachReadsNothing: a container's file that is no library at all is attached to, since
// only the kernel is told of it; and nothing makes the BPF library look for an offset.
func TestAttachReadsNothing(t *testing.T) {
	uprobetest.NeedsRoot(t)
	path := filepath.Join(t.TempDir(), "hostile")
	if err := os.WriteFile(path, bytes.Repeat([]byte{0x90}, 4096), 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	a := newAttacher()
	prog, hits, err := hitProgram(a)
	if err != nil {
		t.Fatal(err)
	}
	defer hits.Close()
	defer prog.Close()
	links, err := a.attach(int(file.Fd()), 0, prog, []point{{offset: 64}}, false)
	if err := errors.Join(err, closeAll(links)); err != nil {
		t.Errorf("attached by its offset: %v", err)
	}
	all := Hook{Functions: map[string]Point{"*": {Returns: true}}}
	entries, returns := all.points([]symbols.Symbol{{Name: "a"}, {Name: "b", Offset: 64}}, 0, 0, true)
	if len(entries) != 1 || len(returns) != 1 || entries[0].offset != 64 {
		t.Errorf("entries %+v, returns %+v: one has an offset", entries, returns)
	}
	if entries, returns := all.points([]symbols.Symbol{{Name: "b", Offset: 64}}, 0, 0, false); len(entries)+len(returns) > 0 {
		t.Errorf("entries %+v, returns %+v: an entry without its return stays open", entries, returns)
	}
	all = Hook{Functions: map[string]Point{"*": {Code: 7, Returns: true, Alone: 5}}}
	for withReturns, code := range map[bool]uint64{true: 7, false: 5} {
		entries, returns := all.points([]symbols.Symbol{{Name: "b", Offset: 64}}, 0, 0, withReturns)
		if len(entries) != 1 || len(returns) == 1 != withReturns || entries[0].cookie != code {
			t.Errorf("returns %v: entries %+v, returns %+v, want the code %d", withReturns, entries, returns, code)
		}
	}
}

// What lies behind a mapping is not opened unless it is a file that can be a library.
func TestFindRefusesWhatIsNotALibrary(t *testing.T) {
	root := t.TempDir()
	links := filepath.Join(root, "1", "map_files")
	if err := os.MkdirAll(links, 0o755); err != nil {
		t.Fatal(err)
	}
	fifo, huge := filepath.Join(root, "fifo"), filepath.Join(root, "huge")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, symbols.MaxFileBytes+1); err != nil {
		t.Skipf("needs a file system with sparse files: %v", err)
	}
	o := newOpener(root, 1)
	defer o.close()
	for i, path := range []string{fifo, huge, root, "/dev/zero"} {
		name := fmt.Sprint(i)
		if err := os.Symlink(path, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
		if h, err := o.find(mapping{addresses: name}, ""); err == nil {
			h.close()
			t.Errorf("%s is taken for a library", path)
		}
	}
}

// A look that is out of time keeps what it found and goes on behind it, and the process
// is left alone meanwhile.
func TestLooksEnd(t *testing.T) {
	c := newCounter(t)
	target := uprobetest.Cgroup(t, "looks")
	dir := t.TempDir()
	j := job(t, target, dir)
	j.Do("load %s", uprobetest.BuildCode(t, dir, "liblooks.so", probedCode, "-shared", "-fPIC"))
	c.watch(target)
	c.until("found", c.has(j.PID))
	p := c.finder.processes[j.PID]
	l := c.finder.newLook(p)
	l.deadline = time.Now().Add(-time.Hour)
	l.complete, l.err = l.all(newOpener("/proc", j.PID), []mapping{{}})
	if l.complete || !errors.Is(l.err, errSlow) {
		t.Errorf("complete %v, error %v", l.complete, l.err)
	}
	c.finder.takeLook(p, 1, l)
	if time.Until(p.nextLook) < restFromLooks/2 || !c.client.Has(j.PID, "probed") {
		t.Errorf("next look in %v, found %v", time.Until(p.nextLook), c.client.Has(j.PID, "probed"))
	}
	if missing := c.client.Missing(target.Key); len(missing) != 1 || !strings.Contains(missing[0], "not looked through") {
		t.Errorf("missing %q", missing)
	}
}

// Libraries that find no room are not probed, and said not to be; the room is free
// again when its users have left.
func TestRoom(t *testing.T) {
	for name, ceiling := range map[string]int64{"for no file": 0, "for no link": 1} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t, func(f *Finder) { f.room.ceiling = ceiling })
			target := uprobetest.Cgroup(t, "room")
			dir := t.TempDir()
			j := job(t, target, dir)
			j.Do("load %s", uprobetest.BuildCode(t, dir, "libroom.so", probedCode, "-shared", "-fPIC"))
			c.watch(target)
			c.until("refused", func() bool {
				return slices.ContainsFunc(c.client.Missing(target.Key), func(m string) bool { return strings.HasPrefix(m, "libraries: no room") })
			})
			c.finder.room.ceiling = maxFiles
			c.until("found", c.has(j.PID))
			c.finder.closers.Wait()
			const held = 2 // the list of processes, and what tells the process's size
			if used := c.finder.room.used.Load(); used < 2 || used > 1+linkFiles+held {
				t.Errorf("%d descriptors are said to be used", used)
			}
			c.client.Unwatch(target.Key)
			c.finder.settle()
			c.finder.closers.Wait()
			c.finder.awaitFiles()
			if used := c.finder.room.used.Load(); used != 0 {
				t.Errorf("%d descriptors are not given back", used)
			}
		})
	}
}

// TestProbesAreShared: containers that want all descriptors leave some, and each that is new gets its own.
func TestProbesAreShared(t *testing.T) {
	r := newRoom()
	r.ceiling = 1000
	want := func(key string, all int) (n int) {
		for n < all && r.takeFor(key, linkFiles) == nil {
			n += linkFiles
		}
		return n
	}
	taken := map[string]int{}
	for _, key := range []string{"a", "b", "c"} {
		taken[key] = want(key, 1000)
	}
	if taken["a"] > 336 || taken["a"] < 300 {
		t.Errorf("the first takes %d of 1000", taken["a"])
	}
	if taken["late"] = want("late", 40); taken["late"] != 40 {
		t.Errorf("after three that want all another has %d of 40", taken["late"])
	}
	for key, n := range taken {
		for range n / linkFiles {
			r.freeFor(key, linkFiles)
		}
	}
	if used := r.used.Load(); used != 0 || len(r.held) != 0 {
		t.Errorf("%d are said to be used, by %v", used, r.held)
	}
}

// TestALibraryHasRoomOrNone: where not all of its hooks find room none of a library that is new is attached, to be
// detached again; a hook whose turn comes goes without the others.
func TestALibraryHasRoomOrNone(t *testing.T) {
	p, refused := &process{key: "a"}, errors.New("refused")
	one, other := &library{}, &library{}
	m := &member{}
	hook := func(lib *library, isNew bool, err error) *attaching {
		return &attaching{process: p, member: m, library: lib, entries: make([]point, 3), isNew: isNew, err: err}
	}
	for name, c := range map[string]struct {
		ceiling int64
		batch   batch
		made    []bool
	}{
		"room for all":             {1000, batch{hook(one, true, nil), hook(one, true, nil)}, []bool{true, true}},
		"room for one":             {5, batch{hook(one, true, nil), hook(one, true, nil)}, []bool{false, false}},
		"one was refused before":   {1000, batch{hook(one, true, nil), hook(one, true, refused)}, []bool{false, false}},
		"another library's was":    {1000, batch{hook(one, true, nil), hook(other, true, refused)}, []bool{true, false}},
		"room for one whose turn":  {5, batch{hook(one, false, nil), hook(one, false, nil)}, []bool{true, false}},
		"no room, and another has": {5, batch{hook(one, true, nil), hook(other, true, nil)}, []bool{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Finder{room: newRoom(), attacher: attacher{multi: true}}
			f.room.ceiling = c.ceiling
			c.batch.takeRoom(f)
			var want int64
			for i, a := range c.batch {
				if made := a.err == nil; made != c.made[i] {
					t.Errorf("hook %d: %v", i, a.err)
				}
				if c.made[i] {
					want += linkFiles
				}
			}
			if used := f.room.used.Load(); used != want || f.room.held["a"] != want {
				t.Errorf("%d are said to be used, %v; want %d", used, f.room.held, want)
			}
		})
	}
}

// A process has as many libraries of interest as it likes; so many are probed.
func TestManyLibraries(t *testing.T) {
	c := newCounter(t)
	target := uprobetest.Cgroup(t, "many")
	dir := t.TempDir()
	j := job(t, target, dir)
	lib, err := os.ReadFile(uprobetest.BuildCode(t, dir, "libmany.so", probedCode, "-shared", "-fPIC"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxLibraries + 3 {
		path := filepath.Join(dir, fmt.Sprintf("libmany%d.so", i))
		if err := os.WriteFile(path, lib, 0o755); err != nil {
			t.Fatal(err)
		}
		j.Do("load %s", path)
	}
	c.watch(target)
	c.until("refused", func() bool { return len(c.client.Missing(target.Key)) > 0 })
	if missing := c.client.Missing(target.Key); len(missing) != 1 || !strings.Contains(missing[0], "more than 32") {
		t.Errorf("missing %q", missing)
	}
	if n := len(c.finder.processes[j.PID].members[c.client].libraries); n != maxLibraries {
		t.Errorf("%d libraries are probed, want %d", n, maxLibraries)
	}
}
