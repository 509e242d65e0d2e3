package uprobe

import (
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

// library is a file with functions of interest that some process maps. The file
// is held, not opened, while it has users: it is attached to again when a hook's turn
// comes. Attachments pin it in any case.
type library struct {
	key       fileKey
	broughtBy string // the container in which it was first seen, whose share its file takes
	file      handle
	symbols   []symbols.Symbol
	users     int
}

// member is a process that one client probes.
type member struct {
	pid       int32
	key       string // of its container
	client    *Client
	libraries []*library
	hooks     []hookState // as in client.spec.Hooks
	// usedTick is when it was first seen to have hit something, as /proc/PID/stat counts time.
	usedTick uint64
	entering map[*library]int // attachments that are not made yet, of libraries that are new
	left     bool             // no member any more
}

// hookState is one hook in one process.
type hookState struct {
	attached []attachment
	on       bool
	dropped  bool // off for good
	retryAt  time.Time
	turn     uint16
	places   map[*library]uint8 // of the libraries with its functions, see COOKIE_LIBRARY of bpf/uprobe.h
	pending  int                // attachments that are planned or being made
	since    time.Time          // on: counted from here
	counted  time.Duration      // before since
	closing  []<-chan struct{}
	hits     Hits // as last seen
}

// place is the number of a library among those of the process that have the hook's functions: the
// lowest that is free.
func (h *hookState) place(hook *Hook, lib *library) uint8 {
	at, have := h.places[lib]
	if have || !slices.ContainsFunc(lib.symbols, func(s symbols.Symbol) bool { _, ok := hook.Match(s.Name); return ok }) {
		return at
	}
	for taken := slices.Sorted(maps.Values(h.places)); int(at) < len(taken) && taken[at] == at; at++ {
	}
	if h.places == nil {
		h.places = map[*library]uint8{}
	}
	h.places[lib] = at
	return at
}

type attachment struct {
	library *library
	links   []link.Link
}

// busy: attachments of the former turn may still hit, or come.
func (h *hookState) busy() bool {
	h.closing = slices.DeleteFunc(h.closing, func(done <-chan struct{}) bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	return h.pending > 0 || len(h.closing) > 0
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
		state.closing = append(state.closing, m.client.finder.closeLater(m.key, a.links))
		return true
	})
	if had && len(state.attached) == 0 {
		state.counted += time.Since(state.since)
	}
}

// turn switches the hooks as their container's say, and returns what is to be attached.
// Hooks of one name go on together, once the former turn of all of them is closed.
func (m *member) turn(p *process, hooks []containerHook) batch {
	busy := map[int]bool{}
	for i := range m.hooks {
		leader := m.client.spec.leader(i)
		busy[leader] = m.hooks[i].busy() || busy[leader]
	}
	var out batch
	for i := range m.hooks {
		leader := m.client.spec.leader(i)
		on := hooks[leader].on && !m.hooks[i].dropped
		if on == m.hooks[i].on || on && (busy[leader] || time.Now().Before(m.hooks[i].retryAt)) {
			continue
		}
		m.hooks[i].on = on
		if !on {
			m.detach(i, func(*library) bool { return false })
			continue
		}
		m.hooks[i].turn++
		for _, lib := range m.libraries {
			out = append(out, m.plan(p, i, lib)...)
		}
	}
	return out
}

// entered: one attachment more was made, or was not, of a library that is new.
func (m *member) entered(lib *library) {
	if m.entering[lib]--; m.entering[lib] <= 0 {
		delete(m.entering, lib)
	}
}

// drop takes the member's probes off libraries that the process no longer maps.
func (m *member) drop(keep func(*library) bool) {
	for i := range m.hooks {
		m.detach(i, keep)
		maps.DeleteFunc(m.hooks[i].places, func(lib *library, _ uint8) bool { return !keep(lib) })
	}
	m.libraries = slices.DeleteFunc(m.libraries, func(lib *library) bool {
		if keep(lib) {
			return false
		}
		delete(m.entering, lib)
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
