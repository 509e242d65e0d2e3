package runtimetest

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
)

// What `make test-runtimes` sets: where scripts/build-runtimes.sh put current
// runtimes, and the file that gets a line for each run of the suite.
const (
	envRuntimes = "TRIMTAB_TEST_RUNTIMES"
	envTable    = "TRIMTAB_TEST_TABLE"
)

// Runtime is one set of runtimes that tests run with.
type Runtime struct {
	Name    string // of a subtest
	Bin     string // searched before PATH for dockerd, containerd, its shim and runc; "": the host's own
	Systemd bool   // a dockerd of a test's own uses systemd's driver
}

// Runtimes lists the host's own, and current ones where they were built.
func Runtimes() []Runtime {
	out := []Runtime{{Name: "host"}}
	if bin := os.Getenv(envRuntimes); bin != "" {
		out = append(out, Runtime{Name: "current", Bin: bin})
	}
	return out
}

// DockerRuntimes has current ones by systemd's driver too, where systemd runs. The
// host's Docker has the driver that it was given.
func DockerRuntimes() []Runtime {
	out := Runtimes()
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return out
	}
	for _, r := range out[1:] {
		out = append(out, Runtime{Name: r.Name + " by systemd", Bin: r.Bin, Systemd: true})
	}
	return out
}

// ContainerdVersions is "containerd 1.6.20, runc 1.1.5".
func (r Runtime) ContainerdVersions() string {
	return "containerd " + r.version("containerd") + ", runc " + r.version("runc")
}

// DockerVersions adds dockerd's to them.
func (r Runtime) DockerVersions() string {
	return "dockerd " + r.version("dockerd") + ", " + r.ContainerdVersions()
}

func (r Runtime) version(command string) string { return ctrd.Version(r.Bin, command) }

// tally counts the cases of one run of the suite.
type tally struct {
	mu                      sync.Mutex
	passed, failed, skipped int
	mode                    runtime.CgroupMode
	driver                  string // who makes control groups
}

// count is called at the start of each case that has no cases below it.
func (y *tally) count(t *testing.T) {
	t.Cleanup(func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		switch {
		case t.Failed():
			y.failed++
		case t.Skipped():
			y.skipped++
		default:
			y.passed++
		}
	})
}

// report adds the run's line to the table, if there is one.
func (y *tally) report(t *testing.T, s Subject) {
	name := os.Getenv(envTable)
	if name == "" || s.Versions == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Errorf("%s: %v", envTable, err)
		return
	}
	defer file.Close()
	y.mu.Lock()
	defer y.mu.Unlock()
	fmt.Fprintf(file, "%s\t%s\t%s\t%s\t%d of %d\t%d\n", s.WritePath, s.Versions, y.driver, y.mode, y.passed, y.passed+y.failed, y.skipped)
}
