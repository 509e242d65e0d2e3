package recording

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// RingOptions bound a flight recorder; zeros take the defaults.
type RingOptions struct {
	MaxBytes     int64 // on disk, all segments of all runs; 64 MiB
	SegmentBytes int64 // after so many a new segment begins; a sixteenth of MaxBytes
	QueueBytes   int64 // waiting for the disk, at most, or one record that is larger; 8 MiB
	// Header returns the header of a new segment with the state before the record
	// whose Write called it. It runs on Write's goroutine. Required.
	Header func() Header
}

const (
	defaultRingBytes  = 64 << 20
	defaultQueueBytes = 8 << 20
	segmentsPerRing   = 16
	queueRecords      = 4096
	// maxSegments bounds the number of files where failures and restarts leave short ones.
	maxSegments = 16 * segmentsPerRing
	// retryAfter spaces attempts after the disk failed, since each asks for a header.
	retryAfter = 10 * time.Second
	// afterDrop does so after a record found no room in the queue.
	afterDrop = 2 * time.Second
)

// Ring is the flight recorder: it always keeps the last stretch on disk. It
// never blocks its caller and never fails it: what finds no room in the queue
// or on the disk is dropped and counted, and the next record that is taken
// begins a new segment, since a replay cannot cross a hole.
type Ring struct {
	dir  string
	opts RingOptions

	queue    chan ringMessage
	spare    chan []byte  // the line written last, to be written over
	queued   atomic.Int64 // bytes in queue
	fresh    atomic.Bool  // the next record must begin a segment
	retryNs  atomic.Int64 // unix ns before which no segment is begun
	dropped  atomic.Uint64
	lastErr  atomic.Pointer[error]
	finished chan struct{}

	closing sync.RWMutex // held for reading while sending to queue
	closed  bool

	// Owned by the run goroutine.
	run, seq uint64
	past     []Segment
	pastSum  int64
	file     *os.File
	out      *Writer
	written  countingWriter
}

// ringMessage is a record, with the header of its segment where it begins one.
type ringMessage struct {
	header []byte
	line   []byte
}

// OpenRing opens a flight recorder in dir, which it makes if it is missing and
// has for itself. Segments of earlier runs stay until room is needed. Close ends
// its goroutine.
func OpenRing(dir string, opts RingOptions) (*Ring, error) {
	if opts.Header == nil {
		return nil, errors.New("flight recorder: no Header callback")
	}
	opts.MaxBytes, opts.QueueBytes = cmp.Or(max(opts.MaxBytes, 0), defaultRingBytes), cmp.Or(max(opts.QueueBytes, 0), defaultQueueBytes)
	if opts.SegmentBytes <= 0 || opts.SegmentBytes > opts.MaxBytes/2 {
		opts.SegmentBytes = opts.MaxBytes / segmentsPerRing
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("flight recorder: %w", err)
	}
	past, err := List(dir)
	if err != nil {
		return nil, err
	}
	r := &Ring{dir: dir, opts: opts, past: past, queue: make(chan ringMessage, queueRecords), spare: make(chan []byte, 1), finished: make(chan struct{})}
	for _, s := range past {
		r.pastSum += s.Bytes
		r.seq = s.Seq
	}
	r.run = r.seq + 1
	r.fresh.Store(true)
	go r.loop()
	return r, nil
}

// Write takes a record, or drops and counts it. Its error is only for a payload
// that cannot be encoded. Call it from one goroutine: the order of records is
// the order of calls.
func (r *Ring) Write(kind string, v any) error {
	line, err := encodeRecord(r.takeSpare(), kind, v)
	if err != nil {
		r.dropped.Add(1)
		r.fresh.Store(true)
		return err
	}
	m := ringMessage{line: line}
	if r.fresh.Load() {
		if time.Now().UnixNano() < r.retryNs.Load() {
			r.dropped.Add(1)
			return nil
		}
		h := r.opts.Header()
		h.Dropped = r.dropped.Load()
		if m.header, err = encodeHeader(h); err != nil {
			r.dropped.Add(1)
			return err
		}
		r.fresh.Store(false) // before sending: a failure afterwards sets it again
	}
	if !r.send(m) {
		r.dropped.Add(1)
		r.fresh.Store(true)
		r.retryNs.Store(time.Now().Add(afterDrop).UnixNano()) // each try begins with a header
	}
	return nil
}

// takeSpare returns room for a line; nil: there is none. A busy node's tick takes
// megabytes, which would be garbage each second.
func (r *Ring) takeSpare() []byte {
	select {
	case b := <-r.spare:
		return b
	default:
		return nil
	}
}

