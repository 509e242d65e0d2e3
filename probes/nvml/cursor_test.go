package nvml

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/probes"
)

// No sample is lost and none comes twice, though the devices take them at instants
// of their own, readings come when they may, and a child is killed in the middle.
func TestEachDeviceHasItsCursor(t *testing.T) {
	source, err := os.ReadFile("testdata/clock.c")
	if err != nil {
		t.Fatal(err)
	}
	hang := filepath.Join(t.TempDir(), "hang")
	t.Setenv("TRIMTAB_TEST_HANG", hang)
	r := started(t, Options{Library: buildLibrary(t, string(source))})
	got := map[string][]probes.DutySample{}
	collect := func() {
		for _, d := range read(r) {
			got[d.UUID] = append(got[d.UUID], d.Duty...)
		}
	}
	for n := range 40 {
		until(t, r, "one more reading", func() bool { return readings(r) > n })
		if n%3 == 0 {
			collect()
		}
		if n == 15 {
			if err := os.WriteFile(hang, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	collect()
	if ok, lost := r.Status(); ok {
		t.Errorf("the call that hung is not told: %q", lost)
	}
	for _, id := range []string{"A", "B"} {
		list := got[id]
		if len(list) < 60 { // 40 readings, 50 ms apart, of a sample each 20 ms
			t.Fatalf("device %s: %d samples", id, len(list))
		}
		for i := 1; i < len(list); i++ {
			was, is := math.Round(list[i-1].Share*100), math.Round(list[i].Share*100)
			if math.Mod(was+1, 100) != is {
				t.Errorf("device %s: sample %v came after %v", id, is, was)
			}
			// The wall clock is disciplined against CLOCK_MONOTONIC by parts in a thousand at most.
			if step := float64(list[i].AtNs - list[i-1].AtNs); math.Abs(step-20e6) > 2e6 {
				t.Errorf("device %s: samples %v ms apart", id, step/1e6)
			}
		}
	}
}
