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

// Lists that grow between the question how many there are and the question for them, as they do
// where processes come and go, cost that answer and nothing else.
func TestListsThatGrow(t *testing.T) {
	r := started(t, Options{Library: buildLibrary(t, `
		int nvmlInit_v2(void) { return 0; }
		int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
		int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)1; return 0; }
		int nvmlDeviceGetUUID(void *d, char *s, unsigned n) { s[0] = 'A'; s[1] = 0; return 0; }
		int nvmlDeviceGetPowerUsage(void *d, unsigned *v) { *v = 100000; return 0; }
		int nvmlDeviceGetSamples(void *d, unsigned k, unsigned long long since, unsigned *type, unsigned *n, void *s) { *type = 1; *n = s ? 1000 : 1; return 0; }
		int nvmlDeviceGetProcessUtilization(void *d, void *u, unsigned *n, unsigned long long since) { *n = u ? 1000 : 1; return 7; }
	`)})
	until(t, r, "some readings", func() bool { return readings(r) >= 5 })
	list := read(r)
	if len(list) != 1 || list[0].PowerW == nil || *list[0].PowerW != 100 || len(list[0].Duty) != 0 || list[0].Lost != "" {
		t.Errorf("%+v", list)
	}
	if ok, lost := r.Status(); !ok {
		t.Errorf("that is told as a loss: %q", lost)
	}
}
