package e2e

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/originals"
)

// pair is two real containers of one plan: what the first is given goes back when the
// second cannot have its part.
type pair struct {
	t             *testing.T
	host          runtimetest.DockerHost
	engine        *docker.Engine
	state         string
	first, second runtime.Container
	owners        [2]runtime.Values
}

func newPair(t *testing.T, containerd string) *pair {
	t.Helper()
	binary(t) // needs root, and says so
	p := &pair{t: t, host: runtimetest.NeedDocker(t), state: t.TempDir()}
	var err error
	if p.engine, err = docker.New(docker.Options{ContainerdAddress: containerd, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []*runtime.Container{&p.first, &p.second} {
		*c = runtimetest.Find(t, p.engine, p.host.Start(t, "--cpus=0.5", "--memory=64m"))
	}
	p.owners = [2]runtime.Values{readAll(t, p.first), readAll(t, p.second)}
	return p
}

// realActuator acts on real Docker with originals below a state directory, as the daemon does.
func realActuator(state string, e *docker.Engine, fault func(string)) *actuator.Actuator {
	return actuator.New(actuator.Options{
		Engines: map[string]actuator.Engine{docker.EngineName: e},
		Store:   originals.New(originals.Options{Dir: filepath.Join(state, "originals"), Fault: fault}),
		Logger:  slog.New(slog.DiscardHandler), Fault: fault,
	})
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

// order gives the first container CPU, and the second what is asked.
func (p *pair) order(knob runtime.Knob, to runtime.Value) actuator.Order {
	item := func(c runtime.Container, knob runtime.Knob, from, to runtime.Value) actuator.Item {
		return actuator.Item{Container: c, Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu", "cpuset", "memory"}, BestEffort: true},
			Changes: []policies.Change{{Key: c.Key(), Name: c.Name, Knob: knob, From: from, To: to}}}
	}
	return actuator.Order{Items: []actuator.Item{
		item(p.first, runtime.KnobCPUQuota, "50000 100000", "80000 100000"), item(p.second, knob, readAll(p.t, p.second)[knob], to)}}
}

// untouched checks that both stand as their owner set them, and that nothing is pending.
func (p *pair) untouched(when string) {
	p.t.Helper()
	for i, c := range []runtime.Container{p.first, p.second} {
		if diff := cmp.Diff(p.owners[i], readAll(p.t, c)); diff != "" {
			p.t.Errorf("%s: container %d (-owner +now):\n%s", when, i+1, diff)
		}
	}
	p.wantFiles(when, 0)
}

func (p *pair) wantFiles(when string, want int) {
	p.t.Helper()
	if left, _ := filepath.Glob(filepath.Join(p.state, "originals", "*")); len(left) != want {
		p.t.Errorf("%s: originals on disk: %v", when, left)
	}
}

func outcomesOf(r actuator.Result) (out []actuator.Outcome) {
	for _, c := range r.Changes {
		out = append(out, c.Outcome)
	}
	return out
}

// TestRuntimeRefuses: what real write paths refuse is told in words that name the container,
// the knob and the reason, and the rest of the plan is taken back.
func TestRuntimeRefuses(t *testing.T) {
	const both, byContainerd, byAPI = "", "/run/containerd/containerd.sock", "/nonexistent/containerd.sock"
	cases := []struct {
		name, by string
		knob     runtime.Knob
		to       runtime.Value
		says     string
	}{
		{"below the kernel's least", both, runtime.KnobCPUQuota, "500 100000", "1000 µs"},
		{"a period beyond the kernel's", both, runtime.KnobCPUQuota, "100000 2000000", "period"},
		{"CPUs above the machine", byAPI, runtime.KnobCPUQuota, "6400000 100000", "CPUs"},
		{"cpuset above the machine", both, runtime.KnobCpuset, "0-900", "cpuset"},
		{"the family of --cpus cannot be lifted", byAPI, runtime.KnobCPUQuota, "max 100000", "made with --cpus"},
		{"swap cannot be unlimited again", byAPI, runtime.KnobMemorySwap, runtime.ValueMax, "unlimited swap"},
		{"a weight beyond the kernel's", byContainerd, runtime.KnobCPUWeight, "-3", "not a number"},
	}
	pairs := map[string]*pair{byContainerd: newPair(t, ""), byAPI: newPair(t, byAPI)}
	for _, tc := range cases {
		for by, p := range pairs {
			if tc.by != both && tc.by != by {
				continue
			}
			t.Run(tc.name+" by "+p.engine.WritePath(t.Context(), p.first), func(t *testing.T) {
				if _, has := p.owners[1][tc.knob]; has == (tc.says == "no such knob") {
					t.Skipf("needs a host of another kind for %s", tc.knob)
				}
				p.t = t
				r := realActuator(p.state, p.engine, nil).Apply(t.Context(), p.order(tc.knob, tc.to))
				if r.Applied || r.Changes[1].Outcome != actuator.Refused || !strings.Contains(r.Changes[1].Text, tc.says) || len(r.Pending) > 0 {
					t.Errorf("%+v", r.Changes)
				}
				if got := r.Changes[0].Outcome; got != actuator.Undone && got != actuator.Skipped {
					t.Errorf("the first ended %s", got)
				}
				p.untouched("after a refusal")
			})
		}
	}
}

// readOnly makes the control group of a container's CPU read-only until it is called
// off, as a host does that mounts them so.
func readOnly(t *testing.T, c runtime.Container) (off func()) {
	t.Helper()
	dir := c.Cgroup.Dir("cpu")
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	off = sync.OnceFunc(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(off)
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return off
}

// TestReadOnlyCgroup: a plan half applied is undone; where that fails too, the
// container waits for its values, is left alone, and gets them once it can.
func TestReadOnlyCgroup(t *testing.T) {
	p := newPair(t, "")
	off := readOnly(t, p.second)
	quota := p.order(runtime.KnobCPUQuota, "80000 100000")
	r := realActuator(p.state, p.engine, nil).Apply(t.Context(), quota)
	if diff := cmp.Diff([]actuator.Outcome{actuator.Undone, actuator.Refused}, outcomesOf(r)); diff != "" || !strings.Contains(r.Changes[1].Text, "read-only") {
		t.Errorf("%s\n%+v", diff, r.Changes)
	}
	p.untouched("after a write to a read-only control group")
	off()

	writes := 0
	var offs []func()
	a := realActuator(p.state, p.engine, func(point string) {
		if point != "apply.before" {
			return
		}
		if writes++; writes == 2 { // the second container's, when the first has its part
			offs = append(offs, readOnly(t, p.first), readOnly(t, p.second))
		}
	})
	r = a.Apply(t.Context(), quota)
	if diff := cmp.Diff([]actuator.Outcome{actuator.Failed, actuator.Refused}, outcomesOf(r)); diff != "" || !slices.Contains(r.Pending, p.first.Key()) ||
		!strings.Contains(r.Changes[0].Text, "could not be undone") {
		t.Fatalf("%s\n%+v, pending %v", diff, r.Changes, r.Pending)
	}
	if got := readAll(t, p.first)[runtime.KnobCPUQuota]; got != "80000 100000" {
		t.Fatalf("the first stands at %s: nothing is tested", got)
	}
	for _, next := range []*actuator.Actuator{a, realActuator(p.state, p.engine, nil)} { // this daemon, and the one after it
		s, err := next.Standing(p.first.ID)
		if err != nil || !strings.Contains(s.Pending, "read-only") {
			t.Errorf("pending %q, %v", s.Pending, err)
		}
		again := next.Apply(t.Context(), actuator.Order{Items: []actuator.Item{{Container: p.first, Enrolment: quota.Items[0].Enrolment,
			Changes: []policies.Change{{Knob: runtime.KnobCPUWeight, From: p.owners[0][runtime.KnobCPUWeight], To: "2000"}}}}})
		if again.Changes[0].Outcome != actuator.Refused || !strings.Contains(again.Changes[0].Text, "pending") {
			t.Errorf("it was not left alone: %+v", again.Changes)
		}
		paid, err := next.RestorePending(t.Context(), nil)
		if err != nil || len(paid) == 0 || paid[0].Outcome != actuator.Failed {
			t.Errorf("paid %+v, %v", paid, err)
		}
		if paid, err = next.RestorePending(t.Context(), nil); err != nil || len(paid) != 0 {
			t.Errorf("tried again at once: %+v, %v", paid, err)
		}
	}
	for _, off := range offs {
		off()
	}
	if paid, err := realActuator(p.state, p.engine, nil).RestorePending(t.Context(), nil); err != nil || len(paid) == 0 || paid[0].Outcome != actuator.Restored {
		t.Errorf("paid %+v, %v", paid, err)
	}
	p.untouched("once it can be written again")
}

// TestContainerDiesInAWrite: it takes its values along, and the rest of the plan goes back.
func TestContainerDiesInAWrite(t *testing.T) {
	p := newPair(t, "")
	writes := 0
	a := realActuator(p.state, p.engine, func(point string) {
		if point != "apply.before" {
			return
		}
		if writes++; writes == 2 {
			p.host.Run(t, "kill", p.second.ID.Container)
			p.host.Run(t, "wait", p.second.ID.Container)
		}
	})
	r := a.Apply(t.Context(), p.order(runtime.KnobCPUQuota, "80000 100000"))
	if diff := cmp.Diff([]actuator.Outcome{actuator.Undone, actuator.Gone}, outcomesOf(r)); diff != "" || len(r.Pending) > 0 {
		t.Errorf("%s\n%+v", diff, r)
	}
	if diff := cmp.Diff(p.owners[0], readAll(t, p.first)); diff != "" {
		t.Errorf("(-owner +now):\n%s", diff)
	}
	p.wantFiles("after a death", 0)
}

// TestFrozenContainer: one that is paused takes its values back and stays paused.
func TestFrozenContainer(t *testing.T) {
	p := newPair(t, "")
	a := realActuator(p.state, p.engine, nil)
	if r := a.Apply(t.Context(), p.order(runtime.KnobCPUQuota, "80000 100000")); !r.Applied {
		t.Fatalf("%+v", r.Changes)
	}
	p.host.Run(t, "pause", p.first.ID.Container)
	results, err := a.RestoreAll(t.Context(), nil, "stop")
	if err != nil || len(results) != 2 || results[0].Outcome != actuator.Restored || results[1].Outcome != actuator.Restored {
		t.Errorf("%+v, %v", results, err)
	}
	if state := p.host.Run(t, "inspect", "--format", "{{.State.Status}}", p.first.ID.Container); state != "paused" {
		t.Errorf("it is %s", state)
	}
	p.untouched("restored while it was paused")
	p.host.Run(t, "unpause", p.first.ID.Container)
}
