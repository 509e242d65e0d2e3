package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/test/fusetest"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

// The child of TestKillAtEveryFaultPoint learns from these what to do.
const (
	childStateEnv     = "TRIMTAB_E2E_CHILD_STATE"
	childContainerEnv = "TRIMTAB_E2E_CHILD_CONTAINER"
	childPointEnv     = "TRIMTAB_E2E_CHILD_POINT"
)

func TestMain(m *testing.M) {
	fusetest.Main()
	if state := os.Getenv(childStateEnv); state != "" {
		point, err := strconv.Atoi(os.Getenv(childPointEnv))
		if err == nil {
			err = killedChild(state, os.Getenv(childContainerEnv), point)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// listTimeout bounds the wait for a listing.
const listTimeout = 30 * time.Second

// findRunning lists what runs and returns the container with an ID.
func findRunning(ctx context.Context, e *docker.Engine, id string) (runtime.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var found runtime.Container
	synced := false
	err := e.Run(ctx, func(ev runtime.Event) {
		if ev.Kind == runtime.EventSeen && ev.Container.ID.Container == id {
			found = ev.Container
		}
		if ev.Kind == runtime.EventSynced {
			synced = true
			cancel()
		}
	})
	if !synced || found.Name == "" {
		return found, fmt.Errorf("container %s is not in the listing: %w", id, err)
	}
	return found, nil
}

// realActuator acts on real Docker with originals below a state directory, as
// the daemon does.
func realActuator(state string, e *docker.Engine, fault func(string)) *actuator.Actuator {
	return actuator.New(actuator.Options{
		Engines: map[string]actuator.Engine{docker.EngineName: e},
		Store:   originals.New(originals.Options{Dir: filepath.Join(state, "originals"), Fault: fault}),
		Logger:  slog.New(slog.DiscardHandler), Fault: fault,
	})
}

// What the owner of the container set, in the test's docker run.
const (
	ownerQuota  = runtime.Value("50000 100000")
	ownerWeight = runtime.Value("512")
)

// killedChild lives a daemon's life on a real container: a plan of two knobs, a
// second one that is rolled back, a restore. It dies by SIGKILL at the given
// fault point.
func killedChild(state, id string, point int) error {
	e, err := docker.New(docker.Options{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	c, err := findRunning(ctx, e, id)
	if err != nil {
		return err
	}
	passed := 0
	a := realActuator(state, e, func(string) {
		if passed++; passed == point {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
	})
	plan := func(changes ...policies.Change) actuator.Order {
		for i := range changes {
			changes[i].Key, changes[i].Name = c.Key(), c.Name
		}
		return actuator.Order{Items: []actuator.Item{{Container: c, Changes: changes,
			Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu"}}}}}
	}
	first := plan(policies.Change{Knob: runtime.KnobCPUQuota, From: ownerQuota, To: "80000 100000"},
		policies.Change{Knob: runtime.KnobCPUWeight, From: ownerWeight, To: "700"})
	second := plan(policies.Change{Knob: runtime.KnobCPUQuota, From: "80000 100000", To: "120000 100000"})
	for _, o := range []actuator.Order{first, second} {
		if r := a.Apply(ctx, o); !r.Applied {
			return fmt.Errorf("the child's plan was not applied: %+v", r)
		}
	}
	for _, r := range append(a.Rollback(ctx, second.Items), a.Restore(ctx, c, "opt-out")) {
		if r.Err != nil || r.Outcome != actuator.Restored {
			return fmt.Errorf("the child's way back: %+v", r)
		}
	}
	return errors.Join(e.Close())
}

// TestKillAtEveryFaultPoint kills a process that acts on a real container at each
// fault point in turn, before and after every durable write and every write to
// the engine. Whoever comes next, a start or `trimtab restore --offline`, puts
// every original back, and leaves nothing on disk.
func TestKillAtEveryFaultPoint(t *testing.T) {
	program := binary(t)
	host := runtimetest.NeedDocker(t)
	id := host.Start(t, "--cpus=0.5", "--cpu-shares="+string(ownerWeight))
	e, err := docker.New(docker.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := findRunning(t.Context(), e, id)
	if err != nil {
		t.Fatal(err)
	}
	owners := readAll(t, c)
	if owners[runtime.KnobCPUQuota] != ownerQuota {
		t.Fatalf("the container was made with %v", owners)
	}
	const atLeast, tooMany = 30, 200
	dirty := 0 // points that left trimtab's values standing
	for point := 1; point < tooMany; point++ {
		state := t.TempDir()
		killed := runKilled(t, state, id, point)
		if !cmp.Equal(owners, readAll(t, c)) {
			dirty++
		}
		if err := bringBack(t, program, state, e, c, point); err != nil {
			t.Fatalf("killed at point %d: %v", point, err)
		}
		if diff := cmp.Diff(owners, readAll(t, c)); diff != "" {
			t.Fatalf("killed at point %d: the kernel's files (-owner +now):\n%s", point, diff)
		}
		if left, _ := filepath.Glob(filepath.Join(state, "originals", "*")); len(left) != 0 {
			t.Fatalf("killed at point %d: left behind: %v", point, left)
		}
		if !killed { // the life had fewer points than that
			if t.Logf("%d fault points, %d of which left values of trimtab's", point-1, dirty); point <= atLeast || dirty < atLeast/2 {
				t.Fatal("too few: the hooks are not called, or nothing is written")
			}
			return
		}
	}
	t.Fatalf("the child passed %d fault points and still lives", tooMany)
}

// readAll reads the limits from the kernel's files.
func readAll(t *testing.T, c runtime.Container) runtime.Values {
	t.Helper()
	values, err := cgroup.ReadValues(c.Cgroup)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// runKilled reports whether the child died by SIGKILL; any other end than that or
// success fails the test.
func runKilled(t *testing.T, state, id string, point int) bool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childStateEnv+"="+state, childContainerEnv+"="+id, childPointEnv+"="+strconv.Itoa(point))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	var exit *exec.ExitError
	if ctx.Err() == nil && errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return true
		}
	}
	t.Fatalf("child at point %d: %v: %s", point, err, out)
	return false
}

// bringBack takes the ways in turn: recovery as at a start, and the command.
func bringBack(t *testing.T, program, state string, e *docker.Engine, c runtime.Container, point int) error {
	t.Helper()
	if point%2 == 0 {
		results, err := realActuator(state, e, nil).Recover(t.Context(), actuator.Recovery{Running: []runtime.Container{c}, Synced: []string{docker.EngineName}})
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
		return err
	}
	out, err := exec.CommandContext(t.Context(), program, "restore", "--offline", "--state-dir", state).CombinedOutput()
	if err != nil {
		return fmt.Errorf("trimtab restore --offline: %w: %s", err, out)
	}
	return nil
}
