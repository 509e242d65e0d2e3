package vm

import (
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/view"
)

// opens says what a process in the container finds at NVIDIA's nodes: no driver is
// there, so an open that the control group allows gives ENXIO, else EPERM.
func (m *machine) opens(t *testing.T, name string, nodes ...string) string {
	t.Helper()
	script := "for f in " + strings.Join(nodes, " ") + `; do e=$(cat $f 2>&1); case "$e" in
*permitted*) echo refused;; *"No such device"*) echo open;; *"No such file"*) echo gone;; *) echo "$e";; esac; done`
	return strings.Join(strings.Fields(m.sh(t, "docker exec "+name+" sh -c '"+script+"'")), " ")
}

// reloadKeepsKnown: --device tells systemd, so nothing is lost, and nothing is to be done.
func reloadKeepsKnown(t *testing.T, m *machine) {
	m.sh(t, `docker run -d --name known --network none --label trimtab.mode=tune --device /dev/nvidia0 --device /dev/nvidia1 --device /dev/nvidiactl job-image sleep 1000000`)
	m.untilContainer(t, "known", "seen", func(c view.Container) bool { return c.Name != "" })
	nodes := []string{"/dev/nvidia0", "/dev/nvidiactl"}
	for range 3 {
		m.sh(t, "systemctl daemon-reload")
		if got := m.opens(t, "known", nodes...); got != "open open" {
			t.Errorf("after a reload: %s", got)
		}
	}
	m.sh(t, "trimtab doctor --gpu")
	if s := m.status(t); s.Totals.GPUAccessLost > 0 || len(s.Totals.GPUHeals) > 0 {
		t.Errorf("healing minds: %+v", s.Totals.GPUHeals)
	}
}

func hides(t *testing.T, m *machine) {
	nodes := []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"}
	m.sh(t, "trimtab gpu hide known 1")
	const hidden = "open gone open"
	for range 3 {
		if got := m.opens(t, "known", nodes...); got != hidden {
			t.Errorf("hidden: %s", got)
		}
		m.sh(t, "docker exec known mknod /tmp/one c 195 1 2>/dev/null || true; systemctl daemon-reload")
		if got := m.opens(t, "known", "/tmp/one"); got != "refused" {
			t.Errorf("hidden, by another node: %s", got)
		}
	}
	time.Sleep(3 * time.Second) // rounds of healing
	if got := m.opens(t, "known", nodes...); got != hidden {
		t.Errorf("healing gave it back: %s", got)
	}
	t.Log(m.sh(t, "trimtab gpu ls"))
	m.sh(t, "trimtab gpu show known --all")
	m.sh(t, "systemctl daemon-reload")
	if got := m.opens(t, "known", append(nodes, "/tmp/one")...); got != "open open open open" {
		t.Errorf("shown: %s", got)
	}
}
