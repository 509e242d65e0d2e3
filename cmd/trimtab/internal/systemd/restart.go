package systemd

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

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
