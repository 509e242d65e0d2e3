package network

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/probes"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestHostLinks(t *testing.T) {
	sys := tree(t, map[string]string{
		"class/net/lo/operstate":                                                 "unknown",
		"class/net/trim0/operstate":                                              "up",
		"class/net/trim0/speed":                                                  "25000",
		"class/net/trim0/device/vendor":                                          "0x15b3",
		"class/net/trim0/statistics/rx_bytes":                                    "123",
		"class/net/trim0/statistics/tx_bytes":                                    "18446744073709551615",
		"class/net/trim1/operstate":                                              "up",
		"class/net/trim1/speed":                                                  "-1", // virtio does not tell
		"class/net/trim1/device/vendor":                                          "0x1af4",
		"class/net/trim2/operstate":                                              "down",
		"class/net/trim2/speed":                                                  "10000",
		"class/net/trim2/device/vendor":                                          "0x15b3",
		"class/net/trimbond/operstate":                                           "up",
		"class/net/trimbond/speed":                                               "50000",
		"class/net/trimbond/bonding/mode":                                        "802.3ad 4",
		"class/net/trimbr/operstate":                                             "up",
		"class/net/trimbr/speed":                                                 "10000", // a bridge's, which means nothing
		"class/net/vethfeed/operstate":                                           "up",
		"class/infiniband/mlx5_0/ports/1/state":                                  "4: ACTIVE",
		"class/infiniband/mlx5_0/ports/1/rate":                                   "400 Gb/sec (4X NDR)",
		"class/infiniband/mlx5_0/ports/1/counters/port_rcv_data":                 "1000",
		"class/infiniband/mlx5_0/ports/1/counters/port_xmit_data":                "2000",
		"class/infiniband/mlx5_0/ports/1/counters/port_xmit_wait":                "5",
		"class/infiniband/mlx5_0/ports/1/hw_counters/np_ecn_marked_roce_packets": "30",
		"class/infiniband/mlx5_0/ports/1/hw_counters/rp_cnp_handled":             "200",
		"class/infiniband/mlx5_1/ports/1/state":                                  "1: DOWN",
		"class/infiniband/mlx5_1/ports/1/rate":                                   "400 Gb/sec (4X NDR)",
		"class/infiniband/rdmap0/ports/1/state":                                  "4: ACTIVE",
		"class/infiniband/rdmap0/ports/1/rate":                                   "garbage",
		"class/infiniband/rdmap0/ports/1/hw_counters/rx_bytes":                   "77",
		"class/infiniband/rdmap0/ports/1/hw_counters/tx_bytes":                   "88",
	})
	got, err := newLinks("/proc", sys).host()
	if err != nil {
		t.Fatal(err)
	}
	want := []probes.Link{
		{Name: "trim0", RxBytes: 123, TxBytes: 1<<64 - 1, MaxBps: 25e9 / 8},
		{Name: "trim1"},
		{Name: "trimbond", MaxBps: 50e9 / 8},
		{Name: "trimbr"},
		{Name: "mlx5_0/1", RxBytes: 4000, TxBytes: 8000, MaxBps: 50e9, RDMA: true},
		{Name: "rdmap0/1", RxBytes: 77, TxBytes: 88, RDMA: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

func TestHostLinksOfThisHost(t *testing.T) {
	got, err := newLinks("/proc", "/sys").host()
	if err != nil {
		t.Skipf("needs /sys/class/net: %v", err)
	}
	for _, l := range got {
		if l.Name == "lo" || l.MaxBps < 0 {
			t.Errorf("%+v", l)
		}
	}
}

func TestPortRate(t *testing.T) {
	for text, want := range map[string]float64{"100 Gb/sec (4X EDR)": 12.5e9, "2.5 Gb/sec (1X SDR)": 312.5e6, "": 0, "100": 0, "x Gb/sec": 0, "-1 Gb/sec": 0, "1e99 Gb/sec": 0, "NaN Gb/sec": 0} {
		if got := parsePortRate(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

const devFile = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     900       9    0    0    0     0          0         0      900       9    0    0    0     0       0          0
  eth0:     376       4    0    0    0     0          0         0       12       1    0    0    0     0       0          0
 tunl0:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
  net1:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
`

const igmpFile = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n" +
	"37\teth0      :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n40\tnet1      :     1      V3\n"

func TestLinksOfAContainer(t *testing.T) {
	proc := tree(t, map[string]string{"1/net/dev": devFile, "7/net/dev": devFile, "7/net/igmp": igmpFile})
	if err := os.Symlink("../1/net", filepath.Join(proc, "8")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("1", filepath.Join(proc, "9")); err != nil {
		t.Fatal(err)
	}
	l := newLinks(proc, "/sys")
	var n probes.Network
	_ = l.of(7, &n) // without netlink, what shapes them is missing
	if diff := cmp.Diff([]probes.Link{{Name: "eth0", RxBytes: 376, TxBytes: 12}, {Name: "net1"}}, n.Links); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	n = probes.Network{}
	if err := l.of(9, &n); err != nil || n.Links != nil {
		t.Errorf("%+v, %v", n, err)
	}
	if err := l.of(10, &n); err == nil {
		t.Error("a process that is not there has links")
	}
}

func TestParseIGMP(t *testing.T) {
	want := map[string]int{"lo": 1, "eth0": 37, "net1": 40}
	if diff := cmp.Diff(want, parseIGMP([]byte(igmpFile))); diff != "" {
		t.Error(diff)
	}
}

func FuzzFiles(f *testing.F) {
	f.Add([]byte(devFile))
	f.Add([]byte(igmpFile))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseIGMP(b)
		for _, l := range parseDev(b) {
			if l.MaxBps != 0 {
				t.Error("a speed from nowhere")
			}
		}
	})
}

// TestLinksLookOnceATurn: a kernel that hangs costs one wait a turn, however many containers there are.
func TestLinksLookOnceATurn(t *testing.T) {
	l := newLinks("/proc", t.TempDir())
	var reads atomic.Int32
	l.topology.read = func() *topology { reads.Add(1); return new(topology) } // out of date at once
	for turn := range int32(3) {
		l.begin()
		for range 20 {
			if err := l.shape(os.Getpid(), new(probes.Network), nil); err != nil {
				t.Fatal(err)
			}
		}
		if l.end(); reads.Load() != turn+1 {
			t.Errorf("%d readings in %d turns", reads.Load(), turn+1)
		}
	}
}
