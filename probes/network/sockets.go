package network

import (
	"fmt"

	"github.com/trimtab/trimtab/probes"
)

// Bounds on what one container can make the probe keep.
const (
	maxSockets = 4096
	// lingerNs is how long a socket without a descriptor is waited for: closing by the
	// network takes an unanswered peer's retries, some 16 minutes with the kernel's 15
	// (tcp_retries2), but its memory is not kept for ever.
	lingerNs = int64(20 * 60e9)
)

// Numbers of the kernel.
const (
	tcpEstablished = 1
	chronoRwnd     = 1 // indices into chrono: the receiver's window
	chronoSndbuf   = 2 // and the sender's buffer was the bound
)

// A socket counts as limited by the network where it had data outstanding for
// networkShare of the interval, most of it with neither the receiver's window nor
// the sender's buffer as the bound, and as much of it as the network took: either
// more waited to be sent, or what was under way filled fullShare of the congestion
// window, which swings between a half and the whole of what fits. Outstanding alone
// does not tell: a small message is so until its acknowledgement, which the other
// side delays [measured: 4 kB each 10 ms are outstanding for a fifth of the time].
// The kernel's tick is 1 to 10 ms: less than a tenth of a second is a few ticks' noise.
const (
	networkShare = 0.1
	fullShare    = 0.4
)

// socket is one that has been seen and has not been folded.
type socket struct {
	last   socketsSockRecord
	atNs   int64  // of last; 0: it is seen for the first time
	pass   uint32 // the latest pass that saw it
	lostNs int64  // when its descriptor was first missed; 0: it is open
}

// account is one container's sockets. Totals grow by differences, so a socket
// that closed keeps its share.
type account struct {
	sockets map[uint64]*socket // by cookie
	total   probes.Network     // the counters that only grow
	beyond  bool               // more sockets than there is room for
	// Gathered from the end of one pass to the end of the next.
	open, limited int
}

func newAccount() *account { return &account{sockets: map[uint64]*socket{}} }

// seen takes a socket as a pass found it; a socket that several processes hold
// comes more than once.
func (a *account) seen(now socketsSockRecord, pass uint32, atNs int64) {
	s := a.sockets[now.Cookie]
	switch {
	case s == nil && len(a.sockets) >= maxSockets:
		a.beyond = true
		return
	case s == nil:
		s = &socket{}
		a.sockets[now.Cookie] = s
	case s.pass == pass:
		return
	}
	a.add(s, now, atNs)
	s.pass, s.lostNs = pass, 0
	if now.State == tcpEstablished {
		a.open++
	}
}

// closed takes the final counters of a socket, which may never have been seen.
func (a *account) closed(final socketsSockRecord, atNs int64) {
	s := a.sockets[final.Cookie]
	if s == nil {
		s = &socket{}
	}
	a.add(s, final, atNs)
	delete(a.sockets, final.Cookie)
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
func (a *account) add(s *socket, now socketsSockRecord, atNs int64) {
	was, sinceNs, fresh := s.last, atNs-s.atNs, s.atNs == 0
	s.last, s.atNs = now, atNs
	if now.RxBytes < was.RxBytes || now.TxBytes < was.TxBytes {
		was = socketsSockRecord{NowTicks: now.NowTicks}
	}
	rx, tx := now.RxBytes-was.RxBytes, now.TxBytes-was.TxBytes
	if now.Loopback != 0 {
		a.total.LocalBytes += rx
		return
	}
	a.total.RxBytes += rx
	a.total.TxBytes += tx
	a.total.Segments += uint64(now.Segments - was.Segments) // both wrap
	a.total.Retransmits += uint64(now.Retransmits - was.Retransmits)
	if rx+tx == 0 || fresh {
		return // since when a new one has moved its bytes is not known
	}
	if limited(was, now, float64(sinceNs)/1e9) {
		a.limited++
	}
}

// limited says whether a socket waited for the network between two readings, so
// many seconds apart.
func limited(was, now socketsSockRecord, seconds float64) bool {
	ticks := float64(now.NowTicks - was.NowTicks)
	var spans [3]float64
	for i := range spans {
		spans[i] = float64(int32(now.Chrono[i] - was.Chrono[i]))
	}
	outstanding := spans[0] + spans[chronoRwnd] + spans[chronoSndbuf]
	if ticks <= 0 || seconds <= 0 || outstanding < networkShare*ticks || spans[0] < outstanding/2 {
		return false
	}
	if now.Unsent > 0 {
		return true
	}
	sending := spans[0] / ticks * seconds
	underWay := float64(now.TxBytes-was.TxBytes) / sending * float64(now.SrttUs) / 8e6 // SrttUs is 8 times the time
	return underWay >= fullShare*float64(now.Window)
}

// take returns the container's part of a sample as of the pass that has ended,
// and begins the next step.
func (a *account) take() probes.Network {
	n := a.total
	if a.beyond {
		n.Missing = append(n.Missing, fmt.Sprintf("sockets: more than %d", maxSockets))
	}
	n.Sockets, n.LimitedSockets = a.open, a.limited
	a.open, a.limited, a.beyond = 0, 0, false
	return n
}
