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

// retryAfter is how long an attachment that was refused is left alone.
const retryAfter = 10 * time.Second

// library is a file with functions of interest that some process maps. The file
// is held open while it has users: it is attached to again when a hook's turn
// comes. Attachments pin it in any case.
type library struct {
	key     fileKey
	file    *os.File
	symbols []symbols.Symbol
	users   int
}

// member is a process that one client probes.
type member struct {
	pid       int32
	client    *Client
	libraries []*library
	hooks     []hookState // as in client.spec.Hooks
	// usedTick is when it was first seen to have hit something, as /proc/PID/stat counts time.
	usedTick uint64
}

// hookState is one hook in one process.
type hookState struct {
	attached []attachment
	on       bool
	dropped  bool // off for good
	retryAt  time.Time
	turn     uint16
	since    time.Time     // on: counted from here
	counted  time.Duration // before since
	closing  []<-chan struct{}
	hits     Hits // as last seen
}

type attachment struct {
	library *library
	links   []link.Link
}

// busy: attachments of the former turn may still hit.
func (h *hookState) busy() bool {
	h.closing = slices.DeleteFunc(h.closing, func(done <-chan struct{}) bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	return len(h.closing) > 0
}

// add probes the hooks that are on in one more library, all at once: attaching is
// mostly waiting for the kernel's grace periods.
func (m *member) add(lib *library) error {
	m.libraries = append(m.libraries, lib)
	lib.users++
	errs := make([]error, len(m.hooks))
	var attaching sync.WaitGroup
	for i := range m.hooks {
		if m.hooks[i].on {
			attaching.Go(func() { errs[i] = m.attach(i, lib) })
		}
	}
	attaching.Wait()
	return errors.Join(errs...)
}

// attach probes one hook's functions in one library.
func (m *member) attach(i int, lib *library) error {
	hook, state := &m.client.spec.Hooks[i], &m.hooks[i]
	f := m.client.finder
	entries, returns := hook.points(lib.symbols, state.turn, hook.Return != nil && f.returns.refused() == nil)
	if len(entries) == 0 {
		return nil
	}
	// Attaching reads the header once more, here, and the file may have been written to.
	if err := symbols.CheckHeader(lib.file); err != nil {
		return err
	}
	files := linkFiles * f.attacher.links(len(entries), len(returns))
	if err := f.room.take(files); err != nil {
		return err
	}
	begin := time.Now()
	links, err := f.attacher.attachBoth(lib.file, m.pid, hook, entries, returns)
	if err != nil {
		f.room.free(files)
		return err
	}
	if len(state.attached) == 0 {
		state.since = begin.Add(time.Since(begin) / 2)
	}
	state.attached = append(state.attached, attachment{library: lib, links: links})
	return nil
}

// detach closes the attachments of a hook that keep does not hold on to. It does
// not wait: the kernel takes tens of milliseconds for each.
func (m *member) detach(i int, keep func(*library) bool) {
	state := &m.hooks[i]
	had := len(state.attached) > 0
	state.attached = slices.DeleteFunc(state.attached, func(a attachment) bool {
		if keep(a.library) {
			return false
		}
		state.closing = append(state.closing, m.client.finder.closeLater(a.links))
		return true
	})
	if had && len(state.attached) == 0 {
		state.counted += time.Since(state.since)
	}
}

// turn switches the hooks as their container's say. Hooks of one name go on
// together, once the former turn of all of them is closed, the later ones first.
func (m *member) turn(hooks []containerHook) error {
	busy := map[int]bool{}
	for i := range m.hooks {
		leader := m.client.spec.leader(i)
		busy[leader] = m.hooks[i].busy() || busy[leader]
	}
	var errs []error
	for i := len(m.hooks) - 1; i >= 0; i-- {
		leader := m.client.spec.leader(i)
		on := hooks[leader].on && !m.hooks[i].dropped
		if on == m.hooks[i].on || (on && (busy[leader] || time.Now().Before(m.hooks[i].retryAt))) {
			continue
		}
		errs = append(errs, m.switchTo(i, on))
	}
	return errors.Join(errs...)
}

// switchTo attaches a hook to all libraries, or takes it off.
func (m *member) switchTo(i int, on bool) error {
	state := &m.hooks[i]
	state.on = on
	if !on {
		m.detach(i, func(*library) bool { return false })
		return nil
	}
	state.turn++
	var errs []error
	for _, lib := range m.libraries {
		errs = append(errs, m.attach(i, lib))
	}
	err := errors.Join(errs...)
	if err != nil {
		state.on, state.retryAt = false, time.Now().Add(retryAfter)
		m.detach(i, func(*library) bool { return false })
	}
	return err
}

// drop takes the member's probes off libraries that the process no longer maps.
func (m *member) drop(keep func(*library) bool) {
	for i := range m.hooks {
		m.detach(i, keep)
	}
	m.libraries = slices.DeleteFunc(m.libraries, func(lib *library) bool {
		if keep(lib) {
			return false
		}
		m.client.finder.release(lib)
		return true
	})
}

// countedFor is how long a hook has counted in this process.
func (m *member) countedFor(i int) time.Duration {
	state := &m.hooks[i]
	if len(state.attached) == 0 {
		return state.counted
	}
	return state.counted + time.Since(state.since)
}
