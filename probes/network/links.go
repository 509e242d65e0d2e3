package network

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
)

const (
	maxFileBytes = 256 << 10
	maxLinks     = 64 // interfaces of one container, and of the host
	// Who hangs on which veth and how it is shaped changes by hand.
	topologyEvery = 10 * time.Second
)

// links reads interfaces: of containers through /proc/PID/net, which needs no
// entry into their namespaces, of the host through /sys, and what shapes them
// through netlink.
type links struct {
	procRoot, sysRoot string
	topology          behind[*topology]

	// Of those who read containers, one goroutine.
	spaces   map[int]int32 // namespace by process
	spacesOf *topology     // read with it
	asking   *netlink.Conn // for those, while a turn lasts; nil: not open
	own      uint64        // the host's namespace in this turn; 0: not looked up
	seen     *topology     // of this turn; nil: not looked at
}

// begin and end enclose a turn: what all containers are held against is looked up
// once in it.
func (l *links) begin() { l.own, l.seen = 0, nil }

func (l *links) end() {
	if l.asking != nil {
		_ = l.asking.Close() // nothing was written to it
		l.asking = nil
	}
}

// topology is who hangs on which veth, and how it is shaped. The kernel tells it
// under the lock that a driver may hold for as long as its device hangs.
type topology struct {
	at      time.Time
	devices []device
	shapes  map[int]float64 // by the device's index
	blind   error           // why netlink told nothing
}

func newLinks(procRoot, sysRoot string) *links {
	l := &links{procRoot: procRoot, sysRoot: sysRoot, spaces: map[int]int32{}}
	l.topology.read = readTopology
	return l
}

// look returns the topology, as it was at the most topologyEvery ago where the
// kernel answers.
func (l *links) look() *topology {
	t, ok := l.topology.latest()
	if !ok || time.Since(t.at) >= topologyEvery {
		t, ok = l.topology.get()
	}
	if !ok {
		return &topology{blind: errNoAnswer}
	}
	return t
}

func readTopology() *topology {
	t := &topology{at: time.Now()}
	n, err := openNetlink()
	if err == nil {
		t.devices, err = readDevices(n)
		if err == nil {
			t.shapes, err = readShapes(n)
		}
		err = errors.Join(err, n.Close())
	}
	t.blind = err
	return t
}

// space is the namespace of a process as the host's knows it. This the kernel tells
// without the lock.
func (l *links) space(pid int) int32 {
	if id, ok := l.spaces[pid]; ok {
		return id
	}
	id := int32(nsidUnassigned)
	if l.asking == nil {
		l.asking, _ = openNetlink() // nil without one: not known, as below
	}
	if l.asking != nil {
		if got, err := namespaceOf(l.asking, pid); err == nil {
			id = got
		} else {
			l.end() // its answer may still come, and would be taken for the next one's
		}
	}
	l.spaces[pid] = id
	return id
}

// of reads the links of a process's namespace into n.
func (l *links) of(pid int, n *probes.Network) error {
	if pid <= 0 {
		return errors.New("no process")
	}
	own, err := namespaceFile(l.procRoot, pid)
	if err != nil {
		return err
	}
	if l.own == 0 {
		if l.own, err = namespaceFile(l.procRoot, 1); err != nil {
			return err
		}
	}
	if own == l.own {
		return nil
	}
	dir := filepath.Join(l.procRoot, strconv.Itoa(pid), "net")
	dev, err := procfs.Read(filepath.Join(dir, "dev"), maxFileBytes)
	if err != nil {
		return err
	}
	all := parseDev(dev)
	// Without it, interfaces that are up cannot be told from those that never carried anything.
	igmp, _ := procfs.Read(filepath.Join(dir, "igmp"), maxFileBytes)
	indices := parseIGMP(igmp)
	for _, link := range all {
		_, up := indices[link.Name]
		if link.Name == "lo" || len(n.Links) >= maxLinks || !up && link.RxBytes+link.TxBytes == 0 {
			continue
		}
		n.Links = append(n.Links, link)
	}
	return l.shape(pid, n, indices)
}

// namespaceFile identifies the network namespace of a process: each has files
// of its own below /proc/PID/net. /proc/PID/ns/net would say it too, to those
// who may trace the process.
func namespaceFile(procRoot string, pid int) (uint64, error) {
	var st unix.Stat_t
	path := filepath.Join(procRoot, strconv.Itoa(pid), "net", "dev")
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return st.Ino, nil
}

