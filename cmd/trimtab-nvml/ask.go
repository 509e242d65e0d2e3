//go:build cgo

package main

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/trimtab/trimtab/probes/nvml/wire"
)

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
