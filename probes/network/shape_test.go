package network

import (
	"encoding/binary"
	"testing"

	"github.com/mdlayher/netlink"
)

func TestChainRate(t *testing.T) {
	const one, two, three = 0x10000, 0x20000, 0x30000
	for name, tc := range map[string]struct {
		queues   []qdisc
		want     float64
		classful bool
	}{
		"none":        {},
		"not shaping": {queues: []qdisc{{handle: one, parent: handleRoot, kind: "fq_codel"}}},
		"tbf":         {queues: []qdisc{{handle: one, parent: handleRoot, kind: "tbf", bytesPerS: 5}}, want: 5},
		"netem below tbf": {want: 3, queues: []qdisc{
			{handle: two, parent: one + 1, kind: "netem", bytesPerS: 3}, {handle: one, parent: handleRoot, kind: "tbf", bytesPerS: 5}}},
		"delay above tbf": {want: 5, queues: []qdisc{
			{handle: one, parent: handleRoot, kind: "netem"}, {handle: two, parent: one + 1, kind: "tbf", bytesPerS: 5}}},
		"one band of prio": {queues: []qdisc{
			{handle: one, parent: handleRoot, kind: "prio"}, {handle: two, parent: one + 1, kind: "tbf", bytesPerS: 5}}},
		"htb below tbf": {want: 9, classful: true, queues: []qdisc{
			{handle: one, parent: handleRoot, kind: "tbf", bytesPerS: 9}, {handle: three, parent: one + 1, kind: "htb"}}},
		"only ingress": {queues: []qdisc{{handle: 0xffff0000, parent: 0xfffffff1, kind: "ingress"}}},
	} {
		if rate, classful := chainRate(tc.queues); rate != tc.want || classful != tc.classful {
			t.Errorf("%s: %v %v", name, rate, classful)
		}
	}
}

// nest makes an attribute that holds b.
func nest(kind uint16, b []byte) []byte {
	out, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: kind, Data: b}})
	return out
}

func u64(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }

func rateSpec(rate uint32) []byte {
	b := make([]byte, rateSpecBytes)
	binary.NativeEndian.PutUint32(b[rateSpecRateAt:], rate)
	return b
}

func TestRateOf(t *testing.T) {
	saturated := rateSpec(1<<32 - 1)
	netem := make([]byte, netemQoptBytes)
	for name, tc := range map[string]struct {
		kind    string
		options []byte
		want    float64
	}{
		"tbf":                  {"tbf", nest(tbfParms, rateSpec(1e6)), 1e6},
		"tbf above 32 bits":    {"tbf", append(nest(tbfParms, saturated), nest(tbfRate64, u64(12.5e9))...), 12.5e9},
		"htb's ceiling":        {"htb", nest(htbParms, append(rateSpec(1e6), rateSpec(4e6)...)), 4e6},
		"htb above 32 bits":    {"htb", append(nest(htbParms, append(rateSpec(5), saturated...)), nest(htbCeil64, u64(12.5e9))...), 12.5e9},
		"netem with a rate":    {"netem", append(netem, nest(netemRate, binary.NativeEndian.AppendUint32(nil, 2e6))...), 2e6},
		"netem with 64 bits":   {"netem", append(netem, nest(netemRate64, u64(7e9))...), 7e9},
		"cake":                 {"cake", nest(cakeBaseRate64, u64(3e6)), 3e6},
		"cake, unlimited":      {"cake", nest(cakeBaseRate64, u64(0)), 0},
		"another":              {"fq_codel", nest(tbfParms, rateSpec(1e6)), 0},
		"cut short":            {"tbf", nest(tbfParms, rateSpec(1e6))[:9], 0},
		"netem without header": {"netem", []byte{1}, 0},
	} {
		if got := rateOf(tc.kind, tc.options); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzNetlink(f *testing.F) {
	f.Add(append(make([]byte, tcMsgBytes), nest(tcaOptions, nest(tbfParms, rateSpec(1e6)))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseDevice(b)
		parseQdisc(b)
	})
}
