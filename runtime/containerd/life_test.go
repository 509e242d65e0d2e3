package containerd_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/test/runtimetest"
)

func quota(v runtime.Value) runtime.Values { return runtime.Values{runtime.KnobCPUQuota: v} }

func applyQuota(t *testing.T, e *containerd.Engine, c runtime.Container, v runtime.Value) {
	t.Helper()
	if err := e.Apply(t.Context(), c, quota(v)); err != nil {
		t.Fatal(err)
	}
	if stands, err := e.Read(t.Context(), c); err != nil || stands[runtime.KnobCPUQuota] != v {
		t.Errorf("quota %q, %v; want %q", stands[runtime.KnobCPUQuota], err, v)
	}
}

// TestLives: containers of several namespaces come, pause, change, restart and go;
// another engine's namespace is not looked at.
func TestLives(t *testing.T) {
	for _, v := range runtimetest.Runtimes() {
		t.Run(v.Name, func(t *testing.T) { lives(t, v) })
	}
}

func lives(t *testing.T, v runtimetest.Runtime) {
	d := runtimetest.NeedContainerd(t, v.Bin)
	d.Start(t)
	early := d.RunContainer(t, runtimetest.ContainerdSpec{Image: "docker.io/library/busybox:1", Labels: map[string]string{
		"trimtab.mode": "observe", "nerdctl/name": "train", "nerdctl/namespace": "default"}})
	dockers := d.RunContainer(t, runtimetest.ContainerdSpec{Namespace: containerd.DockerNamespace})
	e := newEngine(t, containerd.Options{Address: "unix://" + d.Address, Except: []string{containerd.DockerNamespace}})
	r := watch(t, e)
	listed, at := r.expect(t, 0, runtime.EventSeen, early)
	if _, synced := r.expectKind(t, 0, runtime.EventSynced); at >= synced {
		t.Errorf("the container that ran before was told after the end of the listing")
	}
	if listed.Name != "train" || listed.Image != "docker.io/library/busybox:1" || listed.Labels["trimtab.mode"] != "observe" ||
		listed.State != runtime.StateRunning || listed.ID.Engine != "containerd" || listed.ID.StartTick == 0 || listed.InitPID == 0 ||
		!strings.HasSuffix(listed.Cgroup.Dir("cpu"), "/default/"+early) || listed.Kubernetes || listed.GPUs != nil {
		t.Errorf("listed: %+v", listed)
	}
	late := d.RunContainer(t, runtimetest.ContainerdSpec{Namespace: "made-later"})
	started, at := r.expect(t, 0, runtime.EventSeen, late)
	if started.Name != late || e.WritePath(t.Context(), started) != "containerd/made-later" {
		t.Errorf("started: %+v, write path %s", started, e.WritePath(t.Context(), started))
	}
	d.Pause(t, "made-later", late)
	paused, at := r.expect(t, at, runtime.EventSeen, late)
	d.Resume(t, "made-later", late)
	resumed, at := r.expect(t, at, runtime.EventSeen, late)
	if paused.State != runtime.StatePaused || resumed.State != runtime.StateRunning || paused.ID != started.ID {
		t.Errorf("paused %+v, resumed %+v", paused, resumed)
	}
	d.SetLabel(t, "made-later", late, "trimtab.mode", "off")
	if c, next := r.expect(t, at, runtime.EventUpdate, late); c.Labels["trimtab.mode"] != "off" {
		t.Errorf("updated: %+v", c)
	} else {
		at = next
	}
	d.End(t, "made-later", late)
	gone, at := r.expect(t, at, runtime.EventGone, late)
	d.StartTask(t, "made-later", late)
	again, at := r.expect(t, at, runtime.EventSeen, late)
	if gone.ID != started.ID || again.ID == started.ID || again.Key() == started.Key() {
		t.Errorf("a restart is another life: %v then %v", started.ID, again.ID)
	}
	d.End(t, "made-later", late)
	r.expect(t, at, runtime.EventGone, late)
	for _, event := range r.snapshot() {
		if event.Container.ID.Container == dockers {
			t.Errorf("Docker's container was told: %+v", event)
		}
	}
}

// said is a log that tells once that a line holds a text.
type said struct {
	text string
	once sync.Once
	yes  chan struct{}
}

func (s *said) Write(line []byte) (int, error) {
	if strings.Contains(string(line), s.text) {
		s.once.Do(func() { close(s.yes) })
	}
	return len(line), nil
}

// TestShimThatDoesNotAnswer: a container whose shim misses containerd's time for its state runs on
// nevertheless, for who follows and for who connects meanwhile.
func TestShimThatDoesNotAnswer(t *testing.T) {
	for _, v := range runtimetest.Runtimes() {
		t.Run(v.Name, func(t *testing.T) { shimThatDoesNotAnswer(t, v) })
	}
}

