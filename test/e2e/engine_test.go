package e2e

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/state"
)

// stepper builds the C job, static, and returns its directory.
func stepper(t *testing.T) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc: the job of an engine without the training image is a C program")
	}
	dir := t.TempDir()
	if out, err := exec.Command(gcc, "-O1", "-static", "-o", filepath.Join(dir, "stepper"), "testdata/stepper.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return dir
}

// TestDockerRestartedUnderTheDaemon: the engine goes away and comes back, its
// containers run on; the daemon waits, says so, forgets nothing and restores at its end.
func TestDockerRestartedUnderTheDaemon(t *testing.T) {
	bin := binary(t)
	d := runtimetest.NeedDockerd(t)
	dir := stepper(t)
	d.Start(t)
	d.Run(t, "run", "-d", "--net=none", "--name", "restarted", "--label", "trimtab.mode=tune", "--cpu-period", "100000", "--cpu-quota", "20000",
		"-v", dir+":/job:ro", runtimetest.ImageName, "/job/stepper", "20", "20")
	pid, err := strconv.Atoi(strings.TrimSpace(d.Run(t, "inspect", "--format", "{{.State.Pid}}", "restarted")))
	if err != nil {
		t.Fatal(err)
	}
	where, err := cgroup.Locate("/proc", cgroup.DefaultRoot, pid)
	if err != nil {
		t.Fatal(err)
	}
	quota := func() float64 {
		t.Helper()
		v, err := cgroup.ReadValues(where)
		if err != nil {
			t.Fatal(err)
		}
		cpus, _ := v[runtime.KnobCPUQuota].CPUs()
		return cpus
	}
	run, err := daemontest.Start(t.Context(), daemontest.Options{Binary: bin,
		Config: "docker: {host: \"" + d.Host + "\", containerd: \"" + d.ContainerdAddress + "\"}\nlimits: {coolDown: 5s}\n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(run.Log())
		}
	})
	before := until(t, run, "restarted", "to be given what it needs", settled)
	given := quota()
	if given < 0.3 {
		t.Fatalf("%.2f CPUs stand", given)
	}

	d.InterruptBoth(t)
	engine := func(ok bool) func(state.Container) bool {
		return func(state.Container) bool {
			s, err := run.Client().Status(t.Context())
			return err == nil && len(s.Daemon.Engines) == 1 && s.Daemon.Engines[0].OK == ok
		}
	}
	until(t, run, "restarted", "to be known while its engine is away", engine(false))
	if got := quota(); got != given {
		t.Errorf("%.2f CPUs stand without Docker, %.2f were given", got, given)
	}
	d.Start(t)
	after := until(t, run, "restarted", "to be known once its engine is back", engine(true))
	if after.Key != before.Key || !changed(after) {
		t.Errorf("after the restart it is %s with changes %v, it was %s", after.Key, after.Changed, before.Key)
	}
	windows := after.Windows
	until(t, run, "restarted", "to be read again", func(c state.Container) bool { return c.Windows > windows })
	if err := run.Stop(); err != nil {
		t.Error(err)
	}
	if got := quota(); got != 0.2 {
		t.Errorf("%.2f CPUs stand after trimtab ended, its owner gave 0.20", got)
	}
}
