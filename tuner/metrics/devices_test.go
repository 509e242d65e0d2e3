package metrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/tuner/state"
)

// gpus are a GPU that two hold, a slice, and one that is lost.
func gpus() []state.Device {
	duty, watts, most, clock, clocks, heat, link := 0.25, 310.5, 700.0, 1200.0, 1980.0, 84.0, 64e9
	sm, tensor, dram, rx, tx, in, out := 0.2, 0.1, 0.4, 1e9, 2e9, uint64(3e12), uint64(4e12)
	ecc, rows := uint64(2), uint64(3)
	return []state.Device{
		{Index: 0, UUID: "GPU-aaaa", Name: "Virtual H100", Virtual: true, MemTotal: 80 << 30, MemUsed: 62 << 30, Duty: &duty, PowerW: &watts, Sharing: "time-slicing",
			SMActive: &sm, TensorActive: &tensor, DRAMActive: &dram, PowerLimitW: &most, ClockMHz: &clock, MaxClockMHz: &clocks, TempC: &heat,
			Slowdown: []string{"power", "thermal"}, PCIeRxBps: &rx, PCIeTxBps: &tx, PCIeMaxBps: &link, NVLinkRx: &in, NVLinkTx: &out,
			Errors: state.DeviceErrors{ECCUncorrected: &ecc, ECCCorrected: &rows, RowsRemapped: &rows, RowFailed: true},
			Holders: []state.Holder{
				{Key: "docker-0123456789abcdef-01234567-42", Name: "trainer", Team: "vision", MemBytes: 40 << 30, HeldSeconds: 500},
				{Host: true, MemBytes: 21 << 30, HeldSeconds: 400, IdleSeconds: 370, QuietSeconds: 400, Idle: true},
			}},
		{Index: 1, UUID: "MIG-12345678-9abc", Parent: "GPU-bbbb", MemTotal: 10 << 30, Sharing: "mig"},
		{Index: 2, UUID: "GPU-cccc", Lost: "fell off the bus", MemTotal: 80 << 30, Errors: state.DeviceErrors{Faults: 6, XIDs: []state.XIDCount{{XID: 0, Count: 5}, {XID: 79, Count: 1}}}},
	}
}

func TestHoldersAreBounded(t *testing.T) {
	d := state.Device{UUID: "GPU-a"}
	for i := range MaxHoldings + 10 {
		d.Holders = append(d.Holders, state.Holder{Key: fmt.Sprint(i), Name: fmt.Sprintf("c%d", i), HeldSeconds: 2, IdleSeconds: 1})
	}
	got := text(t, registryOf(t, func() *state.Snapshot { return &state.Snapshot{Devices: []state.Device{d}} }))
	for _, want := range []string{
		`trimtab_gpu_held_seconds_total{container="(others)",device="0",team=""} 20` + "\n",
		`trimtab_gpu_held_idle_seconds_total{container="(others)",device="0",team=""} 10` + "\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	if n := strings.Count(got, "trimtab_gpu_held_memory_bytes{"); n != MaxHoldings {
		t.Errorf("%d holders have series of their own, want %d", n, MaxHoldings)
	}
}

// TestHolderNamedAsTheHost: containerd takes any name; its time is not the host's.
func TestHolderNamedAsTheHost(t *testing.T) {
	d := state.Device{UUID: "GPU-a", Holders: []state.Holder{{Key: "k1", Name: hostLabel, HeldSeconds: 2}, {Host: true, HeldSeconds: 1}}}
	got := text(t, registryOf(t, func() *state.Snapshot { return &state.Snapshot{Devices: []state.Device{d}} }))
	if want := `trimtab_gpu_held_seconds_total{container="(host)",device="0",team=""} 1` + "\n"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// TestHolderBearsTheContainersLabel: the series of one container are joined by it.
func TestHolderBearsTheContainersLabel(t *testing.T) {
	s := &state.Snapshot{
		Containers: []state.Container{{Key: "k1", Name: "same", Watched: true}, {Key: "k2", Name: "same", Watched: true}},
		Devices:    []state.Device{{UUID: "GPU-a", Holders: []state.Holder{{Key: "k2", Name: "same"}, {Key: "k1", Name: "same"}}}},
	}
	got := text(t, registryOf(t, func() *state.Snapshot { return s }))
	for _, label := range []string{"same", "k2"} {
		for _, metric := range []string{"trimtab_gpu_held_memory_bytes", "trimtab_container_cpu_usage_cores"} {
			if n := strings.Count(got, metric+`{container="`+label+`",`); n != 1 {
				t.Errorf("%d series %s of %s", n, metric, label)
			}
		}
	}
}
