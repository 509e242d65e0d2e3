package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

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

func countersOf(r socketsSockRecord) counters {
	return counters{
		rx:          r.RxBytes,
		tx:          r.TxBytes,
		segments:    r.Segments,
		retransmits: r.Retransmits,
		srttUs:      r.SrttUs,
		window:      r.Window,
		unsent:      r.Unsent,
		nowTicks:    r.NowTicks,
		chrono:      r.Chrono,
		established: r.State == tcpEstablished,
		loopback:    r.Loopback != 0,
	}
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
		err := p.loaded.closed.ReadInto(&p.closedRecord)
		if errors.Is(err, ringbuf.ErrClosed) || err != nil {
			return // empty, or nothing more to come
		}
		r, err := decode(p.closedRecord.RawSample)
		if err != nil {
			p.undecoded++
			continue
		}
		if a := p.accountOf(r); a != nil {
			a.closed(r.Cookie, countersOf(r), now)
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
	r, err := p.loaded.iter.Open()
	if err != nil {
		return fmt.Errorf("open the iterator: %w", err)
	}
	defer r.Close()
	kept := 0
	for {
		n, err := r.Read(p.buf[kept:])
		kept = p.take(p.buf[:kept+n])
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, unix.EAGAIN): // a million files in a row without a socket
		case err != nil:
			return fmt.Errorf("read the iterator: %w", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// take decodes whole records and moves the rest to the front of the buffer.
func (p *Probe) take(b []byte) (kept int) {
	for len(b) >= recordBytes {
		if r, err := decode(b); err == nil {
			if a := p.accountOf(r); a != nil {
				a.seen(r.Cookie, countersOf(r), p.pass, p.walkNs)
			}
		}
		b = b[recordBytes:]
	}
	return copy(p.buf, b)
}
