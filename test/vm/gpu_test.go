package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/tuner/state"
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
	m.sh(t, `docker run -d --name known --network none --label trimtab.mode=tune --label trimtab.gpu.signal=USR1 --device /dev/nvidia0 --device /dev/nvidia1 --device /dev/nvidiactl job-image \
		sh -c 'trap "echo >>/tmp/signals" USR1; while :; do sleep 1000000 & wait; kill $!; done'`)
	m.untilContainer(t, "known", "seen", func(c state.Container) bool { return c.Name != "" })
	nodes := []string{"/dev/nvidia0", "/dev/nvidiactl"}
	for range 3 {
		m.sh(t, "systemctl daemon-reload")
		if got := m.opens(t, "known", nodes...); got != "open open" {
			t.Errorf("after a reload: %s", got)
		}
	}
	m.sh(t, "trimtab doctor --gpu")
	if s := m.status(t); s.Totals.GPUAccessLost > 0 || len(s.Totals.GPURepairs) > 0 {
		t.Errorf("the repair minds: %+v", s.Totals.GPURepairs)
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
	m.untilContainer(t, "hooked", "a preflight that is not green", func(c state.Container) bool { return c.Preflight != "" })
	// What is repaired by systemd's own means is not lost again.
	m.table = append(m.table, "    "+m.sh(t, "/opt/vm/inside reload "+m.pid(t, "hooked")+" /tmp/gpu"))
	m.sh(t, "systemctl daemon-reload")
	m.wantOpens(t, "hooked", "after a reload", "open", "/tmp/gpu")
	heals := m.heals(t)
	if heals != 1 {
		t.Errorf("%v repairs, want one: systemd knows the rules since then", heals)
	}
	t.Log(m.sh(t, "trimtab history hooked"))
	m.untilContainer(t, "hooked", "a green preflight", func(c state.Container) bool { return c.Preflight == "" && c.GPULost == "" })
}

func (m *machine) heals(t *testing.T) (n float64) {
	t.Helper()
	for _, c := range m.status(t).Totals.GPURepairs {
		if c.Result == "repaired" {
			n += c.Value
		}
	}
	return n
}

// view is what the file in a container says of the GPUs that it sees.
func (m *machine) view(t *testing.T, name string) string {
	t.Helper()
	return strings.Join(strings.Fields(m.sh(t, "cat /proc/"+m.pid(t, name)+"/root/run/trimtab/gpus 2>/dev/null || echo no file")), " ")
}

// signals counts those that it was sent.
func (m *machine) signals(t *testing.T, name string) float64 {
	t.Helper()
	return m.number(t, "{ cat /proc/"+m.pid(t, name)+"/root/tmp/signals 2>/dev/null || true; } | wc -l")
}

// rules are all that says which devices a container may open, and its nodes: the list or
// the programs in the kernel, systemd's own apart, which is made of what it lists.
func (m *machine) rules(t *testing.T, name string) string {
	t.Helper()
	return m.sh(t, `stat -c '%N %A %u:%g %t:%T' /proc/`+m.pid(t, name)+`/root/dev/nvidia* | sed 's:/proc/[0-9]*/root::'
systemctl show -p DevicePolicy -p DeviceAllow `+m.unit(t, name)+` | sort
/opt/vm/inside rules `+m.cgroup(t, name))
}

// hides: what is hidden stays so and what is shown stays open, whatever systemd, the
// runtimes and people at Docker's tool do meanwhile, and the container is told. In the
// end all rules are as they were.
func hides(t *testing.T, m *machine) {
	nodes := []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/tmp/one"}
	m.sh(t, "mknod /proc/"+m.pid(t, "known")+"/root/tmp/one c 195 1")
	rules, signals := m.rules(t, "known"), m.signals(t, "known")
	for i, way := range []struct{ change, opens, view string }{
		{"hide known 1", "open gone open refused", "0"},
		{"show known --all", "open open open open", "0 1"},
	} {
		m.sh(t, "trimtab gpu "+way.change)
		for _, meanwhile := range []string{"true", "systemctl daemon-reload", "systemctl restart containerd", "systemctl restart docker",
			fmt.Sprintf("docker update --cpus 0.%d known", 6+i), "systemctl set-property --runtime " + m.unit(t, "known") + " TasksMax=4000", "systemctl daemon-reload"} {
			m.sh(t, meanwhile)
			if got := m.opens(t, "known", nodes...); got != way.opens {
				t.Errorf("%s, then %s: %s, want %s", way.change, meanwhile, got, way.opens)
			}
		}
		time.Sleep(3 * time.Second) // rounds of repair
		if got := m.opens(t, "known", nodes...); got != way.opens {
			t.Errorf("%s, then repair: %s, want %s", way.change, got, way.opens)
		}
		if got := m.view(t, "known"); got != way.view {
			t.Errorf("%s: it is told that it sees %q, want %q", way.change, got, way.view)
		}
		until(t, "the signal after "+way.change, func() (string, bool) {
			got := m.signals(t, "known") - signals
			return fmt.Sprint(got), got == float64(i+1)
		})
		m.untilEngines(t)
		t.Log(m.sh(t, "trimtab gpu ls"))
	}
	if diff := cmp.Diff(rules, m.rules(t, "known")); diff != "" {
		t.Errorf("its rules before and after differ (-before +after):\n%s", diff)
	}
}
