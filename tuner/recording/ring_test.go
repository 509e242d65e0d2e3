package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a recorder whose state is the number of records so far.
type counter struct {
	ring *Ring
	n    int
	rng  *rand.Rand
}

func newCounter(t *testing.T, dir string, opts RingOptions) *counter {
	t.Helper()
	c := &counter{rng: rand.New(rand.NewPCG(1, 1))}
	opts.Header = func() Header { return Header{State: json.RawMessage(fmt.Sprint(c.n))} }
	var err error
	if c.ring, err = OpenRing(dir, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.ring.Close() })
	return c
}

// write records the next number, with noise that does not compress; it waits for
// the disk now and then, as ticks do.
func (c *counter) write(t *testing.T, times int) {
	t.Helper()
	for range times {
		noise := make([]byte, 512)
		for i := range noise {
			noise[i] = byte(c.rng.Uint32())
		}
		if err := c.ring.Write("n", []any{c.n, noise}); err != nil {
			t.Fatal(err)
		}
		c.n++
		if c.n%8 == 0 {
			c.ring.sync()
		}
	}
}

// dump reads the ring and checks that numbers follow each other from the
// header's state on, that segments' states fit, and returns first and next.
func (c *counter) dump(t *testing.T) (first, next int) {
	t.Helper()
	var buf bytes.Buffer
	if err := c.ring.Dump(&buf); err != nil {
		t.Fatal(err)
	}
	in, err := NewReader(&buf)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	number := func(raw json.RawMessage) (n int) {
		if err := json.Unmarshal(raw, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first = number(in.Header().State)
	next = first
	for {
		kind, v, err := in.Next()
		if err != nil {
			return first, next
		}
		switch kind {
		case KindSegment:
			var h Header
			if err := json.Unmarshal(v, &h); err != nil {
				t.Fatal(err)
			}
			if got := number(h.State); got != next && h.Dropped == 0 {
				t.Fatalf("a segment begins at %d, the one before ended at %d", got, next)
			} else {
				next = got
			}
		case "n":
			var pair []json.RawMessage
			if err := json.Unmarshal(v, &pair); err != nil {
				t.Fatal(err)
			}
			if got := number(pair[0]); got != next {
				t.Fatalf("record %d where %d was next", got, next)
			}
			next++
		}
	}
}

func sizes(t *testing.T, dir string) (total int64, files int) {
	t.Helper()
	all, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		total += s.Bytes
	}
	return total, len(all)
}

func TestRingKeepsTheLastStretchWithinItsBytes(t *testing.T) {
	dir := t.TempDir()
	c := newCounter(t, dir, RingOptions{MaxBytes: 256 << 10, SegmentBytes: 32 << 10})
	c.write(t, 10)
	if first, next := c.dump(t); first != 0 || next != 10 {
		t.Errorf("at first: %d to %d, want 0 to 10", first, next)
	}
	c.write(t, 2000)
	first, next := c.dump(t)
	if next != 2010 || first == 0 || next-first < 200 {
		t.Errorf("records %d to %d, want the last 200 or more up to 2010", first, next)
	}
	if total, files := sizes(t, dir); total > 256<<10 || files < 4 {
		t.Errorf("%d bytes in %d files, want at most %d in 4 or more", total, files, 256<<10)
	}
	if c.ring.Dropped() != 0 {
		t.Errorf("%d records dropped", c.ring.Dropped())
	}
}

func TestRingSurvivesAKillAndKeepsTheRunBefore(t *testing.T) {
	dir := t.TempDir()
	c := newCounter(t, dir, RingOptions{})
	c.write(t, 100)
	c.ring.sync() // what a kill leaves: no end mark
	after := newCounter(t, dir, RingOptions{})
	if first, next := after.dump(t); first != 0 || next != 100 {
		t.Errorf("the run before: %d to %d, want 0 to 100", first, next)
	}
	after.n = 500
	after.write(t, 5)
	if first, next := after.dump(t); first != 500 || next != 505 {
		t.Errorf("this run: %d to %d, want 500 to 505", first, next)
	}
	all, err := List(dir)
	if err != nil || len(all) != 2 || all[0].Run == all[1].Run {
		t.Errorf("segments %+v, %v; want two runs", all, err)
	}
}

func TestRingDropsAndCountsOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("needs root and mounting: %v", err)
	}
	c := newCounter(t, dir, RingOptions{MaxBytes: 64 << 20, SegmentBytes: 32 << 10})
	t.Cleanup(func() {
		if err := errors.Join(c.ring.Close(), syscall.Unmount(dir, 0)); err != nil {
			t.Log(err)
			_ = syscall.Unmount(dir, 0)
		}
	})
	c.write(t, 1000)
	if c.ring.Dropped() == 0 || !errors.Is(c.ring.Err(), syscall.ENOSPC) {
		t.Fatalf("%d dropped, %v; want some, and ENOSPC", c.ring.Dropped(), c.ring.Err())
	}
	if _, next := c.dump(t); next < 50 {
		t.Errorf("records up to %d can still be read, want 50 or more", next)
	}
	// Room again: it goes on, in a segment that tells of the hole.
	all, err := List(dir)
	if err != nil || os.Remove(all[0].Path) != nil {
		t.Fatal(err)
	}
	c.ring.retryNs.Store(0)
	from := c.n
	c.write(t, 10)
	if _, next := c.dump(t); next != from+10 {
		t.Errorf("after room was made: up to %d, want %d", next, from+10)
	}
	if c.ring.Err() != nil {
		t.Errorf("still %v", c.ring.Err())
	}
}

