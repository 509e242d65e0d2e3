package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/probes"
)

// Transfers are read by device, where the kernel has I/O weights, and only there.
func TestDisks(t *testing.T) {
	want := []probes.DiskUse{{Device: "253:0", Bytes: 300}, {Device: "8:0", Bytes: 5}}
	for what, c := range map[string]struct {
		v2    bool
		files map[string]string
		want  []probes.DiskUse
	}{
		"v2":                {true, map[string]string{"io.weight": "default 100\n", "io.stat": "8:0 rbytes=5 wbytes=0 rios=1\n253:0 rbytes=100 wbytes=200 rios=1 wios=2 dbytes=9 dios=0\n7:0 \n"}, want},
		"v2 without weight": {true, map[string]string{"io.stat": "8:0 rbytes=5 wbytes=0\n"}, nil},
		"v1": {false, map[string]string{"blkio.bfq.weight": "100\n",
			"blkio.throttle.io_service_bytes": "253:0 Read 100\n253:0 Write 200\n253:0 Sync 1\n253:0 Total 300\n8:0 Total 5\nTotal 305\n"}, want},
		"v1 without weight": {false, map[string]string{"blkio.throttle.io_service_bytes": "253:0 Total 300\n"}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			d := newDisks(probes.Target{Dir: func(string) string { return dir }, V2: c.v2})
			r := &reading{files: &files{open: map[name]int{}, buf: make([]byte, maxFileBytes)}, part: &probes.Cgroup{}}
			defer r.files.close()
			r.disks(d)
			if diff := cmp.Diff(c.want, r.part.Disks); diff != "" {
				t.Error(diff)
			}
		})
	}
}
