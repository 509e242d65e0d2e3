package uprobe

import (
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

// Spec is what one probe wants found and probed. Its functions are called from
// the goroutine that calls the Client.
type Spec struct {
	// Name begins the names of problems: "cuda".
	Name string
	// Marks are symbols that are only looked for, see Client.Has.
	Marks []string
	// Hints are parts of paths of files that are worth looking into first.
	Hints []string
	// NotAfterFork: a forked copy of a process that has used the library cannot use it.
	NotAfterFork bool
	// Hooks are probed together or not at all, each as a whole.
	Hooks []Hook
	// Room is how many processes can be counted at once; 0: no container needs a bound.
	Room int
	// Enter makes room for a process before anything in it is probed.
	Enter func(pid int32) error
	// Leave frees it when the process has ended, or maps nothing of interest any more, or is
	// no longer watched. Probes may still hit for some milliseconds.
	Leave func(pid int32)
	// Hits returns what a hook (by index) hit in a process so far.
	Hits func(pid int32, hook int) Hits
	// Objects points to a struct of the programs and maps, which Close unloads and Cost tells of.
	Objects any
}

// Hook is a set of functions that is switched on and off together. Hooks of one
// name are one to the budget; each alone can be dropped from a process.
type Hook struct {
	Name string // "cuda.launch"
	What string // what is not counted without it: "launches"
	// Functions are by name; one that ends in * stands for all that begin so.
	Functions map[string]Point
	begins    []string // those of them that end in *
	// Entry runs at the entry of each function, Return at the return of those whose Point says so.
	Entry, Return *ebpf.Program
}

// Point says what to do with one function.
type Point struct {
	Code    uint32 // for the BPF program: COOKIE_CODE of bpf/uprobe.h
	Returns bool
	Alone   uint32 // the code where no return may be probed; 0: the function is left out then
}

// Hits counts breakpoint hits, by what each costs.
type Hits struct {
	Emulated, Stepped, Returns uint64
}

func (h Hits) total() uint64 { return h.Emulated + h.Stepped }

func (h Hits) plus(o Hits) Hits {
	return Hits{h.Emulated + o.Emulated, h.Stepped + o.Stepped, h.Returns + o.Returns}
}

// minus returns what has come since; counters that went back began anew.
func (h Hits) minus(o Hits) Hits {
	if h.Emulated < o.Emulated || h.Stepped < o.Stepped || h.Returns < o.Returns {
		return h
	}
	return Hits{h.Emulated - o.Emulated, h.Stepped - o.Stepped, h.Returns - o.Returns}
}

// Bits of the cookie, as bpf/uprobe.h has them.
const (
	cookieLibraryShift = 32
	cookieSteppedBit   = 40
	cookieTurnShift    = 48
)

func cookie(code uint32, library uint8, stepped bool, turn uint16) uint64 {
	c := uint64(code) | uint64(library)<<cookieLibraryShift | uint64(turn)<<cookieTurnShift
	if stepped {
		c |= 1 << cookieSteppedBit
	}
	return c
}

// Match finds a function among the hook's.
func (h *Hook) Match(symbol string) (Point, bool) {
	if p, ok := h.Functions[symbol]; ok {
		return p, true
	}
	if h.begins == nil {
		h.index()
	}
	for _, name := range h.begins {
		if p, ok := h.Functions[name]; ok && strings.HasPrefix(symbol, strings.TrimSuffix(name, "*")) {
			return p, true
		}
	}
	return Point{}, false
}

// index finds the names that end in *: a library chooses how many symbols are held against them.
func (h *Hook) index() {
	h.begins = []string{}
	for name := range h.Functions {
		if strings.HasSuffix(name, "*") {
			h.begins = append(h.begins, name)
		}
	}
}

// points lists a hook's places in a library, and those of them whose return is probed. Without
// returns the functions that need one are left out: an entry alone would stay open.
func (h *Hook) points(found []symbols.Symbol, library uint8, turn uint16, withReturns bool) (entries, returns []point) {
	for _, s := range found {
		p, ok := h.Match(s.Name)
		// A file's first byte is no instruction; and without an offset the BPF library would
		// read the file for one, here, with all that we may do.
		if !ok || s.Offset == 0 || p.Returns && !withReturns && p.Alone == 0 {
			continue
		}
		if p.Returns && !withReturns {
			p = Point{Code: p.Alone}
		}
		at := point{offset: s.Offset, cookie: cookie(p.Code, library, s.Stepped, turn)}
		entries = append(entries, at)
		if p.Returns {
			returns = append(returns, at)
		}
	}
	return entries, returns
}

func (s *Spec) matches(symbol string) bool {
	return slices.ContainsFunc(s.Hooks, func(h Hook) bool { _, ok := h.Match(symbol); return ok })
}

// leader is the first hook of the same name, which keeps the name's state.
func (s *Spec) leader(i int) int {
	return slices.IndexFunc(s.Hooks, func(h Hook) bool { return h.Name == s.Hooks[i].Name })
}