func shimThatDoesNotAnswer(t *testing.T, v runtimetest.Runtime) {
	d := runtimetest.NeedContainerd(t, v.Bin)
	d.Start(t)
	id := d.RunContainer(t, runtimetest.ContainerdSpec{})
	log := &said{text: "shim does not answer", yes: make(chan struct{})}
	r := watch(t, newEngine(t, containerd.Options{Address: d.Address, RelistEvery: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(log, nil))}))
	c, at := r.expect(t, 0, runtime.EventSeen, id)
	shim := parent(t, c.InitPID)
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := sync.OnceFunc(func() { _ = syscall.Kill(shim, syscall.SIGCONT) })
	t.Cleanup(goOn)
	select {
	case <-log.yes:
	case <-time.After(patience):
		t.Fatal("a listing met the shim that does not answer, and nothing was said")
	}
	late := watch(t, newEngine(t, containerd.Options{Address: d.Address, RelistEvery: 100 * time.Millisecond}))
	late.expectKind(t, 0, runtime.EventSynced)
	goOn()
	late.expect(t, 0, runtime.EventSeen, id)
	for _, event := range r.snapshot()[at:] {
		if event.Kind == runtime.EventGone {
			t.Errorf("it was taken for gone: %s", brief(r.snapshot()))
		}
	}
	d.End(t, "default", id)
	r.expect(t, at, runtime.EventGone, id)
}

// TestRecordThatIsTooLong: a container whose record containerd cannot send costs itself alone, also where a shim
// that does not answer has the records asked.
func TestRecordThatIsTooLong(t *testing.T) {
	d := runtimetest.NeedContainerd(t, "")
	d.Start(t)
	var ids []string
	for _, name := range []string{"a", "b-long", "c"} {
		ids = append(ids, d.RunContainer(t, runtimetest.ContainerdSpec{ID: "trimtab-test-" + name}))
	}
	first, _ := watch(t, newEngine(t, containerd.Options{Address: d.Address})).expect(t, 0, runtime.EventSeen, ids[1])
	d.Grow(t, "default", ids[1])
	shim := parent(t, first.InitPID)
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := sync.OnceFunc(func() { _ = syscall.Kill(shim, syscall.SIGCONT) })
	t.Cleanup(goOn)
	// Less than containerd waits for a shim (2 s): its listing of tasks is not awaited.
	r := watch(t, newEngine(t, containerd.Options{Address: d.Address, CallTimeout: 3 * time.Second}))
	for _, id := range []string{ids[0], ids[2]} {
		r.expect(t, 0, runtime.EventSeen, id)
	}
	synced, _ := r.expectKind(t, 0, runtime.EventSynced)
	if len(synced.Unseen) != 1 || synced.Unseen[0] != ids[1] {
		t.Errorf("not told of are %q, want %s", synced.Unseen, ids[1])
	}
	for _, event := range r.snapshot() {
		if event.Kind == runtime.EventLost && strings.Contains(event.Reason, "larger than max") {
			t.Errorf("it cost all: %s", event.Reason)
		}
	}
	goOn()
}

// parent reads a process's parent.
func parent(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "PPid:")
	ppid, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil || ppid < 2 {
		t.Fatalf("parent of process %d: %d, %v", pid, ppid, err)
	}
	return ppid
}

// TestOnlyNamedNamespaces: config may name those to follow.
func TestOnlyNamedNamespaces(t *testing.T) {
	d := runtimetest.NeedContainerd(t, "")
	d.Start(t)
	d.RunContainer(t, runtimetest.ContainerdSpec{Namespace: "other"})
	ours := d.RunContainer(t, runtimetest.ContainerdSpec{Namespace: "ours"})
	r := watch(t, newEngine(t, containerd.Options{Address: d.Address, Namespaces: []string{"ours"}}))
	_, end := r.expectKind(t, 0, runtime.EventSynced)
	if events := r.snapshot()[:end]; len(events) != 2 || events[0].Container.ID.Container != ours {
		t.Errorf("%s", brief(events))
	}
}

// TestContainersOfCtr: what its own command makes has its label, and is written to.
func TestContainersOfCtr(t *testing.T) {
	d := runtimetest.NeedContainerd(t, "")
	d.Start(t)
	id := d.RunByCtr(t, strings.Fields("--label trimtab.mode=tune")...) // ctr run --label trimtab.mode=tune …
	e := newEngine(t, containerd.Options{Address: d.Address})
	c, _ := watch(t, e).expect(t, 0, runtime.EventSeen, id)
	if c.Labels["trimtab.mode"] != "tune" {
		t.Errorf("labels %q", c.Labels)
	}
	if err := e.Apply(t.Context(), c, quota("50000 100000")); err != nil {
		t.Fatal(err)
	}
	if v, err := e.Read(t.Context(), c); err != nil || v[runtime.KnobCPUQuota] != "50000 100000" {
		t.Errorf("quota %q, %v", v[runtime.KnobCPUQuota], err)
	}
}

