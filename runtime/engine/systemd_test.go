package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// TestSystemdIsToldOfIOWeights: before the file, on v2 and of a scope alone; what it
// refuses is not written.
func TestSystemdIsToldOfIOWeights(t *testing.T) {
	tick, err := cgroup.StartTick("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	io := runtime.Values{runtime.KnobIOWeight: "300"}
	for _, tc := range []struct {
		name      string
		group     string
		set       runtime.Values
		refusal   error
		writePath error
		want      []string
	}{
		{"a scope", "docker-x.scope", io, nil, nil, []string{"docker-x.scope 300", "write"}},
		{"the write path refuses", "docker-x.scope", io, nil, runtime.ErrRefused, []string{"docker-x.scope 300", "write", "docker-x.scope 100"}},
		{"the write path refuses another knob", "docker-x.scope", runtime.Values{runtime.KnobCPUWeight: "50"}, nil, runtime.ErrRefused, []string{"write"}},
		{"another knob", "docker-x.scope", runtime.Values{runtime.KnobCPUWeight: "50"}, nil, nil, []string{"write"}},
		{"cgroupfs's driver", "x", io, nil, nil, []string{"write"}},
		{"BFQ's file is there", "bfq.scope", io, nil, nil, []string{"write"}},
		{"refused", "docker-x.scope", io, errors.New("bus away"), nil, []string{"docker-x.scope 300"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), tc.group)
			for name, text := range map[string]string{"cpu.weight": "39\n", "io.weight": "default 100\n"} {
				if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			if tc.group == "bfq.scope" {
				if err := os.WriteFile(filepath.Join(dir, "io.bfq.weight"), []byte("default 100\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var did []string
			w := Writer{SetIOWeight: func(_ context.Context, unit string, weight uint64) error {
				did = append(did, fmt.Sprint(unit, " ", weight))
				return tc.refusal
			}}
			c := runtime.Container{ID: runtime.ID{Container: "c", StartTick: tick}, Name: "c", InitPID: os.Getpid(), Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: dir}}
			err := w.Apply(t.Context(), Host{ProcRoot: "/proc"}, c, tc.set,
				func(context.Context, runtime.Values, runtime.Values) error {
					did = append(did, "write")
					return tc.writePath
				})
			if !slices.Equal(did, tc.want) || (err != nil) != (tc.refusal != nil || tc.writePath != nil) || tc.writePath != nil && !errors.Is(err, tc.writePath) || tc.refusal != nil && !errors.Is(err, runtime.ErrUnavailable) {
				t.Errorf("%v, %v; want %v", did, err, tc.want)
			}
		})
	}
}

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
