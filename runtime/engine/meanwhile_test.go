package engine

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// TestSetMeanwhileStands: a runtime's write carries all values that were read before it. What somebody
// else set since is written once more, and nothing else is; what the runtime leaves on its way is nobody's.
func TestSetMeanwhileStands(t *testing.T) {
	tick, err := cgroup.StartTick("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		file, theirs string // what somebody sets while the runtime is at work
		want         []runtime.Values
		stands       runtime.Value // of the quota, in the end
	}{
		"nothing":                     {"", "", nil, "30000 100000"},
		"another knob":                {"cpu.max", "20000 100000", []runtime.Values{{runtime.KnobCPUQuota: "20000 100000"}}, "20000 100000"},
		"the knob itself":             {"memory.high", "4194304", []runtime.Values{{runtime.KnobMemoryHigh: "4194304"}}, "30000 100000"},
		"as systemd rounds a quota":   {"cpu.max", "30500 100000", nil, "30000 100000"},
		"a weight of an older record": {"cpu.weight", "39", nil, "30000 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(file, text string) { // at once, as the kernel does
				if err := os.WriteFile(filepath.Join(dir, "new"), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			put("cpu.weight", "70")
			put("cpu.max", "30000 100000")
			put("memory.high", "max")
			files := map[runtime.Knob]string{runtime.KnobCPUWeight: "cpu.weight", runtime.KnobCPUQuota: "cpu.max", runtime.KnobMemoryHigh: "memory.high"}
			c := runtime.Container{ID: runtime.ID{Container: "c", StartTick: tick}, Name: "c", InitPID: os.Getpid(), Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: dir}}
			host := Host{ProcRoot: "/proc"}
			var again []runtime.Values
			first := true
			err := new(Writer).Apply(t.Context(), host, c, runtime.Values{runtime.KnobMemoryHigh: "8388608"},
				func(_ context.Context, stands, want runtime.Values) error {
					if !first {
						again = append(again, want.Clone())
					} else if first = false; tc.file != "" {
						put(tc.file, tc.theirs)
						time.Sleep(100 * time.Millisecond) // many times lookEvery
					}
					for knob, v := range Merge(stands, want) {
						put(files[knob], string(v))
					}
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, again); diff != "" {
				t.Errorf("written again (-want +got):\n%s", diff)
			}
			if now, err := host.Read(t.Context(), c); err != nil || now[runtime.KnobCPUQuota] != tc.stands {
				t.Errorf("%v, %v; want the quota %s", now, err, tc.stands)
			}
		})
	}
}
