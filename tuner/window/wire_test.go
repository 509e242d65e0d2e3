package window

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// TestWireOfTheHost: what carries a container's collectives, where its own links tell no
// speed: the host's interface that it fills, an RDMA port, or sockets that always wait.
func TestWireOfTheHost(t *testing.T) {
	link := func(name string, rdma bool, moved uint64, maxBps float64) [2]probes.Link {
		return [2]probes.Link{{Name: name, RDMA: rdma, MaxBps: maxBps, TxBytes: 1e9}, {Name: name, RDMA: rdma, MaxBps: maxBps, TxBytes: 1e9 + moved, Congestion: 5}}
	}
	sockets := func(rx, tx uint64) Network { return Network{Ns: 2e9, RxBytes: rx, TxBytes: tx, Segments: 1000} }
	limited := sockets(160e6, 160e6)
	limited.LimitedNs = 2e9
	seldom := sockets(160e6, 160e6)
	seldom.LimitedNs = 1e9
	for _, tc := range []struct {
		name        string
		network     Network // of two seconds
		collectives uint64  // bytes, in the host's one second
		links       [][2]probes.Link
		want        float64
	}{
		{"fills the host's interface", sockets(160e6, 160e6), 80e6, [][2]probes.Link{link("eth0", false, 80e6, 100e6)}, 0.8},
		{"others fill it", sockets(160e6, 160e6), 80e6, [][2]probes.Link{link("eth0", false, 900e6, 1000e6)}, 0},
		{"an interface without a speed", sockets(160e6, 160e6), 80e6, [][2]probes.Link{link("docker0", false, 80e6, 0)}, 0},
		{"reads data over it", sockets(160e6, 2e6), 0, [][2]probes.Link{link("eth0", false, 80e6, 100e6)}, 0},
		{"an RDMA port", sockets(1e6, 1e6), 80e6, [][2]probes.Link{link("eth0", false, 1e6, 100e6), link("mlx5_0/1", true, 70e6, 100e6)}, 0.7},
		{"an RDMA port beside data", sockets(180e6, 2e6), 800e6, [][2]probes.Link{link("eth0", false, 90e6, 100e6), link("mlx5_0/1", true, 60e6, 100e6)}, 0.6},
		{"another container's RDMA", sockets(160e6, 160e6), 80e6, [][2]probes.Link{link("mlx5_0/1", true, 90e6, 100e6)}, 0},
		{"within the node", sockets(1e3, 1e3), 800e6, [][2]probes.Link{link("eth0", false, 1e3, 100e6)}, 0},
		{"sockets that always wait", limited, 80e6, nil, 1},
		{"sockets that seldom wait", seldom, 80e6, nil, 0},
		{"no reading of the network", Network{}, 80e6, [][2]probes.Link{link("mlx5_0/1", true, 90e6, 100e6)}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before, now probes.Host
			before.AtNs, now.AtNs = 5e9, 6e9
			for _, l := range tc.links {
				before.Links, now.Links = append(before.Links, l[0]), append(now.Links, l[1])
			}
			n := tc.network
			n.addHostLinks(before, now, tc.collectives)
			if got := n.Wire(); math.Abs(got-tc.want) > 0.01 {
				t.Errorf("wire %.2f, want %.2f: %+v", got, tc.want, n)
			}
			if twice := joinNetwork(n, n); math.Abs(twice.Wire()-tc.want) > 0.01 {
				t.Errorf("of two such windows %.2f, want %.2f: %+v", twice.Wire(), tc.want, twice)
			}
		})
	}
}

// TestWireOfHostNetworkIsNoCompute takes the whole road from two samples: a rank that waits
// for its device while its collectives fill the host's interface.
func TestWireOfHostNetworkIsNoCompute(t *testing.T) {
	sample := func(i uint64) probes.Sample {
		return probes.Sample{Container: "job", Kernel: &probes.Kernel{},
			Network: &probes.Network{AtNs: int64(1e9 * (1 + i)), SharesHost: true, RxBytes: 80e6 * i, TxBytes: 80e6 * i, Segments: 1000 * i},
			NCCL:    &probes.NCCL{Processes: []probes.NCCLProcess{{TGID: 100, Calls: [probes.NumCollectives]uint64{10 * i}, Bytes: [probes.NumCollectives]uint64{80e6 * i}}}}}
	}
	host := func(i uint64) probes.Host {
		return probes.Host{AtNs: int64(1e9 * (1 + i)), Links: []probes.Link{{Name: "eth0", MaxBps: 100e6, TxBytes: 82e6 * i}}}
	}
	var d Differ
	d.Next(sample(0), host(0))
	w := d.Next(sample(1), host(1))
	if share, maxBps := w.Network.CarrierShare(); math.Abs(share-0.82) > 0.01 || maxBps != 100e6 {
		t.Fatalf("the link is used by %.2f of %.0f: %+v", share, maxBps, w.Network)
	}
	job := onDevice(second(thread(trainer, trainer, 1, times{probes.StateRun: 100 * ms}, wait(0, probes.StateFutex, 900*ms, 10))), 900*ms, 0)
	job.Processes[0].Calls, job.Processes[0].Bytes, job.Network = 10, 80e6, w.Network
	if got := Read(job, nil).Breakdown.Share(policies.PartCommunication); math.Abs(got-0.82) > 0.02 {
		t.Errorf("communication %.2f, want the link's 0.82", got)
	}
}
