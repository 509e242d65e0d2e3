package network

import (
	"fmt"

	"github.com/trimtab/trimtab/probes"
)

// Bounds on what one container can make the probe keep.
const (
	maxSockets = 4096
	// lingerNs is how long a socket without a descriptor is waited for: closing by the
	// network takes an unanswered peer's retries, but its memory is not kept for ever.
	lingerNs = int64(120e9)
)

// Numbers of the kernel.
const (
	tcpEstablished = 1
	chronoRwnd     = 1 // indices into chrono: the receiver's window
	chronoSndbuf   = 2 // and the sender's buffer was the bound
)

// A socket counts as limited by the network where it had data outstanding for
// networkShare of the interval, most of it with neither the receiver's window nor
// the sender's buffer as the bound. The kernel's tick is 1 to 10 ms: less than a
// tenth of a second's interval is noise of a few ticks.
const networkShare = 0.1

// counters is one socket at one instant, as the kernel counts.
type counters struct {
	rx, tx                uint64
	segments, retransmits uint32
	srttUs                uint32 // 8 times
	nowTicks              uint32
	chrono                [3]uint32
	established, loopback bool
}

// socket is one that has been seen and has not been folded.
type socket struct {
	last   counters
	pass   uint32 // the latest pass that saw it
	lostNs int64  // when its descriptor was first missed; 0: it is open
	fresh  bool   // seen for the first time in the latest pass
}

// account is one container's sockets. Totals grow by differences, so a socket
// that closed keeps its share.
type account struct {
	sockets map[uint64]*socket // by cookie
	total   probes.Network     // the counters that only grow
	step    stepState
	beyond  bool // more sockets than there is room for
}

// stepState is gathered from the end of one pass to the end of the next.
type stepState struct {
	open, busy, limited int
	rttBytes, rttSum    float64
}

func newAccount() *account { return &account{sockets: map[uint64]*socket{}} }

// seen takes a socket as a pass found it; a socket that several processes hold
// comes more than once.
func (a *account) seen(cookie uint64, now counters, pass uint32) {
	s := a.sockets[cookie]
	if s != nil && s.pass == pass {
		return
	}
	if s == nil {
		if len(a.sockets) >= maxSockets {
			a.beyond = true
			return
		}
		s = &socket{}
		a.sockets[cookie] = s
		s.fresh = true
	} else {
		s.fresh = false
	}
	a.add(s, now)
	s.pass, s.lostNs = pass, 0
	if now.established {
		a.step.open++
	}
}

// closed takes the final counters of a socket, which may never have been seen.
func (a *account) closed(cookie uint64, final counters) {
	s := a.sockets[cookie]
	if s == nil {
		s = &socket{fresh: true}
	} else {
		s.fresh = false
	}
	a.add(s, final)
	delete(a.sockets, cookie)
}

// end closes a pass: what it did not see lingers, then is folded as it was.
func (a *account) end(pass uint32, nowNs int64) {
	for cookie, s := range a.sockets {
		switch {
		case s.pass == pass:
		case s.lostNs == 0:
			s.lostNs = nowNs
		case nowNs-s.lostNs > lingerNs:
			delete(a.sockets, cookie)
		}
	}
}

// add counts what a socket did since it was last seen. A counter that went back
// is a socket that was disconnected and connected anew.
func (a *account) add(s *socket, now counters) {
	was := s.last
	s.last = now
	if now.rx < was.rx || now.tx < was.tx {
		was = counters{nowTicks: now.nowTicks}
	}
	rx, tx := now.rx-was.rx, now.tx-was.tx
	if now.loopback {
		a.total.LocalBytes += rx
		return
	}
	a.total.RxBytes += rx
	a.total.TxBytes += tx
	a.total.Segments += uint64(now.segments - was.segments) // both wrap
	a.total.Retransmits += uint64(now.retransmits - was.retransmits)
	if rx+tx == 0 || s.fresh {
		return // since when a new one has moved its bytes is not known
	}
	a.step.busy++
	if limited(was, now) {
		a.step.limited++
	}
	bytes := float64(rx + tx)
	a.step.rttBytes += bytes
	a.step.rttSum += bytes * float64(now.srttUs) / 8
}

// limited says whether a socket waited for the network between two readings.
func limited(was, now counters) bool {
	ticks := float64(now.nowTicks - was.nowTicks)
	var spans [3]float64
	for i := range spans {
		spans[i] = float64(int32(now.chrono[i] - was.chrono[i]))
	}
	outstanding := spans[0] + spans[chronoRwnd] + spans[chronoSndbuf]
	return ticks > 0 && outstanding >= networkShare*ticks && spans[0] >= outstanding/2
}

// take returns the container's part of a sample as of the pass that has ended,
// and begins the next step.
func (a *account) take() probes.Network {
	n := a.total
	if a.beyond {
		n.Missing = append(n.Missing, fmt.Sprintf("sockets: more than %d", maxSockets))
	}
	n.Sockets, n.BusySockets, n.LimitedSockets = a.step.open, a.step.busy, a.step.limited
	if a.step.rttBytes > 0 {
		n.RTTUs = a.step.rttSum / a.step.rttBytes
	}
	a.step, a.beyond = stepState{}, false
	return n
}