func TestRingNeverBlocksItsCaller(t *testing.T) {
	c := newCounter(t, t.TempDir(), RingOptions{QueueBytes: 4 << 10})
	c.ring.queued.Add(1) // one waits
	if err := c.ring.Write("n", make([]byte, 8<<10)); err != nil || c.ring.Dropped() != 1 {
		t.Errorf("a record beyond the queue: %v, %d dropped", err, c.ring.Dropped())
	}
	c.ring.queued.Add(-1)
	if err := c.ring.Write("n", func() {}); err == nil || c.ring.Dropped() != 2 {
		t.Errorf("a payload that cannot be encoded: %v, %d dropped", err, c.ring.Dropped())
	}
	if err := c.ring.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.ring.Write("n", 1); err != nil || c.ring.Dropped() != 3 {
		t.Errorf("after Close: %v, %d dropped", err, c.ring.Dropped())
	}
}

// A tick that is larger than the queue is recorded where nothing else waits: on a host with many
// threads each one is.
func TestALargeRecordHasRoom(t *testing.T) {
	c := newCounter(t, t.TempDir(), RingOptions{QueueBytes: 4 << 10})
	if err := c.ring.Write("n", make([]byte, 64<<10)); err != nil || c.ring.Dropped() != 0 {
		t.Errorf("%v, %d dropped", err, c.ring.Dropped())
	}
	if err := c.ring.Close(); err != nil || c.ring.queued.Load() != 0 {
		t.Errorf("%v, %d bytes wait", err, c.ring.queued.Load())
	}
}

func TestListIgnoresForeignFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"flight-1-1.zst", "x", "flight-000000000001-000000000001.zst.gz"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf(segmentName, 1, 1)), 0o700); err != nil {
		t.Fatal(err)
	}
	all, err := List(dir)
	if err != nil || len(all) != 0 {
		t.Errorf("got %v, %v", all, err)
	}
	if err := Join(&bytes.Buffer{}, all); !errors.Is(err, ErrEmpty) {
		t.Errorf("nothing to join: %v, want ErrEmpty", err)
	}
}

// Dump writes the stretch of this run as one recording; where it has recorded
// nothing yet, that of the run before. It may be called while records come in.
func (r *Ring) Dump(w io.Writer) error {
	r.sync()
	all, err := List(r.dir)
	if err != nil {
		return err
	}
	return Join(w, LastRun(all))
}

// sync waits until all that was taken is in files: the last of it is flushed before it counts as written.
func (r *Ring) sync() {
	for r.queued.Load() > 0 {
		time.Sleep(100 * time.Microsecond)
	}
}
