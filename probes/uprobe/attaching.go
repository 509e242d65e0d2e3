package uprobe

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

// maxInstructionBytes is what the kernel reads where it puts a probe.
const maxInstructionBytes = 16

// attaching is one hook's functions in one library that are to be probed in one process.
type attaching struct {
	process          *process
	member           *member
	hook             int
	turn             uint16
	library          *library
	entries, returns []point

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
	entries, returns := hook.points(lib.symbols, state.turn, hook.Return != nil && m.client.finder.returns.refused() == nil)
	if len(entries) == 0 {
		return nil
	}
	state.pending++
	lib.users++ // its file stays open
	return batch{{process: p, member: m, hook: i, turn: state.turn, library: lib, entries: entries, returns: returns}}
}

// isWanted: the hook is still on in the same turn, and the library still mapped.
func (a *attaching) isWanted() bool {
	state := &a.member.hooks[a.hook]
	return !a.member.left && state.on && state.turn == a.turn && slices.Contains(a.member.libraries, a.library)
}

func (b batch) wanted() bool { return slices.ContainsFunc(b, (*attaching).isWanted) }

// run attaches, in a goroutine of the container's.
func (b batch) run(f *Finder) {
	var running sync.WaitGroup
	for _, a := range b {
		running.Go(func() { a.err = a.run(f) })
	}
	running.Wait()
}

func (a *attaching) run(f *Finder) error {
	// The header is read once more, and the file may have been written to.
	if err := symbols.CheckHeader(a.library.file); err != nil {
		return err
	}
	readBefore(a.library.file, a.entries)
	// Reading may have taken long, and the number may be another process's by now.
	if st, err := readStat(f.procRoot, a.process.pid); err != nil {
		return err
	} else if st.startTick != a.process.start {
		return os.ErrNotExist
	}
	files := linkFiles * f.attacher.links(len(a.entries), len(a.returns))
	if err := f.room.take(files); err != nil {
		return err
	}
	a.began = time.Now()
	links, err := f.attacher.attachBoth(a.library.file, a.process.pid, &a.member.client.spec.Hooks[a.hook], a.entries, a.returns)
	if err != nil {
		f.room.free(files)
		return err
	}
	a.links, a.took = links, time.Since(a.began)
	return nil
}

// readBefore brings the pages that the kernel reads to put a probe into memory. It
// reads them under dup_mmap_sem, and a file that hangs there stops every fork of the host.
func readBefore(file *os.File, points []point) {
	var code [maxInstructionBytes]byte
	for _, p := range points {
		// What cannot be read is the kernel's to refuse.
		_, _ = file.ReadAt(code[:], int64(p.offset))
	}
}

// takeBatch takes in what was attached, and what was not. A library that could not be
// attached to is left, to be found again by a later look.
func (f *Finder) takeBatch(b batch) {
	var errs []error
	for _, a := range b {
		state := &a.member.hooks[a.hook]
		state.pending--
		delete(a.member.entering, a.library)
		switch {
		case a.err != nil && !gone(a.err):
			errs = append(errs, a.err)
			a.member.drop(func(l *library) bool { return l != a.library })
			a.process.size = 0 // looked at again
		case len(a.links) == 0:
		case a.isWanted():
			if len(state.attached) == 0 {
				state.since = a.began.Add(a.took / 2)
			}
			state.attached = append(state.attached, attachment{library: a.library, links: a.links})
		default:
			state.closing = append(state.closing, f.closeLater(a.links))
		}
		f.release(a.library)
	}
	if len(errs) > 0 && !b[0].member.left {
		f.problems.add(b[0].process.key, "libraries", errors.Join(errs...))
	}
}
