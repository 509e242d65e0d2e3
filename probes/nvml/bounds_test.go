package nvml

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/nvml/wire"
	"github.com/trimtab/trimtab/probes/procfs"
)

// TestTakenOverChild: one that says what trimtab-nvml cannot have read of a host is ended at that, and no
// more is kept of it than of the largest host. What such a host has is believed.
func TestTakenOverChild(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	device := func(i int, d probes.Device) wire.Answer {
		d.Index, d.Minor, d.UUID, d.AtNs = i%128, i%128, fmt.Sprintf("GPU-%d", i), procfs.MonotonicNs()
		return wire.Answer{Device: &d}
	}
	one := func(d probes.Device) func(int) wire.Answer {
		return func(i int) wire.Answer { return device(i, d) }
	}
	processes := func(n int) (list []probes.DeviceProcess) {
		for i := range n {
			list = append(list, probes.DeviceProcess{PID: int32(i + 1), Container: "docker-someone", Server: true})
		}
		return list
	}
	for name, c := range map[string]struct {
		times    int // it says the next, by number
		say      func(i int) wire.Answer
		devices  int // that are kept, at the most
		believed bool
	}{
		"the largest host": {896, one(probes.Device{Name: text(96), CPUs: text(4000), Processes: processes(16)}), 896, true},
		"one in use":       {1, one(probes.Device{Processes: processes(4000), Duty: make([]probes.DutySample, 4000)}), 1, true},
		"why it is lost":   {1, one(probes.Device{Lost: text(200)}), 1, true},
		"devices":          {2000, one(probes.Device{}), maxDevices, false},
		"no end":           {5000, func(int) wire.Answer { return device(0, probes.Device{}) }, 1, false},
		"hellos":           {5000, func(int) wire.Answer { return wire.Answer{Hello: &wire.Hello{Protocol: wire.Protocol}} }, 0, false},
		"processes of one": {1, one(probes.Device{Processes: processes(4097)}), 0, false},
		"processes of all": {8, one(probes.Device{Processes: processes(4000)}), 4, false},
		"samples":          {1, one(probes.Device{Duty: make([]probes.DutySample, 4097)}), 0, false},
		"reasons":          {1, one(probes.Device{Slowdown: make([]string, 17)}), 0, false},
		"a reason":         {1, one(probes.Device{Slowdown: []string{text(257)}}), 0, false},
		"a name":           {1, one(probes.Device{Name: text(257)}), 0, false},
		"a parent":         {1, one(probes.Device{Parent: text(257)}), 0, false},
		"CPUs":             {1, one(probes.Device{CPUs: text(4097)}), 0, false},
		"a loss":           {1, one(probes.Device{Lost: text(4097)}), 0, false},
		"a UUID":           {1, func(int) wire.Answer { return wire.Answer{Device: &probes.Device{UUID: text(257)}} }, 0, false},
		"a number":         {1, func(int) wire.Answer { return wire.Answer{Device: &probes.Device{Minor: -1}} }, 0, false},
		"another number":   {1, func(int) wire.Answer { return wire.Answer{Device: &probes.Device{Index: 1 << 21}} }, 0, false},
		"a driver": {1, func(int) wire.Answer {
			return wire.Answer{Hello: &wire.Hello{Protocol: wire.Protocol, Driver: text(257)}}
		}, 0, false},
		"folders that were left out": {1, func(int) wire.Answer {
			return wire.Answer{Hello: &wire.Hello{Protocol: wire.Protocol, LeftOut: text(4097)}}
		}, 0, false},
		"a failure": {1, func(int) wire.Answer { return wire.Answer{Failed: &wire.Failure{Why: text(4097)}} }, 0, false},
		"outcomes": {1, func(int) wire.Answer {
			return wire.Answer{End: &wire.End{Outcomes: make([]wire.Outcome, maxOutcomes+1)}}
		}, 0, false},
		"errors": {1, func(int) wire.Answer {
			return wire.Answer{XIDs: make([]wire.XID, 257)}
		}, 0, false},
		"errors twice": {2, func(int) wire.Answer { return wire.Answer{XIDs: make([]wire.XID, 256)} }, 0, true},
		"errors again": {3, func(int) wire.Answer { return wire.Answer{XIDs: make([]wire.XID, 256)} }, 0, false},
		"an error's device": {1, func(int) wire.Answer {
			return wire.Answer{XIDs: []wire.XID{{Device: text(257)}}}
		}, 0, false},
		"errors in a device": {1, one(probes.Device{Errors: probes.DeviceErrors{XIDs: []uint32{79}}}), 0, false},
		"a call": {1, func(int) wire.Answer {
			return wire.Answer{End: &wire.End{Outcomes: []wire.Outcome{{CallKey: wire.CallKey{Call: text(257)}}}}}
		}, 0, false},
	} {
		p := sayingChild(t, func(out io.Writer) {
			for i := range c.times {
				if wire.WriteLine(out, c.say(i)) != nil {
					return // it is not listened to any more
				}
			}
			_ = wire.WriteLine(out, wire.Answer{End: &wire.End{}}) // as above
		})
		r := &Reader{o: Options{ProcRoot: t.TempDir()}.withDefaults(), book: newBook(), news: make(chan struct{})}
		_, err := r.reading(t.Context(), p)
		if believed := err == nil; believed != c.believed || !believed && !errors.Is(err, errNotOurs) || believed && len(r.book.devices) != c.devices {
			t.Errorf("%s: %v, with %d devices", name, err, len(r.book.devices))
		}
		if len(r.book.devices) > c.devices || r.book.hello.Driver != "" {
			t.Errorf("%s: kept are %d devices, want %d; %+v", name, len(r.book.devices), c.devices, r.book.hello)
		}
		for _, d := range read(r) {
			if name == "one in use" && len(d.Processes) == 0 {
				t.Errorf("%s: nobody holds it", name)
			}
			if len(d.Processes) > 0 && (d.Processes[0].Container != "" || d.Processes[0].Server) {
				t.Errorf("%s: the child's word on who holds a device counts: %+v", name, d.Processes[0])
			}
		}
	}
}

