package advice

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestADeviceIsOfferedOnce: to the job that gains most by it, whether it is free or another job's.
func TestADeviceIsOfferedOnce(t *testing.T) {
	for what, s := range map[What]*state.Snapshot{
		GPUExchange: exchanging(nil),
		GPUModel:    exchanging(func(s *state.Snapshot) { s.Devices[1].Holders = nil }),
	} {
		more := s.Containers[0]
		more.Key, more.Name = "m", "more"
		more.Devices = []state.DeviceSpeed{{Model: "H100", PerSecond: 9, Low: 8, High: 12, Ratio: 3}}
		s.Containers = append(s.Containers, more)
		s.Devices = append(s.Devices, state.Device{UUID: "GPU-c", Name: "A100", MemTotal: 80 << 30, Holders: []state.Holder{holder("m", 0)}})
		var to []string
		for _, a := range Of(policies.DefaultConstants(), s) {
			if a.What == what {
				to = append(to, a.Container+" "+a.Advised.Text)
			}
		}
		if len(to) != 1 || to[0] != "more GPU-h" {
			t.Errorf("%s: %q", what, to)
		}
	}
}
