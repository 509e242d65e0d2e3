package nvml

import (
	"os"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/probes"
)

// Sentinels, values out of their range and lists longer than their room are absences.
func TestSentinelsAreAbsences(t *testing.T) {
	source, err := os.ReadFile("testdata/odd.c")
	if err != nil {
		t.Fatal(err)
	}
	r := started(t, Options{Library: buildLibrary(t, string(source))})
	until(t, r, "some readings", func() bool { return readings(r) >= 3 })
	list := read(r)
	if len(list) != 128 {
		t.Fatalf("%d devices of a driver that claims 4,000,000,000", len(list))
	}
	d := list[0]
	for what, there := range map[string]bool{
		"power": d.PowerW != nil, "limit": d.PowerLimitW != nil, "clock": d.ClockMHz != nil, "max clock": d.MaxClockMHz != nil,
		"temperature": d.TempC != nil, "PCIe": d.PCIeRxBps != nil || d.PCIeTxBps != nil, "PCIe's most": d.PCIeMaxBps != nil,
		"NVLink": d.NVLinkRx != nil || d.NVLinkTx != nil, "GPM": d.SMActive != nil || d.TensorActive != nil || d.DRAMActive != nil,
		"memory": d.MemTotal != 0 || d.MemUsed != 0, "CPUs": d.CPUs != "", "NUMA": d.NUMA != nil, "minor": d.Minor != 0,
		"sharing": d.Sharing != "", "slowdown": d.Slowdown != nil, "lost": d.Lost != "", "virtual": d.Virtual,
	} {
		if there {
			t.Errorf("%s has a value: %+v", what, d)
		}
	}
	if want := (probes.DeviceProcess{PID: 4242}); len(d.Processes) != 1 || d.Processes[0] != want {
		t.Errorf("processes %+v", d.Processes)
	}
	if len(d.Duty) == 0 {
		t.Error("the good sample is lost")
	}
	for _, s := range d.Duty {
		if s.Share != 0.25 {
			t.Errorf("a sample of %v", s.Share)
		}
	}
	if other := list[1]; !strings.Contains(other.Lost, "fell off the bus") || other.UUID != "" || other.Index != 1 {
		t.Errorf("the device without a handle: %+v", other)
	}
}
