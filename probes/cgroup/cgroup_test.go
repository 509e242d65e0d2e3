package cgroup

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/probes"
)

const atNs = 12345

// v1Dirs places a container of the recorded hybrid tree (testdata/record.sh).
func v1Dirs(controller string) string {
	return filepath.Join("testdata/hybrid", controller, "docker/c0ffee")
}

func hybridTarget() probes.Target {
	return probes.Target{Key: "box", Dir: v1Dirs, Unified: v1Dirs("unified")}
}

func v1Target() probes.Target { return probes.Target{Key: "box", Dir: v1Dirs} }

// v2Target stands in a tree written after Documentation/admin-guide/cgroup-v2.rst.
func v2Target() probes.Target {
	const dir = "testdata/v2/system.slice/docker-c0ffee.scope"
	return probes.Target{Key: "box", Dir: func(string) string { return dir }, Unified: dir, V2: true}
}

func hybridWant() *probes.Cgroup {
	return &probes.Cgroup{
		AtNs:       atNs,
		CPUUsageNs: 1651782698,
		CPUWeight:  512,
		Cpuset:     "0-1",
		Throttling: []probes.Throttling{
			{Periods: 32, Throttled: 32, QuotaUs: 50000, PeriodUs: 100000},
			{QuotaUs: -1, PeriodUs: 100000},
		},
		MemoryBytes:  105336832,
		MemoryLimit:  314572800,
		Anon:         59518976,
		File:         44023808,
		InactiveFile: 41959424,
		RefaultFile:  508,
		MajorFaults:  6,
		HasPSI:       true,
		CPU:          probes.Pressure{SomeUs: 940305, FullUs: 938695},
		IO:           probes.Pressure{SomeUs: 1614, FullUs: 1614},
	}
}

func v1Want() *probes.Cgroup {
	want := hybridWant()
	want.HasPSI, want.CPU, want.IO = false, probes.Pressure{}, probes.Pressure{}
	want.Missing = []string{"cpu.pressure", "io.pressure", "memory.pressure"}
	return want
}

func v2Want() *probes.Cgroup {
	return &probes.Cgroup{
		AtNs:       atNs,
		CPUUsageNs: 5432100000,
		CPUWeight:  59,
		Cpuset:     "0-3,8",
		Throttling: []probes.Throttling{
			{Periods: 400, Throttled: 300, QuotaUs: 150000, PeriodUs: 100000},
			{QuotaUs: -1, PeriodUs: 100000},
		},
		MemoryBytes: 268435456, MemoryLimit: 536870912,
		Anon: 104857600, File: 157286400, Shmem: 1048576, InactiveFile: 100663296,
		RefaultFile: 4096, RefaultAnon: 3, MajorFaults: 12,
		EventsMax: 42, OOMKills: 1,
		HasPSI: true,
		CPU:    probes.Pressure{SomeUs: 111, FullUs: 11},
		Memory: probes.Pressure{SomeUs: 222, FullUs: 22},
		IO:     probes.Pressure{SomeUs: 333, FullUs: 33},
	}
}

