package observe

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// Network is what the container's sockets and links did in a window.
type Network struct {
	Ns               int64  // between the readings that it rests on; 0: no reading
	RxBytes, TxBytes uint64 // to and from peers outside the container
	LocalBytes       uint64 // between its own processes
	Segments         uint64
	Retransmits      uint64
	LimitedNs        int64     // of Ns: some socket waited for the network, not for an application
	Links            []LinkUse // in the namespace's order, then those of the host that it uses
	// BeyondSockets: its collectives move far more than its sockets, so RDMA, NVLink or PCIe
	// carry them, or a part.
	BeyondSockets bool
}

// LinkUse is what one link moved.
type LinkUse struct {
	Name   string
	Ns     int64  // the time in which it did; 0: that of the network's reading
	Bytes  uint64 // in its busier direction
	MaxBps float64
	RDMA   bool
}

// A link of the host carries a container's traffic where either is at least half of the
// other; and where collectives are twice what its sockets move, these are not their only
// way: a ring over sockets sends at least what is reduced.
const (
	halfOfLink    = 0.5
	beyondSockets = 2
)

// hostLink begins the name of a link of the host, which a container may have as well.
const hostLink = "host/"

// wireBase is what the host and NCCL had told when a container's network was last read.
type wireBase struct {
	atNs        int64
	links       []probes.Link
	collectives uint64 // bytes
}

func wireBaseOf(host probes.Host, nccl *probes.NCCL) wireBase {
	b := wireBase{atNs: host.AtNs, links: host.Links}
	if nccl != nil {
		for _, p := range nccl.Processes {
			for _, bytes := range p.Bytes {
				b.collectives += bytes
			}
		}
	}
	return b
}

// addHostLinks adds the links of the host that carry the container's traffic: its network
// interfaces, which a container in the host's namespace or behind a bridge shares, and its
// RDMA ports. Whose bytes a port carries it does not tell: at most what the collectives may
// have sent counts as theirs.
func (n *Network) addHostLinks(prev, cur wireBase) {
	ns := cur.atNs - prev.atNs
	if n.Ns == 0 || prev.atNs == 0 || ns <= 0 {
		return
	}
	scale := float64(ns) / float64(n.Ns) // the two readings are of about the same time
	outside := scale * float64(max(n.RxBytes, n.TxBytes))
	collectives := float64(sub(cur.collectives, prev.collectives))
	n.BeyondSockets = collectives >= max(beyondSockets*(outside+scale*float64(n.LocalBytes)), minTraffic*float64(ns)/1e9)
	for _, l := range cur.links {
		i := slices.IndexFunc(prev.links, func(old probes.Link) bool { return old.Name == l.Name && old.RDMA == l.RDMA })
		if i < 0 || l.MaxBps == 0 {
			continue
		}
		moved := max(sub(l.RxBytes, prev.links[i].RxBytes), sub(l.TxBytes, prev.links[i].TxBytes))
		own := outside
		if l.RDMA {
			own = 0
			if n.BeyondSockets {
				own = collectives
			}
		}
		if m := float64(moved); m == 0 || own < halfOfLink*m || m < halfOfLink*own {
			continue
		}
		n.Links = append(n.Links, LinkUse{Name: hostLink + l.Name, Ns: ns, Bytes: moved, MaxBps: l.MaxBps, RDMA: l.RDMA})
	}
}

