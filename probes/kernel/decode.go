package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"
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
	var r countersRecord
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), size), b)
	th := &r.Thread
	d := decoded{slot: th.Slot, gen: th.Gen, torn: r.Flags&flagTorn != 0}
	d.thread = probes.Thread{
		TID:       r.Tid,
		TGID:      r.Tgid,
		PPID:      r.Ppid,
		StartNs:   r.StartBootNs,
		Comm:      comm(b[unsafe.Offsetof(r.Comm):][:len(r.Comm)]),
		Exited:    r.Flags&flagExited != 0,
		SinceNs:   int64(th.FirstNs),
		AtNs:      int64(r.AtNs),
		Ns:        th.Ns,
		Count:     th.Count,
		ReclaimNs: th.ReclaimNs,
		Preempted: th.Preempted,
		SiblingNs: th.SiblingNs,
		AloneNs:   th.AloneNs,
		IOBytes:   th.IoBytes,
		Faults:    th.Faults,
	}
	for s, ns := range th.LastNs {
		d.thread.LastNs[s] = int64(ns)
	}
	d.thread.Edges = slices.Grow(d.thread.Edges, int(th.NumEdges))
	for _, e := range th.Edges[:th.NumEdges] {
		d.thread.Edges = append(d.thread.Edges, probes.Edge{
			Waker: e.Waker, State: probes.State(e.State % uint32(probes.NumStates)), Count: e.Count, Ns: e.Ns,
		})
	}
	return d, size, nil
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
