package device

import (
	"context"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/trimtab/trimtab/runtime/systemd"
)

// systemBus asks systemd over a connection of its own for each question: a
// preflight is rare.
type systemBus struct{}

func (systemBus) DeviceAllow(ctx context.Context, unit string) ([]Allow, error) {
	ctx, cancel := context.WithTimeout(ctx, systemd.Timeout)
	defer cancel()
	conn, err := systemd.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	policy, err := conn.GetUnitTypePropertyContext(ctx, unit, "Scope", "DevicePolicy")
	if err != nil {
		return nil, fmt.Errorf("DevicePolicy: %w", err)
	}
	property, err := conn.GetUnitTypePropertyContext(ctx, unit, "Scope", "DeviceAllow")
	if err != nil {
		return nil, fmt.Errorf("DeviceAllow: %w", err)
	}
	var allowed []Allow
	if err := property.Value.Store(&allowed); err != nil { // a(ss)
		return nil, fmt.Errorf("DeviceAllow: %w", err)
	}
	if len(allowed) == 0 && policy.Value.Value() == "auto" {
		return []Allow{{Device: "char-*", Access: "rwm"}}, nil // no entry at all: all devices are allowed
	}
	return allowed, nil
}

// AddDeviceAllow appends: systemd keeps the entries that the runtime gave it. The
// setting ends with the unit, or with the boot.
func (systemBus) AddDeviceAllow(ctx context.Context, unit string, more []Allow) error {
	return systemd.SetProperties(ctx, unit, dbus.Property{Name: "DeviceAllow", Value: godbus.MakeVariant(more)}) // a(ss)
}

// SetDeviceAllow empties the list and fills it anew in one message.
func (systemBus) SetDeviceAllow(ctx context.Context, unit string, all []Allow) error {
	return systemd.SetProperties(ctx, unit, dbus.Property{Name: "DeviceAllow", Value: godbus.MakeVariant([]Allow{})},
		dbus.Property{Name: "DeviceAllow", Value: godbus.MakeVariant(all)})
}
