// Package systemd asks systemd over the system bus, and tells it what a runtime does
// not: what systemd was not told of a unit it takes back when it writes the unit's
// control group anew.
package systemd

import (
	"context"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// Timeout bounds one question to systemd, which answers in milliseconds unless its
// bus is saturated.
const Timeout = 5 * time.Second

// Connect opens a connection to the system bus; the caller closes it.
func Connect(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("system bus: %w (trimtab must run on the host, as root)", err)
	}
	return conn, nil
}

// SetProperties sets properties of a unit until it ends, or the boot does, over a
// connection of its own.
func SetProperties(ctx context.Context, unit string, properties ...dbus.Property) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetUnitPropertiesContext(ctx, unit, true, properties...); err != nil {
		return fmt.Errorf("%s of %s: %w", properties[0].Name, unit, err)
	}
	return nil
}

// Unit is the scope that a control group is of; "" if systemd has no part in it.
func Unit(cgroup string) string {
	if name := path.Base(cgroup); strings.HasSuffix(name, ".scope") {
		return name
	}
	return ""
}

// ioWeightDefault is what a group has on v2 that nobody gave a weight.
const ioWeightDefault = 100

// SetIOWeight tells systemd a unit's I/O weight, 1 to 10,000, which runc on v2 writes
// to the file alone. The default unsets it, so that nothing stays behind.
func SetIOWeight(ctx context.Context, unit string, weight uint64) error {
	if weight == ioWeightDefault {
		weight = math.MaxUint64 // CGROUP_WEIGHT_INVALID: not set
	}
	return SetProperties(ctx, unit, dbus.Property{Name: "IOWeight", Value: godbus.MakeVariant(weight)})
}
