package vm

import (
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/tuner/state"
)

// restartsOf: a runtime that restarts takes nothing along, and can be used again.
func restartsOf(unit string) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) {
		now, resume := m.steady(t)
		got := m.sampled(t, "job", "systemctl restart "+unit+"; sleep 5")
		if len(got) != 1 || got[0] != now {
			t.Errorf("over the restart %q became %q", now, got)
		}
		m.untilEngines(t)
		resume()
		m.sh(t, "trimtab restore job") // through the write path that was away
		m.wantQuota(t, "job", owners, "restored")
		m.sh(t, "trimtab resume job")
		m.untilContainer(t, "job", "a change", changed)
	}
}

// untilEngines waits until trimtab reaches them all again.
func (m *machine) untilEngines(t *testing.T) {
	t.Helper()
	until(t, "engines", func() (string, bool) {
		for _, e := range m.status(t).Daemon.Engines {
			if !e.OK {
				return e.Name + ": " + e.Lost, false
			}
		}
		return "", true
	})
}

// handsOver: what stands stays through all of it, and the next daemon knows the owner's.
func (m *machine) handsOver(t *testing.T, script string) {
	t.Helper()
	m.sh(t, "trimtab gpu hide known 1")
	now, resume := m.steady(t)
	pid := m.status(t).Daemon.PID
	got := m.sampled(t, "job", script+"\nuntil trimtab status >/dev/null 2>&1; do sleep 0.3; done; sleep 3")
	if len(got) != 1 || got[0] != now {
		t.Errorf("%q became %q", now, got)
	}
	if m.status(t).Daemon.PID == pid {
		t.Error("it is the same process")
	}
	m.untilContainer(t, "job", "the change is known", changed)
	if got := m.opens(t, "known", "/dev/nvidia0", "/dev/nvidia1"); got != "open gone" {
		t.Errorf("what is hidden: %s", got)
	}
	resume()
	m.sh(t, "trimtab gpu show known --all")
}

func restartHandsOver(t *testing.T, m *machine) { m.handsOver(t, "systemctl restart trimtab") }

func upgradeHandsOver(t *testing.T, m *machine) {
	m.handsOver(t, "dpkg -i /opt/vm/trimtab-"+newer+".deb")
	if s := m.status(t); s.Daemon.Version != newer {
		t.Errorf("%q runs", s.Daemon.Version)
	}
}

// tunedAndHidden is the state that a sudden end is to leave behind.
func (m *machine) tunedAndHidden(t *testing.T) {
	t.Helper()
	m.untilContainer(t, "job", "a change", changed)
	m.untilContainer(t, "known", "enrolled", func(c state.Container) bool { return c.Enrolment.Mode == "tune" && c.WhyNot != "paused" })
	m.sh(t, "trimtab gpu hide known 1")
	if got := m.opens(t, "known", "/dev/nvidia1"); got != "gone" {
		t.Fatalf("hidden: %s", got)
	}
}

func (m *machine) wantShown(t *testing.T, when string) {
	t.Helper()
	m.wantOpens(t, "known", when, "open open", "/dev/nvidia0", "/dev/nvidia1")
	until(t, "known is no longer told what it sees", func() (string, bool) {
		got := m.view(t, "known")
		return got, got == "no file"
	})
}

func killRestores(t *testing.T, m *machine) {
	m.tunedAndHidden(t)
	got := m.sampled(t, "job", `systemctl kill -s KILL trimtab
sleep 1; until trimtab status >/dev/null 2>&1; do sleep 0.3; done; n=0
until grep -qx '`+owners+`' /tmp/samples || [ $n = 300 ]; do n=$((n+1)); sleep 0.2; done`)
	if !slices.Contains(got, owners) {
		t.Errorf("the owner's quota did not come back: %q", got)
	}
	m.wantShown(t, "after kill -9")
}

// failureRestores: a config that no daemon starts with. systemd tries ten times, here
// without the pauses in between.
func failureRestores(t *testing.T, m *machine) {
	m.tunedAndHidden(t)
	m.sh(t, `mkdir -p /run/systemd/system/trimtab.service.d
printf '[Service]\nRestartSec=100ms\n' >/run/systemd/system/trimtab.service.d/vm.conf
systemctl daemon-reload
echo 'mode: nonsense' >/etc/trimtab/conf.d/zz.yaml; systemctl reset-failed trimtab; systemctl kill -s KILL trimtab`)
	until(t, "systemd gives up and restores", func() (string, bool) {
		o := m.try(t, "systemctl show -p ActiveState --value trimtab; systemctl show -p ActiveState,Result,ExecMainExitTimestampMonotonic,ExecMainStatus trimtab-restore")
		return o.Stdout, strings.HasPrefix(o.Stdout, "failed") && strings.Contains(o.Stdout, "ActiveState=inactive") && !strings.Contains(o.Stdout, "Monotonic=0\n")
	})
	m.saysWhyItFailed(t)
	m.wantQuota(t, "job", owners, "after OnFailure")
	m.wantShown(t, "after OnFailure")
	t.Log(m.sh(t, "journalctl --no-pager -b -u trimtab-restore -o cat | tail -5"))
	m.sh(t, "rm -r /etc/trimtab/conf.d/zz.yaml /run/systemd/system/trimtab.service.d; systemctl daemon-reload; systemctl reset-failed trimtab; systemctl start trimtab")
}

