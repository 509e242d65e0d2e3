package containerd_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/test/runtimetest"
)

// TestHungContainerd: one that takes connections and never answers is lost after
// the time limit, and Run still ends at once.
func TestHungContainerd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	e := newEngine(t, containerd.Options{Address: socket, CallTimeout: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	err = e.Run(ctx, func(event runtime.Event) {
		if event.Kind != runtime.EventLost || event.Engine != "containerd" {
			t.Errorf("%+v", event)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
}

// TestNothingLeaks: containers come, are written to and go, and containerd restarts;
// then goroutines and files are as many as before.
func TestNothingLeaks(t *testing.T) {
	d := runtimetest.NeedContainerd(t, "")
	d.Start(t)
	e := newEngine(t, containerd.Options{Address: d.Address})
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{}
	ended := make(chan error, 1)
	goroutines, files := goruntime.NumGoroutine(), openFiles(t)
	go func() { ended <- e.Run(ctx, r.add) }()
	_, at := r.expectKind(t, 0, runtime.EventSynced)
	for range 3 {
		for range 5 {
			id := d.RunContainer(t, runtimetest.ContainerdSpec{})
			var c runtime.Container
			c, at = r.expect(t, at, runtime.EventSeen, id)
			applyQuota(t, e, c, "60000 100000")
			d.End(t, "default", id)
			_, at = r.expect(t, at, runtime.EventGone, id)
		}
		d.Interrupt(t)
		_, at = r.expectKind(t, at, runtime.EventLost)
		d.Start(t)
		_, at = r.expectKind(t, at, runtime.EventSynced)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
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

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
