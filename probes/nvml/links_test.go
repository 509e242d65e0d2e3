package nvml

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
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
// NVLink's counters by the collectives' bytes. The bus is slow, so that copying is nearly all that is
// done, and how soon a trainer has a CPU for the next step changes little.
func TestLinks(t *testing.T) {
	const mib, looks = 1 << 20, 9
	n := vgputest.Node(t, vgpu.Options{Devices: 2, Spec: "nvlinks=4,pcie-gen=5,pcie-width=8,pcie-mbps=100"})
	runOn(t, n, "--ranks", "2", "--kernels", "2", "--kernel-us", "500", "--h2d-mib", "16", "--allreduce-mib", "2")
	r := readerOn(t, n, Options{Deadline: patient})
	show := func() vgpu.State {
		t.Helper()
		state, err := n.Show(t.Context())
		if err != nil || len(state.Procs) != 2 {
			t.Fatalf("%v: %+v", err, state)
		}
		return state
	}
	// links reads both devices between two looks at the node.
	links := func() (early vgpu.State, d [2]probes.Device, late vgpu.State) {
		t.Helper()
		for i := range d { // until both run
			device(t, r, i, "its links", func(d probes.Device) bool { return d.PCIeRxBps != nil && d.NVLinkTx != nil && *d.NVLinkTx > 0 })
		}
		early = show()
		from := procfs.MonotonicNs()
		for i := range d {
			d[i] = device(t, r, i, "a reading of its links that begins now", func(d probes.Device) bool {
				return d.AtNs > from && d.NVLinkTx != nil && d.NVLinkRx != nil
			})
		}
		return early, d, show()
	}
	early, before, stateBefore := links()
	from := time.Now()
	var rx [2][]float64 // each looks for 20 ms, and the node counts all the while
	until(t, r, "readings of what went to both over PCIe", func() bool {
		for _, d := range read(r) {
			if d.Parent == "" && d.PCIeRxBps != nil && d.AtNs > before[d.Index].AtNs {
				before[d.Index].AtNs = d.AtNs
				rx[d.Index] = append(rx[d.Index], *d.PCIeRxBps)
			}
		}
		return len(rx[0]) >= looks && len(rx[1]) >= looks && show().Procs[0].Collectives >= stateBefore.Procs[0].Collectives+5
	})
	elapsed, stateAfter := time.Since(from).Seconds(), show()
	_, after, late := links()
	for i := range after {
		in := float64(stateAfter.Devices[i].BytesIn-stateBefore.Devices[i].BytesIn) / elapsed
		slices.Sort(rx[i])
		if median := rx[i][len(rx[i])/2]; median < in/5 || median > 5*in {
			t.Errorf("device %d: a median of %.0f MB/s to it over PCIe, the node moved %.0f: %.0f", i, median/1e6, in/1e6, rx[i])
		}
		if tx := after[i].PCIeTxBps; tx == nil {
			t.Errorf("device %d: nothing is said of what comes from it", i)
		} else if *tx > in/100 {
			t.Errorf("device %d: %.0f B/s from it, and nothing is copied that way", i, *tx)
		}
		near(t, "what PCIe 5.0 x8 could", after[i].PCIeMaxBps, 8*32e9*128/130/8, 0.01)
		// One collective at each end may be counted on one side and not yet on the other.
		low := float64(stateAfter.Procs[i].Collectives) - float64(stateBefore.Procs[i].Collectives) - 2
		high := float64(late.Procs[i].Collectives) - float64(early.Procs[i].Collectives) + 2
		for way, moved := range map[string]uint64{"out": *after[i].NVLinkTx - *before[i].NVLinkTx, "in": *after[i].NVLinkRx - *before[i].NVLinkRx} {
			if got := float64(moved) / (2 * mib); low < 2 || got < low || got > high {
				t.Errorf("device %d: %.1f collectives' bytes %s over NVLink, there were %.0f to %.0f", i, got, way, low, high)
			}
		}
	}
}

// GPM's shares are those of the device, each under its own name.
func TestActivity(t *testing.T) {
	n := vgputest.Node(t, vgpu.Options{Devices: 1, Spec: "hopper=1,sm-pct=80,tensor-pct=20,dram-pct=50"})
	trainOn(t, n, "0")
	r := readerOn(t, n, Options{Deadline: patient})
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
	r := readerOn(t, n, Options{Deadline: patient})
	until(t, r, "readings without it", func() bool { return readings(r) > 3 })
	if d := read(r)[0]; d.SMActive != nil {
		t.Fatalf("SMs are active %.2f of the time, and nobody said that GPM is there", *d.SMActive)
	}
	if err := n.ClearFaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	device(t, r, 0, "a busy device", func(d probes.Device) bool { return d.SMActive != nil && *d.SMActive > 0.3 })
}
