package enrolment

import (
	"testing"

	"github.com/trimtab/trimtab/probes"
)

func TestParseGPU(t *testing.T) {
	known := []probes.Device{{Index: 0, Minor: 3, UUID: "GPU-a"}, {Index: 1, Minor: 2, UUID: "GPU-b"}, {Index: 1, Minor: 2, UUID: "MIG-c", Parent: "GPU-b"}}
	for text, want := range map[string]int{"0": 3, "1": 2, "GPU-b": 2, "nvidia0": 0, "/dev/nvidia3": 3, "2": -1, "MIG-c": -1, "/dev/sda": -1, "nvidiactl": -1, "": -1} {
		got, err := parseGPU(text, known)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

// TestGPUSignal: one list holds for what is sent and for what is complained of.
func TestGPUSignal(t *testing.T) {
	for value, want := range map[string]string{"USR1": "SIGUSR1", " sighup ": "SIGHUP", "winch": "SIGWINCH", "": "", "KILL": "", "9": "", " ": "", "\x1b[31mUSR1": "", "SIGSIGUSR1": ""} {
		labels := map[string]string{labelGPUSignal: value}
		got, err := GPUSignal(labels)
		if got != want || (err != nil) != (want == "" && value != "") {
			t.Errorf("%q: %q, %v", value, got, err)
		}
		if complained := len(parseLabels(labels).problems) > 0; value != "" && complained != (err != nil) {
			t.Errorf("%q: complained of: %v", value, complained)
		}
	}
}
