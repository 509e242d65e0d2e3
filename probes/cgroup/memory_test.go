package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/probes"
)

func TestReadMemory(t *testing.T) {
	for name, c := range map[string]struct {
		target probes.Target
		want   Memory
	}{
		"v1": {v1Target(), Memory{Usage: 105336832, Anon: 59518976}},
		"v2": {v2Target(), Memory{Usage: 268435456, Anon: 104857600, Shmem: 1048576, Rigid: 268435456 - 100663296 - 56623104}},
	} {
		got, err := ReadMemory(c.target)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// memoryFiles places a container's memory files in a directory of their own.
func memoryFiles(t *testing.T, v2 bool, files map[string]string) probes.Target {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return probes.Target{Key: "box", Dir: func(string) string { return dir }, Unified: dir, V2: v2}
}

// TestRigidMemory: what a lower limit cannot have the kernel free at once.
func TestRigidMemory(t *testing.T) {
	for name, c := range map[string]struct {
		stat string
		want uint64 // of 1000
	}{
		"file pages are free":                {"inactive_file 300\nactive_file 200\n", 500},
		"slab that shrinks as well":          {"inactive_file 300\nactive_file 200\nslab_reclaimable 50\nslab_unreclaimable 70\n", 450},
		"not those to be written":            {"inactive_file 300\nactive_file 200\nfile_dirty 60\nfile_writeback 40\n", 600},
		"all of them are to be":              {"inactive_file 300\nfile_dirty 350\n", 1000},
		"locked pages are on no list":        {"inactive_file 300\nunevictable 400\n", 700},
		"nothing is told":                    {"", 1000},
		"read apart, and more was free then": {"inactive_file 900\nactive_file 300\n", 0},
	} {
		m, err := ReadMemory(memoryFiles(t, true, map[string]string{"memory.current": "1000", "memory.stat": "anon 1\nshmem 2\n" + c.stat}))
		if err != nil || m.Rigid != c.want {
			t.Errorf("%s: %d, %v; want %d", name, m.Rigid, err, c.want)
		}
	}
}

// TestReadMemoryNeedsItsFiles: what is absent is no zero, or a limit would be set that kills.
func TestReadMemoryNeedsItsFiles(t *testing.T) {
	const v1Stat = "total_rss 1\ntotal_shmem 2\ntotal_swap 3\n"
	got, err := ReadMemory(memoryFiles(t, false, map[string]string{"memory.usage_in_bytes": "9", "memory.stat": v1Stat}))
	if want := (Memory{Usage: 9, Anon: 1, Shmem: 2, Swap: 3}); err != nil || got != want {
		t.Errorf("v1: %+v, %v, want %+v", got, err, want)
	}
	for name, c := range map[string]struct {
		v2    bool
		files map[string]string
		want  string
	}{
		"v1 without memory.stat":  {false, map[string]string{"memory.usage_in_bytes": "9"}, "memory.stat"},
		"v1 without usage":        {false, map[string]string{"memory.stat": v1Stat}, "memory.usage_in_bytes"},
		"v1 without shmem":        {false, map[string]string{"memory.usage_in_bytes": "9", "memory.stat": "total_rss 1\n"}, "total_shmem"},
		"v2 without memory.stat":  {true, map[string]string{"memory.current": "9"}, "memory.stat"},
		"v2 without anon":         {true, map[string]string{"memory.current": "9", "memory.stat": "shmem 2\n"}, "anon"},
		"v2 with an empty usage":  {true, map[string]string{"memory.current": "", "memory.stat": "anon 1\nshmem 2\n"}, "memory.current"},
		"nothing: the group ends": {true, nil, "memory"},
	} {
		if m, err := ReadMemory(memoryFiles(t, c.v2, c.files)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want an error that names %s", name, m, err, c.want)
		}
	}
}

// TestReadMemoryKeepsNothingOpen: pending restores are looked at every 10 s for as long as they stand.
func TestReadMemoryKeepsNothingOpen(t *testing.T) {
	count := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := count()
	for range 10 {
		if _, err := ReadMemory(v2Target()); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after > before {
		t.Errorf("%d files open, %d before", after, before)
	}
}
