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

	*ctrd.Process
	dir, path string
	args, env []string
}

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
	d := &Daemon{Process: ctrd.NewProcess(o.Dir + "/log"), Host: "unix://" + o.Dir + "/docker.sock", Below: below, dir: o.Dir, path: path, env: ctrd.PathFirst(o.Bin)}
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
	// Without a bridge dockerd deletes docker0, which in the host's network is another engine's.
	return d.Process.Start(ctx, d.env, d.path, d.args, func(ctx context.Context) error {
		_, err := d.Run(ctx, nil, "version")
		return err
	})
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
