package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/probes"
)

// drainExits takes the final records that have come, without waiting.
func (p *Probe) drainExits() {
	p.exitTurn++
	// It cannot fail for a variable of this type; if it did, each container would have one share for good.
	_ = p.loaded.coll.Variables["exit_turn"].Set(p.exitTurn)
	p.exits.SetDeadline(time.Unix(1, 0))
	for {
		if err := p.exits.ReadInto(&p.exitRecord); err != nil {
			return // the buffer is empty
		}
		d, _, err := decode(p.exitRecord.RawSample)
		if err != nil {
			p.undecoded++
			continue
		}
		c, ok := p.bySlot[d.slot]
		if !ok || c.gen != d.gen {
			continue
		}
		if d.torn {
			c.lost++
			continue
		}
		c.exited = append(c.exited, d.thread)
	}
}

// movedUnseen asks whether threads were moved between cgroups that no program visited.
func (p *Probe) movedUnseen() bool {
	v := p.loaded.coll.Variables["want_seed"]
	var want uint32
	if v.Get(&want) != nil || want == 0 {
		return false
	}
	return v.Set(uint32(0)) == nil
}

// seedNow takes threads that exist already into the count.
func (p *Probe) seedNow() error {
	v := p.loaded.coll.Variables["seed"]
	if err := v.Set(uint32(1)); err != nil {
		return fmt.Errorf("start seeding: %w", err)
	}
	err := p.pass(context.Background(), func(decoded) {})
	if err == nil {
		p.seedNext, p.seeded = false, time.Now()
	}
	return errors.Join(err, v.Set(uint32(0)))
}

// pass runs the task iterator once. Records may be cut by the end of the
// buffer; the rest of one is kept for the next piece.
func (p *Probe) pass(ctx context.Context, visit func(decoded)) error {
	f, err := p.loaded.iter.Open()
	if err != nil {
		return fmt.Errorf("open the task iterator: %w", err)
	}
	defer f.Close()
	have := 0
	for ctx.Err() == nil {
		n, err := f.Read(p.buf[have:])
		have += n
		rest, derr := decodeAll(p.buf[:have], visit)
		if derr != nil {
			return derr
		}
		have = copy(p.buf, rest)
		if errors.Is(err, io.EOF) {
			if have > 0 {
				return fmt.Errorf("the task iterator ended within a record, %d bytes left", have)
			}
			return nil
		}
		if err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("read the task iterator: %w", err)
		}
	}
	return ctx.Err()
}

// decodeAll visits the whole records of b and returns what is left over.
func decodeAll(b []byte, visit func(decoded)) ([]byte, error) {
	for len(b) >= recordHead {
		size, err := recordSize(b)
		if err != nil {
			return nil, err
		}
		if len(b) < size {
			break
		}
		d, _, err := decode(b)
		if err != nil {
			return nil, err
		}
		visit(d)
		b = b[size:]
	}
	return b, nil
}

// settle makes a reading of a thread fit the one before it.
func (p *Probe) settle(d decoded, seen map[threadName]probes.Thread) (probes.Thread, bool) {
	name := threadName{d.thread.TID, d.thread.StartNs}
	before, known := p.last[name]
	if d.torn || known && d.thread.SinceNs == before.SinceNs && d.thread.AtNs < before.AtNs {
		if known {
			seen[name] = before
		}
		return before, known
	}
	known = known && d.thread.SinceNs == before.SinceNs // else it left and came back: counted anew
	if known {
		monotone(&d.thread.Ns, &before.Ns)
		d.thread.ReclaimNs = max(d.thread.ReclaimNs, before.ReclaimNs)
	}
	seen[name] = d.thread
	return d.thread, true
}

// finish makes final counters fit the last reading, and forgets the thread.
func (p *Probe) finish(t probes.Thread) probes.Thread {
	name := threadName{t.TID, t.StartNs}
	if before, ok := p.last[name]; ok && before.SinceNs == t.SinceNs && t.AtNs >= before.AtNs {
		monotone(&t.Ns, &before.Ns)
		t.ReclaimNs = max(t.ReclaimNs, before.ReclaimNs)
	}
	delete(p.last, name)
	return t
}

func compareThreads(a, b probes.Thread) int {
	return cmp.Or(cmp.Compare(a.TID, b.TID), cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.SinceNs, b.SinceNs))
}
