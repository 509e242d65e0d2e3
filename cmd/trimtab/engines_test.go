package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/originals"
)

func engineNames(t *testing.T, cfg config.Config) (names []string) {
	t.Helper()
	all, err := openEngines(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func TestEnginesByConfig(t *testing.T) {
	cfg := config.Default()
	if got := engineNames(t, cfg); !slices.Equal(got, []string{"docker"}) {
		t.Errorf("by default: %v", got)
	}
	cfg.Containerd.Enabled = true
	if got := engineNames(t, cfg); !slices.Equal(got, []string{"docker", "containerd"}) {
		t.Errorf("both: %v", got)
	}
	cfg.Docker.Enabled = false
	if got := engineNames(t, cfg); !slices.Equal(got, []string{"containerd"}) {
		t.Errorf("containerd alone: %v", got)
	}
}

// Config may have dropped an engine whose containers still have originals.
func TestPendingEnginesAreOpened(t *testing.T) {
	cfg := config.Default()
	cfg.StateDir = t.TempDir()
	store := originals.New(originals.Options{Dir: originalsDir(cfg)})
	if got := withPending(cfg); got.Containerd.Enabled {
		t.Error("nothing is pending, yet containerd is on")
	}
	f := originals.For(runtime.Container{ID: runtime.ID{Engine: "containerd", Container: "c", Boot: "b", StartTick: 1}})
	f.Knobs[runtime.KnobCPUWeight] = originals.Knob{Original: "1024", Written: "512"}
	if err := store.Save(f); err != nil {
		t.Fatal(err)
	}
	if got := withPending(cfg); !got.Containerd.Enabled || !got.Docker.Enabled {
		t.Errorf("%+v %+v", got.Docker, got.Containerd)
	}
}

// namedFake is a fake of another engine than Docker.
type namedFake struct{ *runtimetest.Fake }

func (namedFake) Name() string { return "containerd" }

func (n namedFake) Run(ctx context.Context, sink func(runtime.Event)) error {
	return n.Fake.Run(ctx, func(e runtime.Event) { e.Engine = n.Name(); sink(e) })
}

// One engine lists, the other is down: both get back what they had.
func TestRestoreOfflineWithTwoEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docker, other := runtimetest.NewFake(), namedFake{runtimetest.NewFake()}
		a := actuator.New(actuator.Options{
			Engines: map[string]actuator.Engine{"docker": docker, "containerd": other},
			Store:   originals.New(originals.Options{Dir: filepath.Join(t.TempDir(), "originals")}), Logger: slog.New(slog.DiscardHandler),
		})
		for name, fake := range map[string]*runtimetest.Fake{"docker": docker, "containerd": other.Fake} {
			c := fake.Add(runtime.Container{ID: runtime.ID{Engine: name, Container: "of-" + name}, Name: "of-" + name}, runtime.Values{runtime.KnobCPUQuota: "40000 100000"})
			raiseQuota(t, a, c)
		}
		var stderr strings.Builder
		results, err := restoreThrough(t.Context(), &stderr, []runtime.Engine{deafEngine{docker}, other}, a, nil)
		if err != nil || len(results) != 2 || !results[0].OK || !results[1].OK {
			t.Errorf("%+v, %v", results, err)
		}
		if d, c := quotaOf(t, docker, "of-docker"), quotaOf(t, other.Fake, "of-containerd"); d != "40000 100000" || c != "40000 100000" {
			t.Errorf("quotas %s and %s", d, c)
		}
	})
}

// A file that is corrupt costs its own container alone, and is told.
func TestRestoreOfflineBesideACorruptFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docker, other := runtimetest.NewFake(), namedFake{runtimetest.NewFake()}
		dir := filepath.Join(t.TempDir(), "originals")
		a := actuator.New(actuator.Options{Engines: map[string]actuator.Engine{"docker": docker, "containerd": other},
			Store: originals.New(originals.Options{Dir: dir}), Logger: slog.New(slog.DiscardHandler)})
		c := docker.Add(runtime.Container{ID: runtime.ID{Engine: "docker", Container: "of-docker"}, Name: "of-docker"}, runtime.Values{runtime.KnobCPUQuota: "40000 100000"})
		raiseQuota(t, a, c)
		if err := os.WriteFile(filepath.Join(dir, "containerd-x-00000000-1.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		results, err := restoreThrough(t.Context(), &strings.Builder{}, []runtime.Engine{deafEngine{docker}, other}, a, nil)
		if got := quotaOf(t, docker, "of-docker"); got != "40000 100000" {
			t.Errorf("quota %s: %+v", got, results)
		}
		if !errors.Is(err, originals.ErrCorrupt) {
			t.Errorf("%v, want that a file is corrupt", err)
		}
	})
}

