package nvml

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
)

// xids reads until device's errors are so many, and some readings longer: all that were told of it.
func xids(t *testing.T, r *Reader, index, count int) (all []uint32) {
	t.Helper()
	more := func() {
		for _, d := range read(r) {
			if d.Index == index {
				all = append(all, d.Errors.XIDs...)
			}
		}
	}
	until(t, r, "the errors", func() bool { more(); return len(all) >= count })
	for turn := readings(r); readings(r) < turn+3; time.Sleep(10 * time.Millisecond) {
		more()
	}
	more()
	return all
}

// Each error that the driver reports is told once, of its own device, also when that is lost by it.
func TestXIDsAreToldOnce(t *testing.T) {
	for _, library := range []string{"libnvidia-ml.so.1", "libnvidia-ml-old.so.1"} { // the old one has the first version of the wait
		t.Run(library, func(t *testing.T) {
			n := vgputest.Node(t, vgpu.Options{Devices: 3})
			set(t, n, 1, "xid", "48") // before trimtab listens
			r := readerOn(t, n, Options{Library: n.Dir.Lib(library)})
			until(t, r, "readings", func() bool { return readings(r) > 2 })
			set(t, n, 1, "xid", "63")
			set(t, n, 1, "xid", "63")
			set(t, n, 1, "xid", "79")
			set(t, n, 1, "lost", "1")
			if got := xids(t, r, 1, 3); !slices.Equal(got, []uint32{63, 63, 79}) {
				t.Errorf("device 1 told of %v, want 63 twice and 79, once each", got)
			}
			for _, other := range []int{0, 2} {
				if got := xids(t, r, other, 0); got != nil {
					t.Errorf("device %d told of %v", other, got)
				}
			}
		})
	}
}

// Errors that nobody reads are kept to a bound, the newest.
func TestXIDsAreBounded(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Devices: 1})
	r := readerOn(t, n, Options{})
	until(t, r, "readings", func() bool { return readings(r) > 2 })
	for i := range 300 { // more than one reading takes
		args := []string{"set"}
		for range 5 {
			args = append(args, "xid=13")
		}
		if i == 299 {
			args = append(args, "xid=79")
		}
		if _, err := n.Tool(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	waiting := func() []uint32 {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, k := range r.book.devices {
			return k.xids
		}
		return nil
	}
	until(t, r, "the last one", func() bool { w := waiting(); return len(w) > 0 && w[len(w)-1] == 79 })
	if n := len(waiting()); n != maxXIDs {
		t.Errorf("%d errors wait, want %d", n, maxXIDs)
	}
}

func TestMemoryErrors(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Spec: "/1:ecc=2,ecc-corrected=41,rows-remapped=3,row-failed=1"})
	r := readerOn(t, n, Options{})
	d := device(t, r, 1, "a reading", func(d probes.Device) bool { return d.Errors.ECCUncorrected != nil }).Errors
	if *d.ECCUncorrected != 2 || d.ECCCorrected == nil || *d.ECCCorrected != 41 || d.RowsRemapped == nil || *d.RowsRemapped != 3 || d.RowPending || !d.RowFailed {
		t.Errorf("%+v", d)
	}
	set(t, n, 1, "ecc", "3")
	device(t, r, 1, "one more", func(d probes.Device) bool { return *d.Errors.ECCUncorrected == 3 })
	healthy := device(t, r, 0, "the other device", func(probes.Device) bool { return true }).Errors
	if healthy.ECCUncorrected == nil || *healthy.ECCUncorrected != 0 || healthy.RowFailed {
		t.Errorf("device 0: %+v", healthy)
	}
}

