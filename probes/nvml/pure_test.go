package nvml

import (
	"encoding/binary"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/probes"
)

// The sizes and offsets are nvml.h's, as gcc lays them out on amd64 and arm64.
func TestLayouts(t *testing.T) {
	for what, is := range map[string][2]uintptr{
		"nvmlMemory_t":                   {unsafe.Sizeof(memoryV1{}), 24},
		"nvmlMemory_v2_t":                {unsafe.Sizeof(memoryV2{}), 40},
		"nvmlMemory_v2_t.used":           {unsafe.Offsetof(memoryV2{}.Used), 32},
		"nvmlSample_t":                   {unsafe.Sizeof(sample{}), 16},
		"nvmlProcessInfo_t":              {unsafe.Sizeof(processInfo{}), 24},
		"nvmlProcessInfo_t.mem":          {unsafe.Offsetof(processInfo{}.MemBytes), 8},
		"nvmlProcessUtilizationSample_t": {unsafe.Sizeof(processUse{}), 32},
		"… .smUtil":                      {unsafe.Offsetof(processUse{}.SM), 16},
		"nvmlFieldValue_t":               {unsafe.Sizeof(fieldValue{}), 40},
		"nvmlFieldValue_t.nvmlReturn":    {unsafe.Offsetof(fieldValue{}.Return), 28},
		"nvmlFieldValue_t.value":         {unsafe.Offsetof(fieldValue{}.Value), 32},
		"nvmlGpmMetric_t":                {unsafe.Sizeof(gpmMetric{}), 40},
		"nvmlGpmMetricsGet_t.metrics":    {unsafe.Offsetof(gpmRequest{}.Metrics), 24},
		"nvmlTemperature_t":              {unsafe.Sizeof(temperatureV1{}), 12},
		"nvmlGpmSupport_t":               {unsafe.Sizeof(gpmSupport{}), 8},
	} {
		if is[0] != is[1] {
			t.Errorf("%s: %d bytes, nvml.h has %d", what, is[0], is[1])
		}
	}
}

func TestSlowdown(t *testing.T) {
	for mask, want := range map[uint64][]string{
		0:                                   nil,
		reasonIdle:                          {"idle"},
		reasonSWThermal | reasonHWThermal:   {"thermal"},
		reasonSWPower | reasonHWSlowdown:    {"power", "hw-slowdown"},
		0x100 | reasonHWPowerBrake | 1<<40:  {"power-brake", "other"},
		reasonSyncBoost | reasonApplication: {"sync-boost", "application"},
	} {
		if diff := cmp.Diff(want, slowdown(mask)); diff != "" {
			t.Errorf("%#x: %s", mask, diff)
		}
	}
}

func TestCPUList(t *testing.T) {
	for want, set := range map[string][]uint64{
		"": {0, 0}, "0-3,8": {0x10f}, "63-64": {1 << 63, 1}, "127": {0, 1 << 63}, "0-127": {math.MaxUint64, math.MaxUint64},
	} {
		if got := cpuList(set); got != want {
			t.Errorf("%x: %q, want %q", set, got, want)
		}
	}
}

func TestValues(t *testing.T) {
	u := func(v uint64) (b [8]byte) { binary.NativeEndian.PutUint64(b[:], v); return b }
	for _, c := range []struct {
		kind uint32
		raw  uint64
		want float64
		ok   bool
	}{
		{0, math.Float64bits(41.5), 41.5, true}, {0, math.Float64bits(math.NaN()), 0, false},
		{1, 0xdead_0000_0000 + 7, 7, true}, {1, math.MaxUint32, 0, false},
		{3, 1 << 40, 1 << 40, true}, {3, math.MaxUint64, 0, false},
		{4, math.MaxUint64, -1, true}, {5, 0xffff_fffe, -2, true}, {6, 0x10007, 7, true}, {7, 1, 0, false},
	} {
		got, ok := value(c.kind, u(c.raw))
		if ok != c.ok || (ok && got != c.want) {
			t.Errorf("kind %d, %#x: %v, %v; want %v, %v", c.kind, c.raw, got, ok, c.want, c.ok)
		}
	}
	if share(101) != nil || share(-1) != nil || share(math.NaN()) != nil || *share(50) != 0.5 {
		t.Error("a share is 0..100 %, or nothing")
	}
}

func TestAnchor(t *testing.T) {
	a := anchor{wallUs: 5_000_000, monoNs: 1_000_000_000}
	if got := a.mono(4_500_000); got != 500_000_000 {
		t.Errorf("half a second before: %d", got)
	}
	if got := a.mono(6_000_000); got != a.monoNs {
		t.Errorf("a sample from the future is now: %d", got)
	}
}

// Whatever is left out is left out for longer each time, comes back, and takes the whole device with it at three.
func TestSkips(t *testing.T) {
	s, now := skips{}, time.Unix(1e9, 0)
	power := callKey{"GPU-1", "nvmlDeviceGetPowerUsage"}
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
		s.add(callKey{"GPU-2", call}, call+" hung", now)
	}
	if got := s.why(now, "GPU-2"); got != "c hung" {
		t.Errorf("the device is left alone for %q", got)
	}
	if s.add(callKey{"", "nvmlInit_v2"}, "hung", now) || !s.add(callKey{"", "nvmlSystemGetNVMLVersion"}, "hung", now) {
		t.Error("nothing works without nvmlInit_v2; all does without a version")
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
				b.take(d, 1, now)
			}
			b.complete(end{}, 0)
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
	b.take(probes.Device{Index: 0, UUID: "GPU-a", AtNs: 1}, 1, now)
	b.take(probes.Device{Index: 1, UUID: "GPU-b", Minor: 5, NUMA: &node, MemUsed: 7, AtNs: 1}, 1, now)
	b.take(probes.Device{Index: 1, UUID: "MIG-c", Parent: "GPU-b", AtNs: 1}, 0, now)
	b.complete(end{}, 1)

	b.take(probes.Device{Index: 0, UUID: "GPU-a", AtNs: 2}, 1, now)
	b.take(probes.Device{Index: 1, AtNs: 2, Lost: "fell off the bus"}, 0, now)
	if !b.complete(end{}, 2) {
		t.Error("a lost device is not told")
	}
	want := []probes.Device{{Index: 0, UUID: "GPU-a", AtNs: 2}, {Index: 1, UUID: "GPU-b", Minor: 5, NUMA: &node, AtNs: 2, Lost: "fell off the bus"}}
	if diff := cmp.Diff(want, b.deliver(2, time.Second)); diff != "" {
		t.Error(diff)
	}

	b.take(probes.Device{Index: 0, UUID: "GPU-a", AtNs: 3}, 1, now)
	b.complete(end{}, 3)
	if got := b.deliver(3, time.Second); len(got) != 2 || got[1].Lost != "no longer listed by the driver" {
		t.Errorf("%+v", got)
	}
	b.complete(end{}, keepGoneNs+10)
	if got := b.deliver(3, time.Second); len(got) != 0 {
		t.Errorf("after ten minutes: %+v", got)
	}
}
