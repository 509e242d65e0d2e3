package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/trimtab/trimtab/tuner/enrolment"
)

// Duration is a time.Duration written as Go does, or in days: 500ms, 2h, 30d.
type Duration time.Duration

// D returns it as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// UnmarshalText reads it.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}

// ParseDuration reads a time as Go writes it, or in days: 500ms, 2h, 30d.
func ParseDuration(s string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not a time; allowed are times such as 500ms, 10s, 2h or 30d", s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, wrong
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return 0, wrong
	}
	return v, nil
}

// CPUAmount is a number of CPUs (0.5), or a share of the node's ("10%").
type CPUAmount struct {
	CPUs  float64
	Share float64 // 0..1
}

// Of returns the amount in CPUs on a node that has so many.
func (a CPUAmount) Of(cpus float64) float64 { return a.CPUs + a.Share*cpus }

// UnmarshalText reads it.
func (a *CPUAmount) UnmarshalText(text []byte) (err error) {
	a.CPUs, a.Share, err = parseAmount(string(text), enrolment.ParseCPUs, "CPUs; allowed are numbers such as 0.5")
	return err
}

// MemoryAmount is an amount of memory (2GiB), or a share of the node's ("10%").
type MemoryAmount struct {
	Bytes float64
	Share float64 // 0..1
}

// Of returns the amount in bytes on a node that has so many.
func (a MemoryAmount) Of(bytes float64) float64 { return a.Bytes + a.Share*bytes }

// UnmarshalText reads it.
func (a *MemoryAmount) UnmarshalText(text []byte) (err error) {
	a.Bytes, a.Share, err = parseAmount(string(text), enrolment.ParseBytes, "memory; allowed are amounts such as 2GiB")
	return err
}

// parseAmount reads a share, or an amount of what is named.
func parseAmount(s string, parse func(string) (float64, error), of string) (amount, share float64, err error) {
	share, isShare, err := parseShare(s)
	if isShare || s == "0" {
		return 0, share, err
	}
	if amount, err = parse(s); err != nil {
		return 0, 0, fmt.Errorf(`%q is not an amount of %s, or shares such as "10%%"`, s, of)
	}
	return amount, 0, nil
}

// parseShare reads "10%"; isShare is false for anything without a percent sign.
func parseShare(s string) (share float64, isShare bool, err error) {
	number, isShare := strings.CutSuffix(s, "%")
	if !isShare {
		return 0, false, nil
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= 0 && v < 100) {
		return 0, true, fmt.Errorf("%q is not a share; allowed are 0%% to below 100%%", s)
	}
	return v / 100, true, nil
}
