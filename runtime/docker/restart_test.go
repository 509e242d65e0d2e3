package docker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// lockedBuffer takes a log from several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestDockerComesAndGoes: absent at start, then there, gone with a container running
// on and one ended meanwhile, and back.
func TestDockerComesAndGoes(t *testing.T) {
	d := runtimetest.NeedDockerd(t)
	var log lockedBuffer
	engine := newEngine(t, docker.Options{Host: d.Host, ContainerdAddress: d.ContainerdAddress, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r := watch(t, engine)

	lost, at := r.expectKind(t, 0, runtime.EventLost)
	if !strings.Contains(lost.Reason, d.Host) || !strings.Contains(lost.Reason, "systemctl start docker") {
		t.Errorf("the reason names neither address nor fix: %s", lost.Reason)
	}
	d.Start(t)
	_, at = r.expectKind(t, at, runtime.EventSynced)
	stays := d.RunContainer(t, "trimtab-test-stays", "--cpus=0.5")
	ends := d.RunContainer(t, "trimtab-test-ends")
	before, _ := r.expect(t, at, runtime.EventSeen, stays)
	ending, at := r.expect(t, at, runtime.EventSeen, ends)
	applyQuota(t, engine, before, "70000 100000")

	d.Interrupt(t)
	_, at = r.expectKind(t, at, runtime.EventLost)
	if _, err := engine.Read(t.Context(), before); err != nil {
		t.Errorf("Read while Docker is away: %v", err)
	}
	applyQuota(t, engine, before, "60000 100000") // containerd is the write path, and is still there
	d.InterruptBoth(t)
	if err := engine.Apply(t.Context(), before, quota("80000 100000")); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Apply while Docker and containerd are away: %v, want ErrUnavailable", err)
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
	applyQuota(t, engine, again, "90000 100000")
	d.Remove(t, stays)
	r.expect(t, at, runtime.EventGone, stays)
	countKinds(t, r, map[runtime.EventKind]int{runtime.EventLost: 2, runtime.EventSynced: 2})
	if n := strings.Count(log.String(), "Docker does not answer;"); n != 2 {
		t.Errorf("told %d times, want twice, that Docker does not answer:\n%s", n, log.String())
	}
}

func quota(v runtime.Value) runtime.Values { return runtime.Values{runtime.KnobCPUQuota: v} }

func applyQuota(t *testing.T, e *docker.Engine, c runtime.Container, v runtime.Value) {
	t.Helper()
	if writePath := e.WritePath(t.Context(), c); writePath != "containerd/moby" {
		t.Errorf("the write path is %s", writePath)
	}
	if err := e.Apply(t.Context(), c, quota(v)); err != nil {
		t.Fatal(err)
	}
	stands, err := e.Read(t.Context(), c)
	if err != nil || stands[runtime.KnobCPUQuota] != v {
		t.Errorf("quota %q, %v; want %q", stands[runtime.KnobCPUQuota], err, v)
	}
}

func countKinds(t *testing.T, r *recorder, want map[runtime.EventKind]int) {
	t.Helper()
	got := make(map[runtime.EventKind]int)
	for _, event := range r.snapshot() {
		got[event.Kind]++
	}
	for kind, n := range want {
		if got[kind] != n {
			t.Errorf("%d events %s, want %d: %s", got[kind], kind, n, brief(r.snapshot()))
		}
	}
}

// TestNothingLeaks: 50 containers come, are written to and go, five at a time; then goroutines and
// files are as many as before.
func TestNothingLeaks(t *testing.T) {
	host := runtimetest.NeedDocker(t)
	engine := newEngine(t, docker.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{wake: make(chan struct{}, 1)}
	ended := make(chan error, 1)
	goroutines, files := goruntime.NumGoroutine(), openFiles(t)
	go func() { ended <- engine.Run(ctx, r.add) }()
	_, _ = r.expectKind(t, 0, runtime.EventSynced)
	const rounds, atOnce = 10, 5
	for range rounds {
		var wg sync.WaitGroup
		for range atOnce {
			wg.Go(func() { comeAndGo(t, host, engine, r) })
		}
		wg.Wait()
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		nowGoroutines, nowFiles := goruntime.NumGoroutine(), openFiles(t)
		if nowGoroutines <= goroutines && nowFiles <= files {
			return
		}
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("goroutines %d, were %d; files %d, were %d\n%s", nowGoroutines, goroutines, nowFiles, files,
				stacks[:goruntime.Stack(stacks, true)])
		}
	}
}

func comeAndGo(t *testing.T, host runtimetest.DockerHost, engine *docker.Engine, r *recorder) {
	id := host.Start(t)
	c, at := r.expect(t, 0, runtime.EventSeen, id)
	if err := engine.Apply(t.Context(), c, runtime.Values{runtime.KnobCPUWeight: "600"}); err != nil {
		t.Error(err)
	}
	host.Remove(t, id)
	r.expect(t, at, runtime.EventGone, id)
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