func diffNetwork(prev, cur *probes.Network) Network {
	if prev == nil || cur == nil || cur.AtNs <= prev.AtNs {
		return Network{}
	}
	n := Network{
		Ns: cur.AtNs - prev.AtNs, RxBytes: sub(cur.RxBytes, prev.RxBytes), TxBytes: sub(cur.TxBytes, prev.TxBytes), LocalBytes: sub(cur.LocalBytes, prev.LocalBytes),
		Segments: sub(cur.Segments, prev.Segments), Retransmits: sub(cur.Retransmits, prev.Retransmits),
	}
	if cur.LimitedSockets > 0 {
		n.LimitedNs = n.Ns
	}
	for _, l := range cur.Links {
		for _, old := range prev.Links {
			if old.Name == l.Name {
				n.Links = append(n.Links, LinkUse{Name: l.Name, Ns: n.Ns, MaxBps: l.MaxBps,
					Bytes: max(sub(l.RxBytes, old.RxBytes), sub(l.TxBytes, old.TxBytes))})
			}
		}
	}
	return n
}

func joinNetwork(x, y Network) Network {
	out := Network{
		Ns: x.Ns + y.Ns, RxBytes: x.RxBytes + y.RxBytes, TxBytes: x.TxBytes + y.TxBytes, LocalBytes: x.LocalBytes + y.LocalBytes,
		Segments: x.Segments + y.Segments, Retransmits: x.Retransmits + y.Retransmits, LimitedNs: x.LimitedNs + y.LimitedNs,
		BeyondSockets: x.BeyondSockets || y.BeyondSockets,
	}
	out.Links = merge(slices.Clone(x.Links), y.Links, func(a, b LinkUse) bool { return a.Name == b.Name }, func(to *LinkUse, l LinkUse) {
		to.Ns, to.Bytes, to.MaxBps = to.Ns+l.Ns, to.Bytes+l.Bytes, l.MaxBps
	})
	return out
}

// Bytes is all that its sockets moved, in both directions.
func (n Network) Bytes() uint64 { return n.RxBytes + n.TxBytes + n.LocalBytes }

// LinkShare is the use of the busiest link of what it gives, 0..1, and what that
// is in bytes/s; 0, 0 where no link tells.
func (n Network) LinkShare() (share, maxBps float64) {
	return n.share(func(LinkUse) bool { return true })
}

// CarrierShare is the same of the links that carry its exchange with peers: those of
// its sockets, unless it only receives data, and RDMA where that is its way.
func (n Network) CarrierShare() (share, maxBps float64) {
	exchanges := n.Exchanges()
	return n.share(func(l LinkUse) bool { return l.RDMA || exchanges })
}

func (n Network) share(of func(LinkUse) bool) (share, maxBps float64) {
	for _, l := range n.Links {
		ns := cmp.Or(l.Ns, n.Ns)
		if l.MaxBps == 0 || ns == 0 || !of(l) {
			continue
		}
		if s := min(1, float64(l.Bytes)/(float64(ns)/1e9)/l.MaxBps); s >= share {
			share, maxBps = s, l.MaxBps
		}
	}
	return share, maxBps
}

// Exchange is what the network did in the window, or in the latest reading before it.
func (w *Window) Exchange() Network {
	if w.Network.Ns > 0 {
		return w.Network
	}
	return w.Traffic
}

// RetransmitShare is the share of segments that were sent again.
func (n Network) RetransmitShare() float64 {
	if n.Segments == 0 {
		return 0
	}
	return min(1, float64(n.Retransmits)/float64(n.Segments))
}

// Least traffic, bytes/s, that counts as data or collectives: heartbeats are far below.
const minTraffic = 64 << 10

// exchangeRatio: a rank sends at least so much of what it receives; a reader of
// data sends requests and acknowledgements alone.
const exchangeRatio = 0.3

// Exchanges: it sends about as much as it receives, or talks to itself: collectives.
func (n Network) Exchanges() bool {
	if !n.moves() {
		return false
	}
	return float64(n.TxBytes) >= exchangeRatio*float64(n.RxBytes) || n.LocalBytes > n.RxBytes
}

// receives reports whether it mostly receives: data.
func (n Network) receives() bool { return n.moves() && !n.Exchanges() }

func (n Network) moves() bool {
	return n.Ns > 0 && float64(n.Bytes())/(float64(n.Ns)/1e9) >= minTraffic
}
