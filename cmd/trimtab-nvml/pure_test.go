//go:build cgo

package main

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

func TestSlowdown(t *testing.T) {
	for mask, want := range map[uint64][]string{
		0:                             nil,
		nvml.ClocksEventReasonGpuIdle: {"idle"},
		nvml.ClocksEventReasonSwThermalSlowdown | nvml.ClocksThrottleReasonHwThermalSlowdown: {"thermal"},
		nvml.ClocksEventReasonSwPowerCap | nvml.ClocksThrottleReasonHwSlowdown:               {"power", "hw-slowdown"},
		0x100 | nvml.ClocksThrottleReasonHwPowerBrakeSlowdown | 1<<40:                        {"power-brake", "other"},
		nvml.ClocksEventReasonSyncBoost | nvml.ClocksEventReasonApplicationsClocksSetting:    {"sync-boost", "application"},
	} {
		if diff := cmp.Diff(want, slowdown(mask)); diff != "" {
			t.Errorf("%#x: %s", mask, diff)
		}
	}
}

func TestCPUList(t *testing.T) {
	for want, set := range map[string][]uint{
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
		kind nvml.ValueType
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

// Each way over PCIe of each device has its turn, and no reading asks for more than a few.
func TestTurnsOfPCIe(t *testing.T) {
	for devices, readings := range map[int]int{1: 1, 2: 1, 3: 2, 16: 8, maxDevices: 64} {
		s := &session{}
		for range devices {
			s.gpus = append(s.gpus, &gpu{})
		}
		had := map[*gpu][pcieWays]int{}
		for range 2 * readings {
			s.takeTurns()
			asked := 0
			for _, g := range s.gpus {
				for way, due := range g.pcieDue {
					if due {
						turns := had[g]
						turns[way]++
						had[g], asked = turns, asked+1
					}
				}
			}
			if asked > pcieAsked {
				t.Errorf("%d devices: %d asked in one reading", devices, asked)
			}
		}
		for _, g := range s.gpus {
			if turns := had[g]; turns[0] < 2 || turns[1] < 2 {
				t.Errorf("%d devices: %v turns in %d readings, want two of each way", devices, turns, 2*readings)
			}
		}
	}
}
