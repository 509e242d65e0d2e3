package network

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/trimtab/trimtab/probes/bpf"
	"github.com/trimtab/trimtab/probes/procfs"
)

const recordBytes = int(unsafe.Sizeof(socketsSockRecord{}))

// decode reads one record, of one socket of one container, from the front of b.
func decode(b []byte) (r socketsSockRecord, err error) {
	if len(b) < recordBytes {
		return r, fmt.Errorf("socket record has %d bytes of %d", len(b), recordBytes)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), recordBytes), b)
	return r, nil
}

// accountOf finds the container that a record is of; nil: no longer watched.
func (p *Probe) accountOf(r socketsSockRecord) *account {
	c := p.bySlot[r.Slot]
	if c == nil || c.gen != r.Gen {
		return nil
	}
	return c.account
}

// drainClosed takes the final counters of sockets that closed.
func (p *Probe) drainClosed() {
	if p.loaded == nil || p.loaded.closed == nil {
		return
	}
	now := procfs.MonotonicNs()
	p.loaded.closed.SetDeadline(time.Unix(0, 0)) // what is there, without waiting
	for {
		if p.loaded.closed.ReadInto(&p.closedRecord) != nil {
			return // empty, or nothing more to come
		}
		r, err := decode(p.closedRecord.RawSample)
		if a := p.accountOf(r); err == nil && a != nil {
			a.closed(r, now)
		}
	}
}

// walk makes one pass over the open files of the host.
func (p *Probe) walk(ctx context.Context) error {
	p.pass++
	p.walkNs = procfs.MonotonicNs()
	if err := p.loaded.objs.Pass.Set(p.pass); err != nil {
		return fmt.Errorf("begin a pass: %w", err)
	}
	size := func([]byte) (int, error) { return recordBytes, nil }
	return bpf.Records(ctx, p.loaded.iter, p.buf, size, func(b []byte) error {
		r, err := decode(b)
		if a := p.accountOf(r); err == nil && a != nil {
			a.seen(r, p.pass, p.walkNs)
		}
		return err
	})
}
