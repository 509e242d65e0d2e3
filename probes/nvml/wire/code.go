package wire

import "strconv"

// Code is an nvmlReturn_t, or one of the negative ones below.
type Code int32

// The codes that trimtab tells apart, numbered as in nvml.h.
const (
	OK           Code = 0
	NotSupported Code = 3
	NotFound     Code = 6
	TooSmall     Code = 7
	NoDriver     Code = 9
	Timeout      Code = 10
	Lost         Code = 15
	Reset        Code = 16
	Blocked      Code = 17
	Mismatch     Code = 18
	NoDevice     Code = 28 // newer drivers: nvmlInit_v2 finds none

	NoSymbol Code = -1 // this driver's library lacks the function
	LeftOut  Code = -2 // it hung or ended a child before
	NoValue  Code = -3 // a sentinel stood where a value should
	Overrun  Code = -4 // it told of more than it had been given room for
)

func (c Code) String() string {
	switch c {
	case OK:
		return "answered"
	case NotSupported:
		return "not supported"
	case NotFound:
		return "nothing found"
	case TooSmall:
		return "buffer too small"
	case NoDriver:
		return "the driver is not loaded"
	case Timeout:
		return "nothing in the given time"
	case Lost:
		return "fell off the bus"
	case Reset:
		return "needs a reset"
	case Blocked:
		return "blocked by the operating system"
	case Mismatch:
		return "driver/library version mismatch"
	case NoDevice:
		return "no device"
	case NoSymbol:
		return "not in this library"
	case LeftOut:
		return "left out"
	case NoValue:
		return "no value"
	case Overrun:
		return "more than there was room for"
	}
	return "error " + strconv.Itoa(int(c))
}
