package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/tuner/enrolment"
)

// Duration is a time.Duration written as Go does, or in days: 500ms, 2h, 30d.
type Duration time.Duration

// D returns it as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// UnmarshalYAML reads it from a scalar.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := ParseDuration(n.Value)
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

// Bytes is an amount of memory: 512MiB, 8GiB, or a number of bytes; 0 is allowed.
type Bytes int64

// UnmarshalYAML reads it from a scalar.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	if n.Value == "0" {
		*b = 0
		return nil
	}
	v, err := enrolment.ParseBytes(n.Value)
	if err != nil {
		return fmt.Errorf("%q is not an amount of memory; %w", n.Value, err)
	}
	*b = Bytes(v)
	return nil
}

// CPUAmount is a number of CPUs (0.5), or a share of the node's ("10%").
type CPUAmount struct {
	CPUs  float64
	Share float64 // 0..1
}

// Of returns the amount in CPUs on a node that has so many.
func (a CPUAmount) Of(cpus float64) float64 { return a.CPUs + a.Share*cpus }

// UnmarshalYAML reads it from a scalar.
func (a *CPUAmount) UnmarshalYAML(n *yaml.Node) (err error) {
	a.CPUs, a.Share, err = parseAmount(n.Value, enrolment.ParseCPUs, "CPUs; allowed are numbers such as 0.5")
	return err
}

// MemoryAmount is an amount of memory (2GiB), or a share of the node's ("10%").
type MemoryAmount struct {
	Bytes float64
	Share float64 // 0..1
}

// Of returns the amount in bytes on a node that has so many.
func (a MemoryAmount) Of(bytes float64) float64 { return a.Bytes + a.Share*bytes }

// UnmarshalYAML reads it from a scalar.
func (a *MemoryAmount) UnmarshalYAML(n *yaml.Node) (err error) {
	a.Bytes, a.Share, err = parseAmount(n.Value, enrolment.ParseBytes, "memory; allowed are amounts such as 2GiB")
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
