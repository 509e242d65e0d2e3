package nvml

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// defaultLibrary is the soname that every driver installs.
const defaultLibrary = "libnvidia-ml.so.1"

// callKey names one function asked of one device.
type callKey struct {
	Device string `json:"dev,omitempty"` // UUID, "#index", or "" for the library as a whole
	Call   string `json:"call"`
}

// library is the one way to NVML: each call is looked up first, told to the page,
// and left out where it proved deadly. Used from one goroutine.
type library struct {
	handle  uintptr
	symbols map[string]uintptr // 0: the library lacks it
	page    *page
	skip    map[callKey]bool
	// outcomes is what each call answered last.
	outcomes map[callKey]code
}

// openLibrary loads NVML. The library's constructors run, so this may hang or kill as a call may.
func openLibrary(path string, p *page) (*library, error) {
	l := &library{symbols: map[string]uintptr{}, page: p, skip: map[callKey]bool{}, outcomes: map[callKey]code{}}
	p.enter("", "dlopen")
	defer p.leave()
	var err error
	if l.handle, err = purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL); err != nil {
		return nil, fmt.Errorf("nvml: load %s: %w", path, err)
	}
	return l, nil
}

// symbol finds a function; 0: the library lacks it.
func (l *library) symbol(name string) uintptr {
	addr, known := l.symbols[name]
	if !known {
		var err error
		if addr, err = purego.Dlsym(l.handle, name); err != nil {
			addr = 0
		}
		l.symbols[name] = addr
	}
	return addr
}

// call asks one function. Memory whose address is among args stays in place until
// it returns, for the directive below moves it to the heap.
//
//go:uintptrescapes
func (l *library) call(device, name string, args ...uintptr) code {
	key := callKey{device, name}
	c := codeLeftOut
	if !l.skip[key] && !l.skip[callKey{device, allCalls}] {
		c = l.enter(key, args)
	}
	l.outcomes[key] = c
	return c
}

func (l *library) enter(key callKey, args []uintptr) code {
	fn := l.symbol(key.Call)
	if fn == 0 {
		return codeNoSymbol
	}
	l.page.enter(key.Device, key.Call)
	r, _, _ := purego.SyscallN(fn, args...)
	l.page.leave()
	return code(int32(r)) // an enum: the register's upper half is noise
}

// note corrects an outcome: the call succeeded, and its value was a sentinel.
func (l *library) note(device, name string, c code) { l.outcomes[callKey{device, name}] = c }
