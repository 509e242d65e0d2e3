package nvml

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// asker asks about one device, or one slice. Once the device is lost nothing more is asked.
type asker struct {
	lib    *library
	id     string // UUID, or "#index": the name under which calls are told
	handle uintptr
	lost   code // codeOK: it answers
}

// call asks one function whose first argument is the device.
//
//go:uintptrescapes
func (a *asker) call(name string, args ...uintptr) code {
	if a.lost != codeOK {
		return a.lost
	}
	c := a.lib.call(a.id, name, append([]uintptr{a.handle}, args...)...)
	a.notice(c)
	return c
}

// text asks a function of the shape (device, char *, unsigned int); "": no answer.
func (a *asker) text(name string) string {
	if a.lost != codeOK {
		return ""
	}
	s, c := a.lib.text(a.id, name, a.handle)
	a.notice(c)
	return s
}

// notice remembers that the device is lost.
func (a *asker) notice(c code) {
	if c == codeLost || c == codeReset {
		a.lost = c
	}
}

// number asks a function of the shape (device, [kind,] unsigned int *), nil where
// there is no answer or a sentinel.
func (a *asker) number(name string, kind ...uint32) *float64 {
	var v uint32
	var c code
	if len(kind) == 0 {
		c = a.call(name, uintptr(unsafe.Pointer(&v)))
	} else {
		c = a.call(name, uintptr(kind[0]), uintptr(unsafe.Pointer(&v)))
	}
	if c == codeOK && v == math.MaxUint32 {
		a.lib.note(a.id, name, codeNoValue)
		c = codeNoValue
	}
	if c != codeOK {
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
func value(kind uint32, b [8]byte) (float64, bool) {
	raw := binary.NativeEndian.Uint64(b[:])
	switch kind {
	case 0:
		f := math.Float64frombits(raw)
		return f, !math.IsNaN(f) && !math.IsInf(f, 0)
	case 1:
		return float64(uint32(raw)), uint32(raw) != math.MaxUint32
	case 2, 3:
		return float64(raw), raw != math.MaxUint64
	case 4:
		return float64(int64(raw)), true
	case 5:
		return float64(int32(raw)), true
	case 6:
		return float64(uint16(raw)), true
	}
	return 0, false
}
