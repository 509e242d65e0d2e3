package device

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/runtime"
)

// TestInFiles: work that hangs holds up nobody, and comes to an end by itself.
func TestInFiles(t *testing.T) {
	v := hider(t, &memRecords{}, fakeUnits{})
	c := runtime.Container{Name: "c", InitPID: os.Getpid(), ID: runtime.ID{Container: "one"}}
	other := runtime.Container{Name: "d", InitPID: os.Getpid(), ID: runtime.ID{Container: "two"}}
	work := func(context.Context, *os.File) (int, error) { return 1, nil }
	v.filesTimeout = time.Millisecond
	release, ended := make(chan struct{}), make(chan struct{})
	_, err := inFiles(t.Context(), v, c, func(ctx context.Context, _ *os.File) (int, error) {
		defer close(ended)
		<-release
		return 0, ctx.Err()
	})
	if !errors.Is(err, errStuck) {
		t.Fatal(err)
	}
	v.filesTimeout = time.Hour // would wait, if it did
	if _, err := inFiles(t.Context(), v, c, work); !errors.Is(err, errStuck) {
		t.Errorf("while it hangs: %v", err)
	}
	if got, err := inFiles(t.Context(), v, other, work); got != 1 || err != nil {
		t.Errorf("another container's: %d, %v", got, err)
	}
	close(release)
	<-ended
	if got, err := eventually(t, func() (int, error) { return inFiles(t.Context(), v, c, work) }); got != 1 || err != nil {
		t.Errorf("afterwards: %d, %v", got, err)
	}
	defer func() {
		_, free := v.files.Try(c.Key())
		if recover() != any(errDied) || !free {
			t.Errorf("a panic is its caller's; its turn is free: %v", free)
		}
	}()
	_, _ = inFiles(t.Context(), v, c, func(context.Context, *os.File) (int, error) { panic(errDied) })
}

// eventually tries until the one that hung has given its turn back.
func eventually[T any](t *testing.T, try func() (T, error)) (out T, err error) {
	t.Helper()
	for range 1000 {
		if out, err = try(); !errors.Is(err, errStuck) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return out, err
}

// TestRestoreFromHungFiles: the rules are back at once, the nodes as soon as they can be.
func TestRestoreFromHungFiles(t *testing.T) {
	host, c := gpuContainer(t)
	records := &memRecords{}
	v := hider(t, records, fakeUnits{})
	rules, nodes := listOf(t, c), nodesOf(t, host, c)
	hide(t, v, c, 0)
	release := make(chan struct{})
	v.o.Fault = func(point string) {
		if point == "node" {
			<-release
		}
	}
	v.filesTimeout = 100 * time.Millisecond
	did, _, err := v.Restore(t.Context(), c.Key())
	if !did || !errors.Is(err, errStuck) {
		t.Errorf("%v, %v", did, err)
	}
	if diff := cmp.Diff(rules, listOf(t, c)); diff != "" {
		t.Errorf("devices.list (-before +after):\n%s", diff)
	}
	pending := records.all[c.Key()]
	if len(pending.Minors) > 0 || len(pending.Nodes) != 1 || !pending.File {
		t.Errorf("pending: %+v", pending)
	}
	v.filesTimeout = time.Minute
	if err := v.RestoreAll(t.Context(), func(string, string, bool, []string, error) {}); !errors.Is(err, errStuck) {
		t.Errorf("while it hangs: %v", err)
	}
	close(release)
	if _, err := eventually(t, func() (bool, error) {
		did, _, err := v.Restore(t.Context(), c.Key())
		return did, err
	}); err != nil {
		t.Error(err)
	}
	if now := nodesOf(t, host, c); now != nodes {
		t.Errorf("nodes:\n%s\nwere:\n%s", now, nodes)
	}
	if len(records.all) > 0 {
		t.Errorf("records: %v", records.all)
	}
}
