package vm

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestEngines holds engines to their conformance suite on systemd and cgroup v2, by
// both drivers of control groups, in a guest of its own (`make test-vm-engines`).
func TestEngines(t *testing.T) {
	if os.Getenv(envEngines) == "" {
		t.Skip("needs a virtual machine of its own: make test-vm-engines")
	}
	m := start(t)
	parts := []part{
		{"the guest is a systemd host with Docker on cgroup v2", aHost},
		{"what the engines set stands while systemd writes anew", conform("systemd",
			suite{"Docker by containerd", "docker", "TestConformsByContainerd/host/systemd_writes_anew"},
			suite{"containerd", "containerd", "TestConformsUnderSystemd/host/systemd_writes_anew"})},
		{"engines conform by systemd's driver", conform("systemd",
			suite{"Docker by containerd", "docker", "TestConformsByContainerd/host"}, suite{"Docker by its API", "docker", "TestConformsByDockerAPI/host"},
			suite{"containerd", "containerd", "TestConformsUnderSystemd/host"})},
		{"engines conform by the cgroupfs driver", conform("cgroupfs",
			suite{"Docker by containerd", "docker", "TestConformsByContainerd/host"}, suite{"Docker by its API", "docker", "TestConformsByDockerAPI/host"},
			suite{"containerd", "containerd", "TestConforms/host"})},
	}
	if os.Getenv(envRuntimes) != "" {
		parts = append(parts, part{"current runtimes conform", conform("cgroupfs",
			suite{"current Docker by current containerd", "docker", "TestConformsByContainerd/current"},
			suite{"current Docker by its API", "docker", "TestConformsByDockerAPI/current"},
			suite{"current containerd", "containerd", "TestConforms/current"})})
	}
	m.run(t, parts)
}

// memoryCases are those that need a real kernel of v2 to mean anything.
const memoryCases = "(memory_in_use|page_cache)"

// suite is one run of the engines' conformance suite, or of a part of it, in the guest.
type suite struct{ door, binary, test string }

// outcome is how a suite ended, for the table.
type outcome struct {
	passed, failed, skipped int
	took                    time.Duration
}

// conform runs the suite by several doors at once with one driver of control groups:
// each waits much, and the guest has two CPUs.
func conform(driver string, suites ...suite) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) {
		m.drive(t, driver)
		outcomes := make([]outcome, len(suites))
		t.Run("by", func(t *testing.T) {
			for i, s := range suites {
				t.Run(s.door, func(t *testing.T) {
					t.Parallel()
					outcomes[i] = s.run(t, m)
				})
			}
		})
		for i, o := range outcomes {
			m.table = append(m.table, fmt.Sprintf("    %d of %d conformance cases, %s, %s's driver, cgroup v2: %.0f s; %d need another host or door",
				o.passed, o.passed+o.failed, suites[i].door, driver, o.took.Seconds(), o.skipped))
		}
	}
}

// drive makes Docker use a driver of control groups.
func (m *machine) drive(t *testing.T, driver string) {
	t.Helper()
	const driverOf = "docker info -f '{{.CgroupDriver}} {{.CgroupVersion}}'"
	if m.sh(t, driverOf) != driver+" 2" {
		m.sh(t, `sed -i 's/^{/{"exec-opts": ["native.cgroupdriver=`+driver+`"], /' /etc/docker/daemon.json; systemctl restart docker`)
	}
	if got := m.sh(t, driverOf); got != driver+" 2" {
		t.Fatalf("Docker's cgroups: %s", got)
	}
}

func (s suite) run(t *testing.T, m *machine) (sum outcome) {
	began := time.Now()
	o := m.try(t, "cd /tmp && TRIMTAB_TEST_RUNTIMES=/opt/vm/runtimes /opt/vm/"+s.binary+".test -test.v -test.count=1 -test.timeout 60m -test.run '"+s.test+"$' 2>&1")
	ended := regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+) \(`).FindAllStringSubmatch(o.Stdout, -1)
	sum.took = time.Since(began)
	not := map[string]int{}
	for i, e := range ended {
		if e[1] == "FAIL" {
			t.Errorf("%s\n%s", e[2], said(o.Stdout, e[2]))
		}
		// A test is printed before its own cases: with cases it is none.
		if i+1 < len(ended) && strings.HasPrefix(ended[i+1][2], e[2]+"/") {
			continue
		}
		switch e[1] {
		case "PASS":
			sum.passed++
		case "FAIL":
			sum.failed++
		case "SKIP":
			sum.skipped++
			not[said(o.Stdout, e[2])]++
		}
	}
	if sum.passed == 0 || o.Code != 0 && sum.failed == 0 {
		t.Errorf("the suite ended with %d after %d cases\n%s%s", o.Code, sum.passed, o.Stdout[max(0, len(o.Stdout)-3000):], o.Stderr)
	}
	t.Logf("%d of %d cases passed", sum.passed, sum.passed+sum.failed)
	for why, n := range not {
		t.Logf("%d cases: %s", n, why)
	}
	return sum
}

// said is what a case printed before its outcome, without the names of files.
func said(output, name string) string {
	lines, mine := []string{}, false
	for line := range strings.Lines(output) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "=== "):
			mine = strings.HasSuffix(text, " "+name)
		case strings.HasPrefix(text, "--- "):
			mine = false
		case mine:
			lines = append(lines, regexp.MustCompile(`^\S+\.go:\d+: `).ReplaceAllString(text, ""))
		}
	}
	return strings.Join(lines, "\n")
}
