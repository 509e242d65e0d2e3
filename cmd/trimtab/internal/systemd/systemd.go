// Package systemd tells systemd how the daemon fares, and asks it whether a stop
// is the first half of a restart. Without systemd every call does nothing and
// succeeds, so the daemon runs the same from a shell.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/coreos/go-systemd/v22/dbus"
)

// Notifier sends sd_notify messages to the socket that NOTIFY_SOCKET names. Its
// methods may be called from several goroutines. A message that cannot be sent
// is logged once: systemd's own timeouts say the rest.
type Notifier struct {
	logger   *slog.Logger
	send     func(state string) error
	watchdog time.Duration // systemd's limit between signs of life; 0: it expects none

	mu     sync.Mutex
	status string
	failed bool
}

// NewNotifier reads the socket and the watchdog's interval from the environment.
func NewNotifier(logger *slog.Logger) (*Notifier, error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("systemd watchdog: %w", err)
	}
	return &Notifier{logger: logger, watchdog: limit, send: func(state string) error {
		_, err := daemon.SdNotify(false, state)
		return err
	}}, nil
}

// Ready says that the start, or a reload, is done.
func (n *Notifier) Ready(status string) {
	n.notify(daemon.SdNotifyReady, status)
}

// Reloading says that the config is being loaded again; Ready ends it.
func (n *Notifier) Reloading() {
	n.notify(daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec(), "reloading")
}

// Stopping says that the daemon ends, and what it does until then.
func (n *Notifier) Stopping(status string) {
	n.notify(daemon.SdNotifyStopping, status)
}

// Status sets the line that systemctl status shows; the same line again is not sent.
func (n *Notifier) Status(status string) {
	n.mu.Lock()
	same := n.status == oneLine(status)
	n.mu.Unlock()
	if !same {
		n.notify("", status)
	}
}

// Extend asks for more time to start or stop, from now: restoring many
// containers may take longer than the unit's limit.
func (n *Notifier) Extend(more time.Duration) {
	n.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", more.Microseconds()), "")
}

// RunWatchdog gives a sign of life twice in each of systemd's intervals, while
// alive says nil, until ctx ends; systemd then kills and restarts a daemon whose
// loop hangs. It waits for ctx where systemd expects nothing, and returns nil.
func (n *Notifier) RunWatchdog(ctx context.Context, alive func() error) error {
	if n.watchdog <= 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(n.watchdog / 2)
	defer tick.Stop()
	well := true
	for {
		err := alive()
		if err == nil {
			n.notify(daemon.SdNotifyWatchdog, "")
		} else if well {
			n.logger.Error("no sign of life to systemd's watchdog", "error", err, "limit", n.watchdog)
		}
		well = err == nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// notify sends a state and, unless empty, a status line.
func (n *Notifier) notify(state, status string) {
	var lines []string
	if state != "" {
		lines = append(lines, state)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if status != "" {
		n.status = oneLine(status)
		lines = append(lines, "STATUS="+n.status)
	}
	err := n.send(strings.Join(lines, "\n"))
	if err != nil && !n.failed {
		n.logger.Warn("cannot notify systemd", "error", err)
	}
	n.failed = err != nil
}

// oneLine keeps a text from becoming further assignments of the protocol.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }

// askTimeout bounds the question to systemd: the daemon is being stopped, and its
// restore must begin well within the unit's TimeoutStopSec.
const askTimeout = 2 * time.Second

// manager is what is asked of systemd; *dbus.Conn has it.
type manager interface {
	GetUnitNameByPID(ctx context.Context, pid uint32) (string, error)
	GetServicePropertyContext(ctx context.Context, service, property string) (*dbus.Property, error)
	ListJobsContext(ctx context.Context) ([]dbus.JobStatus, error)
}

// StopIsRestart reports whether this process, told to end, will be started again
// by systemd, so that it may hand over what it changed instead of restoring.
//
// systemd runs the same commands for stop and for restart and tells neither from
// the other in the environment. But a unit has one job at most: while the stop
// half of a restart runs, that job is of type "restart"; if somebody asks for a
// start while the unit still stops, of type "start"; for stop, shutdown and
// removal it is "stop"; and a SIGTERM by hand comes without a job. Only the first
// two bring the daemon back. If it then fails to start, the unit's OnFailure
// restores.
//
// The process must be its unit's main process: one that was started by hand from
// within some service is not the one that systemd starts again. Any doubt is an
// error with false: the caller restores.
func StopIsRestart(ctx context.Context) (bool, error) {
	if os.Getenv("INVOCATION_ID") == "" {
		return false, nil // not started by systemd
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return false, fmt.Errorf("asking systemd whether this stop is a restart: %w", err)
	}
	defer conn.Close()
	again, err := startsAgain(ctx, conn, uint32(os.Getpid()))
	if err != nil {
		return false, fmt.Errorf("asking systemd whether this stop is a restart: %w", err)
	}
	return again, nil
}

// startsAgain asks for the job of the unit whose main process is pid.
func startsAgain(ctx context.Context, m manager, pid uint32) (bool, error) {
	unit, err := m.GetUnitNameByPID(ctx, pid)
	if err != nil {
		return false, fmt.Errorf("unit of PID %d: %w", pid, err)
	}
	main, err := m.GetServicePropertyContext(ctx, unit, "MainPID")
	if err != nil {
		return false, fmt.Errorf("main PID of %s: %w", unit, err)
	}
	if mainPID, ok := main.Value.Value().(uint32); !ok || mainPID != pid {
		return false, nil
	}
	jobs, err := m.ListJobsContext(ctx)
	if err != nil {
		return false, fmt.Errorf("jobs: %w", err)
	}
	for _, job := range jobs {
		if job.Unit == unit {
			return job.JobType == "restart" || job.JobType == "start", nil
		}
	}
	return false, nil
}
