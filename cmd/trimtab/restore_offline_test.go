package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

// deafEngine cannot list, as when dockerd is down; values are read and written
// all the same, as containerd lets live-restored ones be.
type deafEngine struct{ *runtimetest.Fake }

func (deafEngine) Run(ctx context.Context, sink func(runtime.Event)) error {
	sink(runtime.Event{Kind: runtime.EventLost, Engine: "docker", Reason: "dockerd is down"})
	<-ctx.Done()
	return ctx.Err()
}

// changed is an engine with two containers whose quota trimtab has changed.
func changed(t *testing.T) (*runtimetest.Fake, *actuator.Actuator, string) {
	t.Helper()
	fake := runtimetest.NewFake()
	dir := filepath.Join(t.TempDir(), "originals")
	a := actuator.New(actuator.Options{
		Engines: map[string]actuator.Engine{fake.Name(): fake}, Store: originals.New(originals.Options{Dir: dir}),
		Logger: slog.New(slog.DiscardHandler),
	})
	for _, name := range []string{"train", "ends"} {
		c := fake.Add(runtime.Container{ID: runtime.ID{Container: name}, Name: name}, runtime.Values{runtime.KnobCPUQuota: "40000 100000"})
		r := a.Apply(t.Context(), actuator.Order{Items: []actuator.Item{{
			Container: c, Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu"}},
			Changes: []policies.Change{{Knob: runtime.KnobCPUQuota, From: "40000 100000", To: "150000 100000"}},
		}}})
		if !r.Applied {
			t.Fatalf("%+v", r.Changes)
		}
	}
	return fake, a, dir
}

func quotaOf(t *testing.T, fake *runtimetest.Fake, name string) runtime.Value {
	t.Helper()
	for _, c := range fake.Containers() {
		if c.Name == name {
			v, err := fake.Read(context.WithoutCancel(t.Context()), c)
			if err != nil {
				t.Fatal(err)
			}
			return v[runtime.KnobCPUQuota]
		}
	}
	t.Fatalf("no container %q", name)
	return ""
}

func TestRestoreOfflineWithoutAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, a, dir := changed(t)
		fake.Remove("ends")
		var stderr strings.Builder
		results, err := restoreThrough(t.Context(), &stderr, []runtime.Engine{deafEngine{fake}}, a, nil)
		if err != nil || len(results) != 1 || !results[0].OK || results[0].Name != "train" {
			t.Fatalf("%+v, %v", results, err)
		}
		if got := quotaOf(t, fake, "train"); got != "40000 100000" {
			t.Errorf("quota %s", got)
		}
		if said := stderr.String(); !strings.Contains(said, "files alone") || !strings.Contains(said, "dockerd is down") {
			t.Errorf("stderr: %q", said)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// hungEngine lists, and says nothing of one container.
type hungEngine struct{ *runtimetest.Fake }

func (e hungEngine) Run(ctx context.Context, sink func(runtime.Event)) error {
	return e.Fake.Run(ctx, func(event runtime.Event) {
		if event.Container.Name != "ends" {
			sink(event)
		}
	})
}

// A container of which its engine says nothing gets its owner's values all the same.
func TestRestoreOfflineOfAnUnlistedContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, a, dir := changed(t)
		var stderr strings.Builder
		results, err := restoreThrough(t.Context(), &stderr, []runtime.Engine{hungEngine{fake}}, a, nil)
		if err != nil || len(results) != 2 || !results[0].OK || results[0].Name != "train" || !results[1].OK || results[1].Name != "ends" {
			t.Fatalf("%+v, %v", results, err)
		}
		for _, name := range []string{"train", "ends"} {
			if got := quotaOf(t, fake, name); got != "40000 100000" {
				t.Errorf("%s: quota %s", name, got)
			}
		}
		if said := stderr.String(); !strings.Contains(said, `container "ends" is not listed, but runs`) {
			t.Errorf("stderr: %q", said)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// What is wrong with the files is told beside what is wrong with the engine.
func TestRestoreOfflineJoinsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := runtimetest.NewFake()
		broken := errors.New("disk on fire")
		a := actuator.New(actuator.Options{Store: brokenStore{err: broken}, Logger: slog.New(slog.DiscardHandler)})
		_, err := restoreThrough(t.Context(), &strings.Builder{}, []runtime.Engine{deafEngine{fake}}, a, nil)
		if !errors.Is(err, broken) || !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("error %v, want both", err)
		}
	})
}

type brokenStore struct {
	*originals.Store
	err error
}

func (s brokenStore) List() ([]originals.File, error) { return nil, s.err }

// A name cannot be looked up without a listing, and who interrupts means it.
func TestRestoreOfflineDoesNotFallBack(t *testing.T) {
	for name, tc := range map[string]struct {
		names       []string
		interrupted bool
	}{"named": {names: []string{"train"}}, "interrupted": {interrupted: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, a, _ := changed(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.interrupted {
					cancel()
				}
				_, err := restoreThrough(ctx, &strings.Builder{}, []runtime.Engine{deafEngine{fake}}, a, tc.names)
				if err == nil || !strings.Contains(err.Error(), "dockerd is down") {
					t.Errorf("error %v", err)
				}
				if got := quotaOf(t, fake, "train"); got != "150000 100000" {
					t.Errorf("it was restored: quota %s", got)
				}
			})
		})
	}
}

// TestRestoreOfflineByTheDaemonsConfig: a daemon that was given a config of its own has its
// state and engines where that says.
func TestRestoreOfflineByTheDaemonsConfig(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: restore --offline writes to containers")
	}
	dir := t.TempDir()
	file, state := filepath.Join(dir, "own.yaml"), filepath.Join(dir, "state")
	if err := os.WriteFile(file, []byte("stateDir: "+state+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := lockDir(state) // as a daemon does that works there
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	var stdout, stderr strings.Builder
	args := []string{"restore", "--offline", "--config", file, "--conf-dir", filepath.Join(dir, "none")}
	code := execute(t.Context(), newRoot(), args, &stdout, &stderr)
	if code == 0 || !strings.Contains(stderr.String(), "works on "+state) {
		t.Errorf("exit %d, and nothing of %s:\n%s%s", code, state, &stdout, &stderr)
	}
}
