package nvml

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/test/vgpu"
	"github.com/trimtab/trimtab/test/vgpu/vgputest"
)

func near(t *testing.T, what string, got *float64, want, within float64) {
	t.Helper()
	switch {
	case got == nil:
		t.Errorf("%s is absent, want %v", what, want)
	case math.Abs(*got-want) > within*want:
		t.Errorf("%s: %v, want %v within %.0f %%", what, *got, want, 100*within)
	}
}

// What the links moved is what the node says that was moved: PCIe as NVML samples it, and
// NVLink's counters by the collectives' bytes.
func TestLinks(t *testing.T) {
	const mib = 1 << 20
	n := vgputest.Node(t, vgpu.Options{Devices: 2, Spec: "nvlinks=4,pcie-gen=5,pcie-width=8"})
	runOn(t, n, "--ranks", "2", "--kernels", "2", "--kernel-us", "500", "--h2d-mib", "4", "--allreduce-mib", "2")
	r := readerOn(t, n, Options{})
	wait := func() (d [2]probes.Device, state vgpu.State) {
		for i := range d {
			d[i] = device(t, r, i, "its links", func(d probes.Device) bool {
				return d.PCIeRxBps != nil && *d.PCIeRxBps > 0 && d.NVLinkTx != nil && *d.NVLinkTx > 0
			})
		}
		state, err := n.Show(t.Context())
		if err != nil || len(state.Procs) != 2 {
			t.Fatalf("%v: %+v", err, state)
		}
		return d, state
	}
	before, stateBefore := wait()
	from := time.Now()
	var rx [2][]float64 // each looks for 20 ms, and the node counts all the while
	for range 9 {
		time.Sleep(400 * time.Millisecond)
		last := readings(r)
		until(t, r, "a fresh reading", func() bool { return readings(r) > last })
		for _, d := range read(r) {
			if d.Parent == "" && d.PCIeRxBps != nil {
				rx[d.Index] = append(rx[d.Index], *d.PCIeRxBps)
			}
		}
	}
	after, stateAfter := wait()
	elapsed := time.Since(from).Seconds()
	for i := range after {
		in := float64(stateAfter.Devices[i].BytesIn-stateBefore.Devices[i].BytesIn) / elapsed
		if slices.Sort(rx[i]); len(rx[i]) < 5 {
			t.Errorf("device %d: %d of 9 readings say what went to it over PCIe", i, len(rx[i]))
		} else if median := rx[i][len(rx[i])/2]; median < in/5 || median > 5*in {
			t.Errorf("device %d: a median of %.0f MB/s to it over PCIe, the node moved %.0f: %.0f", i, median/1e6, in/1e6, rx[i])
		}
		if tx := after[i].PCIeTxBps; tx == nil {
			t.Errorf("device %d: nothing is said of what comes from it", i)
		} else if *tx > in/100 {
			t.Errorf("device %d: %.0f B/s from it, and nothing is copied that way", i, *tx)
		}
		near(t, "what PCIe 5.0 x8 could", after[i].PCIeMaxBps, 8*32e9*128/130/8, 0.01)
		all := float64(stateAfter.Procs[i].Collectives-stateBefore.Procs[i].Collectives) * 2 * mib
		for way, moved := range map[string]uint64{"out": *after[i].NVLinkTx - *before[i].NVLinkTx, "in": *after[i].NVLinkRx - *before[i].NVLinkRx} {
			// Readings are up to some seconds old, each its own.
			if got := float64(moved); got < all/4 || got > 4*all {
				t.Errorf("device %d: %.0f MiB %s over NVLink, its collectives moved %.0f", i, got/mib, way, all/mib)
			}
		}
	}
}

// GPM's shares are those of the device, each under its own name.
func TestActivity(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Devices: 1, Spec: "hopper=1,sm-pct=80,tensor-pct=20,dram-pct=50"})
	trainOn(t, n, "0")
	r := readerOn(t, n, Options{})
	d := device(t, r, 0, "a busy device", func(d probes.Device) bool {
		return d.SMActive != nil && *d.SMActive > 0.3 && d.TensorActive != nil && d.DRAMActive != nil
	})
	if *d.SMActive > 0.81 {
		t.Errorf("SMs are active %.2f of the time, a kernel has 0.80 of them", *d.SMActive)
	}
	near(t, "tensor pipes", d.TensorActive, *d.SMActive*20/80, 0.01)
	near(t, "DRAM", d.DRAMActive, *d.SMActive*50/80, 0.01)
}

// A question about GPM that failed once is asked again: the device may have been busy with a reset.
func TestActivityAfterAFailure(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Devices: 1, Spec: "hopper=1"})
	order(t, n, 0, "unsupported=nvmlGpmQueryDeviceSupport")
	trainOn(t, n, "0")
	r := readerOn(t, n, Options{})
	until(t, r, "readings without it", func() bool { return readings(r) > 3 })
	if d := read(r)[0]; d.SMActive != nil {
		t.Fatalf("SMs are active %.2f of the time, and nobody said that GPM is there", *d.SMActive)
	}
	if err := n.ClearFaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	device(t, r, 0, "a busy device", func(d probes.Device) bool { return d.SMActive != nil && *d.SMActive > 0.3 })
}
