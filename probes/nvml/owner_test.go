package nvml

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
)

// TestServerOfMPS: it is known by its name, where it is the host's and the device is no MIG slice.
func TestServerOfMPS(t *testing.T) {
	proc := t.TempDir()
	for pid, comm := range map[string]string{"self": "trimtab", "1": "nvidia-cuda-mps", "2": "python3", "3": "nvidia-cuda-mps", "4": "nvidia-cuda-mps"} {
		space := map[bool]string{false: "pid:[1]", true: "pid:[2]"}[pid == "4"] // of an engine that nobody knows
		if err := os.MkdirAll(filepath.Join(proc, pid, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(space, filepath.Join(proc, pid, "ns/pid")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "comm"), []byte(comm+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := &Reader{o: Options{ProcRoot: proc, Owner: func(pid int32) string { return map[int32]string{2: "job", 3: "other"}[pid] }}}
	for _, tc := range []struct {
		told, want string
		pids       []int32
		server     []bool // each, afterwards
	}{
		{"", wire.SharingMPS, []int32{1}, []bool{true}},
		{wire.SharingSliced, wire.SharingMPS, []int32{1, 2}, []bool{true, false}},
		{wire.SharingMPS, wire.SharingMPS, []int32{2, 1}, []bool{false, true}},
		{wire.SharingSliced, wire.SharingMPS, []int32{2, 3}, []bool{false, false}}, // a container's is its own
		{wire.SharingSliced, wire.SharingMPS, []int32{2, 4}, []bool{false, false}},
		{"", "", []int32{2}, []bool{false}},
		{wire.SharingMIG, wire.SharingMIG, []int32{1, 2}, []bool{false, false}},
	} {
		d := probes.Device{Sharing: tc.told}
		for _, pid := range tc.pids {
			d.Processes = append(d.Processes, probes.DeviceProcess{PID: pid})
		}
		list := []probes.Device{d}
		r.attribute(list)
		if list[0].Sharing != tc.want {
			t.Errorf("%v, told %q: %q, want %q", tc.pids, tc.told, list[0].Sharing, tc.want)
		}
		for i, p := range list[0].Processes {
			if p.Server != tc.server[i] {
				t.Errorf("%v, told %q: process %d is a server: %v, want %v", tc.pids, tc.told, p.PID, p.Server, tc.server[i])
			}
		}
	}
}
