package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Bounds of a start, and of an end before it is killed.
const (
	startLimit = 2 * time.Minute // seconds, and many times that beside other work
	stopLimit  = 30 * time.Second
)

// Process is an engine's process. It has no network, and a process group of its own: a
// Ctrl-C is for whoever uses it.
type Process struct {
	log   string
	cmd   *exec.Cmd
	ended chan struct{} // closes once cmd did
}

// NewProcess prepares one that writes what it says to the file log.
func NewProcess(log string) *Process { return &Process{log: log} }

// Start starts it, and waits until answers finds no error any more, or until it ends.
func (p *Process) Start(ctx context.Context, env []string, path string, args []string, answers func(context.Context) error) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // how it exits is its own affair
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended: %s", filepath.Base(path), p.Said())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %s", filepath.Base(path), errors.Join(err, ctx.Err()), p.Said())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Runs tells whether it was started, and not ended since.
func (p *Process) Runs() bool { return p.cmd != nil }

// Stop ends it and waits; its containers run on.
func (p *Process) Stop() error { return p.end(syscall.SIGTERM) }

// Kill ends it with SIGKILL and waits; its containers run on.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL) }

func (p *Process) end(s syscall.Signal) error {
	if p.cmd == nil {
		return nil
	}
	cmd := p.cmd
	p.cmd = nil
	_ = cmd.Process.Signal(s) // it may have ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopLimit):
	}
	err := cmd.Process.Kill()
	<-p.ended
	return errors.Join(fmt.Errorf("%s did not end within %s and is killed", filepath.Base(cmd.Path), stopLimit), err)
}

// Said is the end of its log.
func (p *Process) Said() string {
	const most = 2000
	text, _ := os.ReadFile(p.log) // none was written yet
	return string(text[max(0, len(text)-most):])
}
