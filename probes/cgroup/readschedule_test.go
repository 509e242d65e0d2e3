package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/probes"
)

// A quiet container's files take turns, one that works has what moves read each
// time, and nothing is older than a turn.
func TestReadSchedule(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "box")
	if err := os.CopyFS(dir, os.DirFS("testdata/v2/system.slice/docker-c0ffee.scope")); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := New()
	defer p.Close()
	var now int64
	p.now = func() int64 { return now }
	if err := p.Watch(probes.Target{Key: "box", Dir: func(string) string { return dir }, Unified: dir, V2: true}); err != nil {
		t.Fatal(err)
	}
	usedUs := uint64(5_000_000)
	read := func(usUsed uint64) *probes.Cgroup { // a second later
		t.Helper()
		now += 1e9
		usedUs += usUsed
		write("cpu.stat", fmt.Sprintf("usage_usec %d\nnr_periods 400\nnr_throttled 300\nthrottled_usec 7654321\n", usedUs))
		into := map[string]*probes.Sample{}
		if err := p.Read(context.Background(), into); err != nil {
			t.Fatal(err)
		}
		return into["box"].Cgroup
	}
	// until is in how many readings what changed is seen.
	until := func(usUsed uint64, seen func(*probes.Cgroup) bool) int {
		for n := 1; n < 20; n++ {
			if seen(read(usUsed)) {
				return n
			}
		}
		return 0
	}
	const busyUs, idleUs = 300_000, 100
	for range 6 {
		read(busyUs)
	}
	events := func(n int) func(*probes.Cgroup) bool {
		write("memory.events", fmt.Sprintf("low 0\nhigh 7\nmax %d\noom 1\noom_kill 1\n", n))
		return func(g *probes.Cgroup) bool { return g.EventsMax == uint64(n) }
	}
	weight := func(n int) func(*probes.Cgroup) bool {
		write("cpu.weight", fmt.Sprintf("%d\n", n))
		return func(g *probes.Cgroup) bool { return g.CPUWeight == uint64(n) }
	}
	if n := until(busyUs, events(50)); n != 1 {
		t.Errorf("a working container's events were seen after %d readings, want 1", n)
	}
	if n := until(busyUs, weight(77)); n < 1 || n > 5 {
		t.Errorf("a working container's weight was seen after %d readings, want 1 to 5", n)
	}
	for range 12 {
		read(idleUs)
	}
	if !p.containers["box"].readSchedule.quiet {
		t.Fatal("an idle container is not quiet")
	}
	waited := 0
	for i := range 5 {
		n := until(idleUs, events(60+i))
		if n < 1 || n > 10 {
			t.Errorf("a quiet container's events were seen after %d readings, want 1 to 10", n)
		}
		waited = max(waited, n)
		for range 7 + i {
			read(idleUs)
		}
	}
	if waited < 6 {
		t.Errorf("a container that stays quiet is read after %d readings at the latest: as often as one that works", waited)
	}
	write("memory.current", "300000000\n")
	if n := until(busyUs, func(g *probes.Cgroup) bool { return g.MemoryBytes == 300000000 }); n != 1 {
		t.Errorf("once it works its memory was seen after %d readings, want 1", n)
	}
}

// Where the CPU use cannot be read for once, the counter stands, and that is told: it is no use of nothing.
func TestUseThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct{ file, good string }{
		"v2": {"cpu.stat", "usage_usec %d000000\nnr_periods 400\nnr_throttled 300\n"},
		"v1": {"cpuacct.usage", "%d000000000\n"},
	} {
		dir := filepath.Join(t.TempDir(), "box")
		if err := os.CopyFS(dir, os.DirFS("testdata/v2/system.slice/docker-c0ffee.scope")); err != nil {
			t.Fatal(err)
		}
		p := New()
		defer p.Close()
		if err := p.Watch(probes.Target{Key: "box", Dir: func(string) string { return dir }, Unified: dir, V2: name == "v2"}); err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct {
			usedNs uint64
			unread bool
		}{{1e9, false}, {1e9, true}, {3e9, false}} {
			content := fmt.Sprintf(c.good, i+1)
			if want.unread {
				content = "\n"
			}
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			into := map[string]*probes.Sample{}
			if err := p.Read(context.Background(), into); err != nil {
				t.Fatal(err)
			}
			if g := into["box"].Cgroup; g.CPUUsageNs != want.usedNs || g.UseUnread() != want.unread {
				t.Errorf("%s, reading %d: %d ns, unread %v (%q); want %+v", name, i, g.CPUUsageNs, g.UseUnread(), g.Missing, want)
			}
		}
	}
}
