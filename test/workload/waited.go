package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// WaitedForCPU is how long each thread of a process has waited for a CPU, by the scheduler's own counters.
// A thread that has ended since they were listed has none.
func WaitedForCPU(pid int) (map[string]time.Duration, error) {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(all) == 0 {
		return nil, fmt.Errorf("process %d has no threads (%w)", pid, err)
	}
	out := map[string]time.Duration{}
	for _, file := range all {
		text, _ := os.ReadFile(file) // ended since the listing: nothing
		var ran, waited time.Duration
		if n, _ := fmt.Sscan(string(text), (*int64)(&ran), (*int64)(&waited)); n == 2 {
			out[file] = waited
		}
	}
	return out, nil
}

// keepWaits bounds what is kept of a process: what a thread waited before that is no excuse.
const keepWaits = 40

// Waits follows how long the threads of a process wait for a CPU, by looks at it. The zero value is ready.
type Waits struct {
	looks []waits // the latest last
}

type waits struct {
	at      time.Time
	threads map[string]time.Duration
}

// Since looks, and tells how long one thread has waited since an instant, the longest of them: at the most what it
// waited since the look before that. 0 where the process has ended, or none was looked at before.
func (w *Waits) Since(pid int, since time.Time) time.Duration {
	now, err := WaitedForCPU(pid)
	if err != nil {
		w.looks = nil
		return 0
	}
	w.looks = append(w.looks, waits{time.Now(), now})
	w.looks = w.looks[max(0, len(w.looks)-keepWaits):]
	first := slices.IndexFunc(w.looks, func(l waits) bool { return l.at.After(since) })
	if first < 0 {
		return 0 // it is to come
	}
	return LongestWait(now, w.looks[max(0, first-1)].threads)
}

// LongestWait is the longest that one thread waited since before. The sum would excuse waits of others side by side.
func LongestWait(now, before map[string]time.Duration) (most time.Duration) {
	for thread, waited := range now {
		most = max(most, waited-before[thread])
	}
	return most
}
