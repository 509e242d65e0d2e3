// Package daemontest runs a real trimtab daemon in a directory of its own, for
// the demo, the benchmarks and the end-to-end tests.
package daemontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/api/client"
	"github.com/trimtab/trimtab/tuner/state"
)

// stopTimeout bounds a stop with its restores, startTimeout a start: seconds, and many times that beside other work.
const (
	stopTimeout  = 60 * time.Second
	startTimeout = 2 * time.Minute
)

// Options say what to run.
type Options struct {
	Binary string   // bin/trimtab if empty
	Dir    string   // state, socket and config; a temporary one if empty, removed by Close
	Config string   // YAML after the defaults below
	Args   []string // of `trimtab daemon`
	// Metrics is where they are served, as metrics.listen of the config; none if empty.
	Metrics string
	Env     []string // added to the environment
}

// Daemon is a running daemon. Its methods are for one goroutine.
type Daemon struct {
	Dir    string
	Socket string
	o      Options
	own    bool
	cmd    *exec.Cmd
	log    *syncBuffer
	client *client.Client
	exited chan struct{}
	err    error
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Start runs a daemon and waits until it answers.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	d := &Daemon{o: o, Dir: o.Dir, log: &syncBuffer{}}
	if d.o.Binary == "" {
		d.o.Binary = "bin/trimtab"
	}
	if d.Dir == "" {
		dir, err := os.MkdirTemp("", "trimtab-run-*")
		if err != nil {
			return nil, err
		}
		d.Dir, d.own = dir, true
	}
	d.Socket = filepath.Join(d.Dir, "sock")
	d.client = client.New(d.Socket)
	config := fmt.Sprintf("stateDir: %s\napi: {socket: %s}\nmetrics: {listen: %q}\n%s", filepath.Join(d.Dir, "state"), d.Socket, o.Metrics, o.Config)
	if err := os.WriteFile(d.config(), []byte(config), 0o600); err != nil {
		return nil, err
	}
	if err := d.Restart(ctx); err != nil {
		return nil, errors.Join(err, d.abandon())
	}
	return d, nil
}

// abandon ends a daemon that never answered.
func (d *Daemon) abandon() error {
	var err error
	if d.cmd != nil && d.cmd.Process != nil && !d.Ended() {
		err = d.Kill()
	}
	if d.own {
		err = errors.Join(err, os.RemoveAll(d.Dir))
	}
	return err
}

func (d *Daemon) config() string { return filepath.Join(d.Dir, "trimtab.yaml") }

// Restart runs the daemon again on the same state; the one before must have ended.
func (d *Daemon) Restart(ctx context.Context) error {
	args := append([]string{"daemon", "--config", d.config(), "--conf-dir", filepath.Join(d.Dir, "conf.d")}, d.o.Args...)
	d.cmd = exec.Command(d.o.Binary, args...)
	d.cmd.Env = append(os.Environ(), d.o.Env...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("trimtab daemon: %w", err)
	}
	d.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		d.err = cmd.Wait()
		close(exited)
	}(d.cmd, d.exited)
	return d.wait(ctx)
}

func (d *Daemon) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if s, err := d.client.Status(ctx); err == nil && s.UnixNs > 0 {
			return nil
		}
		select {
		case <-d.exited:
			return fmt.Errorf("trimtab daemon ended at its start: %v:\n%s", d.err, d.Log())
		case <-ctx.Done():
			return fmt.Errorf("trimtab daemon does not answer:\n%s", d.Log())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// PID is the daemon's process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Log is all that the daemon printed.
func (d *Daemon) Log() string { return d.log.String() }

// Client talks to the daemon.
func (d *Daemon) Client() *client.Client { return d.client }

// Container returns one container's state.
func (d *Daemon) Container(ctx context.Context, name string) (state.Container, error) {
	return d.client.Container(ctx, name)
}

// Record copies what the flight recorder holds into a file, for trimtab replay.
func (d *Daemon) Record(ctx context.Context, file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if _, err := d.Run(ctx, "record", "--flight", "--state-dir", filepath.Join(d.Dir, "state"), file); err != nil {
		return err
	}
	return os.Chmod(file, 0o644)
}

// History returns all records, oldest first.
func (d *Daemon) History(ctx context.Context) ([]state.Record, error) {
	return d.client.History(ctx, api.HistoryQuery{})
}

// Run runs a subcommand against this daemon and returns what it printed.
func (d *Daemon) Run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, d.o.Binary, append([]string{"--socket", d.Socket}, args...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("trimtab %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// Signal sends a signal to the daemon.
func (d *Daemon) Signal(s syscall.Signal) error { return d.cmd.Process.Signal(s) }

// Stop ends the daemon as systemd does and waits; an error if it did not exit with 0.
func (d *Daemon) Stop() error {
	if d.cmd == nil || d.Ended() {
		return nil
	}
	if err := d.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.Wait(stopTimeout)
}

// Kill ends the daemon with SIGKILL and waits.
func (d *Daemon) Kill() error {
	if err := d.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-d.exited
	return nil
}

// Wait waits for the daemon to end by itself.
func (d *Daemon) Wait(limit time.Duration) error {
	select {
	case <-d.exited:
	case <-time.After(limit):
		return errors.Join(fmt.Errorf("trimtab daemon did not end in %s:\n%s", limit, d.Log()), d.Kill()) // its state is free then
	}
	if d.err != nil {
		return fmt.Errorf("trimtab daemon: %w:\n%s", d.err, d.Log())
	}
	return nil
}

// Ended reports whether the daemon runs no more.
func (d *Daemon) Ended() bool {
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

// Close ends the daemon if it runs and removes what Start made.
func (d *Daemon) Close() error {
	err := d.Stop()
	if d.own {
		err = errors.Join(err, os.RemoveAll(d.Dir))
	}
	return err
}
