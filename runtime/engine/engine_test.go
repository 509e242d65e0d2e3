package engine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
)

// standsV2 is a container on v2 with something in each knob.
func standsV2() runtime.Values {
	return runtime.Values{
		runtime.KnobCPUWeight: "39", runtime.KnobCPUQuota: "150000 100000", runtime.KnobCPUBurst: "20000", runtime.KnobCpuset: "",
		runtime.KnobMemoryLimit: "1073741824", runtime.KnobMemorySwap: "0", runtime.KnobMemoryHigh: "max", runtime.KnobMemoryLow: "4096",
		runtime.KnobIOWeight: "100",
	}
}

var onV2 = runtime.Container{Name: "c", Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2}}

func TestBurstAgainstQuota(t *testing.T) {
	merged := func(set runtime.Values) runtime.Values { return Merge(standsV2(), set) }
	lowerQuota := runtime.Values{runtime.KnobCPUQuota: "10000 100000"}
	if err := CheckTogether(onV2, merged(lowerQuota), lowerQuota); !errors.Is(err, runtime.ErrRefused) || !strings.Contains(err.Error(), "cpu.burst") {
		t.Errorf("a quota below the burst: %v", err)
	}
	both := runtime.Values{runtime.KnobCPUQuota: "10000 100000", runtime.KnobCPUBurst: "5000"}
	if err := CheckTogether(onV2, merged(both), both); err != nil {
		t.Errorf("both lowered: %v", err)
	}
	want := []runtime.Values{merged(runtime.Values{runtime.KnobCPUBurst: "5000"}), merged(both)}
	if diff := cmp.Diff(want, Steps(standsV2(), merged(both))); diff != "" {
		t.Errorf("the burst that stands is above the new quota, which is written first (-want +got):\n%s", diff)
	}
	weight := runtime.Values{runtime.KnobCPUWeight: "1"}
	if diff := cmp.Diff([]runtime.Values{merged(weight)}, Steps(standsV2(), merged(weight))); diff != "" || CheckTogether(onV2, merged(weight), weight) != nil {
		t.Errorf("a weight has nothing to do with the burst (-want +got):\n%s", diff)
	}
}

func TestLabelsAreBounded(t *testing.T) {
	labels := map[string]string{
		"trimtab.mode": "tune", "big": strings.Repeat("x", maxLabelValueBytes+1), strings.Repeat("k", maxLabelKeyBytes+1): "v",
	}
	for i := range 10 * maxLabels {
		labels[fmt.Sprintf("a%d", i)] = "v"
	}
	got := BoundLabels(labels)
	if len(got) != maxLabels || got["trimtab.mode"] != "tune" || got["big"] != "" {
		t.Errorf("%d labels, %q", len(got), got["trimtab.mode"])
	}
}

// TestBoundLabelsInAll: a container whose labels are all as long as they may be keeps its own for
// trimtab, and few others.
func TestBoundLabelsInAll(t *testing.T) {
	labels := map[string]string{"trimtab.enable": "true"}
	for i := range maxLabels {
		labels[fmt.Sprintf("a%d", i)] = strings.Repeat("x", maxLabelValueBytes)
	}
	got, bytes := BoundLabels(labels), 0
	for key, value := range got {
		bytes += len(key) + len(value)
	}
	if got["trimtab.enable"] != "true" || bytes > maxLabelBytes || bytes < maxLabelBytes-2*maxLabelValueBytes {
		t.Errorf("%d labels of %d bytes, enabled %q", len(got), bytes, got["trimtab.enable"])
	}
}

// TestNamesAreBounded: a name of any length is shown, recorded and compared at each reading.
func TestNamesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	host := Host{ProcRoot: "/proc", CgroupRoot: "/sys/fs/cgroup"}
	c, err := host.Place(runtime.Container{ID: runtime.ID{Container: strings.Repeat("0a", 32)}, InitPID: os.Getpid(), Name: long, Image: long,
		GPUs: []string{"0", long, "GPU-1"}, GPUVia: "cdi"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "0a0a0a0a0a0a" || c.Image != "" || !slices.Equal(c.GPUs, []string{"0", "GPU-1"}) {
		t.Errorf("%.20q of %.20q with %.40q", c.Name, c.Image, c.GPUs)
	}
	if c, err = host.Place(runtime.Container{InitPID: os.Getpid(), Name: long[:maxNameBytes], Image: long[:maxImageBytes]}, ""); err != nil ||
		len(c.Name) != maxNameBytes || len(c.Image) != maxImageBytes {
		t.Errorf("cut what is not too long: %d, %d, %v", len(c.Name), len(c.Image), err)
	}
}