// raiseQuota changes a container's quota from 40 % of a CPU to 150 %.
func raiseQuota(t *testing.T, a *actuator.Actuator, c runtime.Container) {
	t.Helper()
	r := a.Apply(t.Context(), actuator.Order{Items: []actuator.Item{{
		Container: c, Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu"}},
		Changes: []policies.Change{{Knob: runtime.KnobCPUQuota, From: "40000 100000", To: "150000 100000"}},
	}}})
	if !r.Applied {
		t.Fatalf("%+v", r.Changes)
	}
}

// TestRestoreOfflineOnContainerd: the same on a real containerd, by a listing, by the files
// alone, and by a daemon that starts with that engine switched off.
func TestRestoreOfflineOnContainerd(t *testing.T) {
	d := runtimetest.NeedContainerd(t, "")
	d.Start(t)
	cfg := config.Default()
	cfg.StateDir, cfg.Docker.Enabled = t.TempDir(), false
	cfg.Containerd.Enabled, cfg.Containerd.Address = true, d.Address
	id := d.RunContainer(t, runtimetest.ContainerdSpec{Namespace: "jobs", Resources: specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(40_000)), Period: new(uint64(100_000))}}})
	for _, by := range []string{"a listing", "files", "a daemon without it"} {
		all, err := openEngines(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		listed := listAll(t.Context(), all.list())
		if listed.err != nil || len(listed.running) != 1 || listed.running[0].ID.Container != id {
			t.Fatalf("%+v", listed)
		}
		c := listed.running[0]
		a := actuator.New(actuator.Options{Engines: all.byName(), Store: originals.New(originals.Options{Dir: originalsDir(cfg)}), Logger: slog.New(slog.DiscardHandler)})
		raiseQuota(t, a, c)
		fresh, err := openEngines(cfg, nil) // has seen nothing, as after a crash
		if err != nil {
			t.Fatal(err)
		}
		defer fresh.Close()
		a = actuator.New(actuator.Options{Engines: fresh.byName(), Store: originals.New(originals.Options{Dir: originalsDir(cfg)}), Logger: slog.New(slog.DiscardHandler)})
		restore := func() error {
			_, err := restoreThrough(t.Context(), &strings.Builder{}, fresh.list(), a, nil)
			return err
		}
		switch by {
		case "files":
			restore = func() error {
				_, err := restoreFromFiles(t.Context(), &strings.Builder{}, a, nil)
				return err
			}
		case "a daemon without it":
			restore = func() error {
				off := cfg
				off.Containerd.Enabled = false
				return settleSwitchedOff(t.Context(), off, func(c runtime.Container) runtime.Container { return c }, slog.New(slog.DiscardHandler))
			}
		}
		if err := restore(); err != nil {
			t.Fatal(err)
		}
		if v, err := fresh[0].Read(t.Context(), c); err != nil || v[runtime.KnobCPUQuota] != "40000 100000" {
			t.Errorf("by %s: quota %q, %v", by, v[runtime.KnobCPUQuota], err)
		}
	}
}

// A host's Docker that is absent is no fault where containerd answers.
func TestDoctorOnAContainerdHost(t *testing.T) {
	d := runtimetest.NeedContainerd(t, "")
	d.Start(t)
	d.RunContainer(t, runtimetest.ContainerdSpec{Namespace: "k8s.io"})
	cfg := config.Default()
	cfg.Docker.Host, cfg.Containerd.Enabled, cfg.Containerd.Address = "unix:///nonexistent.sock", true, d.Address
	got := map[string]finding{}
	for _, f := range examineEngines(t.Context(), cfg) {
		got[f.What] = f
	}
	if got["docker"].Level != levelDegraded || !strings.Contains(got["docker"].Hint, "docker.enabled: false") {
		t.Errorf("docker: %+v", got["docker"])
	}
	if got["containerd"].Level != levelOK || !strings.Contains(got["containerd"].Text, "1 of them Kubernetes': observed only") || got["writes"].Text != "containerd/k8s.io" {
		t.Errorf("containerd: %+v, write path: %+v", got["containerd"], got["writes"])
	}
}
