package engine

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
)

func TestLabelsAreBounded(t *testing.T) {
	labels := map[string]string{
		"trimtab.mode": "tune", "big": strings.Repeat("x", maxLabelValueBytes+1), strings.Repeat("k", maxLabelKeyBytes+1): "v",
	}
	for i := range 10 * maxLabels {
		labels[fmt.Sprintf("a%d", i)] = "v"
	}
	got, dropped := BoundLabels(labels)
	if len(got) != maxLabels || dropped != len(labels)-maxLabels || got["trimtab.mode"] != "tune" || got["big"] != "" {
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
	got, _ := BoundLabels(labels)
	bytes := 0
	for key, value := range got {
		bytes += len(key) + len(value)
	}
	if got["trimtab.enable"] != "true" || bytes > maxLabelBytes || bytes < maxLabelBytes-maxLabelValueBytes-maxLabelKeyBytes {
		t.Errorf("%d labels of %d bytes, enabled %q", len(got), bytes, got["trimtab.enable"])
	}
}

// TestLabelsThatAreReadAreKept: a project that writes many and long labels keeps those by which it is known.
func TestLabelsThatAreReadAreKept(t *testing.T) {
	read := []string{"com.docker.compose.project", "com.docker.compose.service", "nerdctl/name", "trimtab.team"}
	for _, many := range []int{2, 10 * maxLabels} {
		labels := map[string]string{}
		for i := range many {
			labels[fmt.Sprintf("a%d", i)] = strings.Repeat("x", maxLabelBytes/many)
		}
		for _, key := range read {
			labels[key] = "value"
		}
		got, dropped := BoundLabels(labels)
		for _, key := range read {
			if got[key] != "value" {
				t.Errorf("of %d labels %s is dropped", len(labels), key)
			}
		}
		if dropped != len(labels)-len(got) || dropped == 0 {
			t.Errorf("%d of %d are kept, %d dropped", len(got), len(labels), dropped)
		}
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
