package httpd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/trimtab/trimtab/tuner/api"
)

// How fast one owner's connections are taken: more are closed before anything is read of them. A scraper makes
// one in minutes, a browser six at once.
const (
	ownerRate  = 32 // a second
	ownerBurst = MaxConnections
	maxOwners  = 1024 // that are remembered: addresses are the sender's
)

// paced is a listener that tells whose connections are, and lets nobody have them made in a loop. What
// refusing them takes is counted apart (api.Meter).
type paced struct {
	net.Listener
	meter  *api.Meter
	owners owners
	rates  map[string]*rate.Limiter // of Accept's goroutine
}

// owned is a connection with who made it.
type owned struct {
	net.Conn
	owner string
}

// Accept returns the next connection of somebody who has not just made many.
func (p *paced) Accept() (net.Conn, error) {
	for {
		conn, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		owner := p.owners.of(conn)
		if p.may(owner, time.Now()) {
			p.meter.Note()
			return owned{conn, owner}, nil
		}
		_ = conn.Close() // nothing was said
		p.meter.Note()
	}
}

// may reports whether one more of an owner's is taken.
func (p *paced) may(owner string, now time.Time) bool {
	limit, known := p.rates[owner]
	if !known {
		if p.rates == nil || len(p.rates) >= maxOwners {
			p.rates = map[string]*rate.Limiter{}
		}
		limit = rate.NewLimiter(ownerRate, ownerBurst)
		p.rates[owner] = limit
	}
	return limit.AllowN(now, 1)
}

// Close also ends the questions to the kernel.
func (p *paced) Close() error { return errors.Join(p.Listener.Close(), p.owners.close()) }

// owners tells who is at the other end: the user, of a connection within this host, else the address. One that
// cannot be told is its address's.
type owners struct {
	mu             sync.Mutex
	fd             int
	opened, closed bool
}

func (o *owners) of(conn net.Conn) string {
	user := func(uid int) string { return "uid " + strconv.Itoa(uid) }
	remote, isTCP := conn.RemoteAddr().(*net.TCPAddr)
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	if !isTCP || !ok {
		if c, ok := conn.(syscall.Conn); ok {
			if peer, err := api.PeerOf(c); err == nil {
				return user(peer.UID)
			}
		}
		return ""
	}
	if remote.IP.IsLoopback() || remote.IP.Equal(local.IP) {
		if uid, err := o.uid(remote, local); err == nil {
			return user(uid)
		}
	}
	if remote.IP.To4() == nil {
		return remote.IP.Mask(net.CIDRMask(64, 128)).String() // of which a host has as many as it likes
	}
	return remote.IP.String()
}

// Sizes and places in what the kernel is asked and answers (linux/inet_diag.h).
const (
	diagHeader, diagRequest, diagAnswer = 16, 56, 72
	diagID, diagUID                     = 8, 64
	established                         = 1 // TCP_ESTABLISHED, after the family
)

// uid is the user whose socket has the address from, connected to the address to.
func (o *owners) uid(from, to *net.TCPAddr) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.open(); err != nil {
		return 0, err
	}
	q := make([]byte, diagHeader+diagRequest)
	native := binary.NativeEndian
	native.PutUint32(q, uint32(len(q)))
	native.PutUint16(q[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(q[6:], unix.NLM_F_REQUEST)
	r := q[diagHeader:]
	r[0], r[1] = unix.AF_INET6, unix.IPPROTO_TCP
	src, dst := from.IP.To16(), to.IP.To16()
	if v4 := from.IP.To4(); v4 != nil {
		r[0], src, dst = unix.AF_INET, v4, to.IP.To4()
	}
	native.PutUint32(r[4:], ^uint32(0)) // in any state
	id := r[diagID:]
	binary.BigEndian.PutUint16(id, uint16(from.Port))   //nolint:gosec // a port
	binary.BigEndian.PutUint16(id[2:], uint16(to.Port)) //nolint:gosec // as above
	copy(id[4:20], src)
	copy(id[20:36], dst)
	native.PutUint64(id[40:], ^uint64(0)) // whichever socket it is
	if err := unix.Sendto(o.fd, q, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 1024)
	n, _, err := unix.Recvfrom(o.fd, answer, 0)
	if err != nil {
		return 0, errors.Join(err, o.shut()) // a late answer would be of the one before
	}
	// One that is closed already may be told as root's.
	if n < diagHeader+diagAnswer || native.Uint16(answer[4:]) != unix.SOCK_DIAG_BY_FAMILY || answer[diagHeader+1] != established {
		return 0, fmt.Errorf("no socket of %s is known", from)
	}
	return int(native.Uint32(answer[diagHeader+diagUID:])), nil
}

// open makes the socket by which the kernel is asked.
func (o *owners) open() (err error) {
	if o.closed {
		return net.ErrClosed
	}
	if o.opened {
		return nil
	}
	if o.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG); err != nil {
		return err
	}
	o.opened = true
	patience := unix.Timeval{Usec: 100_000}
	if err := unix.SetsockoptTimeval(o.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return errors.Join(err, o.shut())
	}
	return nil
}

func (o *owners) shut() error {
	if !o.opened {
		return nil
	}
	o.opened = false
	return unix.Close(o.fd)
}

func (o *owners) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	return o.shut()
}
