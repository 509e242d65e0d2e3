package device

import (
	"bufio"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"

	godbus "github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
)

// fakeManager answers on a real bus as systemd's manager does, for one unit.
type fakeManager struct {
	mu      sync.Mutex
	unit    string
	runtime bool
	allow   []Allow
}

// property is D-Bus' (sv).
type property struct {
	Name  string
	Value godbus.Variant
}

func (m *fakeManager) SetUnitProperties(unit string, runtime bool, properties []property) *godbus.Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range properties {
		if p.Name != "DeviceAllow" || p.Value.Signature().String() != "a(ss)" {
			return godbus.MakeFailedError(errors.New("cannot set property " + p.Name + " " + p.Value.Signature().String()))
		}
		var more []Allow
		if err := p.Value.Store(&more); err != nil {
			return godbus.MakeFailedError(err)
		}
		m.allow = append(m.allow, more...) // systemd appends; an empty list would clear
	}
	m.unit, m.runtime = unit, runtime
	return nil
}

// Get is org.freedesktop.DBus.Properties, as go-systemd asks a unit.
func (m *fakeManager) Get(_, name string) (godbus.Variant, *godbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == "DevicePolicy" {
		return godbus.MakeVariant("strict"), nil
	}
	return godbus.MakeVariant(m.allow), nil
}

// privateBus starts a bus of its own and puts a manager on it under systemd's name.
func privateBus(t *testing.T, m *fakeManager) {
	t.Helper()
	path, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("needs dbus-daemon: apt-get install dbus")
	}
	cmd := exec.Command(path, "--session", "--nofork", "--nopidfile", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address = strings.TrimSpace(address)
	conn, err := godbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := errors.Join(
		conn.Export(m, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"),
		conn.ExportSubtree(m, "/org/freedesktop/systemd1/unit", "org.freedesktop.DBus.Properties")); err != nil {
		t.Fatal(err)
	}
	if reply, err := conn.RequestName("org.freedesktop.systemd1", 0); err != nil || reply != godbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
}

func TestSystemBus(t *testing.T) {
	m := &fakeManager{allow: []Allow{{"/dev/char/1:3", "rwm"}}}
	privateBus(t, m)
	more := []Allow{{"char-195", "rw"}, {"/dev/char/509:0", "rwm"}}
	if err := (systemBus{}).AddDeviceAllow(t.Context(), scope, more); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock() // the bus answers from a goroutine of its own
	unit, untilReboot := m.unit, m.runtime
	m.mu.Unlock()
	if unit != scope || !untilReboot {
		t.Errorf("unit %q, until reboot %v", unit, untilReboot)
	}
	got, err := systemBus{}.DeviceAllow(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	want := append([]Allow{{"/dev/char/1:3", "rwm"}}, more...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSystemBusAway(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+t.TempDir()+"/none")
	if err := (systemBus{}).AddDeviceAllow(t.Context(), scope, []Allow{{"char-195", "rw"}}); err == nil {
		t.Error("no bus, and no error")
	}
}
