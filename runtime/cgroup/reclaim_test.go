package cgroup

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/runtime"
)

// TestReclaimAsksForATenthAtATime: the file that is written is a plain one, so that it
// holds the latest request alone and nothing is freed.
func TestReclaimAsksForATenthAtATime(t *testing.T) {
	for name, c := range map[string]struct {
		current string
		to      int64
		want    string // written in all; "": nothing
		none    bool   // no such file
		fails   bool
	}{
		"far above":            {current: "1000000000\n", to: 500_000_000, want: "100000000"},
		"a little above":       {current: "1000000000\n", to: 990_000_000, want: "10000000"},
		"there already":        {current: "1000000000\n", to: 1_000_000_000},
		"an old kernel":        {current: "1000000000\n", to: 500_000_000, none: true},
		"use cannot be read":   {current: "?", to: 500_000_000, fails: true},
		"small, in one step":   {current: "2000000\n", to: 0, want: "1048576"},
		"its use is not there": {to: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.current != "" {
				if err := os.WriteFile(filepath.Join(dir, "memory.current"), []byte(c.current), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, "memory.reclaim")
			if !c.none {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ok, err := Reclaim(t.Context(), runtime.Cgroup{Mode: runtime.CgroupV2, Unified: dir}, c.to)
			if ok == c.none || (err != nil) != c.fails {
				t.Fatalf("%v, %v", ok, err)
			}
			got, _ := os.ReadFile(path)
			want := ""
			for i := 0; c.want != "" && i < reclaimRounds; i++ {
				want += c.want
			}
			if string(got) != want {
				t.Errorf("asked for %q, want %s, at most %d times", got, c.want, reclaimRounds)
			}
		})
	}
}

// TestReclaimEnds: with the caller, and on v1 before it begins.
func TestReclaimEnds(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"memory.current": "1000000000", "memory.reclaim": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, err := Reclaim(ctx, runtime.Cgroup{Mode: runtime.CgroupV2, Unified: dir}, 1); !ok || err == nil {
		t.Errorf("cancelled: %v, %v", ok, err)
	}
	if ok, err := Reclaim(t.Context(), runtime.Cgroup{Mode: runtime.CgroupHybrid, Unified: dir}, 1); ok || err != nil {
		t.Errorf("v1: %v, %v", ok, err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "memory.reclaim")); len(got) > 0 {
		t.Errorf("asked for %q", got)
	}
}
