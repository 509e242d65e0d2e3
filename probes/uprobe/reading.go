package uprobe

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

// maxReadings is how many files are read at once: more than one only where the
// first takes longer than a look, as on a disk that does not answer.
const maxReadings = 4

var errManyReadings = fmt.Errorf("%d files are being read already", maxReadings)

// reading is one file that is being searched, in a goroutine of its own: a file is a
// container's, and what it costs to read it is not to be the caller's. It ends by
// itself: the reader has a bound of its own. One whose open hangs in the kernel costs its goroutine.
type reading struct {
	stamp   stamp
	done    chan struct{}
	symbols []symbols.Symbol // these two once done is closed: nothing but what is wanted
	late    bool             // out of time
	failed  error            // why it could not be opened, or handed over
}

// finds finds the wanted functions in a file: symbols.Reader's Find.
type finds func(file *os.File, want symbols.Want, limit time.Duration) ([]symbols.Symbol, error)

// interest is what all clients want.
type interest struct {
	symbols.Want
	wanted func(name string) bool
}

// choose keeps what is wanted, whatever the reader says, and one name for each address.
func (i interest) choose(found []symbols.Symbol) []symbols.Symbol {
	seen := map[uint64]bool{}
	return slices.DeleteFunc(found, func(s symbols.Symbol) bool {
		unwanted := !slices.Contains(i.Marks, s.Name) && !i.wanted(s.Name) || seen[s.Offset]
		seen[s.Offset] = seen[s.Offset] || s.Offset != 0 && !unwanted
		return unwanted
	})
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
		if late := f.failing[h.key]; late.stamp == h.stamp && time.Now().Before(late.until) {
			return known{}, late.err
		}
		h, err := h.again()
		if err != nil {
			return known{}, fmt.Errorf("a library: %w", err)
		}
		r = &reading{stamp: h.stamp, done: make(chan struct{})}
		f.readings[h.key] = r
		f.reading.Add(1)
		go r.run(h, f.interest, f.find, f.reading.Done)
	}
	if !r.within(time.Until(until)) {
		return known{}, errOutOfTime
	}
	delete(f.readings, h.key)
	if r.stamp != h.stamp || r.late {
		return known{}, errOutOfTime // another file by now, or one to go on with later
	}
	if r.failed != nil {
		f.noteFailing(h, r.failed)
		return known{}, r.failed
	}
	delete(f.failing, h.key)
	k := known{stamp: h.stamp, symbols: r.symbols}
	if len(f.known) >= maxKnown {
		clear(f.known)
	}
	f.known[h.key] = k
	return k, nil
}

// failing is a file that could not be read, which may be its own doing: it is tried
// again, ever more rarely.
type failing struct {
	stamp stamp
	err   error
	wait  time.Duration
	until time.Time
}

// Bounds on what files that end their readers cost.
const (
	minFailing = time.Second
	maxFailing = 2 * time.Minute
	maxFailed  = 1024 // remembered
)

func (f *Finder) noteFailing(h handle, err error) {
	before := f.failing[h.key]
	wait := minFailing
	if before.stamp == h.stamp {
		wait = min(max(minFailing, 2*before.wait), maxFailing)
	}
	if len(f.failing) >= maxFailed {
		clear(f.failing)
	}
	f.failing[h.key] = failing{stamp: h.stamp, err: err, wait: wait, until: time.Now().Add(wait)}
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
func (r *reading) run(h handle, in interest, find finds, ended func()) {
	defer ended()
	defer close(r.done)
	defer h.close()
	file, err := h.reopen()
	if err != nil {
		r.failed = fmt.Errorf("open a library: %w", err)
		return
	}
	// Opened for reading: closing it cannot fail usefully.
	defer file.Close()
	found, err := find(file, in.Want, fileTime)
	switch {
	case errors.Is(err, symbols.ErrReader):
		r.failed = err
	case errors.Is(err, symbols.ErrOutOfTime):
		r.late = true
	case err == nil:
		r.symbols = in.choose(found)
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
