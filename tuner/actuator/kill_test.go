package actuator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

// The child of TestKillAtEveryPoint learns from these what to do.
const (
	childDirEnv   = "TRIMTAB_TEST_CHILD_DIR"
	childPointEnv = "TRIMTAB_TEST_CHILD_POINT"
	childLateEnv  = "TRIMTAB_TEST_CHILD_LATE" // originals are saved too late
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDirEnv); dir != "" {
		point, err := strconv.Atoi(os.Getenv(childPointEnv))
		if err == nil {
			err = killedChild(dir, point)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func childParts(dir string) (*fakeEngine, *originals.Store, []runtime.Container) {
	return &fakeEngine{dir: filepath.Join(dir, "values")},
		originals.New(originals.Options{Dir: filepath.Join(dir, "originals")}),
		[]runtime.Container{container("a"), container("b")}
}

// killedChild lives a daemon's life on file-backed containers (a plan kept, a
// second one rolled back, one container restored, its memory limit in steps) and dies by SIGKILL at the
// given fault point.
func killedChild(dir string, point int) error {
	engine, _, cs := childParts(dir)
	passed := 0
	fault := func(string) {
		if passed++; passed == point {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
	}
	store := originals.New(originals.Options{Dir: filepath.Join(dir, "originals"), Fault: fault})
	options := actuator.Options{Engines: map[string]actuator.Engine{"fake": engine}, Store: store, Fault: fault, Memory: cached}
	if os.Getenv(childLateEnv) != "" {
		options.Store = lateStore{store}
	}
	a := actuator.New(options)
	ctx := context.Background()
	kept := order(
		item(cs[0], tune("cpu"), quotaUp(), change(runtime.KnobCPUWeight, "1024", "2048")),
		item(cs[1], tune("cpu", "memory"), change(runtime.KnobCPUWeight, "1024", "512"),
			change(runtime.KnobMemoryLimit, bytes(1024*mib), bytes(4096*mib)), change(runtime.KnobMemorySwap, bytes(2048*mib), bytes(6144*mib))))
	second := order(item(cs[0], tune("cpu"), change(runtime.KnobCPUQuota, "150000 100000", "200000 100000")))
	if !a.Apply(ctx, kept).Applied || !a.Apply(ctx, second).Applied {
		return errors.New("the child's plans were not applied")
	}
	a.Rollback(ctx, second.Items)
	if r := a.Restore(ctx, cs[1], "opt-out"); r.Err != nil || r.Outcome != actuator.Restored {
		return fmt.Errorf("the child's restore: %+v", r)
	}
	return nil
}

// cached is much page cache, for which a limit goes down in steps.
func cached(context.Context, runtime.Container) (actuator.MemoryUse, error) {
	return actuator.MemoryUse{Anon: 100 * mib, Usage: 4000 * mib}, nil
}

// lateStore breaks the law "originals first": an original reaches the disk when its write has been read back.
type lateStore struct{ *originals.Store }

func (s lateStore) Save(f originals.File) error {
	for _, k := range f.Knobs {
		if k.Writing != "" {
			return nil
		}
	}
	return s.Store.Save(f)
}

// TestKillFindsABrokenOrder tests the tests that kill: with originals that are saved
// after the write, some death loses one.
func TestKillFindsABrokenOrder(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Skip("needs the test binary's path: ", err)
	}
	for point := 1; point < 30; point++ {
		dir := t.TempDir()
		engine, store, cs := childParts(dir)
		if err := os.Mkdir(engine.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, c := range cs {
			if err := engine.set(c, owner()); err != nil {
				t.Fatal(err)
			}
		}
		runChild(t, program, dir, point, childLateEnv+"=1")
		a := actuator.New(actuator.Options{Engines: map[string]actuator.Engine{"fake": engine}, Store: store, Memory: cached, AtOnce: 1})
		if err := bringBack(t, a, cs, point); err != nil {
			t.Fatal(err)
		}
		for _, c := range cs {
			if got, err := engine.values(c); err != nil || !cmp.Equal(owner(), got) {
				t.Logf("found at point %d", point)
				return
			}
		}
	}
	t.Fatal("originals saved after the write, and no death lost one: killing at fault points proves nothing")
}

// TestKillAtEveryPoint kills a process at each fault point in turn; another one
// puts every original back, however it starts.
func TestKillAtEveryPoint(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Skip("needs the test binary's path: ", err)
	}
	const tooMany = 500
	for point := 1; point < tooMany; point++ {
		dir := t.TempDir()
		engine, store, cs := childParts(dir)
		if err := os.Mkdir(engine.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, c := range cs {
			if err := engine.set(c, owner()); err != nil {
				t.Fatal(err)
			}
		}
		killed := runChild(t, program, dir, point)
		a := actuator.New(actuator.Options{Engines: map[string]actuator.Engine{"fake": engine}, Store: store, Memory: cached, AtOnce: 1})
		if err := bringBack(t, a, cs, point); err != nil {
			t.Fatalf("killed at point %d: %v", point, err)
		}
		for _, c := range cs {
			got, err := engine.values(c)
			if diff := cmp.Diff(owner(), got); diff != "" || err != nil {
				t.Errorf("killed at point %d: container %s: %v %s", point, c.Name, err, diff)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(store.Dir(), "*.json*")); len(left) != 0 {
			t.Errorf("killed at point %d: left behind: %v", point, left)
		}
		if !killed { // the life had fewer points than that
			if point < 30 {
				t.Fatalf("only %d fault points: the hook is not called", point-1)
			}
			return
		}
	}
	t.Fatalf("the child passed %d fault points and still lives", tooMany)
}

// bringBack takes the ways in turn: recovery at start, and restore without a daemon.
func bringBack(t *testing.T, a *actuator.Actuator, cs []runtime.Container, point int) error {
	var results []actuator.RestoreResult
	var err error
	if point%2 == 0 {
		results, err = a.Recover(t.Context(), actuator.Recovery{Running: cs, Synced: []string{"fake"}})
	} else if results, err = a.RestoreAll(t.Context(), nil, "offline"); err == nil {
		_, err = a.Recover(t.Context(), actuator.Recovery{}) // sweeps
	}
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	return err
}

// runChild reports whether the child died by SIGKILL; any other end than that or success fails the test.
func runChild(t *testing.T, program, dir string, point int, env ...string) (killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(append(os.Environ(), childDirEnv+"="+dir, childPointEnv+"="+strconv.Itoa(point)), env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return true
		}
	}
	t.Fatalf("child at point %d: %v: %s", point, err, out)
	return false
}
