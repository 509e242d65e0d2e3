package nvml

import (
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
)

// As many devices as a node has are all read in each reading, under the deadlines of the daemon, and
// none is lost: also where one of them is.
func TestSixteenDevices(t *testing.T) {
	const devices = 16
	n := vgputest.Node(t, vgpu.Options{Devices: devices, Spec: "hopper=1,nvlinks=4"})
	trainOn(t, n, "15")
	needsChild(t)
	r := New(Options{Child: childOn(t, n), Library: n.Dir.Lib("libnvidia-ml.so.1"), Every: time.Millisecond})
	t.Cleanup(func() { _ = r.Close() })
	all := func(what string, ok func(d probes.Device) bool) {
		t.Helper()
		until(t, r, what, func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			in := 0
			for _, k := range r.book.devices {
				if k.turn == r.book.turn-1 && ok(k.Device) {
					in++
				}
			}
			return in == devices
		})
	}
	whole := func(d probes.Device) bool {
		return d.Lost == "" && d.MemTotal > 0 && d.PowerW != nil && d.Errors.ECCUncorrected != nil
	}
	all("a reading of all", whole)
	all("the links of all", func(d probes.Device) bool {
		return whole(d) && d.PCIeRxBps != nil && d.PCIeTxBps != nil && d.NVLinkRx != nil
	})
	began, from := time.Now(), readings(r)
	until(t, r, "ten readings", func() bool { return readings(r) >= from+10 })
	t.Logf("a reading of %d devices takes %v", devices, time.Since(began)/time.Duration(readings(r)-from))
	list := read(r)
	seen := map[string]bool{}
	for i, d := range list {
		if seen[d.UUID] = true; d.Index != i || !whole(d) {
			t.Errorf("device %d: %+v", i, d)
		}
	}
	if ok, lost := r.Status(); !ok || len(list) != devices || len(seen) != devices {
		t.Fatalf("%d devices of %d names; status %q", len(list), len(seen), lost)
	}
	set(t, n, 7, "lost", "1")
	all("a reading with one lost", func(d probes.Device) bool { return whole(d) != (d.Index == 7) })
}
