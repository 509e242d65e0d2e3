package nvml

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
)

// Whatever is left out is left out for longer each time, comes back, and takes the whole device with it at three.
func TestSkips(t *testing.T) {
	s, now := skips{}, time.Unix(1e9, 0)
	power := wire.CallKey{Device: "GPU-1", Call: "nvmlDeviceGetPowerUsage"}
	for want := skipFirst; want <= 2*skipMost; want *= 2 {
		if !s.add(power, "hung", now) {
			t.Fatal("a call of a device can always be left out")
		}
		stays := min(want, skipMost)
		if len(s.keys(now.Add(stays-1))) != 1 || len(s.keys(now.Add(stays))) != 0 {
			t.Fatalf("left out for other than %v", stays)
		}
		now = now.Add(stays)
	}
	for _, call := range []string{"a", "b", "c"} {
		s.add(wire.CallKey{Device: "GPU-2", Call: call}, call+" hung", now)
	}
	if got := s.why(now, "GPU-2"); got != "c hung" {
		t.Errorf("the device is left alone for %q", got)
	}
	if s.add(wire.CallKey{Device: "", Call: "nvmlInit_v2"}, "hung", now) || !s.add(wire.CallKey{Device: "", Call: "nvmlSystemGetNVMLVersion"}, "hung", now) {
		t.Error("nothing works without nvmlInit_v2; all does without a version")
	}
	for _, call := range []string{"nvmlSystemGetDriverVersion", "nvmlEventSetCreate", "nvmlEventSetWait_v2"} {
		if !s.add(wire.CallKey{Call: call}, "hung", now) {
			t.Errorf("all works without %s", call)
		}
	}
	if s[wire.CallKey{Call: wire.AllCalls}] != nil {
		t.Error("four calls of the library's, and it is left alone altogether: nothing could be read")
	}
}

// Samples are delivered once, in order, and bounded, whatever order readings and deliveries have.
func TestDelivery(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := newBook(), time.Now()
		sent, got := map[string]int64{}, map[string]int64{}
		deliver := func() {
			for _, d := range b.deliver(0, time.Hour) {
				for _, s := range d.Duty {
					got[d.UUID]++
					if s.AtNs != got[d.UUID] {
						t.Fatalf("%s: sample %d came as number %d", d.UUID, s.AtNs, got[d.UUID])
					}
				}
			}
		}
		for range rapid.IntRange(1, 50).Draw(t, "turns") {
			for _, id := range []string{"GPU-a", "GPU-b"} {
				d := probes.Device{UUID: id}
				for range rapid.IntRange(0, 5).Draw(t, "samples") {
					sent[id]++
					d.Duty = append(d.Duty, probes.DutySample{AtNs: sent[id]})
				}
				_ = b.take(d, 1, now)
			}
			b.complete(wire.End{}, 0)
			if rapid.Bool().Draw(t, "read") {
				deliver()
			}
		}
		deliver()
		if diff := cmp.Diff(sent, got, cmp.Comparer(func(x, y map[string]int64) bool { return x["GPU-a"] == y["GPU-a"] && x["GPU-b"] == y["GPU-b"] })); diff != "" {
			t.Fatal(diff)
		}
	})
}

// What is lost keeps its name, place and neighbours; what is not listed is lost, and then gone.
func TestBookOfLost(t *testing.T) {
	b, now := newBook(), time.Now()
	node := 1
	_ = b.take(probes.Device{Index: 0, UUID: "GPU-a", AtNs: 1}, 1, now)
	_ = b.take(probes.Device{Index: 1, UUID: "GPU-b", Minor: 5, NUMA: &node, MemUsed: 7, AtNs: 1}, 1, now)
	_ = b.take(probes.Device{Index: 1, UUID: "MIG-c", Parent: "GPU-b", AtNs: 1}, 0, now)
	b.complete(wire.End{}, 1)

	_ = b.take(probes.Device{Index: 0, UUID: "GPU-a", AtNs: 2}, 1, now)
	_ = b.take(probes.Device{Index: 1, AtNs: 2, Lost: "fell off the bus"}, 0, now)
	if !b.complete(wire.End{}, 2) {
		t.Error("a lost device is not told")
	}
	want := []probes.Device{{Index: 0, UUID: "GPU-a", AtNs: 2}, {Index: 1, UUID: "GPU-b", Minor: 5, NUMA: &node, AtNs: 2, Lost: "fell off the bus"}}
	if diff := cmp.Diff(want, b.deliver(2, time.Second)); diff != "" {
		t.Error(diff)
	}

	_ = b.take(probes.Device{Index: 0, UUID: "GPU-a", AtNs: 3}, 1, now)
	b.complete(wire.End{}, 3)
	if got := b.deliver(3, time.Second); len(got) != 2 || got[1].Lost != "no longer listed by the driver" {
		t.Errorf("%+v", got)
	}
	b.complete(wire.End{}, keepGoneNs+10)
	if got := b.deliver(3, time.Second); len(got) != 0 {
		t.Errorf("after ten minutes: %+v", got)
	}
}

// What the library may open is told, with folders that were not searched for it.
func TestConfinement(t *testing.T) {
	for want, h := range map[string]wire.Hello{
		"": {},
		"NVIDIA's library opens no files but its own (Landlock, ABI 7)":                                                        {Protocol: 1, Landlock: 7},
		"NVIDIA's library opens no files but its own (Landlock, ABI 7); not searched for it, since it does not answer: /mnt/a": {Protocol: 1, Landlock: 7, LeftOut: "/mnt/a"},
		"NVIDIA's library may open any file of root's, trimtab's state and config among them: too old":                         {Protocol: 1, NoLandlock: "too old"},
	} {
		if got := confinement(h); got != want {
			t.Errorf("%+v: %q, want %q", h, got, want)
		}
	}
}
