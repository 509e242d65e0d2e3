package network

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/probes"
)

// InfiniBand counts data in words of four bytes (IBTA vol. 1, PortCounters:
// PortXmitData "in units of 4 octets"; Linux's sysfs-class-infiniband repeats it).
const rdmaWordBytes = 4

// readRDMA reads the active ports of all RDMA devices; none is a normal state.
func readRDMA(sysRoot string) []probes.Link {
	root := filepath.Join(sysRoot, "class", "infiniband")
	devices, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	var out []probes.Link
	for _, d := range devices {
		ports, err := os.ReadDir(filepath.Join(root, d.Name(), "ports"))
		if err != nil {
			continue
		}
		for _, port := range ports {
			dir := filepath.Join(root, d.Name(), "ports", port.Name())
			if link, ok := readPort(dir); ok && len(out) < maxLinks {
				link.Name = d.Name() + "/" + port.Name()
				out = append(out, link)
			}
		}
	}
	return out
}

func readPort(dir string) (probes.Link, bool) {
	if !strings.HasSuffix(readText(filepath.Join(dir, "state")), "ACTIVE") { // "4: ACTIVE"
		return probes.Link{}, false
	}
	link := probes.Link{RDMA: true, MaxBps: parsePortRate(readText(filepath.Join(dir, "rate")))}
	rx, okRx := readUint(filepath.Join(dir, "counters", "port_rcv_data"))
	tx, okTx := readUint(filepath.Join(dir, "counters", "port_xmit_data"))
	link.RxBytes, link.TxBytes = rdmaWordBytes*rx, rdmaWordBytes*tx
	if !okRx || !okTx { // EFA counts bytes, there
		link.RxBytes, _ = readUint(filepath.Join(dir, "hw_counters", "rx_bytes"))
		link.TxBytes, _ = readUint(filepath.Join(dir, "hw_counters", "tx_bytes"))
	}
	return link, true
}

// parsePortRate reads "100 Gb/sec (4X EDR)" into bytes/s.
func parsePortRate(s string) float64 {
	value, unit, ok := strings.Cut(s, " ")
	if !ok || !strings.HasPrefix(unit, "Gb/sec") {
		return 0
	}
	gbit, err := strconv.ParseFloat(value, 64)
	if err != nil || !(gbit > 0 && gbit < 1e5) { // nor NaN
		return 0
	}
	return gbit * 1e9 / 8
}
