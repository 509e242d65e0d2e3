package observe

import (
	"math"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// TestWireOfTheHost: what carries a container's collectives, where its own links tell no
// speed: the host's interface that it fills, or an RDMA port.
func TestWireOfTheHost(t *testing.T) {
	link := func(name string, rdma bool, moved uint64, maxBps float64) [2]probes.Link {
		return [2]probes.Link{{Name: name, RDMA: rdma, MaxBps: maxBps, TxBytes: 1e9}, {Name: name, RDMA: rdma, MaxBps: maxBps, TxBytes: 1e9 + moved}}
	}
	sockets := func(rx, tx uint64) Network { return Network{Ns: 2e9, RxBytes: rx, TxBytes: tx, Segments: 1000} }
	local := sockets(1e6, 1e6)
	local.LocalBytes = 150e6
	for _, tc := range []struct {
		name        string
		network     Network
		collectives uint64 // bytes
		links       [][2]probes.Link
		want        float64
	}{
		{"fills the host's interface", sockets(160e6, 160e6), 160e6, [][2]probes.Link{link("eth0", false, 160e6, 100e6)}, 0.8},
		{"others fill it", sockets(160e6, 160e6), 160e6, [][2]probes.Link{link("eth0", false, 1800e6, 1000e6)}, 0},
		{"its bytes take another way", sockets(1000e6, 1000e6), 1000e6, [][2]probes.Link{link("eth0", false, 180e6, 100e6)}, 0},
		{"an interface without a speed", sockets(160e6, 160e6), 160e6, [][2]probes.Link{link("docker0", false, 160e6, 0)}, 0},
		{"reads data over it", sockets(160e6, 2e6), 0, [][2]probes.Link{link("eth0", false, 160e6, 100e6)}, 0},
		{"an RDMA port", sockets(1e6, 1e6), 160e6, [][2]probes.Link{link("eth0", false, 1e6, 100e6), link("mlx5_0/1", true, 140e6, 100e6)}, 0.7},
		{"an RDMA port beside data", sockets(180e6, 2e6), 600e6, [][2]probes.Link{link("eth0", false, 180e6, 100e6), link("mlx5_0/1", true, 600e6, 500e6)}, 0.6},
		{"another container's RDMA", sockets(160e6, 160e6), 160e6, [][2]probes.Link{link("mlx5_0/1", true, 180e6, 100e6)}, 0},
		{"NVLink beside another's port", sockets(1e3, 1e3), 40e6, [][2]probes.Link{link("mlx5_0/1", true, 180e6, 100e6)}, 0},
		{"NVLink, and a little by a port", sockets(1e3, 1e3), 8000e6, [][2]probes.Link{link("mlx5_0/1", true, 180e6, 100e6)}, 0},
		{"over loopback, beside another's port", local, 160e6, [][2]probes.Link{link("mlx5_0/1", true, 180e6, 100e6)}, 0},
		{"within the node", sockets(1e3, 1e3), 1600e6, [][2]probes.Link{link("eth0", false, 1e3, 100e6)}, 0},
		{"no reading of the network", Network{}, 160e6, [][2]probes.Link{link("mlx5_0/1", true, 180e6, 100e6)}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, now := wireBase{atNs: 5e9}, wireBase{atNs: 7e9, collectives: tc.collectives}
			for _, l := range tc.links {
				before.links, now.links = append(before.links, l[0]), append(now.links, l[1])
			}
			n := tc.network
			n.addHostLinks(before, now)
			if got := wire(n); math.Abs(got-tc.want) > 0.01 {
				t.Errorf("wire %.2f, want %.2f: %+v", got, tc.want, n)
			}
			if without := joinNetwork(n, tc.network); math.Abs(wire(without)-tc.want) > 0.01 {
				t.Errorf("beside a window without links %.2f, want %.2f: %+v", wire(without), tc.want, without)
			}
			if twice := joinNetwork(n, n); math.Abs(wire(twice)-tc.want) > 0.01 {
				t.Errorf("of two such windows %.2f, want %.2f: %+v", wire(twice), tc.want, twice)
			}
		})
	}
}

// TestWireOfHostNetworkIsNoCompute takes the whole road from two samples: a rank that waits
// for its device while its collectives fill the host's interface.
func TestWireOfHostNetworkIsNoCompute(t *testing.T) {
	sample := func(i uint64) probes.Sample {
		return probes.Sample{Container: "job", Kernel: &probes.Kernel{},
			Network: &probes.Network{AtNs: int64(1e9 * (1 + i)), RxBytes: 80e6 * i, TxBytes: 80e6 * i, Segments: 1000 * i},
			NCCL:    &probes.NCCL{Processes: []probes.NCCLProcess{{TGID: 100, Calls: [probes.NumCollectives]uint64{10 * i}, Bytes: [probes.NumCollectives]uint64{80e6 * i}}}}}
	}
	host := func(i uint64) probes.Host {
		return probes.Host{AtNs: int64(1e9 * (1 + i)), Links: []probes.Link{{Name: "eth0", MaxBps: 100e6, TxBytes: 82e6 * i}}}
	}
	var d DeltaTracker
	d.Next(sample(0), host(0))
	unread := sample(1)
	unread.Network = nil // it is read every second time only
	d.Next(unread, host(1))
	w := d.Next(sample(2), host(2))
	if share, maxBps := w.Network.CarrierShare(); math.Abs(share-0.82) > 0.01 || maxBps != 100e6 {
		t.Fatalf("the link is used by %.2f of %.0f: %+v", share, maxBps, w.Network)
	}
	job := onDevice(oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 100 * ms}, wait(0, probes.StateFutex, 900*ms, 10))), 900*ms, 0)
	job.Processes[0].Calls, job.Processes[0].Bytes, job.Network = 10, 80e6, w.Network
	if got := Read(policies.DefaultConstants(), job, nil).Breakdown.Share(policies.PartCommunication); math.Abs(got-0.82) > 0.02 {
		t.Errorf("communication %.2f, want the link's 0.82", got)
	}
}

func wire(n Network) float64 {
	share, _ := n.CarrierShare()
	return share
}
