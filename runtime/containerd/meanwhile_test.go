package containerd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/engine"
)

// TestSetMeanwhileStands: a runtime's write carries all values that were read before it. Limits that somebody
// else set since are written once more, and nothing else is; what a runtime leaves on its way is nobody's.
func TestSetMeanwhileStands(t *testing.T) {
	tick, err := cgroup.StartTick("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	files := map[runtime.Knob]string{runtime.KnobCPUWeight: "cpu.weight", runtime.KnobCPUQuota: "cpu.max", runtime.KnobCpuset: "cpuset.cpus",
		runtime.KnobMemoryLimit: "memory.max", runtime.KnobMemorySwap: "memory.swap.max"}
	before := runtime.Values{runtime.KnobCPUWeight: "70", runtime.KnobCPUQuota: "30000 100000", runtime.KnobCpuset: "0",
		runtime.KnobMemoryLimit: "134217728", runtime.KnobMemorySwap: "268435456"}
	weight := runtime.Values{runtime.KnobCPUWeight: "90"}
	for name, tc := range map[string]struct {
		asked, theirs runtime.Values // theirs: what somebody sets while the runtime is at work
		inFlight      []runtime.Values
		want          runtime.Values // what is written again
		refused       bool           // that is
	}{
		"nothing":                   {asked: weight},
		"another knob":              {asked: weight, theirs: runtime.Values{runtime.KnobCPUQuota: "20000 100000"}, want: runtime.Values{runtime.KnobCPUQuota: "20000 100000"}},
		"the knob itself":           {asked: runtime.Values{runtime.KnobCPUQuota: "90000 100000"}, theirs: runtime.Values{runtime.KnobCPUQuota: "20000 100000"}, want: runtime.Values{runtime.KnobCPUQuota: "20000 100000"}},
		"as systemd rounds a quota": {asked: weight, theirs: runtime.Values{runtime.KnobCPUQuota: "30500 100000"}},
		"a period without its quota": {asked: runtime.Values{runtime.KnobCPUQuota: "40000 50000"},
			theirs: runtime.Values{runtime.KnobCPUQuota: "30000 50000"}},
		"a weight of an older record": {asked: runtime.Values{runtime.KnobCPUQuota: "90000 100000"}, theirs: runtime.Values{runtime.KnobCPUWeight: "39"}},
		"a memory limit with its swap limit": {asked: weight, theirs: runtime.Values{runtime.KnobMemoryLimit: "536870912", runtime.KnobMemorySwap: "1073741824"},
			want: runtime.Values{runtime.KnobMemoryLimit: "536870912", runtime.KnobMemorySwap: "1073741824"}},
		"a memory limit beside our swap limit": {asked: runtime.Values{runtime.KnobMemorySwap: "0"}, theirs: runtime.Values{runtime.KnobMemoryLimit: "536870912"},
			want: runtime.Values{runtime.KnobMemoryLimit: "536870912"}},
		"CPUs are no longer chosen": {asked: weight, theirs: runtime.Values{runtime.KnobCpuset: ""}, want: runtime.Values{runtime.KnobCpuset: "0-1"}},
		"a write that was cut short lands": {asked: runtime.Values{runtime.KnobCPUQuota: "40000 100000"},
			theirs:   runtime.Values{runtime.KnobCPUQuota: "76000 100000", runtime.KnobMemoryLimit: "536870912", runtime.KnobMemorySwap: "1073741824"},
			inFlight: []runtime.Values{{runtime.KnobMemoryLimit: "536870912"}, {runtime.KnobCPUQuota: "76000 100000"}}},
		"half of one": {asked: weight, theirs: runtime.Values{runtime.KnobCPUQuota: "76000 100000", runtime.KnobCpuset: "1"}, want: runtime.Values{runtime.KnobCpuset: "1"},
			inFlight: []runtime.Values{{runtime.KnobCPUQuota: "76000 50000"}}},
		"it cannot be set again": {asked: weight, theirs: runtime.Values{runtime.KnobCPUQuota: "20000 100000"}, refused: true,
			want: runtime.Values{runtime.KnobCPUQuota: "20000 100000"}},
	} {
		t.Run(name, func(t *testing.T) {
			above := t.TempDir()
			dir := filepath.Join(above, "c")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			put := func(dir, file string, v runtime.Value) { // at once, as the kernel does
				if err := os.WriteFile(filepath.Join(above, "new"), []byte(v+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(filepath.Join(above, "new"), filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			put(above, "cpuset.cpus.effective", "0-1")
			for knob, v := range before {
				put(dir, files[knob], v)
			}
			c := runtime.Container{ID: runtime.ID{Container: "c", StartTick: tick}, Name: "c", InitPID: os.Getpid(), Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: dir}}
			host := engine.Host{ProcRoot: "/proc"}
			stands, err := host.Read(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			var again runtime.Values
			first := true
			err = keepMeanwhile(t.Context(), host, c, stands, tc.asked, tc.inFlight, func(_ context.Context, stands, want runtime.Values) error {
				if !first {
					again = want.Clone()
					if tc.refused {
						return runtime.ErrRefused
					}
				} else if first = false; len(tc.theirs) > 0 {
					for knob, v := range tc.theirs {
						put(dir, files[knob], v)
					}
					time.Sleep(100 * time.Millisecond) // many times lookEvery
				}
				for knob, v := range engine.Merge(stands, want) {
					put(dir, files[knob], v)
				}
				return nil
			})
			if (err != nil) != tc.refused || errors.Is(err, runtime.ErrRefused) { // what was asked for is not refused
				t.Error(err)
			}
			if diff := cmp.Diff(tc.want, again); diff != "" {
				t.Errorf("written again (-want +got):\n%s", diff)
			}
			want := engine.Merge(before, tc.asked)
			if !tc.refused {
				want = engine.Merge(want, tc.want)
			}
			if now, err := host.Read(t.Context(), c); err != nil || !cmp.Equal(now, want) {
				t.Errorf("%v; in the end (-want +got):\n%s", err, cmp.Diff(want, now))
			}
		})
	}
}
