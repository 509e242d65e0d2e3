//go:build cgo

package main

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/trimtab/trimtab/probes/nvml/wire"
)

// library is the one way to NVML: each call is looked up first, told to the page,
// and left out where it proved deadly. Used from one goroutine.
type library struct {
	api     nvml.Interface
	loaded  *dl.DynamicLibrary
	symbols map[string]bool // false: the library lacks it
	page    *wire.Page
	skip    map[wire.CallKey]bool
	// outcomes is what each call answered last.
	outcomes map[wire.CallKey]wire.Code
}

// openLibrary loads NVML where the bindings' functions are looked for when they are called. The
// library's constructors run, so this may hang or kill as a call may.
func openLibrary(path string, p *wire.Page) (*library, error) {
	l := &library{
		api: nvml.New(nvml.WithLibraryPath(path)), loaded: dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL),
		symbols: map[string]bool{}, page: p, skip: map[wire.CallKey]bool{}, outcomes: map[wire.CallKey]wire.Code{},
	}
	p.Enter("", "dlopen")
	defer p.Leave()
	if err := l.loaded.Open(); err != nil {
		return nil, fmt.Errorf("nvml: load %s: %w", path, err)
	}
	return l, nil
}

// has tells whether the library has a symbol.
func (l *library) has(name string) bool {
	is, known := l.symbols[name]
	if !known {
		is = l.loaded.Lookup(name) == nil
		l.symbols[name] = is
	}
	return is
}

// newest is the first of several names of one function that the library has, as the bindings
// choose it themselves; where it has none, the first.
func (l *library) newest(names ...string) string {
	for _, name := range names {
		if l.has(name) {
			return name
		}
	}
	return names[0]
}

// call asks one function, by its name in the library.
func (l *library) call(device, name string, ask func() nvml.Return) wire.Code {
	key := wire.CallKey{Device: device, Call: name}
	c := wire.LeftOut
	if !l.skip[key] && !l.skip[wire.CallKey{Device: device, Call: wire.AllCalls}] {
		c = l.enter(key, ask)
	}
	l.outcomes[key] = c
	return c
}

// enter makes the call. The bindings cut a list to what the library says of its length; where that
// grew between two calls they panic (GetProcessUtilization and GetSamples of v0.13.4-1).
func (l *library) enter(key wire.CallKey, ask func() nvml.Return) (c wire.Code) {
	if !l.has(key.Call) {
		return wire.NoSymbol
	}
	l.page.Enter(key.Device, key.Call)
	defer l.page.Leave()
	defer func() {
		if recover() != nil {
			c = wire.Overrun
		}
	}()
	return wire.Code(ask())
}

// note corrects an outcome: the call succeeded, and its value was a sentinel.
func (l *library) note(device, name string, c wire.Code) {
	l.outcomes[wire.CallKey{Device: device, Call: name}] = c
}
