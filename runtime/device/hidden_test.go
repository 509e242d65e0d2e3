package device

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/runtime"
)

// TestWhoHidIt: the record tells, also a later daemon, and a person who asks for the same
// takes it over.
func TestWhoHidIt(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "devices.list"), "c 195:0 rwm\nc 195:255 rwm\n")
	c := runtime.Container{ID: runtime.ID{Engine: "docker", Container: "4f0c"}, Name: "job", Cgroup: runtime.Cgroup{Mode: runtime.CgroupV1, V1: map[string]string{"devices": dir}}}
	records := &memRecords{all: map[string]Hidden{c.Key(): {Container: c, Minors: []int{1}, ByPolicy: []int{1}, Removed: rulesFrom(t, "c 195:1 rwm")}}}
	v := hider(t, records, nil)
	known := runtime.GPUView{UUIDs: map[int]string{0: "GPU-a", 1: "GPU-b"}, Hidden: []int{1}}
	visibilities, err := v.See(t.Context(), c, known)
	if err != nil || len(visibilities) != 2 || visibilities[0].Hidden || visibilities[0].ByPolicy || !visibilities[1].Hidden || !visibilities[1].ByPolicy {
		t.Errorf("%+v, %v", visibilities, err)
	}
	for _, by := range [][]int{nil, {1}} {
		known.ByPolicy = append(slices.Clone(by), 7) // what is not hidden has nobody who hid it
		before, _ := v.ledger.get(c.Key())
		target, more, err := v.target(t.Context(), c, before, known)
		if err != nil || len(more) > 0 || !slices.Equal(target.ByPolicy, by) {
			t.Errorf("by policy %v: %+v, more %v, %v", by, target.ByPolicy, more, err)
		}
	}
}
