package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

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
		name    string
		group   string
		set     runtime.Values
		refusal error
		door    error
		want    []string
	}{
		{"a scope", "docker-x.scope", io, nil, nil, []string{"docker-x.scope 300", "write"}},
		{"the door refuses", "docker-x.scope", io, nil, runtime.ErrRefused, []string{"docker-x.scope 300", "write", "docker-x.scope 100"}},
		{"the door refuses another knob", "docker-x.scope", runtime.Values{runtime.KnobCPUWeight: "50"}, nil, runtime.ErrRefused, []string{"write"}},
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
					return tc.door
				})
			if !slices.Equal(did, tc.want) || (err != nil) != (tc.refusal != nil || tc.door != nil) || tc.door != nil && !errors.Is(err, tc.door) || tc.refusal != nil && !errors.Is(err, runtime.ErrUnavailable) {
				t.Errorf("%v, %v; want %v", did, err, tc.want)
			}
		})
	}
}
