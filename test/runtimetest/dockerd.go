package runtimetest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
)

// Dockerd is a Docker engine of a test's own, which may be stopped and started.
// Its containers run on while it is down, as with live-restore, and so does its
// containerd, as where each is a service.
type Dockerd struct {
	DockerHost
	// ContainerdAddress is the socket of its containerd.
	ContainerdAddress string

	// below is its containerd: told of none, dockerd takes the host's where there is
	// one, and that one's runc.
	below *ctrd.Daemon

	path      string
	args, env []string
	log       string
	cmd       *exec.Cmd
	used      bool // it was started since it was stopped last: containers may be there
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
	bin, driver := r.Bin, "cgroupfs"
	if r.Systemd {
		driver = "systemd"
	}
	path, err := ctrd.Find(bin, "dockerd")
	if err != nil {
		t.Skip("needs Docker: no dockerd command")
	}
	// Not t.TempDir: sockets' paths must be short, and mounts below have to go first.
	dir, err := os.MkdirTemp("", "trimtab-dockerd-")
	if err != nil {
		t.Fatal(err)
	}
	below, err := newBelow(dir+"/containerd", bin)
	if err != nil {
		_ = os.RemoveAll(dir)
		skipIfAbsent(t, "Docker", err)
	}
	d := &Dockerd{
		DockerHost:        DockerHost{Host: "unix://" + dir + "/docker.sock"},
		ContainerdAddress: below.Address(),
		below:             below,
		log:               dir + "/log",
		path:              path,
		env:               ctrd.PathFirst(bin),
	}
	config := dir + "/daemon.json" // the host's own may contradict the flags
	if err := os.WriteFile(config, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.args = []string{"--config-file", config, "--exec-opt", "native.cgroupdriver=" + driver, "--host", d.Host, "--containerd", d.ContainerdAddress, "--data-root", dir + "/data", "--exec-root", dir + "/exec", "--pidfile", dir + "/pid",
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--live-restore", "--storage-driver", "vfs"}
	if bin != "" { // runc built without libseccomp knows no profiles
		d.args = append(d.args, "--seccomp-profile", "unconfined")
	}
	t.Cleanup(func() {
		d.Stop(t)
		unmountBelow(dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("dockerd's directory: %v", err)
		}
	})
	return d
}

func newBelow(dir, bin string) (*ctrd.Daemon, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return ctrd.New(ctrd.Options{Dir: dir, Bin: bin})
}

// Start starts the engine and waits until it answers.
func (d *Dockerd) Start(t testing.TB) {
	t.Helper()
	if !d.below.Runs() {
		if err := d.below.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(d.path, d.args...)
	d.cmd.Env = d.env
	d.cmd.Stdout, d.cmd.Stderr = log, log
	// A network namespace of its own: without a bridge, dockerd deletes docker0,
	// which on the host is another engine's.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.used = true
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, err := d.try(nil, "version"); err == nil {
			d.NeedImage(t)
			return
		}
	}
	text, _ := os.ReadFile(d.log)
	t.Fatalf("dockerd does not answer: %s", text)
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
	if err := d.below.Stop(); err != nil {
		t.Fatal(err)
	}
}

// Interrupt stops the engine; its containerd and its containers run on.
func (d *Dockerd) Interrupt(t testing.TB) {
	t.Helper()
	if d.cmd == nil {
		return
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err != nil {
		t.Logf("dockerd: %v", err)
	}
	d.cmd = nil
}

// Stop removes all containers and stops the engine and its containerd; what was
// interrupted is started for that.
func (d *Dockerd) Stop(t testing.TB) {
	t.Helper()
	if d.used && (d.cmd == nil || !d.below.Runs()) {
		d.Interrupt(t)
		d.Start(t)
	}
	d.used = false
	if d.cmd != nil {
		if ids, err := d.try(nil, "ps", "-aq"); err == nil && ids != "" {
			for id := range strings.FieldsSeq(ids) {
				d.Remove(t, id)
			}
		}
		d.Interrupt(t)
	}
	if err := d.below.Stop(); err != nil {
		t.Errorf("its containerd: %v", err)
	}
}

// unmountBelow unmounts what dockerd left mounted under dir.
func unmountBelow(dir string) {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if point := strings.Fields(line)[1]; strings.HasPrefix(point, dir+"/") {
			_ = syscall.Unmount(point, syscall.MNT_DETACH) // RemoveAll tells if it did not go
		}
	}
}
