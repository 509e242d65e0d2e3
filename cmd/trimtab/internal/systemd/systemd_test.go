package systemd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// listen makes a notify socket and returns a function that reads one message.
func listen(t *testing.T) func() string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func newNotifier(t *testing.T) *Notifier {
	t.Helper()
	n, err := NewNotifier(discard())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMessages(t *testing.T) {
	receive := listen(t)
	n := newNotifier(t)
	for _, tc := range []struct {
		say  func()
		want string
	}{
		{func() { n.Status("attaching\nREADY=1") }, "STATUS=attaching READY=1"}, // no smuggled assignment
		{func() { n.Ready("watching 3 containers") }, "READY=1\nSTATUS=watching 3 containers"},
		{func() { n.Status("watching 3 containers"); n.Status("watching 4 containers") }, "STATUS=watching 4 containers"},
		{func() { n.Extend(90 * time.Second) }, "EXTEND_TIMEOUT_USEC=90000000"},
		{func() { n.Stopping("restoring") }, "STOPPING=1\nSTATUS=restoring"},
	} {
		tc.say()
		if got := receive(); got != tc.want {
			t.Errorf("sent %q, want %q", got, tc.want)
		}
	}
	n.Reloading()
	if got := receive(); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") || !strings.HasSuffix(got, "STATUS=reloading") {
		t.Errorf("reloading sent %q", got)
	}
}

func TestWithoutSystemdNothingFails(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	var log bytes.Buffer
	n, err := NewNotifier(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	n.Ready("x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.RunWatchdog(ctx, func() error { t.Error("asked for life though no watchdog listens"); return nil }); err != nil {
		t.Error(err)
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", &log)
	}
}

func TestUnreachableSocketIsLoggedOnce(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	var log bytes.Buffer
	n, err := NewNotifier(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	n.Ready("x")
	n.Status("y")
	if got := strings.Count(log.String(), "cannot notify systemd"); got != 1 {
		t.Errorf("logged %d times, want once:\n%s", got, &log)
	}
}

func TestBadWatchdogInterval(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "soon")
	if _, err := NewNotifier(discard()); err == nil {
		t.Error("WATCHDOG_USEC=soon is accepted")
	}
}

// TestWatchdogIsSilentWhileTheLoopHangs: systemd must get its chance to restart
// a daemon that lives but does not work.
func TestWatchdogIsSilentWhileTheLoopHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		began := time.Now()
		n := &Notifier{logger: discard(), watchdog: 10 * time.Second, send: func(state string) error {
			if state != "WATCHDOG=1" {
				t.Errorf("sent %q", state)
			}
			sent = append(sent, time.Since(began))
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- n.RunWatchdog(ctx, func() error {
				if time.Since(began) > 11*time.Second {
					return errors.New("no tick for 12 s")
				}
				return nil
			})
		}()
		time.Sleep(41 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(sent) != 3 || sent[2] != 10*time.Second {
			t.Errorf("signs of life at %v, want at 0, 5 and 10 s only", sent)
		}
	})
}

// fakeManager is systemd with one service and one job.
type fakeManager struct {
	unit    string
	mainPID any
	job     *dbus.JobStatus
	err     map[string]error
}

func (f fakeManager) GetUnitNameByPID(context.Context, uint32) (string, error) {
	return f.unit, f.err["unit"]
}

func (f fakeManager) GetServicePropertyContext(_ context.Context, service, property string) (*dbus.Property, error) {
	if err := f.err["main"]; err != nil {
		return nil, err
	}
	if service != f.unit || property != "MainPID" {
		return nil, errors.New("no such property")
	}
	return &dbus.Property{Name: property, Value: godbus.MakeVariant(f.mainPID)}, nil
}

func (f fakeManager) ListJobsContext(context.Context) ([]dbus.JobStatus, error) {
	jobs := []dbus.JobStatus{{Unit: "other.service", JobType: "restart"}}
	if f.job != nil {
		jobs = append(jobs, *f.job)
	}
	return jobs, f.err["jobs"]
}

func TestStartsAgain(t *testing.T) {
	const unit, pid = "trimtab.service", 42
	job := func(kind string) *dbus.JobStatus {
		return &dbus.JobStatus{Unit: unit, JobType: kind, Status: "running"}
	}
	boom := errors.New("bus is gone")
	tests := map[string]struct {
		m       fakeManager
		want    bool
		wantErr bool
	}{
		"restart":                  {m: fakeManager{mainPID: uint32(pid), job: job("restart")}, want: true},
		"start asked while stops":  {m: fakeManager{mainPID: uint32(pid), job: job("start")}, want: true},
		"stop":                     {m: fakeManager{mainPID: uint32(pid), job: job("stop")}},
		"signal by hand":           {m: fakeManager{mainPID: uint32(pid)}},
		"child of another service": {m: fakeManager{mainPID: uint32(7), job: job("restart")}},
		"no main PID":              {m: fakeManager{mainPID: "?", job: job("restart")}},
		"unit unknown":             {m: fakeManager{err: map[string]error{"unit": boom}}, wantErr: true},
		"not a service":            {m: fakeManager{err: map[string]error{"main": boom}}, wantErr: true},
		"jobs unknown":             {m: fakeManager{mainPID: uint32(pid), job: job("restart"), err: map[string]error{"jobs": boom}}, wantErr: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.m.unit = unit
			got, err := startsAgain(t.Context(), tc.m, pid)
			if got != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("startsAgain = %v, %v; want %v, error %v", got, err, tc.want, tc.wantErr)
			}
			if err != nil && !errors.Is(err, boom) {
				t.Errorf("the cause is lost: %v", err)
			}
		})
	}
}

func TestNotStartedBySystemd(t *testing.T) {
	t.Setenv("INVOCATION_ID", "")
	if again, err := StopIsRestart(t.Context()); again || err != nil {
		t.Errorf("StopIsRestart = %v, %v", again, err)
	}
}

// TestNoBus: started by systemd, or so the environment says, but nobody answers.
func TestNoBus(t *testing.T) {
	if _, err := os.Stat("/run/systemd/private"); err == nil {
		t.Skip("needs a machine without systemd")
	}
	t.Setenv("INVOCATION_ID", "0123456789abcdef0123456789abcdef")
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "nobody"))
	if again, err := StopIsRestart(t.Context()); again || err == nil {
		t.Errorf("StopIsRestart = %v, %v; want false and an error", again, err)
	}
}

// TestRealSystemd asks the real one: this test is no unit's main process.
func TestRealSystemd(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("needs systemd: /run/systemd/system is not there")
	}
	t.Setenv("INVOCATION_ID", "0123456789abcdef0123456789abcdef")
	if again, err := StopIsRestart(t.Context()); again {
		t.Errorf("StopIsRestart = true, %v", err)
	}
}
