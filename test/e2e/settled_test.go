package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/host"
	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/tuner/state"
)

// minIdle is the share of the machine's CPU time without which no loan settles; one such job leaves more than twice that.
const minIdle = 0.15

// untilSettled waits for a loan that is settled, where other work leaves anything to lend.
func untilSettled(t *testing.T, d *daemontest.Daemon, name string) state.Container {
	t.Helper()
	began, before := time.Now(), cpuTimes(t)
	return until(t, d, name, "a settled loan", func(c state.Container) bool {
		if settled(c) && c.Verdict.Class != "" {
			return true
		}
		if now := cpuTimes(t); time.Since(began) > patience-10*time.Second {
			busy, idle := float64(now.BusyNs+now.StealNs-before.BusyNs-before.StealNs), float64(now.IdleNs+now.IOWaitNs-before.IdleNs-before.IOWaitNs)
			own := float64(usedBy(t, d.PID()))
			if share := (idle + own) / max(1, busy+idle); share < minIdle {
				t.Skipf("needs a machine with CPU time to lend: others left %.1f %% of it idle", 100*share)
			}
		}
		return false
	})
}

// usedBy is the CPU time that the threads of a process have used.
func usedBy(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, file := range all {
		var ran time.Duration
		if text, err := os.ReadFile(file); err == nil { // else it ended since the listing
			_, _ = fmt.Sscan(string(text), (*int64)(&ran))
		}
		sum += ran
	}
	return sum
}

// cpuTimes reads what the machine's CPUs did since boot.
func cpuTimes(t *testing.T) probes.Host {
	t.Helper()
	h, err := host.New("/proc").Read()
	if err != nil {
		t.Fatal(err)
	}
	return h
}
