package uprobe

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sync/errgroup"

	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

const (
	// maxInstructionBytes is what the kernel reads where it puts a probe.
	maxInstructionBytes = 16
	// retryAfter is how long a hook that was refused is left alone.
	retryAfter = 10 * time.Second
)

// attaching is one hook's functions in one library that are to be probed in one process.
type attaching struct {
	process          *process
	member           *member
	hook             int
	turn             uint16
	library          *library
	entries, returns []point
	isNew            bool // the library is: it is left whole where one hook is refused

	// What came of it.
	began time.Time
	took  time.Duration
	links []link.Link
	err   error
}

// batch is attached at once: attaching is mostly waiting for the kernel's grace periods.
type batch []*attaching

// plan prepares a hook in one library; nothing where the library has none of its functions.
func (m *member) plan(p *process, i int, lib *library) batch {
	hook, state := &m.client.spec.Hooks[i], &m.hooks[i]
	entries, returns := hook.points(lib.symbols, state.place(hook, lib), state.turn, hook.Return != nil && m.client.finder.returns.refused() == nil)
	if len(entries) == 0 {
		return nil
	}
	state.pending++
	lib.users++ // its file is held
	return batch{{process: p, member: m, hook: i, turn: state.turn, library: lib, entries: entries, returns: returns}}
}

// isWanted: the hook is still on in the same turn, and the library still mapped.
func (a *attaching) isWanted() bool {
	state := &a.member.hooks[a.hook]
	return !a.member.left && state.on && state.turn == a.turn && slices.Contains(a.member.libraries, a.library)
}

// maxAttaching of a batch wait for the kernel at once: each holds a thread.
const maxAttaching = 8

// run attaches, in a goroutine of the container's. Files are read in this goroutine alone:
// one that hangs holds one thread, and a process that holds 10,000 ends.
func (b batch) run(f *Finder) {
	for _, a := range b {
		a.err = a.prepare(f)
	}
	b.takeRoom(f)
	var running errgroup.Group
	running.SetLimit(maxAttaching)
	for _, a := range b {
		if a.err == nil {
			running.Go(func() error { a.err = a.attach(f); return nil })
		}
	}
	_ = running.Wait() // each has its own
}

// takeRoom makes room for all that is to be attached. Of a new library all hooks find room or none is attached:
// those that were would be detached again, at each look.
func (b batch) takeRoom(f *Finder) {
	for _, a := range b {
		if a.err == nil {
			a.err = f.room.takeFor(a.process.key, a.files(f))
		}
	}
	for _, a := range b {
		if i := slices.IndexFunc(b, a.isLeftWith); a.err == nil && i >= 0 {
			f.room.freeFor(a.process.key, a.files(f))
			a.err = b[i].err
		}
	}
}

// isLeftWith: the other was refused, and both are hooks of a library that is new to a process.
func (a *attaching) isLeftWith(o *attaching) bool {
	return a.isNew && o.err != nil && o.member == a.member && o.library == a.library
}

// files is how many descriptors it takes.
func (a *attaching) files(f *Finder) int {
	return linkFiles * f.attacher.links(len(a.entries), len(a.returns))
}

func (a *attaching) prepare(f *Finder) error {
	err := a.library.file.apart(f.files.kept, func(file descriptor) error {
		readBefore(file, a.entries)
		return symbols.CheckHeader(file) // once more: the file may have been written to
	})
	return cmp.Or(err, a.isThere(f)) // reading may have taken long
}

// isThere: the number is still that of the process.
func (a *attaching) isThere(f *Finder) error {
	st, err := procfs.ReadStat(f.procRoot, a.process.pid)
	if gone(err) || err == nil && st.StartTick != a.process.start {
		return errEnded
	}
	return err
}

// attach attaches what room was taken for.
func (a *attaching) attach(f *Finder) error {
	a.began = time.Now()
	links, err := f.attacher.attachBoth(a.library.file.fd, a.process.pid, &a.member.client.spec.Hooks[a.hook], a.entries, a.returns)
	if err != nil {
		f.room.freeFor(a.process.key, a.files(f))
		if errors.Is(a.isThere(f), errEnded) {
			return errEnded
		}
		return err
	}
	a.links, a.took = links, time.Since(a.began)
	return nil
}

// readBefore brings the pages that the kernel reads to put a probe into memory. It
// reads them under dup_mmap_sem, and a file that hangs there stops every fork of the host.
func readBefore(file io.ReaderAt, points []point) {
	var code [maxInstructionBytes]byte
	for _, p := range points {
		// What cannot be read is the kernel's to refuse.
		_, _ = file.ReadAt(code[:], int64(p.offset))
	}
}

// takeBatch takes in what was attached, and what was not. A library that could not be
// attached to at first is left, to be found again by a later look; later on the hook alone
// is off for a while.
func (f *Finder) takeBatch(b batch) {
	var errs []error
	for _, a := range b {
		m, state := a.member, &a.member.hooks[a.hook]
		state.pending--
		first := m.entering[a.library] > 0
		if first {
			m.entered(a.library)
		}
		switch {
		case m.left && a.err != nil:
		case a.err != nil && !errors.Is(a.err, errEnded):
			errs = append(errs, a.err)
			if first {
				m.drop(func(l *library) bool { return l != a.library })
				a.process.size = 0 // looked at again
			} else if a.isWanted() {
				state.on, state.retryAt = false, time.Now().Add(retryAfter)
				m.detach(a.hook, func(*library) bool { return false })
			}
		case len(a.links) == 0:
		case a.isWanted():
			if len(state.attached) == 0 {
				state.since = a.began.Add(a.took / 2)
			}
			state.attached = append(state.attached, attachment{library: a.library, links: a.links})
		default:
			state.closing = append(state.closing, f.closeLater(a.process.key, a.links))
		}
		f.release(a.library)
	}
	if len(errs) > 0 {
		f.problems.add(b[0].process.key, "libraries", errors.Join(errs...))
	}
}
