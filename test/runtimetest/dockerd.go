package runtimetest

import (
	"context"
	"os"
	"testing"

	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
	"github.com/trimtab/trimtab/test/runtimetest/dockerd"
)

// Dockerd is a Docker engine of a test's own, which may be stopped and started.
// Its containers run on while it is down, as with live-restore, and so does its
// containerd, as where each is a service.
type Dockerd struct {
	DockerHost
	// ContainerdAddress is the socket of its containerd.
	ContainerdAddress string

	engine *dockerd.Daemon
	used   bool // it was started since it was stopped last: containers may be there
}

// NeedDockerd prepares an engine without starting it, or skips the test. It is
// stopped, and its containers are removed, when the test ends.
func NeedDockerd(t testing.TB) *Dockerd {
	t.Helper()
	return NeedDockerdOf(t, Runtime{})
}

// NeedDockerdOf is NeedDockerd with runtimes that are not this host's, and by systemd's
// driver of control groups where they say so.
func NeedDockerdOf(t testing.TB, r Runtime) *Dockerd {
	t.Helper()
	NeedDocker(t) // the same needs, and more
	if _, err := ctrd.Find(r.Bin, "dockerd"); err != nil {
		t.Skip("needs Docker: no dockerd command")
	}
	// Not t.TempDir: sockets' paths must be short, and mounts below have to go first.
	dir, err := os.MkdirTemp("", "trimtab-dockerd-")
	if err != nil {
		t.Fatal(err)
	}
	engine, err := dockerd.New(dockerd.Options{Dir: dir, Bin: r.Bin, Systemd: r.Systemd})
	if err != nil {
		_ = os.RemoveAll(dir)
		skipIfAbsent(t, "Docker", err)
	}
	d := &Dockerd{DockerHost: DockerHost{Host: engine.Host}, ContainerdAddress: engine.Below.Address(), engine: engine}
	t.Cleanup(func() {
		d.Stop(t)
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("dockerd's directory: %v", err)
		}
	})
	return d
}

// Start starts the engine and waits until it answers.
func (d *Dockerd) Start(t testing.TB) {
	t.Helper()
	d.used = true
	if err := d.engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.NeedImage(t)
}

// RunContainer starts a sleeping container, which ends with the engine's last stop.
func (d *Dockerd) RunContainer(t testing.TB, name string, args ...string) (id string) {
	t.Helper()
	run := append([]string{"run", "-d", "--net=none", "--name", name}, args...)
	return d.Run(t, append(run, ImageName, "sleep", "1000000")...)
}

// InterruptBoth stops the engine and its containerd; its containers run on.
func (d *Dockerd) InterruptBoth(t testing.TB) {
	t.Helper()
	d.Interrupt(t)
	if err := d.engine.Below.Stop(); err != nil {
		t.Fatal(err)
	}
}

// Interrupt stops the engine; its containerd and its containers run on.
func (d *Dockerd) Interrupt(t testing.TB) {
	t.Helper()
	if err := d.engine.Stop(); err != nil {
		t.Fatal(err)
	}
}

// Stop removes all containers and stops the engine and its containerd; what was
// interrupted is started for that.
func (d *Dockerd) Stop(t testing.TB) {
	t.Helper()
	if !d.used {
		return
	}
	d.used = false
	if err := d.engine.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("the engine's end: %v", err)
	}
}
