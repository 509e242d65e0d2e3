package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/probes"
)

// A window tells what any of the probes left out, each reason once.
func TestUnseenOfAllProbes(t *testing.T) {
	var b sampled
	b.Add(probes.Sample{CUDA: &probes.CUDA{}}, probes.Host{AtNs: 1})
	shared := "libraries: on a mount of type nfs4"
	w := b.Add(probes.Sample{
		CUDA: &probes.CUDA{Missing: []string{shared}}, NCCL: &probes.NCCL{Missing: []string{"collectives: over the budget", shared}},
		Network: &probes.Network{Missing: []string{"sockets: the pass was cut"}},
	}, probes.Host{AtNs: 2})
	if diff := cmp.Diff([]string{"collectives: over the budget", shared, "sockets: the pass was cut"}, w.Unseen); diff != "" {
		t.Error(diff)
	}
}

func TestDiffCallThreads(t *testing.T) {
	prev := []probes.CUDAThread{{TID: 1, Syncs: 5, SyncNs: 50, LastNs: 7}, {TID: 2, Syncs: 9}}
	cur := []probes.CUDAThread{{TID: 1, Syncs: 8, SyncNs: 90, LastNs: 9}, {TID: 3, Syncs: 4, CopyNs: 6}}
	want := []CallThread{{TID: 1, Syncs: 3, SyncNs: 40, FromNs: 7, LastNs: 9}, {TID: 3, Syncs: 4, CopyNs: 6}}
	if diff := cmp.Diff(want, diffCallThreads(prev, cur)); diff != "" {
		t.Error(diff)
	}
}