// TestKubernetesIsOnlyObserved: by namespace, and by the path of the cgroup.
func TestKubernetesIsOnlyObserved(t *testing.T) {
	d := runtimetest.NeedContainerd(t, "")
	d.Start(t)
	e := newEngine(t, containerd.Options{Address: d.Address})
	r := watch(t, e)
	for name, spec := range map[string]runtimetest.ContainerdSpec{
		"by namespace": {Namespace: "k8s.io"},
		"by cgroup":    {CgroupsPath: "/kubepods/burstable/pod1/trimtab-test-pod"},
	} {
		c, _ := r.expect(t, 0, runtime.EventSeen, d.RunContainer(t, spec))
		if !c.Kubernetes {
			t.Errorf("%s: %+v", name, c)
		}
		before, err := e.Read(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		c.Kubernetes = false // as one known from its originals file alone
		if err := e.Apply(t.Context(), c, quota("50000 100000")); !errors.Is(err, runtime.ErrRefused) || !strings.Contains(err.Error(), "only observed") {
			t.Errorf("%s: Apply: %v", name, err)
		}
		if after, err := e.Read(t.Context(), c); err != nil || after[runtime.KnobCPUQuota] != before[runtime.KnobCPUQuota] {
			t.Errorf("%s: quota %q, was %q (%v)", name, after[runtime.KnobCPUQuota], before[runtime.KnobCPUQuota], err)
		}
	}
}

// TestComesAndGoes: absent at start, then there, gone with a container running on
// and one ended meanwhile, and back; an engine that never listed can write too.
func TestComesAndGoes(t *testing.T) {
	for _, v := range runtimetest.Runtimes() {
		t.Run(v.Name, func(t *testing.T) { comesAndGoes(t, v) })
	}
}

func comesAndGoes(t *testing.T, v runtimetest.Runtime) {
	d := runtimetest.NeedContainerd(t, v.Bin)
	e := newEngine(t, containerd.Options{Address: d.Address})
	r := watch(t, e)
	lost, at := r.expectKind(t, 0, runtime.EventLost)
	if !strings.Contains(lost.Reason, d.Address) || !strings.Contains(lost.Reason, "systemctl start containerd") {
		t.Errorf("the reason names neither address nor fix: %s", lost.Reason)
	}
	d.Start(t)
	_, at = r.expectKind(t, at, runtime.EventSynced)
	stays := d.RunContainer(t, runtimetest.ContainerdSpec{Resources: specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(50_000)), Period: new(uint64(100_000))}}})
	ends := d.RunContainer(t, runtimetest.ContainerdSpec{})
	before, _ := r.expect(t, at, runtime.EventSeen, stays)
	ending, at := r.expect(t, at, runtime.EventSeen, ends)
	applyQuota(t, e, before, "70000 100000")

	d.Interrupt(t)
	_, at = r.expectKind(t, at, runtime.EventLost)
	if _, err := e.Read(t.Context(), before); err != nil {
		t.Errorf("Read while containerd is away: %v", err)
	}
	if err := e.Apply(t.Context(), before, quota("80000 100000")); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Apply while containerd is away: %v, want ErrUnavailable", err)
	}
	if process, err := os.FindProcess(ending.InitPID); err != nil || process.Kill() != nil {
		t.Fatalf("cannot end process %d: %v", ending.InitPID, err)
	}
	gone, at := r.expect(t, at, runtime.EventGone, ends)
	if gone.ID != ending.ID {
		t.Errorf("gone: %v", gone.ID)
	}

	d.Start(t)
	again, at := r.expect(t, at, runtime.EventSeen, stays)
	if again.ID != before.ID {
		t.Errorf("a container that ran on has another identity: %v, was %v", again.ID, before.ID)
	}
	_, at = r.expectKind(t, at, runtime.EventSynced)
	applyQuota(t, e, again, "90000 100000")
	blind := newEngine(t, containerd.Options{Address: d.Address})
	applyQuota(t, blind, again, "60000 100000")
	if writePath := blind.WritePath(t.Context(), again); writePath != "containerd/default" {
		t.Errorf("the write path of one that was not listed is %s", writePath)
	}
	d.End(t, "default", stays)
	r.expect(t, at, runtime.EventGone, stays)
	if err := blind.Apply(t.Context(), again, quota("50000 100000")); !errors.Is(err, runtime.ErrGone) {
		t.Errorf("Apply to one that ended: %v, want ErrGone", err)
	}
}
