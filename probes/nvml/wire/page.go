package wire

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageBytes is the size of the shared page.
const PageBytes = 4096

// Page is memory that child and parent share: the call that the child is in. It
// outlives the child, so the parent can still read what ended it.
type Page struct {
	mem []byte
	// turn is odd while the child is inside a call, and grows with each entry and leave.
	turn *atomic.Uint64
}

// pageName and pageDevice are the places of the two texts, each with its length in the first byte.
const (
	pageName   = 64
	pageDevice = 256
	pageText   = 128 // room of each
)

// Entry is the call that the child is, or was last, in.
type Entry struct {
	Turn   uint64
	Device string // UUID, or "#index" before it is known; "": the library as a whole
	Call   string
}

// Inside: it is in the call, and has not left it.
func (e Entry) Inside() bool { return e.Turn%2 == 1 }

// NewPage makes the memory; the file is to be handed to the child.
func NewPage() (*Page, *os.File, error) {
	fd, err := unix.MemfdCreate("trimtab-nvml", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("nvml: shared page: %w", err)
	}
	f := os.NewFile(uintptr(fd), "trimtab-nvml")
	if err := f.Truncate(PageBytes); err != nil {
		_ = f.Close() // the first error says it
		return nil, nil, fmt.Errorf("nvml: shared page: %w", err)
	}
	p, err := OpenPage(fd)
	if err != nil {
		_ = f.Close() // as above
		return nil, nil, err
	}
	return p, f, nil
}

// OpenPage maps the memory behind a descriptor.
func OpenPage(fd int) (*Page, error) {
	mem, err := unix.Mmap(fd, 0, PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("nvml: map the shared page: %w", err)
	}
	return &Page{mem: mem, turn: (*atomic.Uint64)(unsafe.Pointer(&mem[0]))}, nil
}

// Close unmaps it.
func (p *Page) Close() { _ = unix.Munmap(p.mem) } // nothing could be done about it

// Enter is called by the child alone, before a call; Leave after it.
func (p *Page) Enter(device, call string) {
	p.put(pageDevice, device)
	p.put(pageName, call)
	p.turn.Add(1)
}

// Leave ends a call.
func (p *Page) Leave() { p.turn.Add(1) }

// Read is for the parent. The texts may be torn unless the turn stands still.
func (p *Page) Read() Entry {
	return Entry{Turn: p.turn.Load(), Device: p.get(pageDevice), Call: p.get(pageName)}
}

func (p *Page) put(at int, s string) {
	n := copy(p.mem[at+1:at+pageText], s)
	p.mem[at] = byte(n)
}

func (p *Page) get(at int) string {
	n := min(int(p.mem[at]), pageText-1)
	return string(p.mem[at+1 : at+1+n])
}
