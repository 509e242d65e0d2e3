package vm

import (
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/view"
)

// opens says what a new process in the container finds at NVIDIA's nodes: open,
// refused or gone.
func (m *machine) opens(t *testing.T, name string, nodes ...string) string {
	t.Helper()
	return strings.Join(strings.Fields(m.sh(t, "/opt/vm/inside opens "+m.pid(t, name)+" "+strings.Join(nodes, " "))), " ")
}

// pid is that of a container's init process.
func (m *machine) pid(t *testing.T, name string) string {
	t.Helper()
	return m.sh(t, "head -1 "+m.cgroup(t, name)+"/cgroup.procs")
}

func (m *machine) wantOpens(t *testing.T, name, when, want string, nodes ...string) {
	t.Helper()
	until(t, name+" "+when, func() (string, bool) {
		got := m.opens(t, name, nodes...)
		return got, got == want
	})
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

// reloadIsHealed: what NVIDIA's hook does to rules, and what every GPU host with it
// and systemd's driver knows.
func reloadIsHealed(t *testing.T, m *machine) {
	m.sh(t, `docker run -d --name hooked --network none --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=0 --label trimtab.mode=tune job-image sleep 1000000`)
	m.sh(t, "mknod /proc/"+m.pid(t, "hooked")+"/root/tmp/gpu c 195 0")
	if got := m.opens(t, "hooked", "/tmp/gpu"); got != "refused" {
		t.Fatalf("without a hook: %s", got)
	}
	t.Log(m.sh(t, "/opt/vm/inside hook "+m.cgroup(t, "hooked")))
	if got := m.opens(t, "hooked", "/tmp/gpu"); got != "open" {
		t.Fatalf("with what the hook does: %s", got)
	}
	until(t, "remembered", func() (string, bool) {
		o := m.try(t, "grep -c docker-"+m.ids["hooked"][:16]+" /var/lib/trimtab/gpu-access.json")
		return o.Stdout + o.Stderr, o.Code == 0
	})
	if o := m.try(t, "trimtab doctor --gpu"); o.Code != 1 || !strings.Contains(o.Stdout, "at risk") {
		t.Errorf("doctor --gpu: %d\n%s", o.Code, o.Stdout)
	}
	c := m.container(t, "hooked")
	if c.Preflight == "" {
		t.Error("its preflight is green")
	}
	heals := 0.0
	for range 2 { // what is repaired by systemd's own means is not lost again
		m.sh(t, "systemctl daemon-reload")
		m.wantOpens(t, "hooked", "after a reload", "open", "/tmp/gpu")
		heals = m.heals(t)
	}
	if heals != 1 {
		t.Errorf("%v repairs, want one: systemd knows the rules since then", heals)
	}
	t.Log(m.sh(t, "trimtab history hooked"))
	m.untilContainer(t, "hooked", "a green preflight", func(c view.Container) bool { return c.Preflight == "" && c.GPULost == "" })
}

func (m *machine) heals(t *testing.T) (n float64) {
	t.Helper()
	for _, c := range m.status(t).Totals.GPUHeals {
		if c.Result == "repaired" {
			n += c.Value
		}
	}
	return n
}

func hides(t *testing.T, m *machine) {
	nodes := []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"}
	m.sh(t, "trimtab gpu hide known 1")
	const hidden = "open gone open"
	m.sh(t, "mknod /proc/"+m.pid(t, "known")+"/root/tmp/one c 195 1")
	for range 3 {
		if got := m.opens(t, "known", nodes...); got != hidden {
			t.Errorf("hidden: %s", got)
		}
		m.sh(t, "systemctl daemon-reload")
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
