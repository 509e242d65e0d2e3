package verdict

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// communication finds a rank that waits for its peers, or for the wire to them.
func communication(k *policies.Constants, r observe.Reading) (policies.Verdict, bool) {
	share := exposed(k, r)
	if share < k.Exposed {
		return policies.Verdict{}, false
	}
	slow, lead := slowest(r)
	late := r.Slow != "" || lead >= k.Exposed || r.Late != nil && !r.Late.Partly
	if n := r.Window.Network; !late && 2*n.Ns < r.Window.EndNs-r.Window.StartNs {
		return unknown(fmt.Sprintf("it waits %.0f %% of its time for other ranks; what the network did meanwhile is not read", 100*share)), true
	}
	v := policies.Verdict{Class: policies.ClassCommunication, Cause: policies.CauseStraggler, Severity: share, Relief: "relieve the slow rank",
		Why: fmt.Sprintf("it waits %.0f %% of its time for other ranks, and its sockets do not wait for the network", 100*share)}
	if why := wire(k, r, share, late); why != "" {
		v.Cause, v.Relief = policies.CauseNetwork, "a faster link, or fewer bytes: larger steps, compressed gradients"
		v.Why = fmt.Sprintf("it waits %.0f %% of its time for other ranks: %s", 100*share, why)
	} else if r.Slow != "" {
		v.Relief = "relieve " + r.Slow
		v.Why = fmt.Sprintf("it waits %.0f %% of its time for a slower rank of its job: %s", 100*share, r.Slow)
	} else if lead >= k.Exposed {
		v.Relief = "relieve the slow one, " + rankName(r, slow)
		v.Why = fmt.Sprintf("it waits %.0f %% of its time for a slower rank: %s", 100*share, rankName(r, slow))
	} else if r.Late != nil {
		v.Relief = "relieve the late one, " + r.Late.Name
		v.Why = fmt.Sprintf("it waits %.0f %% of its time for a late rank: %s; its device does not spin in a collective, %s", 100*share, r.Late.Name, spinning(r.Late))
		v.Confidence = trusted(r.Late)
	}
	return v, true
}

// exposed is the share of time, 0..1, in which a rank waits for its peers. One that never blocks
// does so in its device, and spins in a launch meanwhile, or runs ahead: where the device is never
// without a kernel, and its SMs have next to nothing to do, what the trainer does bounds nothing.
func exposed(k *policies.Constants, r observe.Reading) float64 {
	share := r.Breakdown.Share(policies.PartCommunication)
	if busy, ok := duty(r); ok && busy >= k.Full && r.Exchanges && alone(k, r) {
		share = max(share, r.Window.Spinning(k, r.Root))
	}
	return share
}

// rankName is a rank by the number that its launcher gave it, where that is known.
func rankName(r observe.Reading, tgid int32) string {
	for _, f := range r.Window.Facts {
		if f.TGID == tgid && f.Ranked {
			return fmt.Sprintf("rank %d, process %d", f.Rank, tgid)
		}
	}
	return fmt.Sprintf("process %d", tgid)
}

// slowest is the rank of the container that works the longest for itself in a
// step, and by how much of the wall time it exceeds the one that was read.
func slowest(r observe.Reading) (tgid int32, lead float64) {
	own := r.Own()
	for _, p := range r.Peers {
		if r.Exchanges && !p.Exchanges {
			continue
		}
		if p.Own-own > lead {
			tgid, lead = p.Root, p.Own-own
		}
	}
	return tgid, lead
}

// wire says why the network keeps the rank waiting; "" if it does not.
func wire(k *policies.Constants, r observe.Reading, exposed float64, late bool) string {
	n := r.Window.Network
	if n.Ns == 0 {
		return ""
	}
	share, maxBps := n.CarrierShare()
	// A late peer alone leaves sockets idle: none is limited [measured with gloo]. But one
	// reading a second says only that some socket was, so beside a peer that is known to be
	// late it takes more of them.
	limited := 0.25
	if late {
		limited = 0.75
	}
	switch {
	case share >= k.Dominant*exposed && share >= k.Exposed/2:
		return fmt.Sprintf("the link moves %.0f %% of the %.0f MB/s that it gives", 100*share, maxBps/1e6)
	case n.Segments > 0 && n.RetransmitShare() >= k.Retransmits:
		return fmt.Sprintf("%.1f %% of what it sends is sent again", 100*n.RetransmitShare())
	case float64(n.LimitedNs) >= limited*float64(n.Ns) && n.Segments > 0:
		return "its sockets wait for the network, with all in flight that it takes"
	}
	return ""
}