func TestReadModes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		target probes.Target
		want   *probes.Cgroup
	}{
		{"hybrid", hybridTarget(), hybridWant()},
		{"v1", v1Target(), v1Want()},
		{"v2", v2Target(), v2Want()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := New()
			defer p.Close()
			p.now = func() int64 { return atNs }
			if err := p.Watch(tc.target); err != nil {
				t.Fatal(err)
			}
			for range 2 { // opened, then kept open
				into := map[string]*probes.Sample{}
				if err := p.Read(context.Background(), into); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, into["box"].Cgroup); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// What is absent or malformed is named, and nothing else suffers.
func TestAbsentIsNotZero(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "box")
	if err := os.CopyFS(dir, os.DirFS("testdata/v2/system.slice/docker-c0ffee.scope")); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"memory.current": "many\n",
		"memory.stat":    "anon 5\nfile nothing\n",
		"cpu.max":        "100000\n",
		"io.pressure":    "some avg10=0\n",
		"memory.max":     "-7\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := New()
	defer p.Close()
	target := probes.Target{Key: "box", Dir: func(string) string { return dir }, Unified: dir, V2: true}
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	into := map[string]*probes.Sample{}
	if err := p.Read(context.Background(), into); err != nil {
		t.Fatal(err)
	}
	got := into["box"].Cgroup
	want := []string{"io.pressure", "memory.current", "memory.max",
		"memory.stat:file", "memory.stat:inactive_file", "memory.stat:pgmajfault", "memory.stat:shmem",
		"memory.stat:workingset_refault_anon", "memory.stat:workingset_refault_file", "throttling"}
	if diff := cmp.Diff(want, got.Missing); diff != "" {
		t.Error(diff)
	}
	if got.HasPSI || got.Anon != 5 || got.CPUWeight != 59 {
		t.Errorf("the rest: %+v", got)
	}
}

func TestGoneContainerIsLeftOut(t *testing.T) {
	p := New()
	defer p.Close()
	gone := probes.Target{Key: "gone", Dir: func(string) string { return "/nonexistent" }, Unified: "/nonexistent", V2: true}
	for _, target := range []probes.Target{gone, v2Target()} {
		if err := p.Watch(target); err != nil {
			t.Fatal(err)
		}
	}
	into := map[string]*probes.Sample{}
	if err := p.Read(context.Background(), into); err == nil {
		t.Error("a container without files gives no error")
	}
	if into["gone"] != nil || into["box"] == nil {
		t.Errorf("samples: %v", into)
	}
}

// A file longer than the cap is refused, not cut.
func TestLongFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cpu.stat")
	if err := os.WriteFile(path, make([]byte, maxFileBytes+1), 0o644); err != nil {
		t.Fatal(err)
	}
	f := newFiles()
	if _, err := f.read(filepath.Dir(path), filepath.Base(path)); err == nil {
		t.Error("read a file beyond the cap")
	}
}

// The live tree, where there is one: whatever mode this host has, CPU use is
// there, and Unwatch closes what was opened.
func TestLiveTree(t *testing.T) {
	target, ok := liveTarget()
	if !ok {
		t.Skip("needs a cgroup tree under /sys/fs/cgroup")
	}
	before := openFiles(t)
	p := New()
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	into := map[string]*probes.Sample{}
	if err := p.Read(context.Background(), into); err != nil {
		t.Fatal(err)
	}
	if into["live"].Cgroup.CPUUsageNs == 0 {
		t.Errorf("no CPU use: %+v", into["live"].Cgroup)
	}
	if openFiles(t) <= before {
		t.Error("nothing is kept open")
	}
	p.Unwatch("live")
	if after := openFiles(t); after != before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}

