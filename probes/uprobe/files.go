package uprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

// finds finds the wanted functions in a file: symbols.Reader's Find.
type finds func(file symbols.File, want symbols.Want, limit time.Duration) ([]symbols.Symbol, error)

// interest is what all clients want.
type interest struct {
	symbols.Want
	hints  []string
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

// known is what a file held when it was looked into.
type known struct {
	stamp   stamp
	symbols []symbols.Symbol
	content uint64 // see touch
}

// failing is a file that could not be read, which may be its own doing: it is tried
// again, ever more rarely.
type failing struct {
	stamp stamp
	err   error
	wait  time.Duration
	until time.Time
}

const (
	maxKnown = 16384 // files remembered
	// Bounds on what files that end their readers cost.
	minFailing = time.Second
	maxFailing = 2 * time.Minute
	maxFailed  = 1024 // remembered
)

// files remembers what files hold. It is used from many goroutines.
type files struct {
	mu      sync.Mutex
	known   map[fileKey]known
	layers  map[layerFile]known // the same files, as all containers of an image have them
	failing map[fileKey]failing
	kept    []int // see runtimeFiles
}

// layerFile is a file of an image's layer in whatever container's overlay: each mount has a device
// number of its own, and the inode number and the times of the file below.
type layerFile struct {
	ino uint64
	stamp
	modifiedNs int64
}

func newFiles() *files {
	kept, _ := runtimeFiles() // without, reading says so
	return &files{known: map[fileKey]known{}, layers: map[layerFile]known{}, failing: map[fileKey]failing{}, kept: kept}
}

// forget is for when more is wanted of them.
func (s *files) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
	clear(s.layers)
}

// recall returns what is known of a file, or why it is not to be read now.
func (s *files) recall(h handle) (k known, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.known[h.key]; ok && k.stamp == h.stamp {
		return k, true, nil
	}
	if late := s.failing[h.key]; late.stamp == h.stamp && time.Now().Before(late.until) {
		return known{}, false, late.err
	}
	return known{}, false, nil
}

// layered recalls a file by what containers of one image have alike; l is nil where nothing is.
func (s *files) layered(h handle, l *layerFile) (k known, ok bool) {
	if l == nil {
		return known{}, false
	}
	s.mu.Lock()
	k, ok = s.layers[*l]
	s.mu.Unlock()
	if ok {
		s.note(h, l, k)
	}
	return k, ok
}

func (s *files) note(h handle, l *layerFile, k known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failing, h.key)
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[h.key] = k
	if l == nil {
		return
	}
	if len(s.layers) >= maxKnown {
		clear(s.layers)
	}
	s.layers[*l] = k
}

func (s *files) noteFailing(h handle, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.failing[h.key]
	wait := minFailing
	if before.stamp == h.stamp {
		wait = min(max(minFailing, 2*before.wait), maxFailing)
	}
	if len(s.failing) >= maxFailed {
		clear(s.failing)
	}
	s.failing[h.key] = failing{stamp: h.stamp, err: err, wait: wait, until: time.Now().Add(wait)}
}

// lookInto returns a file's symbols; a file that cannot be read as a library has none. hosts tells the
// devices of the host's own overlays. It may wait for ever.
func (s *files) lookInto(h handle, hosts func(dev uint64) bool, in interest, find finds) (known, error) {
	k, ok, err := s.recall(h)
	if ok || err != nil {
		return k, err
	}
	layer := h.layer(hosts)
	if k, ok := s.layered(h, layer); ok {
		return k, nil
	}
	var content uint64
	if err := h.apart(s.kept, func(d descriptor) error { content = touch(d, h.stamp.size); return nil }); err != nil {
		err = fmt.Errorf("open a library: %w", err)
		s.noteFailing(h, err)
		return known{}, err
	}
	lend := func(socket int, send func(fd int) error) error {
		kept := append(slices.Clone(s.kept), socket)
		slices.Sort(kept)
		return h.apart(kept, func(d descriptor) error { return send(int(d)) })
	}
	found, err := find(symbols.File{Lend: lend, Size: h.stamp.size}, in.Want, fileTime)
	switch {
	case errors.Is(err, symbols.ErrBusy): // not the file's fault
		return known{}, err
	case errors.Is(err, symbols.ErrReader):
		s.noteFailing(h, err)
		return known{}, err
	case errors.Is(err, symbols.ErrOutOfTime):
		s.noteFailing(h, errOutOfTime) // others have their turn first
		return known{}, errOutOfTime
	case err != nil:
		found = nil
	}
	k = known{stamp: h.stamp, symbols: in.choose(found), content: content}
	if layer != nil && !h.stands() {
		layer = nil // what was read may be the container's own by then
	}
	s.note(h, layer, k)
	return k, nil
}

// headBytes hold a library's build ID, where it has one: linkers place its note behind the headers.
const headBytes = 4096

// touch reads the first page and a byte of the last: what does not answer shall keep a thread here
// waiting, rather than one of the few children that read. It returns a hash of that page and the
// size, which tells one build from another.
func touch(file io.ReaderAt, size int64) (content uint64) {
	head := binary.LittleEndian.AppendUint64(make([]byte, headBytes, headBytes+8), uint64(size))
	// What cannot be read is the child's to say.
	_, _ = file.ReadAt(head[:headBytes], 0)
	_, _ = file.ReadAt(make([]byte, 1), max(0, size-1))
	h := fnv.New64a()
	_, _ = h.Write(head) // never fails
	return h.Sum64()
}