// giveSpare keeps the larger of two lines' room, up to what a tick may take.
func (r *Ring) giveSpare(b []byte) {
	if int64(cap(b)) > r.opts.QueueBytes {
		return
	}
	if old := r.takeSpare(); cap(old) > cap(b) {
		b = old
	}
	select {
	case r.spare <- b:
	default:
	}
}

// send queues a message without waiting.
func (r *Ring) send(m ringMessage) bool {
	r.closing.RLock()
	defer r.closing.RUnlock()
	size := int64(len(m.header) + len(m.line))
	// One record has room however large it is: a host with many threads would have none recorded.
	if queued := r.queued.Add(size); r.closed || queued > r.opts.QueueBytes && queued > size {
		r.queued.Add(-size)
		return false
	}
	select {
	case r.queue <- m:
		return true
	default:
		r.queued.Add(-size)
		return false
	}
}

// Dropped returns how many records were dropped since the ring was opened.
func (r *Ring) Dropped() uint64 { return r.dropped.Load() }

// Err returns the latest failure of the disk, nil once a segment was begun after it.
func (r *Ring) Err() error {
	if p := r.lastErr.Load(); p != nil {
		return *p
	}
	return nil
}

// Close writes what is queued, ends the segment and the goroutine.
func (r *Ring) Close() error {
	r.closing.Lock()
	if r.closed {
		r.closing.Unlock()
		return nil
	}
	r.closed = true
	close(r.queue)
	r.closing.Unlock()
	<-r.finished
	return r.Err()
}

func (r *Ring) loop() {
	defer close(r.finished)
	for m := range r.queue {
		r.take(m)
		r.giveSpare(m.line)
		if r.out != nil && len(r.queue) == 0 {
			if err := r.out.Flush(); err != nil {
				r.fail(err)
			}
		}
		r.prune()
		r.queued.Add(-int64(len(m.header) + len(m.line)))
	}
	if err := r.endSegment(); err != nil {
		r.fail(err)
	}
}

// take writes one message.
func (r *Ring) take(m ringMessage) {
	if m.header != nil {
		err := r.endSegment()
		if err == nil {
			err = r.beginSegment(m.header)
		}
		if err != nil {
			r.fail(err)
		}
	}
	if r.out == nil { // it follows a failure
		r.dropped.Add(1)
		return
	}
	if err := r.out.writeLine(m.line); err != nil {
		r.dropped.Add(1)
		r.fail(err)
		return
	}
	if r.written.n >= r.opts.SegmentBytes {
		r.fresh.Store(true)
	}
}

func (r *Ring) beginSegment(header []byte) error {
	r.seq++
	path := filepath.Join(r.dir, fmt.Sprintf(segmentName, r.run, r.seq))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("flight recorder: %w", err)
	}
	r.file = f
	r.written = countingWriter{w: f}
	if r.out, err = newRawWriter(&r.written, header); err == nil {
		err = r.out.Flush()
	}
	if err != nil { // a file that says nothing is not worth keeping
		err = errors.Join(err, f.Close(), os.Remove(path))
		r.file, r.out, r.written = nil, nil, countingWriter{}
		return err
	}
	r.lastErr.Store(nil)
	return nil
}

// endSegment finishes the open segment, if there is one.
func (r *Ring) endSegment() error {
	if r.file == nil {
		return nil
	}
	var err error
	if r.out != nil {
		err = r.out.Close()
	}
	err = errors.Join(err, r.file.Close())
	r.past = append(r.past, Segment{Run: r.run, Seq: r.seq, Path: r.file.Name(), Bytes: r.written.n})
	r.pastSum += r.written.n
	r.file, r.out, r.written = nil, nil, countingWriter{}
	return err
}

// fail gives the open segment up; what is whole of it stays readable.
func (r *Ring) fail(err error) {
	// Its own failure is the one being told already.
	_ = r.endSegment()
	r.lastErr.Store(&err)
	r.retryNs.Store(time.Now().Add(retryAfter).UnixNano())
	r.fresh.Store(true)
}

// prune deletes the oldest segments until all fit.
func (r *Ring) prune() {
	for len(r.past) > maxSegments || len(r.past) > 0 && r.pastSum+r.written.n > r.opts.MaxBytes {
		oldest := r.past[0]
		if err := os.Remove(oldest.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("flight recorder: oldest segment: %w", err)
			r.lastErr.Store(&err)
			return
		}
		r.past, r.pastSum = r.past[1:], r.pastSum-oldest.Bytes
	}
}

// countingWriter counts what reached the file.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
