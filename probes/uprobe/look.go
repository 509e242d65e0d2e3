package uprobe

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

// Bounds on what one process can make the finder do.
const (
	// fileTime is how long one file may be read: libtorch_cpu takes some 20 ms where its
	// pages are in memory.
	fileTime = 500 * time.Millisecond
	// maxLibraries with functions of interest; PyTorch with all of CUDA maps about 10.
	maxLibraries = 32
	// A process that is not looked through in lookTime is left alone for restFromLooks.
	// A file is looked into in about 0.3 ms, and a Python process maps a few hundred.
	lookTime      = 2 * time.Second
	restFromLooks = time.Minute
)

var (
	errOutOfTime     = errors.New("a file was not read in its time")
	errManyMounts    = errors.New("more mounts than are read: one could keep a reader waiting")
	errMapsCut       = errors.New("more mappings than are read")
	errSlow          = fmt.Errorf("not looked through in %v: tried again in %v", lookTime, restFromLooks)
	errManyLibraries = fmt.Errorf("more than %d with functions of interest in a process", maxLibraries)
	errEnded         = errors.New("the process has ended")
	errUnknownMount  = errors.New("on a mount that is not shown, where reading could wait for ever")
)

// gone: what /proc says of a process that has ended. A container's own file may answer the same.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// look is one look at one process, in a goroutine of its container's. It knows the
// finder by what it was given only.
type look struct {
	procRoot string
	key      string // of the process's container
	pid      int32
	interest interest
	find     finds
	files    *files
	room     *room
	open     map[fileKey]bool // libraries that are open when it begins
	mounts   mounts
	deadline time.Time

	// What it saw.
	mapped   map[fileKey]bool
	found    []sighting // with functions of interest
	complete bool       // all mappings could be reached
	content  uint64     // sum of what tells the builds of the mapped files apart
	openMP   bool       // see Client.OpenMP
	err      error
}

// sighting is a mapped library with functions of interest.
type sighting struct {
	key       fileKey
	addresses string
	symbols   []symbols.Symbol
	file      *handle // nil: it is open already
}

// newLook prepares a look at a process.
func (f *Finder) newLook(p *process) *look {
	l := &look{
		procRoot: f.procRoot, key: p.key, pid: p.pid, interest: f.interest, find: f.find, files: f.files, room: &f.room,
		open: map[fileKey]bool{}, mapped: map[fileKey]bool{},
	}
	for key := range f.libraries {
		l.open[key] = true
	}
	return l
}

// run searches a process's mappings. It may wait for ever.
func (l *look) run() {
	l.deadline = time.Now().Add(lookTime)
	text, err := procfs.Read(procfs.Path(l.procRoot, l.pid, "maps"), maxMapsBytes)
	if err == nil {
		l.mounts, err = readMounts(l.procRoot, l.pid)
	}
	// Who has ended and waits for its parent has no mounts (mounts_open_common: EINVAL).
	if gone(err) || errors.Is(err, unix.EINVAL) {
		l.err = errEnded
		return
	}
	if err != nil {
		l.err = fmt.Errorf("read a process's maps and mounts: %w", err)
		return
	}
	mappings := executableMaps(text, l.interest.hints)
	l.openMP = slices.ContainsFunc(mappings, func(m mapping) bool { return hinted(path.Base(m.path), openMPLibraries) })
	o := newOpener(l.procRoot, l.pid)
	defer o.close()
	l.complete, l.err = l.all(o, mappings)
	if l.complete && (len(text) >= maxMapsBytes || len(mappings) > maxMappings) {
		l.complete, l.err = false, errors.Join(l.err, errMapsCut)
	}
}

// all looks at each mapping; complete says that all could be reached.
func (l *look) all(o *opener, mappings []mapping) (complete bool, err error) {
	var errs []error
	for _, m := range mappings {
		if time.Now().After(l.deadline) {
			return false, errors.Join(append(errs, errSlow)...)
		}
		kind, err := l.mounts.kind(m.device)
		if err != nil {
			if hinted(m.path, l.interest.hints) {
				errs = append(errs, err)
			}
			continue
		}
		h, err := o.find(m, kind)
		if err != nil {
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
				return false, errors.Join(append(errs, err)...)
			}
			continue // unmapped meanwhile, or nothing that can be a library
		}
		errs = append(errs, l.at(h, m.addresses))
		h.close()
	}
	return true, errors.Join(errs...)
}

// at looks into one mapped file, and opens it if it is a library of interest.
func (l *look) at(h handle, addresses string) error {
	if l.mapped[h.key] {
		return nil
	}
	l.mapped[h.key] = true
	k, err := l.files.lookInto(h, l.mounts.hostsOverlay, l.interest, l.find)
	l.content += k.content
	if err != nil || len(k.symbols) == 0 {
		return err
	}
	if len(l.found) >= maxLibraries {
		return errManyLibraries
	}
	s := sighting{key: h.key, addresses: addresses, symbols: k.symbols}
	if !l.open[h.key] {
		if err := l.room.takeFor(l.key, 1); err != nil {
			return err
		}
		file, err := h.again()
		if err != nil {
			l.room.freeFor(l.key, 1)
			return err
		}
		s.file = &file
	}
	l.found = append(l.found, s)
	return nil
}

// isOf: the library has functions that a client probes.
func (s *sighting) isOf(c *Client) bool {
	return slices.ContainsFunc(s.symbols, func(s symbols.Symbol) bool { return c.spec.matches(s.Name) })
}
