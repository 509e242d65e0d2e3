package network

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
)

const mib = 1 << 20

// near says whether got is want to within 1 % and a handshake.
func near(got, want uint64) bool {
	return got+2 >= want && got <= want+want/100+2
}

func TestSocketsThatExistedBefore(t *testing.T) {
	b := newBox(t, true)
	addr, conns := server(t, b.hostIP)
	b.do("dial %s", addr)
	b.do("send 0 %d", 3*mib)
	peer := <-conns
	p := newProbe(t)
	watch(t, p, b, "a")
	first := eventually(t, p, "a", func(n probes.Network) bool { return near(n.TxBytes, 3*mib) })
	if first.Sockets != 1 {
		t.Errorf("%+v", first)
	}
	b.do("send 0 %d", 5*mib)
	if _, err := peer.Write(make([]byte, 2*mib)); err != nil {
		t.Fatal(err)
	}
	second := eventually(t, p, "a", func(n probes.Network) bool { return near(n.TxBytes, 8*mib) && near(n.RxBytes, 2*mib) })
	if second.Segments <= first.Segments || second.LocalBytes != 0 {
		t.Errorf("first %+v\nsecond %+v", first, second)
	}
	// The interface carries headers and acknowledgements as well.
	if len(second.Links) != 1 || second.Links[0].Name != "eth0" || second.Links[0].TxBytes < 8*mib || second.Links[0].TxBytes > 9*mib {
		t.Errorf("links %+v", second.Links)
	}
}

func TestClosedSocketsKeepTheirShare(t *testing.T) {
	b := newBox(t, true)
	addr, _ := server(t, b.hostIP)
	p := newProbe(t)
	watch(t, p, b, "a")
	read(t, p, "a")
	b.do("dial %s", addr)
	b.do("send 0 %d", mib)
	read(t, p, "a") // seen once,
	b.do("send 0 %d", mib)
	b.do("close 0")            // then it sends more and closes
	for i := 1; i <= 20; i++ { // these live between two readings
		b.do("dial %s", addr)
		b.do("send %d %d", i, mib)
		b.do("close %d", i)
	}
	n := eventually(t, p, "a", func(n probes.Network) bool { return near(n.TxBytes, 22*mib) })
	if n.Sockets != 0 {
		t.Errorf("%+v", n)
	}
	if again := read(t, p, "a"); again.TxBytes != n.TxBytes || len(p.containers["a"].account.sockets) != 0 {
		t.Errorf("%d after %d bytes, %d sockets kept", again.TxBytes, n.TxBytes, len(p.containers["a"].account.sockets))
	}
}

func TestLoopbackIsApart(t *testing.T) {
	b := newBox(t, true)
	p := newProbe(t)
	watch(t, p, b, "a")
	for i, listen := range []string{"127.0.0.1:0", "[::1]:0", b.innerIP + ":0"} {
		addr := b.do("listen %s", listen)
		b.do("dial %s", addr)
		b.do("send %d %d", i, mib)
	}
	n := eventually(t, p, "a", func(n probes.Network) bool { return near(n.LocalBytes, 3*mib) })
	if n.RxBytes != 0 || n.TxBytes != 0 {
		t.Errorf("%+v", n)
	}
}

func TestContainersAreToldApart(t *testing.T) {
	b, other, foreign := newBox(t, true), newBox(t, true), newBox(t, false)
	p := newProbe(t)
	watch(t, p, b, "a")
	watch(t, p, other, "b")
	for i, x := range []*box{b, other, foreign} {
		addr, _ := server(t, "0.0.0.0")
		_, port, _ := net.SplitHostPort(addr)
		ip := x.hostIP
		if ip == "" {
			ip = b.hostIP
		}
		x.do("dial %s:%s", ip, port)
		x.do("send 0 %d", (i+1)*mib)
	}
	eventually(t, p, "a", func(n probes.Network) bool { return near(n.TxBytes, mib) })
	eventually(t, p, "b", func(n probes.Network) bool { return near(n.TxBytes, 2*mib) })
	p.Unwatch("b")
	if err := p.Watch(other.target("c")); err != nil { // takes b's slot
		t.Fatal(err)
	}
	eventually(t, p, "c", func(n probes.Network) bool { return near(n.TxBytes, 2*mib) })
}