// Containers below one cgroup share its files, which are closed with the last of them.
func TestAncestorsAreSharedAndFresh(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "job")
	const from = "testdata/v2/system.slice/docker-c0ffee.scope"
	if err := os.CopyFS(parent, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	p := New()
	for _, key := range []string{"a", "b"} {
		dir := filepath.Join(parent, key)
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		if err := p.Watch(probes.Target{Key: key, Dir: func(string) string { return dir }, Unified: dir, V2: true}); err != nil {
			t.Fatal(err)
		}
	}
	throttled := func(key string) uint64 {
		t.Helper()
		into := map[string]*probes.Sample{}
		if err := p.Read(context.Background(), into); err != nil {
			t.Fatal(err)
		}
		all := into[key].Cgroup.Throttling
		if len(all) != 2 {
			t.Fatalf("%s: %d cgroups may throttle, want its own and the one above: %+v", key, len(all), all)
		}
		return all[1].Throttled
	}
	if a, b := throttled("a"), throttled("b"); a != 300 || b != 300 {
		t.Errorf("the one above was throttled %d and %d times, want 300", a, b)
	}
	shared := openFiles(t)
	if err := os.WriteFile(filepath.Join(parent, "cpu.stat"), []byte("nr_periods 401\nnr_throttled 301\nthrottled_usec 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := throttled("a"); got != 301 {
		t.Errorf("throttled %d times, want what stands now", got)
	}
	own := len(p.files.dirs[filepath.Join(parent, "a")].open)
	p.Unwatch("a")
	if got := openFiles(t); got != shared-own {
		t.Errorf("%d files open after one of two left, want %d: those above are still in use", got, shared-own)
	}
	if got := throttled("b"); got != 301 {
		t.Errorf("throttled %d times, want 301", got)
	}
	p.Unwatch("b")
	if got := openFiles(t); got != before {
		t.Errorf("%d open files before, %d after", before, got)
	}
}

func liveTarget() (probes.Target, bool) {
	const root = "/sys/fs/cgroup"
	if exists(root + "/cpuacct/cpuacct.usage") {
		return probes.Target{Key: "live", Dir: func(c string) string { return filepath.Join(root, c) },
			Unified: root + "/unified"}, true
	}
	if exists(root + "/cgroup.controllers") {
		return probes.Target{Key: "live", Dir: func(string) string { return root }, Unified: root, V2: true}, true
	}
	return probes.Target{}, false
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func benchmarkRead(b *testing.B, keepOpen bool) {
	target, ok := liveTarget()
	if !ok {
		b.Skip("needs a cgroup tree under /sys/fs/cgroup")
	}
	p := New()
	defer p.Close()
	if err := p.Watch(target); err != nil {
		b.Fatal(err)
	}
	into := map[string]*probes.Sample{}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Read(context.Background(), into); err != nil {
			b.Fatal(err)
		}
		if !keepOpen {
			c := p.containers["live"]
			p.files.leave(c.dirs())
			p.files.use(c.dirs())
		}
	}
}

// One container; the goal is ten of them each second in much less than 2 ms.
func BenchmarkRead(b *testing.B)        { benchmarkRead(b, true) }
func BenchmarkReadOpening(b *testing.B) { benchmarkRead(b, false) }

// Beyond a number of files none is kept open, and all are read all the same: with some thousand
// containers they were all that the daemon may open.
func TestOpenFilesAreBounded(t *testing.T) {
	target, ok := liveTarget()
	if !ok {
		t.Skip("needs a cgroup tree under /sys/fs/cgroup")
	}
	const most = 3
	before := openFiles(t)
	p := New()
	p.files.room = most
	if err := p.Watch(target); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		into := map[string]*probes.Sample{}
		if err := p.Read(t.Context(), into); err != nil || into["live"].Cgroup.CPUUsageNs == 0 {
			t.Fatalf("%+v, %v", into["live"], err)
		}
		if n := openFiles(t) - before; n > most {
			t.Errorf("%d files are kept open, want %d", n, most)
		}
	}
	p.Unwatch("live")
	if after := openFiles(t); after != before || p.files.room != most {
		t.Errorf("%d open files before, %d after; room for %d of %d", before, after, p.files.room, most)
	}
}

// TestAbsentForOnceStands: a counter that could not be read for once has counted nothing in that second, and
// not anew all that it ever counted in the next. What could not be read is named.
func TestAbsentForOnceStands(t *testing.T) {
	for _, file := range []string{"memory.stat", "memory.current", "memory.events", "cpu.stat", "memory.max", "cpu.weight"} {
		dir := filepath.Join(t.TempDir(), "box")
		if err := os.CopyFS(dir, os.DirFS("testdata/v2/system.slice/docker-c0ffee.scope")); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		p := New()
		defer p.Close()
		now := int64(0)
		p.now = func() int64 { return now }
		if err := p.Watch(probes.Target{Key: "box", Dir: func(string) string { return dir }, Unified: dir, V2: true}); err != nil {
			t.Fatal(err)
		}
		read := func(content []byte) *probes.Cgroup {
			now += 20e9 // all is due
			if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
				t.Fatal(err)
			}
			into := map[string]*probes.Sample{}
			if err := p.Read(context.Background(), into); err != nil {
				t.Fatal(err)
			}
			got := *into["box"].Cgroup
			got.AtNs, got.Throttling = 0, nil // these are of one reading
			return &got
		}
		before, absent, after := read(content), read(nil), read(content)
		if len(absent.Missing) == 0 {
			t.Errorf("%s: nothing is told to be missing", file)
		}
		absent.Missing = nil
		if diff := cmp.Diff(before, absent); diff != "" {
			t.Errorf("%s is absent for once (-before +then):\n%s", file, diff)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s is back (-before +then):\n%s", file, diff)
		}
	}
}
