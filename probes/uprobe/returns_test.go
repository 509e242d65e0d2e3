package uprobe

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/test/uprobetest"
)

// TestReturnsAreTried: a child lives that may not make the trampoline's system call, where this
// kernel is sound; one that may not exit dies. Both are told apart from what cannot be tried.
func TestReturnsAreTried(t *testing.T) {
	uprobetest.NeedsRoot(t)
	a := newAttacher()
	died, err := diesOfReturn(t.Context(), a, unix.SYS_EXIT_GROUP)
	if err != nil || !died {
		t.Errorf("may not exit: died %v, %v", died, err)
	}
	died, err = diesOfReturn(t.Context(), a, unix.SYS_SWAPOFF)
	if err != nil || died {
		t.Errorf("may not do what it does not do: died %v, %v", died, err)
	}
	if err := tryReturns(a); err != nil && !errors.Is(err, errReturns) {
		t.Error(err) // a kernel with the fault is none of the test: what is said of it is tested below
	}
}

// TestWithoutReturns: where they would end programs, calls that block are not counted, and it is said.
func TestWithoutReturns(t *testing.T) {
	c := newCounter(t)
	c.client.spec.Hooks[0].Return = c.client.spec.Hooks[0].Entry
	c.finder.returns.try = func() error { return errReturns }
	c.client.spec.Hooks[0].Functions = map[string]Point{"probed": {Returns: true}}
	target := uprobetest.Cgroup(t, "noreturns")
	c.watch(target)
	dir := t.TempDir()
	j := job(t, target, dir)
	j.Do("load %s", uprobetest.BuildCode(t, dir, "libreturns.so", probedCode, "-shared", "-fPIC"))
	c.until("found", func() bool { return c.client.Has(j.PID, "probed") })
	j.Do("call probed 3")
	if n := c.count(j.PID); n != 0 {
		t.Errorf("counted %d entries without their returns", n)
	}
	if missing := strings.Join(c.client.Missing(target.Key), "; "); !strings.Contains(missing, "calls that block") {
		t.Errorf("said to be missing: %q", missing)
	}
}

// TestReturnsAreTriedAgain: what could not be tried is refused for a while; what was tried stays.
func TestReturnsAreTriedAgain(t *testing.T) {
	says := errors.New("no room")
	tries := 0
	r := &returns{try: func() error { tries++; return says }}
	for range 3 {
		if err := r.refused(); !errors.Is(err, says) {
			t.Errorf("refused for %v", err)
		}
	}
	if tries != 1 {
		t.Errorf("tried %d times within a minute", tries)
	}
	says, r.next = nil, time.Time{}
	if err := r.refused(); err != nil || tries != 2 {
		t.Errorf("after a minute: %v, %d tries", err, tries)
	}
	says, r.next = errReturns, time.Time{}
	if err := r.refused(); err != nil || tries != 2 {
		t.Errorf("once it is known: %v, %d tries", err, tries)
	}
}
