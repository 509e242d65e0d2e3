package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// TestUnknownButRunningIsNotGone: a write path that does not know a container whose process runs is the
// wrong write path. Its originals stay.
func TestUnknownButRunningIsNotGone(t *testing.T) {
	tick, err := cgroup.StartTick("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cpu.weight"), []byte("39\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := runtime.Container{ID: runtime.ID{Container: "c", StartTick: tick}, Name: "c", InitPID: os.Getpid(), Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: dir}}
	err = new(Writer).Apply(t.Context(), Host{ProcRoot: "/proc"}, c, runtime.Values{runtime.KnobCPUWeight: "70"},
		func(context.Context, runtime.Values, runtime.Values) error { return runtime.ErrGone })
	if errors.Is(err, runtime.ErrGone) || !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("%v, want that it cannot be had now", err)
	}
}

// TestWhatARefusalLeavesIsPutBack: of a write that a write path refused after a part of it, that
// part goes back, by the same write path; what it did not write is not written again.
func TestWhatARefusalLeavesIsPutBack(t *testing.T) {
	tick, err := cgroup.StartTick("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		partly bool
		want   []runtime.Values
	}{
		"whole":  {false, nil},
		"partly": {true, []runtime.Values{{runtime.KnobCPUWeight: "39"}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(file, text string) {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			put("cpu.weight", "39")
			put("cpu.max", "50000 100000")
			c := runtime.Container{ID: runtime.ID{Container: "c", StartTick: tick}, Name: "c", InitPID: os.Getpid(), Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: dir}}
			var back []runtime.Values
			first := true
			err := new(Writer).Apply(t.Context(), Host{ProcRoot: "/proc"}, c, runtime.Values{runtime.KnobCPUWeight: "70", runtime.KnobCPUQuota: "90000 100000"},
				func(_ context.Context, _, want runtime.Values) error {
					if !first {
						back = append(back, want)
						put("cpu.weight", string(want[runtime.KnobCPUWeight]))
						return nil
					}
					if first = false; tc.partly {
						put("cpu.weight", "70")
					}
					return runtime.ErrRefused
				})
			if !errors.Is(err, runtime.ErrRefused) {
				t.Errorf("%v, want the refusal", err)
			}
			if diff := cmp.Diff(tc.want, back); diff != "" {
				t.Errorf("put back (-want +got):\n%s", diff)
			}
		})
	}
}
