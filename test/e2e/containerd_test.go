package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/state"
)

// TestKubernetesIsObservedAndSaysWhy: a real containerd's containers in k8s.io, and
// those below kubepods in any namespace, ask to be tuned, are enabled by hand, and
// are only observed; `ps`, `explain` and the answer to `enable` say why.
func TestKubernetesIsObservedAndSaysWhy(t *testing.T) {
	binary(t) // needs root, and says so
	engine := runtimetest.NeedContainerd(t, "")
	engine.Start(t)
	dir := stepper(t)
	run := func(name, namespace, path string) string {
		return engine.RunContainer(t, runtimetest.ContainerdSpec{ID: name, Namespace: namespace, CgroupsPath: path,
			Labels: map[string]string{"trimtab.mode": "tune"}, Mounts: []specs.Mount{{Destination: "/tmp", Type: "bind", Source: dir, Options: []string{"rbind", "ro"}}},
			Command: []string{"/tmp/stepper", "20", "20"}, Resources: specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(20_000)), Period: new(uint64(100_000))}}})
	}
	pods := []string{run("trimtab-test-namespace", "k8s.io", ""), run("trimtab-test-kubepods", "default", "/kubepods/burstable/pod1/trimtab-test-kubepods")}
	plain := run("trimtab-test-plain", "default", "")
	d := daemon(t, daemontest.Options{Config: fmt.Sprintf("docker: {enabled: false}\ncontainerd: {enabled: true, address: %q}\n", engine.Address)})
	stands := quotasOf(t, engine.Address)
	until(t, d, plain, "the same job elsewhere is tuned", changed)
	for _, name := range pods {
		out, err := d.Run(t.Context(), "enable", name)
		if err == nil || !strings.Contains(out, "kubernetes: observe only") {
			t.Errorf("enable %s: %v, %s", name, err, out)
		}
		time.Sleep(2 * time.Second)
		c := until(t, d, name, "measured", func(c state.Container) bool { return c.Windows > 0 })
		if c.Enrolment.Mode != policies.ModeObserve || !strings.Contains(c.WhyNot, "kubernetes: observe only") || changed(c) {
			t.Errorf("%s: mode %s, %q, changed %v", name, c.Enrolment.Mode, c.WhyNot, c.Changed)
		}
		if out, err := d.Run(t.Context(), "explain", name); err != nil || !strings.Contains(out, "kubernetes") {
			t.Errorf("explain %s: %v\n%s", name, err, out)
		}
		if got := stands(name); got != "20000 100000" {
			t.Errorf("%s stands at %s", name, got)
		}
	}
}

// TestTwoEnginesAtOnce: one daemon follows Docker and a containerd of its own beside it.
// A job of each is tuned and told of once, and each has its owner's quota at the end.
func TestTwoEnginesAtOnce(t *testing.T) {
	byDocker := job(t, "trimtab.mode=tune")
	engine := runtimetest.NeedContainerd(t, "")
	engine.Start(t)
	plain := engine.RunContainer(t, runtimetest.ContainerdSpec{ID: "trimtab-test-beside", Labels: map[string]string{"trimtab.mode": "tune"},
		Mounts:  []specs.Mount{{Destination: "/tmp", Type: "bind", Source: stepper(t), Options: []string{"rbind", "ro"}}},
		Command: []string{"/tmp/stepper", "20", "20"}, Resources: specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(20_000)), Period: new(uint64(100_000))}}})
	d := daemon(t, daemontest.Options{Config: fmt.Sprintf("containerd: {enabled: true, address: %q}\n", engine.Address)})
	stands := quotasOf(t, engine.Address)
	for _, name := range []string{byDocker.Name, plain} {
		until(t, d, name, "tuned beside the other engine's", changed)
	}
	all, err := d.Client().Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for _, c := range all.Containers {
		told[c.Name]++
	}
	if told[byDocker.Name] != 1 || told[plain] != 1 {
		t.Errorf("told of: %v", told)
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	wantQuota(t, byDocker, starvedCPUs, "after a stop")
	if got := stands(plain); got != "20000 100000" {
		t.Errorf("containerd's stands at %s after a stop", got)
	}
}

// quotasOf lists a containerd's containers; what it returns reads the quota that stands.
func quotasOf(t *testing.T, address string) func(name string) runtime.Value {
	t.Helper()
	e, err := containerd.New(containerd.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]runtime.Container{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_ = e.Run(ctx, func(ev runtime.Event) { // it ends when it is cancelled
		if ev.Kind == runtime.EventSeen {
			all[ev.Container.Name] = ev.Container
		}
		if ev.Kind == runtime.EventSynced {
			cancel()
		}
	})
	return func(name string) runtime.Value {
		t.Helper()
		v, err := e.Read(t.Context(), all[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return v[runtime.KnobCPUQuota]
	}
}