// A library that lacks any of the calls lacks what they tell, and nothing else.
func TestErrorsOfOtherLibraries(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Devices: 1, Spec: "ecc=1"})
	for _, missing := range []string{"nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlEventSetWait; nvmlEventSetWait_v2", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows"} {
		old := t.TempDir()
		if err := n.Dir.BuildWithout(t.Context(), old, "libnvidia-ml.so.1", missing); err != nil {
			t.Fatal(err)
		}
		r := readerOn(t, n, Options{Library: filepath.Join(old, "libnvidia-ml.so.1")})
		until(t, r, "readings", func() bool { return readings(r) > 2 })
		set(t, n, 0, "xid", "79")
		events := !strings.Contains(missing, "Event")
		if got := xids(t, r, 0, map[bool]int{true: 1}[events]); (len(got) == 1) != events {
			t.Errorf("without %s: told of %v", missing, got)
		}
		d := device(t, r, 0, "a reading", func(d probes.Device) bool { return true })
		if d.Lost != "" || d.PowerW == nil || d.MemTotal == 0 || (d.Errors.ECCUncorrected == nil) != (missing == "nvmlDeviceGetTotalEccErrors") ||
			(d.Errors.RowsRemapped == nil) != (missing == "nvmlDeviceGetRemappedRows") {
			t.Errorf("without %s: %+v", missing, d)
		}
		if ok, lost := r.Status(); !ok {
			t.Errorf("without %s: an older driver is no loss: %q", missing, lost)
		}
	}
}

// A call for errors that hangs, or ends the process, costs a reading: it is left out, and all else goes on.
func TestDeadlyErrorCalls(t *testing.T) {
	for _, call := range []string{"nvmlEventSetWait_v2", "nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlDeviceGetTotalEccErrors"} {
		for _, kind := range []string{"hang", "exit"} {
			t.Run(kind+" "+call, func(t *testing.T) {
				t.Parallel()
				n := vgputest.Node(t, vgpu.Options{})
				r := readerOn(t, n, Options{})
				device(t, r, 0, "power", func(d probes.Device) bool { return d.PowerW != nil })
				order(t, n, -1, kind+"="+call)
				order(t, n, 1, kind+"=nvmlDeviceGetPowerUsage") // makes the next child create the set anew
				for i := range 2 {
					was := device(t, r, i, "a device", func(probes.Device) bool { return true })
					d := device(t, r, i, "readings again", func(d probes.Device) bool {
						_, lost := r.Status()
						return d.AtNs > was.AtNs && d.Lost == "" && strings.Contains(lost, call)
					})
					if d.MemTotal == 0 || d.ClockMHz == nil {
						t.Errorf("device %d: %+v", i, d)
					}
				}
			})
		}
	}
}

// driven is a reader with a child that reads when the test says.
func driven(t *testing.T, n *vgpu.Node) (r *Reader, reading func() error) {
	t.Helper()
	needsChild(t)
	o := fast(Options{Child: childOn(t, n), Library: n.Dir.Lib("libnvidia-ml.so.1")})
	r = &Reader{o: o.withDefaults(), book: newBook(), news: make(chan struct{})}
	p, err := r.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end() })
	reading = func() error {
		_, err := r.reading(t.Context(), p)
		return err
	}
	if err := reading(); err != nil {
		t.Fatal(err)
	}
	return r, reading
}

// An error after which calls hang, as those after XID 119 do, is heard all the same.
func TestXIDBeforeAHang(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Devices: 2})
	r, reading := driven(t, n)
	set(t, n, 1, "xid", "119")
	order(t, n, 0, "hang=nvmlDeviceGetPowerUsage")
	if reading() == nil {
		t.Fatal("no call hung")
	}
	for _, d := range read(r) {
		if want := map[int][]uint32{1: {119}}[d.Index]; !slices.Equal(d.Errors.XIDs, want) {
			t.Errorf("device %d told of %v", d.Index, d.Errors.XIDs)
		}
	}
}

// A wait that fails for a lost device does not silence the others.
func TestXIDsBesideALostDevice(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Devices: 3})
	r, reading := driven(t, n)
	set(t, n, 1, "lost", "1")
	if err := reading(); err != nil {
		t.Fatal(err)
	}
	for _, xid := range []string{"63", "64"} {
		set(t, n, 2, "xid", xid)
		if err := reading(); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range read(r) {
		if want := map[int][]uint32{2: {63, 64}}[d.Index]; !slices.Equal(d.Errors.XIDs, want) || (d.Lost != "") != (d.Index == 1) {
			t.Errorf("device %d, lost: %q, told of %v", d.Index, d.Lost, d.Errors.XIDs)
		}
	}
}