// saysWhyItFailed: the commands that docs/troubleshooting.md names tell of a daemon that cannot start that
// it has failed, why, and that its limits were given back.
func (m *machine) saysWhyItFailed(t *testing.T) {
	t.Helper()
	const why = `mode: "nonsense" is not known`
	m.ask(t, "trimtab status", answer{codes: []int{1}, wants: []string{"is not running"}, not: []string{"^daemon"}})
	m.ask(t, "systemctl status trimtab", answer{codes: []int{3}, wants: []string{"Active: failed"}})
	m.ask(t, "journalctl -u trimtab -n 50", answer{wants: []string{why}})
	m.ask(t, "systemctl status trimtab trimtab-restore", answer{codes: []int{3}, wants: []string{"Active: failed", `trimtab-restore\.service - `, `restore --offline .*status=0/SUCCESS`}})
	m.ask(t, "journalctl -u trimtab", answer{wants: []string{"Started trimtab", why}})
}

func stopRestores(t *testing.T, m *machine) {
	m.tunedAndHidden(t)
	m.sh(t, "systemctl stop trimtab")
	m.wantQuota(t, "job", owners, "stopped")
	m.wantShown(t, "stopped")
	if got := m.sh(t, "systemctl show -p Result --value trimtab; ls /var/lib/trimtab/originals"); got != "success" {
		t.Errorf("it ended with, and left: %s", got)
	}
	const enable, standing = "systemctl --no-reload enable --now trimtab", "systemctl is-active trimtab; systemctl is-enabled trimtab; trimtab status >/dev/null && echo answers"
	m.ask(t, enable, answer{})
	m.ask(t, "systemctl disable --now trimtab", answer{})
	m.ask(t, standing, answer{codes: []int{1}, wants: []string{"^inactive$", "^disabled$"}, not: []string{"^answers$"}})
	m.wantQuota(t, "job", owners, "disabled")
	m.ask(t, enable, answer{}) // as after the package of an RPM host
	m.ask(t, standing, answer{wants: []string{"^active$", "^enabled$", "^answers$"}})
}

func purges(t *testing.T, m *machine) {
	m.tunedAndHidden(t)
	m.sh(t, "apt-get -qq -y remove trimtab >&2")
	m.wantQuota(t, "job", owners, "removed")
	m.wantShown(t, "removed")
	m.sh(t, "docker tag job-image trimtab-train:1") // as make demo leaves it
	m.ask(t, "docker image rm trimtab-train:1", answer{wants: []string{"^Untagged: trimtab-train:1$"}})
	m.sh(t, "apt-get -qq -y purge trimtab >&2") // the first day purges what was not removed before
	left := m.sh(t, `find / /run /dev/shm /sys/fs/bpf -xdev -iname '*trimtab*' -not -path '/opt/vm*' -not -path '/var/lib/docker/*'
getent group trimtab trimtab-read || true
systemctl list-unit-files --no-legend 'trimtab*' || true
ls -A /sys/fs/bpf
ps -eo args | grep '^/usr/bin/trimtab' || true
grep -A1 '^Package: trimtab' /var/lib/dpkg/status || true`)
	if left != "" {
		t.Errorf("left:\n%s", left)
	}
}

// reboots: containers begin a new life with what their owners gave; nothing is pending for
// the old one, and the new one is tuned again.
func reboots(t *testing.T, m *machine) {
	m.tunedAndHidden(t)
	m.sh(t, "systemd-run --quiet --on-active=1s systemctl reboot")
	if err := m.g.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "boot", func() (string, bool) {
		o := m.try(t, "systemctl is-system-running; systemctl --failed --no-pager --plain")
		return o.Stdout, strings.HasPrefix(o.Stdout, "running")
	})
	if got := m.sh(t, "systemctl is-active trimtab docker"); got != "active\nactive" {
		t.Errorf("after the reboot: %s", got)
	}
	if got := m.try(t, "journalctl --no-pager -b -u trimtab -o cat | grep -E 'level=(ERROR|WARN)'").Stdout; got != "" {
		t.Logf("it says: %s", got)
	}
	m.sh(t, nvidiaNodes+"docker start known")
	m.wantShown(t, "after the reboot")
	c := m.untilContainer(t, "job", "a change", changed)
	if q := c.Original["cpu.quota"]; q != owners {
		t.Errorf("the owner's quota is taken for %q", q)
	}
}
