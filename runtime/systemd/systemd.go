// Package systemd asks systemd over the system bus, and tells it what a runtime does
// not: what systemd was not told of a unit it takes back when it writes the unit's
// control group anew.
package systemd

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
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
