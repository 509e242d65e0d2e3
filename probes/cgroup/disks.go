package cgroup

import (
	"bytes"
	"cmp"
	"path/filepath"
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// disks is where a container's transfers by device stand, "" where nobody needs
// them: they are of use only where the kernel has I/O weights.
type disks struct {
	dir, file string
	v2        bool
}

func newDisks(t probes.Target) disks {
	dir := t.Dir("blkio")
	if dir == "" {
		return disks{}
	}
	if t.V2 || dir == t.Unified {
		if exists(filepath.Join(dir, "io.weight")) {
			return disks{dir, "io.stat", true}
		}
		return disks{}
	}
	for _, weight := range []string{"blkio.weight", "blkio.bfq.weight"} {
		if exists(filepath.Join(dir, weight)) {
			return disks{dir, "blkio.throttle.io_service_bytes", false}
		}
	}
	return disks{}
}

// disks reads what was transferred, by device.
func (r *reading) disks(d disks) {
	if d.file == "" {
		return
	}
	b, ok := r.text(d.dir, d.file)
	if !ok {
		return
	}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 2 || !bytes.ContainsRune(f[0], ':') {
			continue // v1's sum of all
		}
		if n, ok := transferred(f[1:], d.v2); ok {
			r.part.Disks = append(r.part.Disks, probes.DiskUse{Device: string(f[0]), Bytes: n})
		}
	}
	slices.SortFunc(r.part.Disks, func(a, b probes.DiskUse) int { return cmp.Compare(a.Device, b.Device) })
}

// transferred reads "rbytes=1 wbytes=2 …" (v2), or "Total 3" (v1, one line of five a device).
func transferred(f [][]byte, v2 bool) (sum uint64, ok bool) {
	if !v2 {
		if len(f) != 2 || string(f[0]) != "Total" {
			return 0, false
		}
		return parseUint(f[1])
	}
	for _, pair := range f {
		name, value, _ := bytes.Cut(pair, []byte("="))
		if string(name) == "rbytes" || string(name) == "wbytes" {
			n, good := parseUint(value)
			sum, ok = sum+n, ok || good
		}
	}
	return sum, ok
}
