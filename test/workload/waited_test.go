package workload

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestWaits: threads that want more CPUs than there are wait for them, and one that sleeps does not.
func TestWaits(t *testing.T) {
	var w Waits
	began := time.Now()
	if got := w.Since(os.Getpid(), began); got != 0 {
		t.Errorf("at the first look %s", got)
	}
	var all sync.WaitGroup
	for range 4 * runtime.NumCPU() {
		all.Go(func() {
			runtime.LockOSThread()
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
				_, _ = WaitedForCPU(os.Getpid()) // system calls let others of the process run
			}
		})
	}
	for time.Since(began) < 200*time.Millisecond {
		time.Sleep(10 * time.Millisecond)
	}
	got := w.Since(os.Getpid(), began)
	if got <= 0 || got > time.Since(began) {
		t.Errorf("beside four threads for each CPU one has waited for %s in %s", got, time.Since(began))
	}
	all.Wait()
	if got := w.Since(os.Getpid(), time.Now().Add(time.Hour)); got != 0 {
		t.Errorf("since an instant to come %s", got)
	}
	if got := w.Since(1<<30, began); got != 0 {
		t.Errorf("of no process %s", got)
	}
}
