package core

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/fingerprint"
	"github.com/trimtab/trimtab/tuner/view"
)

const (
	wholeGPU = "NVIDIA A100-SXM4-40GB"
	sliceGPU = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
)

// trainOn runs a job of so many seconds of host and of device a step for a minute and a
// half, on one of a host's devices: a whole GPU, and another one that is cut into slices. It
// returns what is shown of it.
func trainOn(t *testing.T, book *fingerprint.Book, host, device float64, model string) view.Container {
	t.Helper()
	n := newNode(4)
	j := n.addJob("train", 0, tune())
	j.trainerCPU, j.loaderCPU, j.device = host, 0.002, device
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	c.Remember(book)
	var results []Result
	for range 90 {
		in := n.tick()
		in.Results = results
		in.Host.Devices = []probes.Device{{UUID: "GPU-0", Name: wholeGPU}, {Index: 1, UUID: "GPU-1", Name: "cut up"}, {Index: 1, UUID: "MIG-1", Parent: "GPU-1", Name: sliceGPU}}
		for i := range in.Host.Devices {
			d := &in.Host.Devices[i]
			d.AtNs = in.Host.AtNs
			if d.Name == model {
				busy := min(1, device*j.lastRate)
				for k := range int64(6) {
					d.Duty = append(d.Duty, probes.DutySample{AtNs: in.Host.AtNs - (5-k)*second/6, Share: busy})
				}
				d.Processes = []probes.DeviceProcess{{PID: 1000, Container: j.c.Key(), MemBytes: 1 << 30}}
			}
		}
		results = n.apply(c.Step(in))
	}
	var s view.Snapshot
	c.Show(&s)
	return s.Containers[0]
}

// TestSpeedOnASlice: a job that was known on a whole GPU and on a MIG slice is told on each
// how fast it would be on the other; the GPU that is cut into slices is none to go to.
func TestSpeedOnASlice(t *testing.T) {
	book := fingerprint.NewBook()
	trainOn(t, book, 0.001, 0.020, wholeGPU)
	trainOn(t, book, 0.001, 0.080, sliceGPU)
	if book.Len() != 1 {
		t.Fatalf("%d jobs known, want one on two devices: %+v", book.Len(), book.All())
	}
	for _, tc := range []struct {
		device        float64
		on, to        string
		ratio, within float64
	}{{0.020, wholeGPU, sliceGPU, 0.021 / 0.081, 0.03}, {0.080, sliceGPU, wholeGPU, 0.081 / 0.021, 0.4}} {
		v := trainOn(t, book, 0.001, tc.device, tc.on)
		if len(v.Devices) != 1 || v.Devices[0].Model != tc.to || math.Abs(v.Devices[0].Ratio-tc.ratio) > tc.within || v.Devices[0].HostBound {
			t.Errorf("on %s: %+v, want %s alone, at %.2f of its rate; %+v", tc.on, v.Devices, tc.to, tc.ratio, v.Verdict)
		}
	}
}

// TestHostBoundJobIsNotSentToAFasterDevice: on the slice its own CPU is the step, so the
// whole GPU, four times as fast, gives it nothing, and is said to.
func TestHostBoundJobIsNotSentToAFasterDevice(t *testing.T) {
	book := fingerprint.NewBook()
	trainOn(t, book, 0.080, 0.001, wholeGPU)
	trainOn(t, book, 0.080, 0.004, sliceGPU)
	v := trainOn(t, book, 0.080, 0.004, sliceGPU)
	if len(v.Devices) != 1 || v.Devices[0].Model != wholeGPU || !v.Devices[0].HostBound || v.Devices[0].Ratio > 1.1 {
		t.Errorf("%+v; %+v", v.Devices, v.Verdict)
	}
}
