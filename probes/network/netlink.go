package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Sizes of include/uapi/linux/netlink.h, rtnetlink.h.
const (
	nlHeaderBytes   = unix.SizeofNlMsghdr
	attrHeaderBytes = 4
	attrTypeMask    = 0x3fff // less NLA_F_NESTED and NLA_F_NET_BYTEORDER
	ifInfoBytes     = unix.SizeofIfInfomsg
	tcMsgBytes      = 20
	// A dump of a host with a thousand veths has about a megabyte.
	maxDumpBytes = 16 << 20
)

// netlink asks rtnetlink about the host's own namespace, which needs no
// capability. One request at a time.
type netlink struct {
	fd  int
	seq uint32
	buf []byte
}

func openNetlink() (*netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w; a unit that restricts address families must allow AF_NETLINK", err)
	}
	wait := unix.NsecToTimeval(time.Second.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return nil, errors.Join(fmt.Errorf("netlink: set a deadline: %w", err), unix.Close(fd))
	}
	return &netlink{fd: fd, buf: make([]byte, 64<<10)}, nil
}

func (n *netlink) close() error { return unix.Close(n.fd) }

// ask sends a request and hands each answer's payload to got. Dumps have many
// answers, other requests one.
func (n *netlink) ask(kind, flags uint16, body []byte, got func(payload []byte)) error {
	n.seq++
	req := make([]byte, nlHeaderBytes, nlHeaderBytes+len(body))
	binary.NativeEndian.PutUint32(req, uint32(nlHeaderBytes+len(body)))
	binary.NativeEndian.PutUint16(req[4:], kind)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(req[8:], n.seq)
	if err := unix.Sendto(n.fd, append(req, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("netlink request %d: %w", kind, err)
	}
	dump := flags&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	for total := 0; total < maxDumpBytes; {
		size, _, err := unix.Recvfrom(n.fd, n.buf, 0)
		if err != nil {
			return fmt.Errorf("netlink request %d: %w", kind, err)
		}
		total += size
		done, err := messages(n.buf[:size], n.seq, got)
		if err != nil {
			return fmt.Errorf("netlink request %d: %w", kind, err)
		}
		if done || !dump {
			return nil
		}
	}
	return fmt.Errorf("netlink request %d: the answer is too long", kind)
}

// messages walks the messages of one datagram.
func messages(b []byte, seq uint32, got func(payload []byte)) (done bool, err error) {
	for len(b) >= nlHeaderBytes {
		size := int(binary.NativeEndian.Uint32(b))
		if size < nlHeaderBytes || size > len(b) {
			return false, fmt.Errorf("a message of %d bytes in %d", size, len(b))
		}
		payload := b[nlHeaderBytes:size]
		switch kind := binary.NativeEndian.Uint16(b[4:]); {
		case binary.NativeEndian.Uint32(b[8:]) != seq: // of a request that was given up
		case kind == unix.NLMSG_DONE:
			return true, nil
		case kind == unix.NLMSG_ERROR:
			if len(payload) < 4 {
				return false, errors.New("an error without a number")
			}
			if errno := int32(binary.NativeEndian.Uint32(payload)); errno != 0 {
				return false, os.NewSyscallError("rtnetlink", unix.Errno(-errno))
			}
			return true, nil
		default:
			got(payload)
		}
		b = b[min(align4(size), len(b)):]
	}
	return false, nil
}

func align4(n int) int { return (n + 3) &^ 3 }

// attrs walks attributes; what is malformed ends it.
func attrs(b []byte, each func(kind uint16, value []byte)) {
	for len(b) >= attrHeaderBytes {
		size := int(binary.NativeEndian.Uint16(b))
		if size < attrHeaderBytes || size > len(b) {
			return
		}
		each(binary.NativeEndian.Uint16(b[2:])&attrTypeMask, b[attrHeaderBytes:size])
		b = b[min(align4(size), len(b)):]
	}
}

// attr makes one attribute with a 32-bit value.
func attr(kind uint16, value uint32) []byte {
	b := make([]byte, attrHeaderBytes+4)
	binary.NativeEndian.PutUint16(b, uint16(len(b)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	binary.NativeEndian.PutUint32(b[attrHeaderBytes:], value)
	return b
}

// number reads an attribute of 4 or 8 bytes.
func number(b []byte) uint64 {
	switch {
	case len(b) >= 8:
		return binary.NativeEndian.Uint64(b)
	case len(b) >= 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return 0
}
