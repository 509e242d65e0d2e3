//go:build cgo

package main

import (
	"encoding/binary"
	"math"
	"strings"

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
	return l, l.loaded.Open()
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

// asker asks about one device, one slice, or the library as a whole. Once the device is lost nothing more is asked.
type asker struct {
	lib  *library
	id   string // UUID, "#index", or "" for the library: the name under which calls are told
	dev  nvml.Device
	lost wire.Code // wire.OK: it answers
}

// call asks one function, by its name in the library.
func (a *asker) call(name string, ask func() nvml.Return) wire.Code {
	if a.lost != wire.OK {
		return a.lost
	}
	c := a.lib.call(a.id, name, ask)
	if c == wire.Lost || c == wire.Reset {
		a.lost = c
	}
	return c
}

// get asks for one value, by the function's name in the library.
func get[T any](a *asker, name string, ask func() (T, nvml.Return)) (v T, c wire.Code) {
	c = a.call(name, func() (r nvml.Return) { v, r = ask(); return r })
	return v, c
}

// text asks for one text, as UTF-8; "": no answer.
func (a *asker) text(name string, ask func() (string, nvml.Return)) string {
	s, c := get(a, name, ask)
	if c != wire.OK {
		return ""
	}
	return strings.ToValidUTF8(s, "")
}

// number asks for one number of 32 bits, nil where there is no answer or a sentinel.
func number[T int | uint32](a *asker, name string, ask func() (T, nvml.Return)) *float64 {
	v, c := get(a, name, ask)
	if c == wire.OK && uint32(v) == math.MaxUint32 {
		a.lib.note(a.id, name, wire.NoValue)
		c = wire.NoValue
	}
	if c != wire.OK {
		return nil
	}
	f := float64(v)
	return &f
}

// scaled multiplies where there is a value.
func scaled(v *float64, by float64) *float64 {
	if v == nil {
		return nil
	}
	f := *v * by
	return &f
}

// share makes 0..1 of a percentage; nil where it is none.
func share(percent float64) *float64 {
	if math.IsNaN(percent) || percent < 0 || percent > 100 {
		return nil
	}
	f := percent / 100
	return &f
}

// value decodes an nvmlValue_t of a type.
func value(kind nvml.ValueType, b [8]byte) (float64, bool) {
	raw := binary.NativeEndian.Uint64(b[:])
	switch kind {
	case nvml.VALUE_TYPE_DOUBLE:
		f := math.Float64frombits(raw)
		return f, !math.IsNaN(f) && !math.IsInf(f, 0)
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(uint32(raw)), uint32(raw) != math.MaxUint32
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(raw), raw != math.MaxUint64
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(raw)), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(raw)), true
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(uint16(raw)), true
	}
	return 0, false
}
