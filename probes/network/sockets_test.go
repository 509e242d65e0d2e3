package network

import (
	"testing"

	"pgregory.net/rapid"
)

func TestAccountFollowsOneSocket(t *testing.T) {
	a := newAccount()
	a.seen(socketsSockRecord{Cookie: 7, RxBytes: 100, TxBytes: 200, Segments: 3, State: tcpEstablished}, 1, 1)
	a.seen(socketsSockRecord{Cookie: 7, RxBytes: 100, TxBytes: 200, Segments: 3, State: tcpEstablished}, 1, 1) // held by two processes
	a.end(1, 0)
	if n := a.take(); n.RxBytes != 100 || n.TxBytes != 200 || n.Sockets != 1 {
		t.Errorf("first: %+v", n)
	}
	a.seen(socketsSockRecord{Cookie: 7, RxBytes: 150, TxBytes: 200, Segments: 3, Retransmits: 1, State: tcpEstablished}, 2, 2)
	a.end(2, 0)
	if n := a.take(); n.RxBytes != 150 || n.Retransmits != 1 {
		t.Errorf("second: %+v", n)
	}
	a.end(3, 0) // its descriptor is gone, it still has to be acknowledged
	if n := a.take(); n.RxBytes != 150 || n.Sockets != 0 {
		t.Errorf("lingering: %+v", n)
	}
	a.closed(socketsSockRecord{Cookie: 7, RxBytes: 150, TxBytes: 900, Segments: 10}, 99)
	a.end(4, 0)
	if n := a.take(); n.TxBytes != 900 || n.Segments != 10 || len(a.sockets) != 0 {
		t.Errorf("closed: %+v, %d sockets", n, len(a.sockets))
	}
}

func TestAccountForgetsWhatLingersForEver(t *testing.T) {
	a := newAccount()
	a.seen(socketsSockRecord{Cookie: 7, TxBytes: 5}, 1, 1)
	a.end(1, 0)
	a.end(2, 1)
	a.end(3, lingerNs)
	if len(a.sockets) != 1 {
		t.Error("forgotten too early")
	}
	a.end(4, lingerNs+2)
	if n := a.take(); len(a.sockets) != 0 || n.TxBytes != 5 {
		t.Errorf("%d sockets, %+v", len(a.sockets), n)
	}
}

func TestAccountTellsAReconnectedSocketFromOneThatWentOn(t *testing.T) {
	a := newAccount()
	a.seen(socketsSockRecord{Cookie: 7, RxBytes: 10, TxBytes: 1000, Segments: 9, Retransmits: 4}, 1, 1)
	a.seen(socketsSockRecord{Cookie: 7, RxBytes: 0, TxBytes: 50, Segments: 1}, 2, 2) // disconnected, connected anew
	if n := a.take(); n.TxBytes != 1050 || n.Segments != 10 || n.Retransmits != 4 {
		t.Errorf("%+v", n)
	}
	a.seen(socketsSockRecord{Cookie: 8, TxBytes: 1, Segments: 1<<32 - 1}, 2, 2)
	a.take()
	a.seen(socketsSockRecord{Cookie: 8, TxBytes: 2, Segments: 4}, 3, 3) // 32 bits wrapped
	if n := a.take(); n.Segments != 10+1<<32-1+5 {
		t.Errorf("%+v", n)
	}
}

func TestAccountHasRoomForSoMany(t *testing.T) {
	a := newAccount()
	for cookie := range uint64(maxSockets + 10) {
		a.seen(socketsSockRecord{Cookie: cookie + 1, TxBytes: 1, State: tcpEstablished}, 1, 1)
	}
	if n := a.take(); n.Sockets != maxSockets || len(n.Missing) != 1 {
		t.Errorf("%d sockets, missing %q", n.Sockets, n.Missing)
	}
}

func TestLimited(t *testing.T) {
	const window, srttMs = 100_000, 10
	full := uint64(window / srttMs * 1000) // bytes/s that fill the window
	for name, tc := range map[string]struct {
		ticks  uint32 // of the interval, 1 s
		spans  [3]uint32
		tx     uint64
		unsent uint32
		want   bool
	}{
		"idle":                               {1000, [3]uint32{5}, 100, 0, false},
		"bulk":                               {1000, [3]uint32{990}, full * 9 / 10, 0, true},
		"bulk, the window has just grown":    {1000, [3]uint32{990}, full / 2, 0, true},
		"bulk for a fifth of the time":       {1000, [3]uint32{200}, full / 5, 0, true},
		"bulk, seen in the middle":           {1000, [3]uint32{500}, full / 50, 5, true},
		"small messages, late answers":       {1000, [3]uint32{200}, 350_000, 0, false},
		"the receiver's window":              {1000, [3]uint32{200, 700}, full, 5, false},
		"the sender's buffer":                {1000, [3]uint32{200, 0, 700}, full, 5, false},
		"more the network than the others":   {1000, [3]uint32{500, 200, 200}, full, 0, true},
		"no time has passed":                 {0, [3]uint32{}, 100, 5, false},
		"a torn reading goes back":           {1000, [3]uint32{1<<32 - 5}, full, 5, false},
		"a tick of 10 ms":                    {100, [3]uint32{99}, full, 0, true},
		"a tick of 10 ms, a message or two":  {100, [3]uint32{2}, 3000, 0, false},
		"waits for its last acknowledgement": {1000, [3]uint32{150}, full / 100, 0, false},
	} {
		was := socketsSockRecord{NowTicks: 1<<32 - 100, Chrono: [3]uint32{1<<32 - 50, 7, 7}, TxBytes: 77} // wraps in between
		now := socketsSockRecord{NowTicks: was.NowTicks + tc.ticks, TxBytes: was.TxBytes + tc.tx, Unsent: tc.unsent, Window: window, SrttUs: 8 * 1000 * srttMs}
		for i := range now.Chrono {
			now.Chrono[i] = was.Chrono[i] + tc.spans[i]
		}
		if got := limited(was, now, 1); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// However sockets come, are missed and close, the totals never fall and end as
// what all sockets moved.
func TestAccountKeepsEveryByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newAccount()
		truth := map[uint64]uint64{}
		gone := map[uint64]bool{}
		var last uint64
		for pass := uint32(1); pass < 30; pass++ {
			for cookie := range uint64(6) {
				if gone[cookie] {
					continue
				}
				truth[cookie] += rapid.Uint64Range(0, 100).Draw(t, "moved")
				switch rapid.IntRange(0, 5).Draw(t, "event") {
				case 0: // in flight between processes: not seen
				case 1:
					a.closed(socketsSockRecord{Cookie: cookie, TxBytes: truth[cookie]}, 99)
					gone[cookie] = true
				default:
					a.seen(socketsSockRecord{Cookie: cookie, TxBytes: truth[cookie]}, pass, int64(pass))
				}
			}
			a.end(pass, int64(pass))
			n := a.take()
			if n.TxBytes < last {
				t.Fatalf("fell from %d to %d", last, n.TxBytes)
			}
			last = n.TxBytes
		}
		var want uint64
		for cookie := range truth {
			if !gone[cookie] {
				a.closed(socketsSockRecord{Cookie: cookie, TxBytes: truth[cookie]}, 99)
			}
			want += truth[cookie]
		}
		if n := a.take(); n.TxBytes != want {
			t.Errorf("%d bytes of %d", n.TxBytes, want)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, recordBytes))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := decode(b); (err != nil) != (len(b) < recordBytes) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	})
}
