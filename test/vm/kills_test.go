package vm

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestKills kills what has trimtab's hands on containers on systemd and cgroup v2, half of
// the times by each driver of control groups (`make test-vm-kills`).
func TestKills(t *testing.T) {
	if os.Getenv(envKills) == "" {
		t.Skip("needs a virtual machine of its own, for an hour where it is emulated: make test-vm-kills")
	}
	var kills int
	if _, err := fmt.Sscan(os.Getenv(envKills), &kills); err != nil || kills < 2 {
		t.Fatalf("%s=%s: want a number of kills", envKills, os.Getenv(envKills))
	}
	m := start(t, v2)
	m.run(t, []part{
		{"the guest is a systemd host with Docker on cgroup v2", aHost},
		{"whatever is killed, every original comes back, by systemd's driver", killed("systemd", kills-kills/2)},
		{"whatever is killed, every original comes back, by the cgroupfs driver", killed("cgroupfs", kills/2)},
	})
}

// eachKnob moves every knob on v2.
func eachKnob(t *testing.T, m *machine) {
	o := m.try(t, "cd /tmp && /opt/vm/crash.test -test.v -test.count=1 -test.timeout 10m -test.run TestEachKnob 2>&1")
	if o.Code != 0 || !strings.Contains(o.Stdout, "5 knobs moved") {
		t.Fatalf("ended with %d\n%s%s", o.Code, o.Stdout, o.Stderr)
	}
}

// readsAlike holds our reading of cgroup v2 to that of containerd's library.
func readsAlike(t *testing.T, m *machine) {
	o := m.try(t, "cd /tmp && /opt/vm/cgroup.test -test.v -test.count=1 -test.timeout 10m -test.run TestReadsWhatContainerdReads 2>&1")
	if o.Code != 0 || !strings.Contains(o.Stdout, "--- PASS: TestReadsWhatContainerdReads") {
		t.Fatalf("ended with %d\n%s%s", o.Code, o.Stdout, o.Stderr)
	}
}

func killed(driver string, kills int) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) {
		m.drive(t, driver)
		o := m.try(t, fmt.Sprintf("cd /tmp && TRIMTAB=/opt/vm/trimtab TRIMTAB_KILLS=%d /opt/vm/crash.test -test.v -test.count=1 -test.timeout 2h -test.run TestAThousandKills 2>&1", kills))
		told := regexp.MustCompile(`\d+ kills in \d+ rounds: .*`).FindString(o.Stdout)
		if o.Code != 0 || told == "" {
			t.Fatalf("ended with %d\n%s%s", o.Code, o.Stdout[max(0, len(o.Stdout)-6000):], o.Stderr)
		}
		if strings.Contains(o.Stdout, "no GPU is hidden here") {
			t.Error("no GPU was hidden: of that nothing is proved")
		}
		m.table = append(m.table, "    "+driver+"'s driver, cgroup v2: "+told)
	}
}
