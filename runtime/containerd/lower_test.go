package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/runtime"
)

// TestLoweredMakesRoomFirst: on v2 page cache above the new limit is reclaimed before the
// runtime looks, and where the kernel cannot be asked to, the runtime does not look.
func TestLoweredMakesRoomFirst(t *testing.T) {
	const gib = 1 << 30
	broken := errors.New("the socket is gone")
	for name, c := range map[string]struct {
		mode         runtime.CgroupMode
		limit        runtime.Value // of 4 GiB
		old          bool          // no memory.reclaim
		refuses      int           // the first so many updates
		fails        error
		updates      int
		looks        bool  // CheckBeforeUpdate, at the last
		asked, wrong bool  // memory.reclaim; refused in the end
		held         int64 // of what is used, not to be freed
	}{
		"lower, and it grew meanwhile":     {mode: runtime.CgroupV2, limit: runtime.IntValue(gib), held: gib - 1<<20, asked: true, wrong: true},
		"the same, and no memory.reclaim":  {mode: runtime.CgroupV2, limit: runtime.IntValue(gib), held: gib - 1<<20, old: true, wrong: true},
		"lower, to a little above it":      {mode: runtime.CgroupV2, limit: runtime.IntValue(gib), held: gib - 40<<20, updates: 1, looks: true, asked: true},
		"lower":                            {mode: runtime.CgroupV2, limit: runtime.IntValue(gib), updates: 1, looks: true, asked: true},
		"lower, refused once":              {mode: runtime.CgroupV2, limit: runtime.IntValue(gib), refuses: 1, updates: 2, looks: true, asked: true},
		"lower, refused for ever":          {mode: runtime.CgroupV2, limit: runtime.IntValue(gib), refuses: 99, updates: lowerTries, looks: true, asked: true, wrong: true},
		"lower, and no answer":             {mode: runtime.CgroupV2, limit: runtime.IntValue(gib), refuses: 99, fails: broken, updates: 1, looks: true, asked: true, wrong: true},
		"lower, the kernel cannot reclaim": {mode: runtime.CgroupV2, limit: runtime.IntValue(gib), old: true, updates: 1},
		"lower, above what is used":        {mode: runtime.CgroupV2, limit: runtime.IntValue(3 * gib), updates: 1, looks: true},
		"higher":                           {mode: runtime.CgroupV2, limit: runtime.IntValue(8 * gib), updates: 1},
		"none":                             {mode: runtime.CgroupV2, limit: runtime.ValueMax, updates: 1},
		"v1, whose kernel refuses itself":  {mode: runtime.CgroupHybrid, limit: runtime.IntValue(gib), updates: 1, looks: true},
		"v1, refused while it makes room":  {mode: runtime.CgroupHybrid, limit: runtime.IntValue(gib), refuses: 1, updates: 2, looks: true},
		"v1, refused for ever":             {mode: runtime.CgroupHybrid, limit: runtime.IntValue(gib), refuses: 99, updates: lowerTries, looks: true, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("memory.current", fmt.Sprint(2*gib))
			write("memory.stat", fmt.Sprintf("anon %d\nfile %d\nshmem 4096\nunevictable 0\n", c.held, 2*gib-c.held))
			if !c.old {
				write("memory.reclaim", "")
			}
			cg := runtime.Cgroup{Mode: c.mode, Unified: dir}
			stands := runtime.Values{runtime.KnobMemoryLimit: runtime.IntValue(4 * gib)}
			updates, looked := 0, false
			err := lowered(t.Context(), runtime.Container{Cgroup: cg}, LinuxResources(cg, stands, runtime.Values{runtime.KnobMemoryLimit: c.limit}), stands[runtime.KnobMemoryLimit], func(r *specs.LinuxResources) error {
				updates++
				looked = r.Memory.CheckBeforeUpdate != nil && *r.Memory.CheckBeforeUpdate
				switch {
				case updates > c.refuses:
					return nil
				case c.fails != nil:
					return c.fails
				}
				return fmt.Errorf("rejecting memory limit: %w", runtime.ErrRefused)
			})
			if updates != c.updates || looked != c.looks || (err != nil) != c.wrong {
				t.Errorf("%d updates, the last with a look %v: %v", updates, looked, err)
			}
			if asked, _ := os.ReadFile(filepath.Join(dir, "memory.reclaim")); (len(asked) > 0) != c.asked {
				t.Errorf("asked the kernel for %q", asked)
			}
		})
	}
}
