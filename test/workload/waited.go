package workload

import (
	"fmt"
	"os"
	"path/filepath"
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

// LongestWait is the longest that one thread waited since before. The sum would excuse waits of others side by side.
func LongestWait(now, before map[string]time.Duration) (most time.Duration) {
	for thread, waited := range now {
		most = max(most, waited-before[thread])
	}
	return most
}
