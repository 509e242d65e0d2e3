// Package systemd tells systemd how the daemon fares, and asks it whether a stop
// is the first half of a restart. Without systemd every call does nothing and
// succeeds, so the daemon runs the same from a shell.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
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
