package main

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/control"
)

// TestNoise: of 1.5 CPUs that are busy a container uses 1.2; the rest is noise. A
// container that comes into view has used nothing before.
func TestNoise(t *testing.T) {
	var n noise
	for i := range int64(11) {
		in := control.Input{Host: probes.Host{AtNs: i * s, BusyNs: uint64(1.5 * float64(i*s))}}
		if i > 0 {
			in.Samples = []probes.Sample{{Container: "a", Cgroup: &probes.Cgroup{CPUUsageNs: uint64(100*s) + uint64(1.2*float64(i*s))}}}
		}
		n.add(in)
	}
	if got := n.between(2*s, 8*s); math.Abs(got-0.3) > 1e-6 {
		t.Errorf("got %g CPUs outside of containers, want 0.3", got)
	}
	if got := n.between(20*s, 30*s); got != 0 {
		t.Errorf("got %g beyond the recording", got)
	}
}
