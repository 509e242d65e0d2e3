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
	m := startEngines(t, v2)
	parts := []part{
		{"the guest is a systemd host with Docker on cgroup v2", aHost},
		{"what the engines set stands while systemd writes anew", conform("systemd",
			suite{"Docker by containerd", "docker", "TestConformsByContainerd/host/systemd_writes_anew"},
			suite{"containerd", "containerd", "TestConformsUnderSystemd/host/systemd_writes_anew"})},
		{"engines conform by systemd's driver", conform("systemd", bySystemd("host")...)},
		{"writes take so long", latencies},
		{"engines conform by the cgroupfs driver", conform("cgroupfs",
			suite{"Docker by containerd", "docker", "TestConformsByContainerd/host"}, suite{"Docker by its API", "docker", "TestConformsByDockerAPI/host"},
			suite{"containerd", "containerd", "TestConforms/host"})},
	}
	if os.Getenv(envRuntimes) != "" {
		parts = append(parts, part{"current runtimes conform by the cgroupfs driver", conform("cgroupfs",
			suite{"current Docker by current containerd", "docker", "TestConformsByContainerd/current"},
			suite{"current Docker by its API", "docker", "TestConformsByDockerAPI/current"},
			suite{"current containerd", "containerd", "TestConforms/current"})},
			part{"current runtimes conform by systemd's driver", conform("systemd", bySystemd("current")...)})
	}
	m.run(t, parts)
}

// TestEnginesV1 and TestEnginesLegacy do so on systemd with cgroup v1, with a v2 tree
// beside it and without, by systemd's driver; there trimtab tunes a job too, and hides GPUs.
func TestEnginesV1(t *testing.T) { conformsV1(t, hybrid) }

func TestEnginesLegacy(t *testing.T) { conformsV1(t, legacy) }

func conformsV1(t *testing.T, l layout) {
	m := startEngines(t, l)
	m.run(t, []part{
		{"the guest is a systemd host with Docker on cgroup " + l.name, aHost},
		{"apt installs the package, and the service runs", installs},
		{"a starved job is tuned by the systemd driver", tunes},
		{"daemon-reload leaves limits as trimtab set them", reloadKeepsLimits},
		{"daemon-reload leaves a GPU that systemd knows", reloadKeepsKnown},
		{"daemon-reload takes a hook's GPU, and trimtab gives it back", reloadIsHealed},
		{"a hidden GPU stays hidden and a shown one open, over daemon-reload, restarts of runtimes and a foreign update", hides},
		{"kill -9 restores", killRestores},
		{"systemctl stop restores", stopRestores},
		{"nothing in the journal is an error", journalIsClean},
		{"apt remove restores, and apt purge leaves nothing", purges},
		{"engines conform by systemd's driver", conform("systemd", bySystemd("host")...)},
	})
}

func startEngines(t *testing.T, l layout) *machine {
	t.Helper()
	if os.Getenv(envEngines) == "" {
		t.Skip("needs a virtual machine of its own: make test-vm-engines")
	}
	return start(t, l)
}

// bySystemd are the suites of three write paths by systemd's driver, with the host's runtimes
// or current ones.
func bySystemd(runtimes string) []suite {
	name, dockers := "", runtimes
	if runtimes != "host" {
		name, dockers = runtimes+" ", runtimes+"_by_systemd"
	}
	return []suite{{name + "Docker by containerd", "docker", "TestConformsByContainerd/" + dockers}, {name + "Docker by its API", "docker", "TestConformsByDockerAPI/" + dockers},
		{name + "containerd", "containerd", "TestConformsUnderSystemd/" + runtimes}}
}

// latencies measures writes by each write path, with systemd's driver and Debian's runtimes.
func latencies(t *testing.T, m *machine) {
	m.drive(t, "systemd")
	for _, binary := range []string{"docker", "containerd"} {
		o := m.try(t, "cd /tmp && /opt/vm/"+binary+".test -test.run '^$' -test.bench BenchmarkApply -test.benchtime 100x 2>&1")
		told := regexp.MustCompile(`(?m)^BenchmarkApply(\S*)\s+\d+\s+\d+ ns/op(.*)$`).FindAllStringSubmatch(o.Stdout, -1)
		if o.Code != 0 || len(told) == 0 {
			t.Errorf("%s ended with %d\n%s%s", binary, o.Code, o.Stdout, o.Stderr)
		}
		for _, row := range told {
			m.table = append(m.table, fmt.Sprintf("    %s%s, 100 writes by systemd's driver, cgroup %s: %s", binary, row[1], m.layout.name, strings.Join(strings.Fields(row[2]), " ")))
		}
	}
}

// memoryCases are those that need a real kernel of v2 to mean anything.
const memoryCases = "(memory_in_use|page_cache)"

// suite is one run of the engines' conformance suite, or of a part of it, in the guest.
type suite struct{ by, binary, test string }

// outcome is how a suite ended, for the table.
type outcome struct {
	passed, failed, skipped int
	took                    time.Duration
}

// conform runs the suite by several write paths at once with one driver of control groups:
// each waits much, and the guest has two CPUs.
func conform(driver string, suites ...suite) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) {
		m.drive(t, driver)
		outcomes := make([]outcome, len(suites))
		t.Run("by", func(t *testing.T) {
			for i, s := range suites {
				t.Run(s.by, func(t *testing.T) {
					t.Parallel()
					outcomes[i] = s.run(t, m)
				})
			}
		})
		for i, o := range outcomes {
			m.table = append(m.table, fmt.Sprintf("    %d of %d conformance cases, %s, %s's driver, cgroup %s: %.0f s; %d need another host or write path",
				o.passed, o.passed+o.failed, suites[i].by, driver, m.layout.name, o.took.Seconds(), o.skipped))
		}
	}
}

// driver is Docker's, and the version of control groups that it found.
func (m *machine) driver(t *testing.T) string {
	t.Helper()
	return m.sh(t, "docker info -f '{{.CgroupDriver}} {{.CgroupVersion}}'")
}

// drive makes Docker use a driver of control groups.
func (m *machine) drive(t *testing.T, driver string) {
	t.Helper()
	want := driver + " " + m.layout.version
	if m.driver(t) != want {
		m.sh(t, `sed -i 's/"exec-opts": [^]]*], //; s/^{/{"exec-opts": ["native.cgroupdriver=`+driver+`"], /' /etc/docker/daemon.json; systemctl restart docker`)
	}
	if got := m.driver(t); got != want {
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
