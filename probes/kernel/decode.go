package kernel

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/trimtab/trimtab/probes"
)

// Layout of struct record (bpf/thread.h), from the types that bpf2go made of it.
const (
	recordHead = int(unsafe.Offsetof(countersRecord{}.Thread) + unsafe.Offsetof(countersThread{}.Edges))
	edgeBytes  = int(unsafe.Sizeof(countersEdge{}))
	maxEdges   = len(countersThread{}.Edges)
)

const (
	flagExited = 1
	flagTorn   = 2
)

// decoded is one record.
type decoded struct {
	slot, gen uint32
	torn      bool
	thread    probes.Thread
}

// decode reads one record from the front of b and returns the bytes it took.
func decode(b []byte) (decoded, int, error) {
	size, err := recordSize(b)
	if err != nil {
		return decoded{}, 0, err
	}
	if len(b) < size {
		return decoded{}, 0, fmt.Errorf("record has %d bytes of %d", len(b), size)
	}
	u32 := func(at uintptr) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	u64 := func(at uintptr) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	var r countersRecord
	var t countersThread
	th := unsafe.Offsetof(r.Thread)
	flags := u32(unsafe.Offsetof(r.Flags))
	d := decoded{
		slot: u32(th + unsafe.Offsetof(t.Slot)),
		gen:  u32(th + unsafe.Offsetof(t.Gen)),
		torn: flags&flagTorn != 0,
	}
	d.thread = probes.Thread{
		TID:       int32(u32(unsafe.Offsetof(r.Tid))),
		TGID:      int32(u32(unsafe.Offsetof(r.Tgid))),
		PPID:      int32(u32(unsafe.Offsetof(r.Ppid))),
		StartNs:   u64(unsafe.Offsetof(r.StartBootNs)),
		Comm:      comm(b[unsafe.Offsetof(r.Comm):][:len(r.Comm)]),
		Exited:    flags&flagExited != 0,
		SinceNs:   int64(u64(th + unsafe.Offsetof(t.FirstNs))),
		AtNs:      int64(u64(unsafe.Offsetof(r.AtNs))),
		ReclaimNs: u64(th + unsafe.Offsetof(t.ReclaimNs)),
		Preempted: u64(th + unsafe.Offsetof(t.Preempted)),
		SiblingNs: u64(th + unsafe.Offsetof(t.SiblingNs)),
		AloneNs:   u64(th + unsafe.Offsetof(t.AloneNs)),
		IOBytes:   u64(th + unsafe.Offsetof(t.IoBytes)),
		Faults:    u64(th + unsafe.Offsetof(t.Faults)),
	}
	for s := range uintptr(probes.NumStates) {
		d.thread.Ns[s] = u64(th + unsafe.Offsetof(t.Ns) + 8*s)
		d.thread.Count[s] = u64(th + unsafe.Offsetof(t.Count) + 8*s)
		d.thread.LastNs[s] = int64(u64(th + unsafe.Offsetof(t.LastNs) + 8*s))
	}
	d.thread.Edges = decodeEdges(b[recordHead:size])
	return d, size, nil
}

func decodeEdges(b []byte) []probes.Edge {
	if len(b) == 0 {
		return nil
	}
	var e countersEdge
	edges := make([]probes.Edge, 0, len(b)/edgeBytes)
	for ; len(b) >= edgeBytes; b = b[edgeBytes:] {
		edges = append(edges, probes.Edge{
			Waker: int32(binary.NativeEndian.Uint32(b[unsafe.Offsetof(e.Waker):])),
			State: probes.State(binary.NativeEndian.Uint32(b[unsafe.Offsetof(e.State):]) % uint32(probes.NumStates)),
			Count: binary.NativeEndian.Uint64(b[unsafe.Offsetof(e.Count):]),
			Ns:    binary.NativeEndian.Uint64(b[unsafe.Offsetof(e.Ns):]),
		})
	}
	return edges
}

// comm is a thread's name up to its NUL; a container chooses it, so what is not
// printable ASCII becomes '?'.
func comm(b []byte) string {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if c == 0 {
			break
		}
		if c < 0x20 || c > 0x7e {
			c = '?'
		}
		out = append(out, c)
	}
	return string(out)
}

// recordSize is the size of the record whose head stands at the front of b.
func recordSize(b []byte) (int, error) {
	if len(b) < recordHead {
		return 0, fmt.Errorf("record of %d bytes, a head has %d", len(b), recordHead)
	}
	at := unsafe.Offsetof(countersRecord{}.Thread) + unsafe.Offsetof(countersThread{}.NumEdges)
	edges := int(binary.NativeEndian.Uint32(b[at:]))
	if edges > maxEdges {
		return 0, fmt.Errorf("record has %d edges, there is room for %d", edges, maxEdges)
	}
	return recordHead + edges*edgeBytes, nil
}
