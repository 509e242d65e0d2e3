package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/view"
)

// TestIdleDevices: a container that nobody enrolled holds a GPU and runs nothing.
func TestIdleDevices(t *testing.T) {
	c := New(Defaults(), nil, "x")
	ct := Container{Container: runtime.Container{ID: runtime.ID{Engine: "docker", Container: "4f0c"}, Name: "notebook"},
		Enrolment: policies.Enrolment{Mode: policies.ModeOff, Team: "nlp"}}
	in := Input{Containers: []Container{ct}}
	const start = 5000 * second
	for i := range int64(101) {
		in.Host.AtNs = start + i*second
		in.UnixNs = 9e17 + i*second
		in.Host.Devices = []probes.Device{{UUID: "GPU-1", Index: 3, AtNs: in.Host.AtNs, MemUsed: 6 << 30, Virtual: true,
			Duty:      []probes.DutySample{{AtNs: in.Host.AtNs - second/2}},
			Processes: []probes.DeviceProcess{{PID: 77, Container: ct.Key(), MemBytes: 5 << 30}}}}
		c.last = in
		c.admit(in, &Decision{})
		c.devices(in)
	}
	var s view.Snapshot
	c.showDevices(&s)
	zero := 0.0
	want := []view.Device{{Index: 3, UUID: "GPU-1", Virtual: true, MemUsed: 6 << 30, Duty: &zero, Holders: []view.Holder{{
		Key: ct.Key(), Name: "notebook", Team: "nlp", PIDs: []int32{77}, MemBytes: 5 << 30, SinceUnixNs: 9e17, QuietUnixNs: 9e17,
		FirstSight: true, QuietSeconds: 100, Idle: true, Evidence: "device idle", HeldSeconds: 100, IdleSeconds: 70}}}}
	if diff := cmp.Diff(want, s.Devices, cmpopts.EquateEmpty()); diff != "" || !s.Virtual || !s.Devices[0].HeldIdle() {
		t.Errorf("virtual %v, devices (-want +got):\n%s", s.Virtual, diff)
	}
	if diff := cmp.Diff([]view.Count{{Team: "nlp", Value: 70}}, s.Totals.TeamGPUIdle); diff != "" {
		t.Errorf("teams (-want +got):\n%s", diff)
	}
}
