package window

import (
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
	RTTUs            float64   // of the latest reading
	LimitedNs        int64     // of Ns: some socket waited for the network, not for an application
	Links            []LinkUse // in the namespace's order, then those of the host that it uses
	// BeyondSockets: its collectives move far more than its sockets, so RDMA, NVLink or PCIe
	// carry them, or a part.
	BeyondSockets bool
}

// LinkUse is what one link moved.
type LinkUse struct {
	Name       string
	Bytes      uint64 // in its busier direction
	MaxBps     float64
	RDMA       bool
	Congestion uint64 // RDMA
}

// A link of the host is a container's own where at least half of what it moves is the
// container's; and where collectives are twice what its sockets move, these are not their
// only way: a ring over sockets sends at least what is reduced.
const (
	ownOfLink     = 0.5
	beyondSockets = 2
)

// addHostLinks adds the links of the host that carry the container's traffic, by their
// rates between two readings of the host: its network interfaces, which a container in
// the host's namespace or behind a bridge shares, and its RDMA ports.
func (n *Network) addHostLinks(prev, cur probes.Host, collectives uint64) {
	if n.Ns == 0 || cur.AtNs <= prev.AtNs || len(cur.Links) == 0 {
		return
	}
	scale := float64(n.Ns) / float64(cur.AtNs-prev.AtNs)
	own := float64(max(n.RxBytes, n.TxBytes))
	n.BeyondSockets = float64(collectives)*scale >= max(beyondSockets*own, minTraffic*float64(n.Ns)/1e9)
	for _, l := range cur.Links {
		i := slices.IndexFunc(prev.Links, func(old probes.Link) bool { return old.Name == l.Name && old.RDMA == l.RDMA })
		if i < 0 || l.RDMA && !n.BeyondSockets || !l.RDMA && l.MaxBps == 0 {
			continue
		}
		old := prev.Links[i]
		moved := scale * float64(max(sub(l.RxBytes, old.RxBytes), sub(l.TxBytes, old.TxBytes)))
		if moved == 0 || !l.RDMA && own < ownOfLink*moved {
			continue
		}
		n.Links = append(n.Links, LinkUse{Name: hostLink + l.Name, MaxBps: l.MaxBps, Bytes: uint64(moved), RDMA: l.RDMA, Congestion: sub(l.Congestion, old.Congestion)})
	}
}

// hostLink begins the name of a link of the host, which a container may have as well.
const hostLink = "host/"

// Wire is the part of the window, 0..1, in which the wire to its peers was in use, as far
// as it can be told: by what a link gives, or by sockets that always wait for the network.
func (n Network) Wire() float64 {
	share, _ := n.CarrierShare()
	if limited := float64(n.LimitedNs) / float64(max(n.Ns, 1)); limited >= alwaysLimited && n.Segments > 0 && n.Exchanges() {
		share = max(share, limited)
	}
	return min(share, 1)
}

// alwaysLimited: one reading a second says only that some socket waited for the network
// at some time; where nearly all do, the wire is what its collectives wait for.
const alwaysLimited = 0.75

func diffNetwork(prev, cur *probes.Network) Network {
	if prev == nil || cur == nil || cur.AtNs <= prev.AtNs {
		return Network{}
	}
	n := Network{
		Ns: cur.AtNs - prev.AtNs, RxBytes: sub(cur.RxBytes, prev.RxBytes), TxBytes: sub(cur.TxBytes, prev.TxBytes), LocalBytes: sub(cur.LocalBytes, prev.LocalBytes),
		Segments: sub(cur.Segments, prev.Segments), Retransmits: sub(cur.Retransmits, prev.Retransmits), RTTUs: cur.RTTUs,
	}
	if cur.LimitedSockets > 0 {
		n.LimitedNs = n.Ns
	}
	for _, l := range cur.Links {
		for _, old := range prev.Links {
			if old.Name == l.Name {
				n.Links = append(n.Links, LinkUse{Name: l.Name, MaxBps: l.MaxBps, Congestion: sub(l.Congestion, old.Congestion),
					Bytes: max(sub(l.RxBytes, old.RxBytes), sub(l.TxBytes, old.TxBytes))})
			}
		}
	}
	return n
}

func joinNetwork(x, y Network) Network {
	out := Network{
		Ns: x.Ns + y.Ns, RxBytes: x.RxBytes + y.RxBytes, TxBytes: x.TxBytes + y.TxBytes, LocalBytes: x.LocalBytes + y.LocalBytes,
		Segments: x.Segments + y.Segments, Retransmits: x.Retransmits + y.Retransmits, RTTUs: y.RTTUs, LimitedNs: x.LimitedNs + y.LimitedNs,
		BeyondSockets: x.BeyondSockets || y.BeyondSockets,
	}
	if y.Ns == 0 {
		out.RTTUs = x.RTTUs
	}
	out.Links = append(out.Links, x.Links...)
next:
	for _, l := range y.Links {
		for i := range out.Links {
			if o := &out.Links[i]; o.Name == l.Name {
				o.Bytes, o.MaxBps, o.Congestion = o.Bytes+l.Bytes, l.MaxBps, o.Congestion+l.Congestion
				continue next
			}
		}
		out.Links = append(out.Links, l)
	}
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
		if l.MaxBps > 0 && n.Ns > 0 && of(l) {
			if s := float64(l.Bytes) / (float64(n.Ns) / 1e9) / l.MaxBps; s >= share {
				share, maxBps = s, l.MaxBps
			}
		}
	}
	return share, maxBps
}

// traffic is what the network did in the window, or, where no reading fell into it,
// in the latest one before.
func (w *Window) traffic() Network {
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

// Least traffic, bytes/s, that counts as data or collectives at all: heartbeats and
// telemetry are far below.
const minTraffic = 64 << 10

// exchangeRatio: a rank sends at least so much of what it receives; a reader of
// data sends requests and acknowledgements alone.
const exchangeRatio = 0.3

// Exchanges reports whether the container sends about as much as it receives, or
// talks to itself: collectives.
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