func TestHostsNamespace(t *testing.T) {
	b := newBox(t, false)
	p := newProbe(t)
	watch(t, p, b, "a")
	if n := read(t, p, "a"); n.Links != nil {
		t.Errorf("%+v", n)
	}
}

// A queue at the host's end of the veth bounds what comes to the box, one at a
// device of the host what leaves by it.
func TestShapingIsSeenAndBinds(t *testing.T) {
	b := newBox(t, true)
	p := newProbe(t)
	watch(t, p, b, "a")
	if n := read(t, p, "a"); len(n.Links) != 1 || n.Links[0].MaxBps != 0 {
		t.Errorf("not shaped: %+v", n.Links)
	}
	b.tool("tc", "qdisc", "add", "dev", b.hostIf, "root", "tbf", "rate", "80mbit", "burst", "64k", "latency", "50ms")
	if n := read(t, p, "a"); n.Links[0].MaxBps != 10e6 {
		t.Errorf("tbf of 80 Mbit/s: %+v", n.Links)
	}
	b.tool("tc", "qdisc", "replace", "dev", b.hostIf, "root", "handle", "1:", "htb", "default", "1")
	b.tool("tc", "class", "add", "dev", b.hostIf, "parent", "1:", "classid", "1:1", "htb", "rate", "8mbit", "ceil", "40mbit")
	if n := read(t, p, "a"); n.Links[0].MaxBps != 5e6 {
		t.Errorf("htb with a ceiling of 40 Mbit/s: %+v", n.Links)
	}
}