// shape sets what the host's ends of the container's links let through.
func (l *links) shape(pid int, n *probes.Network, indices map[string]int) error {
	if l.seen == nil { // once for all containers of a reading: a kernel that hangs costs one wait
		l.seen = l.look()
	}
	t := l.seen
	if t.blind != nil {
		return fmt.Errorf("what shapes them: %w", t.blind)
	}
	if l.spacesOf != t {
		clear(l.spaces)
		l.spacesOf = t
	}
	space := l.space(pid)
	if space == nsidUnassigned {
		return nil
	}
	var ends []device
	for _, d := range t.devices {
		if d.veth && d.peerNS == space {
			ends = append(ends, d)
		}
	}
	for i := range n.Links {
		index, known := indices[n.Links[i].Name]
		for _, d := range ends {
			if known && d.peer == index || !known && len(ends) == 1 && len(n.Links) == 1 {
				n.Links[i].MaxBps = lower(n.Links[i].MaxBps, t.shapes[d.index])
			}
		}
	}
	return nil
}

// host reads the host's interfaces, loopback and the host's ends of containers'
// veths aside, and its RDMA ports.
func (l *links) host() ([]probes.Link, error) {
	t := l.look()
	byName := map[string]device{}
	for _, d := range t.devices {
		byName[d.name] = d
	}
	dir := filepath.Join(l.sysRoot, "class", "net")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("network links: %w", err)
	}
	var out []probes.Link
	for _, e := range entries {
		name := e.Name()
		d, known := byName[name]
		veth := d.veth || !known && strings.HasPrefix(name, "veth")
		if name == "lo" || veth || len(out) >= maxLinks {
			continue
		}
		if link, ok := readInterface(filepath.Join(dir, name)); ok {
			link.MaxBps = lower(link.MaxBps, t.shapes[d.index])
			out = append(out, link)
		}
	}
	return append(out, readRDMA(l.sysRoot)...), nil
}

// readInterface reads one directory of /sys/class/net; false: it is down.
func readInterface(dir string) (probes.Link, bool) {
	state := readText(filepath.Join(dir, "operstate"))
	if state != "up" && state != "unknown" {
		return probes.Link{}, false
	}
	link := probes.Link{Name: filepath.Base(dir)}
	link.RxBytes, _ = readUint(filepath.Join(dir, "statistics", "rx_bytes"))
	link.TxBytes, _ = readUint(filepath.Join(dir, "statistics", "tx_bytes"))
	// Devices without hardware tell a speed that means nothing: veth and bridges 10 Gbit/s.
	if exists(filepath.Join(dir, "device")) || exists(filepath.Join(dir, "bonding")) {
		if mbit, ok := readUint(filepath.Join(dir, "speed")); ok && mbit < 1<<31 {
			link.MaxBps = float64(mbit) * 1e6 / 8
		}
	}
	return link, true
}

// parseDev reads /proc/PID/net/dev.
func parseDev(b []byte) []probes.Link {
	var out []probes.Link
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		f := bytes.Fields(rest)
		if !ok || len(f) < 9 {
			continue
		}
		rx, errRx := strconv.ParseUint(string(f[0]), 10, 64)
		tx, errTx := strconv.ParseUint(string(f[8]), 10, 64)
		if errRx != nil || errTx != nil {
			continue
		}
		out = append(out, probes.Link{Name: string(bytes.TrimSpace(name)), RxBytes: rx, TxBytes: tx})
	}
	return out
}

// parseIGMP reads /proc/PID/net/igmp, which lists by index the devices that are
// up with an IPv4 address.
func parseIGMP(b []byte) map[string]int {
	out := map[string]int{}
	for line := range bytes.Lines(b) {
		if len(line) == 0 || line[0] < '0' || line[0] > '9' {
			continue
		}
		head, _, ok := bytes.Cut(line, []byte(":"))
		f := bytes.Fields(head)
		if !ok || len(f) != 2 {
			continue
		}
		if index, err := strconv.Atoi(string(f[0])); err == nil {
			out[string(f[1])] = index
		}
	}
	return out
}

func readText(path string) string {
	b, err := procfs.Read(path, maxFileBytes)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func readUint(path string) (uint64, bool) {
	n, err := strconv.ParseUint(readText(path), 10, 64)
	return n, err == nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

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
