package network

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	ifInfoBytes = unix.SizeofIfInfomsg
	tcMsgBytes  = 20 // struct tcmsg of include/uapi/linux/rtnetlink.h
)

// openNetlink asks rtnetlink about the host's own namespace, which needs no capability.
func openNetlink() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w; a unit that restricts address families must allow AF_NETLINK", err)
	}
	return conn, nil
}

// ask sends a request and hands each answer's payload to got: dumps have many answers, other requests
// one. After an error the socket is to be closed: the answer may still come.
func ask(conn *netlink.Conn, kind, flags uint16, body []byte, got func(payload []byte)) error {
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("netlink: set a deadline: %w", err)
	}
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | netlink.HeaderFlags(flags)}, Data: body})
	if err != nil {
		return fmt.Errorf("netlink request %d: %w", kind, err)
	}
	for _, a := range answers {
		got(a.Data)
	}
	return nil
}

// attrs walks attributes; those of which one is malformed are none.
func attrs(b []byte, each func(kind uint16, value []byte)) {
	d, err := netlink.NewAttributeDecoder(b)
	for err == nil && d.Next() {
		each(d.Type(), d.Bytes())
	}
}

// attr makes one attribute with a 32-bit value.
func attr(kind uint16, value uint32) []byte {
	b, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: kind, Data: binary.NativeEndian.AppendUint32(nil, value)}}) // of 8 bytes: no error
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
