package kernel

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// TestMapsFitTheirBudget: full maps of all probes, and all threads that there is room
// for, stay within what the host's config gives (overhead.maps).
func TestMapsFitTheirBudget(t *testing.T) {
	objects, err := filepath.Glob("../*/*_bpfel.o")
	objects = slices.DeleteFunc(objects, func(file string) bool { return strings.Contains(file, "_arm64_") }) // their maps are amd64's
	if err != nil || len(objects) != 7 {
		t.Fatalf("found %d BPF objects (%v), expected those of seven probes", len(objects), err)
	}
	const (
		elementBytes = 64 // an element's header, above what Linux 6.18 takes for one of a hash
		cpus         = 64 // a host's; only scratch is per CPU
	)
	var others uint64
	for _, file := range objects {
		spec, err := ebpf.LoadCollectionSpec(file)
		if err != nil {
			t.Fatal(err)
		}
		for name, m := range spec.Maps {
			switch m.Type {
			case ebpf.TaskStorage:
				continue // the threads
			case ebpf.Hash, ebpf.LRUHash:
				if name == "processes" && strings.Contains(file, "nccl") {
					continue // CUDA's
				}
				others += uint64(m.MaxEntries) * uint64(m.KeySize+m.ValueSize+elementBytes)
			case ebpf.RingBuf:
				others += uint64(m.MaxEntries)
			case ebpf.PerCPUArray:
				others += uint64(m.MaxEntries) * uint64(m.ValueSize) * cpus
			case ebpf.Array:
				others += uint64(m.MaxEntries) * uint64(m.ValueSize)
			default:
				t.Errorf("%s: map %s: nobody counted a %s", file, name, m.Type)
			}
		}
	}
	if others > otherMapBytes {
		t.Errorf("the maps beside the threads take %d bytes when full, budgeted are %d", others, uint64(otherMapBytes))
	}
	for _, budget := range []uint64{24 << 20, 32 << 20, 1 << 30} {
		o := Options{TasksByV1CPU: true}.FitMaps(budget)
		if sum := otherMapBytes + uint64(o.MaxThreads)*storageBytes; sum > budget || sum < budget-storageBytes {
			t.Errorf("%d threads take %d bytes with the other maps, the budget is %d", o.MaxThreads, sum, budget)
		}
		if o.MaxThreadsPerContainer*4 > o.MaxThreads || !o.TasksByV1CPU {
			t.Errorf("options of %d bytes: %+v", budget, o)
		}
	}
	if o := (Options{}).FitMaps(0); o.MaxThreads < 5000 {
		t.Errorf("without a budget there is room for %d threads", o.MaxThreads)
	}
}