// TestInventedDevicesGoAgain: a child that names other devices in each reading, of a time to come, fills no book for good.
func TestInventedDevicesGoAgain(t *testing.T) {
	r := &Reader{o: Options{ProcRoot: t.TempDir()}.withDefaults(), book: newBook(), news: make(chan struct{})}
	p := sayingChild(t, func(out io.Writer) {
		for i := range maxDevices {
			_ = wire.WriteLine(out, wire.Answer{Device: &probes.Device{Index: i, UUID: fmt.Sprint(i), AtNs: 1 << 62}, Cursor: 1}) // until it is not listened to
		}
		_ = wire.WriteLine(out, wire.Answer{End: &wire.End{}}) // as above
	})
	if _, err := r.reading(t.Context(), p); err != nil || len(r.book.devices) != maxDevices {
		t.Fatalf("%v, %d devices", err, len(r.book.devices))
	}
	r.book.complete(wire.End{}, procfs.MonotonicNs()+keepGoneNs)
	if n := len(r.book.devices) + len(r.book.cursors); n > 0 {
		t.Errorf("ten minutes later %d are still told of", n)
	}
}

// TestNoTimeBeforeTheHost: what is told of the least number there is is old, and goes as any other.
func TestNoTimeBeforeTheHost(t *testing.T) {
	r := &Reader{o: Options{ProcRoot: t.TempDir()}.withDefaults(), book: newBook(), news: make(chan struct{})}
	p := sayingChild(t, func(out io.Writer) {
		_ = wire.WriteLine(out, wire.Answer{Device: &probes.Device{UUID: "invented", AtNs: math.MinInt64}}) // until it is not listened to
		_ = wire.WriteLine(out, wire.Answer{End: &wire.End{}})                                              // as above
	})
	if _, err := r.reading(t.Context(), p); err != nil || len(r.book.devices) != 1 {
		t.Fatalf("%v, %d devices", err, len(r.book.devices))
	}
	if d := read(r)[0]; d.Lost == "" {
		t.Errorf("it is taken for fresh: %+v", d)
	}
	r.book.complete(wire.End{}, procfs.MonotonicNs()+keepGoneNs)
	if n := len(r.book.devices); n > 0 {
		t.Errorf("ten minutes later %d are still told of", n)
	}
}

// TestNothingIsKeptOfATakenOverChild: what it invented would leave the next one's devices no room.
func TestNothingIsKeptOfATakenOverChild(t *testing.T) {
	b := newBook()
	for i := range maxDevices {
		if err := b.take(probes.Device{Index: i, UUID: fmt.Sprint(i)}, 1, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	b.childEnded(errors.New("it hung"))
	if len(b.devices) != maxDevices || len(b.cursors) != maxDevices {
		t.Errorf("of a child that hung %d devices and %d cursors are left", len(b.devices), len(b.cursors))
	}
	b.childEnded(fmt.Errorf("%w: a text", errNotOurs))
	if err := b.take(probes.Device{UUID: "GPU-honest"}, 1, time.Now()); err != nil || len(b.devices) != 1 || len(b.cursors) != 1 {
		t.Errorf("%v; %d devices, %d cursors", err, len(b.devices), len(b.cursors))
	}
}

// TestErrorsAreHeardByNameAndIndex: of the GPU, never of its slices.
func TestErrorsAreHeardByNameAndIndex(t *testing.T) {
	b := newBook()
	for _, d := range []probes.Device{{Index: 0, UUID: "GPU-a"}, {Index: 0, UUID: "MIG-a", Parent: "GPU-a"}, {Index: 1}} {
		if err := b.take(d, 0, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	unknown := b.heard([]wire.XID{{Device: "GPU-a", Number: 63}, {Device: "#0", Number: 64}, {Device: "#1", Number: 79}, {Device: "MIG-a", Number: 1}, {Device: "GPU-other", Number: 2}})
	if len(unknown) != 2 {
		t.Errorf("unknown are %v", unknown)
	}
	for id, want := range map[string][]uint32{"GPU-a": {63, 64}, "MIG-a": nil, wire.IndexID(1): {79}} {
		if got := b.devices[id].xids; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}

// TestSkipsAreBounded: the names of calls that ended a child are the child's.
func TestSkipsAreBounded(t *testing.T) {
	for every, left := range map[time.Duration]int{0: 1, time.Second: 50} {
		s, now := skips{}, time.Now()
		for i := range 3 * maxSkips {
			now = now.Add(every)
			s.add(wire.CallKey{Device: fmt.Sprint(i), Call: "x"}, "it hung", now)
			if len(s) > maxSkips {
				t.Fatalf("%d are kept", len(s))
			}
		}
		last := wire.CallKey{Device: fmt.Sprint(3*maxSkips - 1), Call: "x"}
		if keys := s.keys(now); len(keys) < left || s[last] == nil {
			t.Errorf("one each %v: %d are left out, the latest: %v", every, len(keys), s[last])
		}
	}
}
