package uprobe

import (
	"errors"
	"fmt"
	"time"
)

// maxReadings is how many files are read at once: more than one only where the
// first takes longer than a look, as on a disk that does not answer.
const maxReadings = 4

var errManyReadings = fmt.Errorf("%d files are being read already", maxReadings)

// reading is one file that is being searched, in a goroutine of its own: a file is a
// container's, and what it costs to read it is not to be the caller's. It ends by
// itself after fileTime; one that hangs in the kernel costs its goroutine.
type reading struct {
	stamp   stamp
	done    chan struct{}
	symbols []Symbol // these two once done is closed
	err     error
	closed  error // why it could not be opened
}

// lookInto reads a file's symbols; a file that cannot be read as a library has none.
// It waits until the time given, and then says errOutOfTime: the next look finds
// what came of it.
func (f *Finder) lookInto(h handle, until time.Time) (known, error) {
	r := f.readings[h.key]
	if r == nil {
		if len(f.readings) >= maxReadings {
			f.dropReadings()
		}
		if len(f.readings) >= maxReadings {
			return known{}, errManyReadings
		}
		h, err := h.again()
		if err != nil {
			return known{}, fmt.Errorf("a library: %w", err)
		}
		r = &reading{stamp: h.stamp, done: make(chan struct{})}
		f.readings[h.key] = r
		f.reading.Add(1)
		go r.run(h, f.interest, f.reading.Done)
	}
	if !r.within(time.Until(until)) {
		return known{}, errOutOfTime
	}
	delete(f.readings, h.key)
	if r.stamp != h.stamp || errors.Is(r.err, errOutOfTime) {
		return known{}, errOutOfTime // another file by now, or one to go on with later
	}
	if r.closed != nil {
		return known{}, r.closed
	}
	k := known{stamp: h.stamp, symbols: r.symbols}
	if len(f.known) >= maxKnown {
		clear(f.known)
	}
	f.known[h.key] = k
	return k, nil
}

// within says whether the reading is done, or will be in so long.
func (r *reading) within(d time.Duration) bool {
	select {
	case <-r.done:
		return true
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-timer.C:
		return false
	}
}

// run opens the file too: a file system may hang there as well.
func (r *reading) run(h handle, in interest, ended func()) {
	defer ended()
	defer close(r.done)
	defer h.close()
	file, err := h.reopen()
	if err != nil {
		r.closed = fmt.Errorf("open a library: %w", err)
		return
	}
	// Opened for reading: closing it cannot fail usefully.
	defer file.Close()
	if r.symbols, r.err = findSymbols(file, in, time.Now().Add(fileTime)); r.err != nil {
		r.symbols = nil
	}
}

// dropReadings forgets what nobody came back for: its process has ended.
func (f *Finder) dropReadings() {
	for key, r := range f.readings {
		select {
		case <-r.done:
			delete(f.readings, key)
		default:
		}
	}
}

// endReadings waits until what is being read is done, not for what hangs.
func (f *Finder) endReadings() {
	ended := make(chan struct{})
	go func() {
		f.reading.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * fileTime):
	}
}
