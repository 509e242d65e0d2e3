package api_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestDevices(t *testing.T) {
	b := &fake{snapshot: snapshot()}
	c := client.New(start(t, b))
	devices := []state.Device{{UUID: "GPU-a", Virtual: true, Holders: []state.Holder{{Host: true, MemBytes: 7, Idle: true}}}}
	for name, tc := range map[string]struct {
		change func(*state.Snapshot)
		want   api.Devices
	}{
		"some":     {func(s *state.Snapshot) { s.Devices, s.Virtual = devices, true }, api.Devices{Devices: devices}},
		"no probe": {func(*state.Snapshot) {}, api.Devices{Devices: []state.Device{}, Why: "the daemon has no part that reads GPUs"}},
		"no library": {func(s *state.Snapshot) {
			s.Daemon.Probes = []state.Part{{Name: "kernel", Lost: "x"}, {Name: "nvml", Lost: "no driver is installed"}}
		}, api.Devices{Devices: []state.Device{}, Why: "no driver is installed"}},
		"a driver alone": {func(s *state.Snapshot) { s.Daemon.Probes = []state.Part{{Name: "nvml", OK: true}} }, api.Devices{Devices: []state.Device{}, Why: "NVIDIA's driver lists none"}},
	} {
		s := snapshot()
		s.IdleAfterNs = 30e9
		tc.change(s)
		b.snapshot = s
		tc.want.UnixNs, tc.want.IdleAfterNs = s.UnixNs, s.IdleAfterNs
		got, err := c.Devices(context.Background())
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if status, err := c.Status(context.Background()); err != nil || status.Daemon.Virtual != s.Virtual {
			t.Errorf("%s: status says virtual %v, %v", name, status.Daemon.Virtual, err)
		}
	}
}
