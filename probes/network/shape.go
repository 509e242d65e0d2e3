package network

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Attributes of include/uapi/linux/pkt_sched.h and rtnetlink.h.
const (
	tcaKind, tcaOptions           = 1, 2
	tbfParms, tbfRate64           = 1, 4
	htbParms, htbCeil64           = 1, 7
	netemRate, netemRate64        = 6, 8
	cakeBaseRate64                = 2
	netemQoptBytes                = 24
	rateSpecBytes, rateSpecRateAt = 12, 8
	handleRoot                    = 0xffffffff
	handleMajor                   = 0xffff0000
	nsidUnassigned                = -1
)

// device is one interface of the host's namespace.
type device struct {
	index  int
	name   string
	veth   bool
	peer   int   // index of the other end, in the other end's namespace
	peerNS int32 // that namespace's id as seen from here; -1: the same one, or not told
}

// qdisc is one queueing discipline, or one class of one.
type qdisc struct {
	index          int
	handle, parent uint32
	kind           string
	bytesPerS      float64 // 0: does not shape
}

func readDevices(n *netlink.Conn) ([]device, error) {
	body := make([]byte, ifInfoBytes)
	const skipStats = 8 // RTEXT_FILTER_SKIP_STATS
	body = append(body, attr(unix.IFLA_EXT_MASK, skipStats)...)
	var out []device
	err := ask(n, unix.RTM_GETLINK, unix.NLM_F_DUMP, body, func(b []byte) {
		if d, ok := parseDevice(b); ok {
			out = append(out, d)
		}
	})
	return out, err
}

func parseDevice(b []byte) (device, bool) {
	if len(b) < ifInfoBytes {
		return device{}, false
	}
	d := device{index: int(int32(binary.NativeEndian.Uint32(b[4:]))), peerNS: nsidUnassigned}
	attrs(b[ifInfoBytes:], func(kind uint16, v []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			d.name = text(v)
		case unix.IFLA_LINK:
			d.peer = int(number(v))
		case unix.IFLA_LINK_NETNSID:
			d.peerNS = int32(number(v))
		case unix.IFLA_LINKINFO:
			attrs(v, func(kind uint16, v []byte) {
				d.veth = d.veth || kind == unix.IFLA_INFO_KIND && text(v) == "veth"
			})
		}
	})
	return d, d.name != ""
}

func text(b []byte) string { return strings.TrimRight(string(b), "\x00") }

// namespaceOf returns the id by which the host's namespace knows a process's;
// -1 where there is none.
func namespaceOf(n *netlink.Conn, pid int) (int32, error) {
	const pidAttr, nsidAttr = 2, 1 // NETNSA_PID, NETNSA_NSID
	id := int32(nsidUnassigned)
	err := ask(n, unix.RTM_GETNSID, 0, append(make([]byte, 4), attr(pidAttr, uint32(pid))...), func(b []byte) {
		if len(b) < 4 {
			return
		}
		attrs(b[4:], func(kind uint16, v []byte) {
			if kind == nsidAttr {
				id = int32(number(v))
			}
		})
	})
	return id, err
}

// readShapes returns what each device's queues let out, bytes/s, by its index;
// absent: not shaped.
func readShapes(n *netlink.Conn) (map[int]float64, error) {
	all, err := readQdiscs(n, unix.RTM_GETQDISC, 0)
	if err != nil {
		return nil, err
	}
	byDevice := map[int][]qdisc{}
	for _, q := range all {
		byDevice[q.index] = append(byDevice[q.index], q)
	}
	out := map[int]float64{}
	for index, queues := range byDevice {
		rate, classful := chainRate(queues)
		if classful {
			classes, err := readQdiscs(n, unix.RTM_GETTCLASS, index)
			if err != nil {
				return nil, err
			}
			rate = lower(rate, classRate(classes))
		}
		if rate > 0 {
			out[index] = rate
		}
	}
	return out, nil
}

func readQdiscs(n *netlink.Conn, kind uint16, index int) ([]qdisc, error) {
	body := make([]byte, tcMsgBytes)
	binary.NativeEndian.PutUint32(body[4:], uint32(index))
	var out []qdisc
	err := ask(n, kind, unix.NLM_F_DUMP, body, func(b []byte) {
		if q, ok := parseQdisc(b); ok {
			out = append(out, q)
		}
	})
	return out, err
}

func parseQdisc(b []byte) (qdisc, bool) {
	if len(b) < tcMsgBytes {
		return qdisc{}, false
	}
	q := qdisc{index: int(int32(binary.NativeEndian.Uint32(b[4:]))),
		handle: binary.NativeEndian.Uint32(b[8:]), parent: binary.NativeEndian.Uint32(b[12:])}
	var options []byte
	attrs(b[tcMsgBytes:], func(kind uint16, v []byte) {
		switch kind {
		case tcaKind:
			q.kind = text(v)
		case tcaOptions:
			options = v
		}
	})
	q.bytesPerS = rateOf(q.kind, options)
	return q, q.kind != ""
}

// rateAttrs are where a discipline tells its rate: 4 bytes at a place in an attribute, and with 8
// bytes one that stands where 32 bits are saturated.
type rateAttrs struct {
	skip   int    // bytes of a struct before the attributes
	narrow uint16 // 0: it has none
	at     int
	wide   uint16
}

// rateOf reads the rate that a discipline, or a class of htb, enforces.
func rateOf(kind string, options []byte) float64 {
	where, shapes := map[string]rateAttrs{
		"tbf":   {narrow: tbfParms, at: rateSpecRateAt, wide: tbfRate64},
		"htb":   {narrow: htbParms, at: rateSpecBytes + rateSpecRateAt, wide: htbCeil64}, // its ceiling: the second of two rate specifications
		"netem": {skip: netemQoptBytes, narrow: netemRate, wide: netemRate64},
		"cake":  {wide: cakeBaseRate64},
	}[kind]
	if !shapes {
		return 0
	}
	var rate uint64
	attrs(options[min(where.skip, len(options)):], func(kind uint16, v []byte) {
		switch {
		case kind == where.wide:
			rate = max(rate, number(v))
		case kind != 0 && kind == where.narrow && len(v) >= where.at+4:
			rate = max(rate, number(v[where.at:where.at+4]))
		}
	})
	return float64(rate)
}

// chainRate follows the queues that all packets pass, from the root down, and
// returns the lowest rate; classful: the root's classes hold the rates.
func chainRate(queues []qdisc) (bytesPerS float64, classful bool) {
	parent := uint32(handleRoot)
	for range len(queues) { // each once: a loop cannot be
		at := -1
		for i, q := range queues {
			if q.parent == parent || parent != handleRoot && q.parent != handleRoot && q.parent&handleMajor == parent {
				at = i
			}
		}
		if at < 0 {
			break
		}
		q := queues[at]
		if q.kind == "htb" {
			return bytesPerS, true
		}
		if q.kind != "tbf" && q.kind != "netem" {
			return lower(bytesPerS, q.bytesPerS), false
		}
		bytesPerS, parent = lower(bytesPerS, q.bytesPerS), q.handle&handleMajor
	}
	return bytesPerS, false
}

// classRate is the most that one class of the top lets out.
func classRate(classes []qdisc) float64 {
	var most float64
	for _, c := range classes {
		if c.parent == handleRoot {
			most = max(most, c.bytesPerS)
		}
	}
	return most
}

// lower is the smaller of two rates, of which 0 is none.
func lower(a, b float64) float64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

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
