package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestExposureIsDocumented: docs/security.md gives the number of each unit, and names
// each exposure that systemd counts. The weights are of the version it was measured with.
func TestExposureIsDocumented(t *testing.T) {
	analyze := tool(t, "systemd-analyze", "apt-get install systemd")
	page := read(t, "../docs/security.md")
	version := strings.Fields(output(t, analyze, "--version"))[1]
	if !strings.Contains(page, "with systemd "+version+":") {
		t.Skipf("needs the systemd that docs/security.md was measured with: this is %s", version)
	}
	overall := regexp.MustCompile(`Overall exposure level for \S+ ([0-9.]+)`)
	exposed := regexp.MustCompile(`(?m)^✗ (\S+)`)
	for unit, said := range map[string]string{"trimtab.service": "**exposure %** of 10", "trimtab-restore.service": "`trimtab-restore.service` has %."} {
		out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", unit).CombinedOutput()
		level := overall.FindSubmatch(out)
		if level == nil {
			t.Fatalf("%s: %v\n%s", unit, err, out)
		}
		if want := strings.Replace(said, "%", string(level[1]), 1); !strings.Contains(page, want) {
			t.Errorf("%s has %s, and docs/security.md does not say %q", unit, level[1], want)
		}
		if unit != "trimtab.service" {
			continue
		}
		for _, m := range exposed.FindAllStringSubmatch(string(out), -1) {
			if name := nameOf(m[1]); !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/security.md does not explain %s (%s)", m[1], name)
			}
		}
	}
}

// TestLessExposureIsDocumented: what docs/security.md says that drop-ins give.
func TestLessExposureIsDocumented(t *testing.T) {
	analyze, page := tool(t, "systemd-analyze", "apt-get install systemd"), read(t, "../docs/security.md")
	if version := strings.Fields(output(t, analyze, "--version"))[1]; !strings.Contains(page, "with systemd "+version+":") {
		t.Skipf("needs the systemd that docs/security.md was measured with: this is %s", version)
	}
	_, less, _ := strings.Cut(page, "less.conf\n[Service]\n")
	less, _, found := strings.Cut(less, "\n```\n")
	if !found {
		t.Fatal("docs/security.md shows no less.conf")
	}
	const local = "\nIPAddressDeny=any\nIPAddressAllow=localhost\n"
	for said, lines := range map[string]string{"would give %.": local + "ProtectProc=ptraceable\n", "above it has %,": less, "and % with": less + local} {
		unit := filepath.Join(t.TempDir(), "trimtab.service")
		if err := os.WriteFile(unit, []byte(strings.Replace(read(t, "trimtab.service"), "\n[Install]", "\n"+strings.TrimSpace(lines)+"\n[Install]", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		out := output(t, analyze, "security", "--offline=true", "--no-pager", unit)
		level := regexp.MustCompile(`Overall exposure level for \S+ ([0-9.]+)`).FindStringSubmatch(out)
		if level == nil || !strings.Contains(page, strings.Replace(said, "%", level[1], 1)) {
			t.Errorf("docs/security.md does not say %q of %v with\n%s", said, level, lines)
		}
	}
}

// nameOf is how the page names an exposure: CapabilityBoundingSet=~CAP_BPF is CAP_BPF,
// RestrictAddressFamilies=~AF_(INET|INET6) AF_INET, User=/DynamicUser= User=.
func nameOf(exposure string) string {
	setting, value, _ := strings.Cut(exposure, "=")
	value = strings.TrimPrefix(value, "~")
	switch setting {
	case "CapabilityBoundingSet", "SystemCallFilter":
		return value
	case "RestrictAddressFamilies":
		return strings.NewReplacer("(INET|INET6)", "INET").Replace(value)
	}
	return setting + "="
}

// TestUnitClosesWaysOut: what systemd's number does not count and docs/security.md says.
func TestUnitClosesWaysOut(t *testing.T) {
	for _, name := range []string{"trimtab.service", "trimtab-restore.service"} {
		unit := read(t, name)
		for _, line := range []string{
			"ProtectKernelTunables=yes",
			"ReadOnlyPaths=-/proc/sys -/proc/sysrq-trigger",
			"InaccessiblePaths=-/proc/kcore",
			"SystemCallFilter=~process_vm_readv process_vm_writev pidfd_getfd @resources",
			"LimitCORE=0",
			"DevicePolicy=closed",
			"DeviceAllow=char-* rwm",
		} {
			if !strings.Contains(unit, "\n"+line+"\n") {
				t.Errorf("%s lacks %s", name, line)
			}
		}
	}
}

// TestUnitLetsOthersBeTold: what docs/notify.md says that the unit permits, connections over the
// network and a script of the host, nothing in it refuses.
func TestUnitLetsOthersBeTold(t *testing.T) {
	unit := read(t, "trimtab.service")
	for _, key := range []string{"PrivateNetwork=", "IPAddressDeny=", "SocketBindDeny=", "NoExecPaths=", "MemoryDenyWriteExecute=", "TasksMax="} {
		if strings.Contains(unit, "\n"+key) {
			t.Errorf("trimtab.service has %s: say in docs/notify.md which drop-in lets others be told", key)
		}
	}
	// A later line takes from what an earlier one gives: there is none but these.
	for key, want := range map[string][]string{
		"RestrictAddressFamilies": {"AF_UNIX AF_INET AF_INET6 AF_NETLINK"},
		"SystemCallFilter":        {"@system-service seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self bpf perf_event_open", "~process_vm_readv process_vm_writev pidfd_getfd @resources"},
	} {
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^\s*`+key+`\s*=\s*(.*)$`).FindAllStringSubmatch(unit, -1) {
			got = append(got, m[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("trimtab.service has %s %q, want %q: say in docs/notify.md what else it refuses", key, got, want)
		}
	}
	allowed := output(t, tool(t, "systemd-analyze", "apt-get install systemd"), "syscall-filter", "@system-service")
	for _, set := range []string{"@network-io", "@process", "@signal"} {
		if !strings.Contains(allowed, set) {
			t.Errorf("system calls of %s are refused", set)
		}
	}
}
