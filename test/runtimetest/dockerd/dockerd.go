// Package dockerd runs a Docker engine of one's own, with a containerd of its own, in a
// directory. It may be stopped, killed and started; its containers run on meanwhile, as
// with live-restore. The host's engine is not asked.
package dockerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
)

// Options says where and how it runs.
type Options struct {
	// Dir takes sockets, data and logs. Short: a socket's path has 108 bytes at most.
	Dir string
	// Bin is searched before PATH for dockerd, containerd, its shim and runc; "": only PATH.
	Bin string
	// Systemd: systemd's driver of control groups, not cgroupfs.
	Systemd bool
	// Storage is the storage driver; "": vfs, which needs nothing of the file system.
	Storage string
}

// Daemon is one engine. Its methods are for one goroutine, Run aside.
type Daemon struct {
	// Host is the value of docker's -H.
	Host string
	// Below is its containerd: told of none, dockerd takes the host's where there is one,
	// and that one's runc.
	Below *ctrd.Daemon

	dir, path string
	args, env []string
	cmd       *exec.Cmd
	ended     chan struct{} // closes once cmd did
}

// Bounds of a start, and of an end before it is killed.
const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
)

// New prepares an engine without starting it; an error says which program is missing.
func New(o Options) (*Daemon, error) {
	path, err := ctrd.Find(o.Bin, "dockerd")
	if err != nil {
		return nil, fmt.Errorf("no dockerd command: %w", err)
	}
	if err := os.Mkdir(filepath.Join(o.Dir, "containerd"), 0o700); err != nil {
		return nil, err
	}
	below, err := ctrd.New(ctrd.Options{Dir: o.Dir + "/containerd", Bin: o.Bin})
	if err != nil {
		return nil, err
	}
	d := &Daemon{Host: "unix://" + o.Dir + "/docker.sock", Below: below, dir: o.Dir, path: path, env: ctrd.PathFirst(o.Bin)}
	config := o.Dir + "/daemon.json" // the host's own may contradict the flags
	if err := os.WriteFile(config, []byte("{}\n"), 0o600); err != nil {
		return nil, err
	}
	driver, storage := "cgroupfs", "vfs"
	if o.Systemd {
		driver = "systemd"
	}
	if o.Storage != "" {
		storage = o.Storage
	}
	d.args = []string{"--config-file", config, "--exec-opt", "native.cgroupdriver=" + driver, "--host", d.Host, "--containerd", below.Address(),
		"--data-root", o.Dir + "/data", "--exec-root", o.Dir + "/exec", "--pidfile", o.Dir + "/pid",
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--live-restore", "--storage-driver", storage}
	if o.Bin != "" { // runc built without libseccomp knows no profiles
		d.args = append(d.args, "--seccomp-profile", "unconfined")
	}
	return d, nil
}

// Start starts the engine, and its containerd if that does not run, and waits until it
// answers.
func (d *Daemon) Start(ctx context.Context) error {
	if !d.Below.Runs() {
		if err := d.Below.Start(ctx); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(d.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(d.path, d.args...)
	cmd.Env = d.env
	cmd.Stdout, cmd.Stderr = log, log
	// A network namespace of its own: without a bridge, dockerd deletes docker0, which on
	// the host is another engine's. A process group of its own: a Ctrl-C is for whoever
	// uses it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.cmd, d.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait() // how it exits is its own affair
	}(d.ended)
	return d.answers(ctx)
}

func (d *Daemon) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if _, err := d.Run(ctx, nil, "version"); err == nil {
			return nil
		}
		select {
		case <-d.ended:
			return fmt.Errorf("dockerd ended: %s", d.Said())
		case <-ctx.Done():
			return fmt.Errorf("dockerd does not answer: %w: %s", ctx.Err(), d.Said())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Said is the end of its log.
func (d *Daemon) Said() string {
	const most = 2000
	text, _ := os.ReadFile(d.dir + "/log") // none was written yet
	return string(text[max(0, len(text)-most):])
}

// Runs tells whether it was started, and not stopped since.
func (d *Daemon) Runs() bool { return d.cmd != nil }

// PID is its process; 0 while it does not run.
func (d *Daemon) PID() int {
	if d.cmd == nil {
		return 0
	}
	return d.cmd.Process.Pid
}

// Stop ends it and waits; its containerd and its containers run on.
func (d *Daemon) Stop() error { return d.end(syscall.SIGTERM) }

// Kill ends it with SIGKILL and waits; its containerd and its containers run on.
func (d *Daemon) Kill() error { return d.end(syscall.SIGKILL) }

func (d *Daemon) end(s syscall.Signal) error {
	if d.cmd == nil {
		return nil
	}
	cmd := d.cmd
	d.cmd = nil
	_ = cmd.Process.Signal(s) // it may have ended
	select {
	case <-d.ended:
		return nil
	case <-time.After(stopLimit):
	}
	err := cmd.Process.Kill()
	<-d.ended
	return errors.Join(fmt.Errorf("dockerd did not end within %s and is killed", stopLimit), err)
}

// Run runs a docker command against it and returns standard output, trimmed; on failure
// what was said on standard error. It may be called concurrently.
func (d *Daemon) Run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", append([]string{"-H", d.Host}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return strings.TrimSpace(stderr.String()), err
	}
	return strings.TrimSpace(stdout.String()), nil
}

// Close removes all containers, stops the engine and its containerd, and removes what is
// mounted below the directory; what was stopped is started for that. The directory is its
// caller's to remove.
func (d *Daemon) Close(ctx context.Context) error {
	var errs []error
	if !d.Runs() || !d.Below.Runs() {
		errs = append(errs, d.Stop(), d.Start(ctx))
	}
	if ids, err := d.Run(ctx, nil, "ps", "-aq"); err == nil && ids != "" {
		if out, err := d.Run(ctx, nil, append([]string{"rm", "-f", "-v"}, strings.Fields(ids)...)...); err != nil {
			errs = append(errs, fmt.Errorf("docker rm: %w: %s", err, out))
		}
	}
	errs = append(errs, d.Stop(), d.Below.Stop())
	ctrd.UnmountBelow(d.dir)
	return errors.Join(errs...)
}