// A sender behind a narrow link waits for the network; one that chats does not,
// though its messages are outstanding most of the time.
func TestLimitedByTheNetwork(t *testing.T) {
	b := newBox(t, true)
	b.tool("nsenter", "-t", fmt.Sprint(b.pid), "-n", "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "40mbit", "burst", "16k", "limit", "30k")
	addr, _ := server(t, b.hostIP)
	b.do("dial %s", addr)
	b.do("dial %s", addr)
	p := newProbe(t)
	watch(t, p, b, "a")
	before := read(t, p, "a")
	b.do("send 1 100")
	b.do("send 0 %d", 8*mib) // 1.6 s
	n := read(t, p, "a")
	if n.LimitedSockets != 1 {
		t.Errorf("%+v", n)
	}
	if n.Retransmits == before.Retransmits {
		t.Errorf("a queue of 30 kB dropped nothing: %+v", n)
	}
	eventually(t, p, "a", func(n probes.Network) bool { return near(n.TxBytes, 8*mib+100) })
	b.do("chat 1 50")
	if n := read(t, p, "a"); n.LimitedSockets != 0 {
		t.Errorf("a hundred bytes each 10 ms: %+v", n)
	}
}

func TestManySocketsCostOneContainerOnly(t *testing.T) {
	b, other := newBox(t, true), newBox(t, true)
	addr, _ := server(t, b.hostIP)
	otherAddr, _ := server(t, other.hostIP)
	for range maxSockets + 100 {
		b.do("dial %s", addr)
	}
	other.do("dial %s", otherAddr)
	other.do("send 0 %d", mib)
	p := newProbe(t)
	watch(t, p, b, "many")
	watch(t, p, other, "few")
	n := read(t, p, "many")
	if len(n.Missing) == 0 || n.Sockets != maxSockets {
		t.Errorf("%d sockets, missing %q", n.Sockets, n.Missing)
	}
	if n := eventually(t, p, "few", func(n probes.Network) bool { return near(n.TxBytes, mib) }); len(n.Missing) != 0 {
		t.Errorf("%+v", n)
	}
}

func TestRecordsOfOnePassAreBounded(t *testing.T) {
	b, other := newBox(t, true), newBox(t, true)
	addr, _ := server(t, b.hostIP)
	otherAddr, _ := server(t, other.hostIP)
	for range 30 {
		b.do("dial %s", addr)
	}
	other.do("dial %s", otherAddr)
	p := newProbeWith(t, Options{ReadEvery: time.Nanosecond, maxRecords: 20})
	watch(t, p, b, "many")
	watch(t, p, other, "few")
	for range 2 { // the count begins anew with each pass
		if n := read(t, p, "many"); n.Sockets != 20 || len(n.Missing) != 1 || !strings.Contains(n.Missing[0], "20 of 30") {
			t.Errorf("%d sockets, missing %q", n.Sockets, n.Missing)
		}
	}
	if n := read(t, p, "few"); n.Sockets != 1 || len(n.Missing) != 0 {
		t.Errorf("%+v", n)
	}
}

func TestNothingLeaks(t *testing.T) {
	b := newBox(t, true)
	files := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := 0
	for i := range 20 {
		p := New(Options{ReadEvery: time.Nanosecond})
		if missing := p.Missing(); len(missing) > 0 {
			t.Skipf("needs BPF, BTF and root: %v", missing)
		}
		if err := p.Watch(b.target("a")); err != nil {
			t.Fatal(err)
		}
		read(t, p, "a")
		if _, err := p.HostLinks(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			before = files()
		}
	}
	if after := files(); after > before {
		t.Errorf("%d files open, %d before", after, before)
	}
}

func TestReadingsRest(t *testing.T) {
	b := newBox(t, true)
	p := newProbe(t)
	p.opts.ReadEvery = time.Hour
	watch(t, p, b, "a")
	first := read(t, p, "a")
	into := map[string]*probes.Sample{}
	if err := p.Read(t.Context(), into); err != nil {
		t.Fatal(err)
	}
	if into["a"] == nil || into["a"].Network.AtNs != first.AtNs {
		t.Errorf("a reading within the hour: %+v", into["a"])
	}
}

// A pass that is cut says so, and takes no socket that it did not come to for closed.
func TestPassThatIsCut(t *testing.T) {
	b := newBox(t, true)
	addr, _ := server(t, b.hostIP)
	b.do("dial %s", addr)
	p := newProbeWith(t, Options{ReadEvery: time.Nanosecond, longestPass: time.Nanosecond})
	watch(t, p, b, "cut")
	unmet := &socket{}
	p.containers["cut"].account.sockets[1<<63] = unmet
	if n := read(t, p, "cut"); len(n.Missing) != 1 || n.Missing[0] != "sockets: the pass was cut" || n.AtNs == 0 {
		t.Errorf("%+v", n)
	}
	if unmet.lostNs != 0 {
		t.Error("a socket that the pass did not come to is taken for closed")
	}
	p.opts.longestPass = time.Minute
	if n := read(t, p, "cut"); len(n.Missing) != 0 || n.Sockets != 1 {
		t.Errorf("a whole pass: %+v", n)
	}
	if unmet.lostNs == 0 {
		t.Error("a socket that a whole pass did not meet is taken for open")
	}
}

// A container that closes more sockets than there is room for leaves some to others.
func TestClosedSocketsAreShared(t *testing.T) {
	hostile, honest := newBox(t, true), newBox(t, true)
	toHostile, _ := server(t, hostile.hostIP)
	toHonest, _ := server(t, honest.hostIP)
	p := newProbe(t)
	watch(t, p, hostile, "hostile")
	watch(t, p, honest, "honest")
	read(t, p, "honest")
	for i := range 3600 {
		hostile.do("dial %s", toHostile)
		hostile.do("close %d", i)
	}
	for i := range 5 {
		honest.do("dial %s", toHonest)
		honest.do("send %d %d", i, mib)
		honest.do("close %d", i)
	}
	eventually(t, p, "honest", func(n probes.Network) bool { return near(n.TxBytes, 5*mib) })
	if p.Cost().Lost == 0 {
		t.Error("the hostile container lost nothing")
	}
}
