package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// What `make test-vm` sets, and what helps to develop a check.
const (
	envCache = "TRIMTAB_VM_CACHE" // where image.sh keeps the guest's disk
	envKeep  = "TRIMTAB_VM_KEEP"  // set: the guest stays up, and where it answers is printed
	envAt    = "TRIMTAB_VM_AT"    // a guest that was kept is used

	envEngines = "TRIMTAB_VM_ENGINES" // set: TestEngines runs too
	envKills   = "TRIMTAB_VM_KILLS"   // how many kills TestKills is to make; unset: it does not run
)

// patience bounds every wait; emulated, the guest is some ten times slower than its host.
const patience = 3 * time.Minute

// TestMachine is one machine's life: its parts come in this order, each on what the
// ones before left.
func TestMachine(t *testing.T) {
	m := start(t, v2)
	m.run(t, []part{
		{"the guest is a systemd host with Docker on cgroup v2", aHost},
		{"receivers of events stand ready", receivers},
		{"apt installs the package, and the service runs", installs},
		{"the sandbox is what docs/security.md says", sandbox},
		{"a starved job is tuned by the systemd driver", tunes},
		{"the script of the host, a webhook, Grafana and a collector are told of the loan, from within the sandbox", tellsOthers},
		{"launches are counted from within the sandbox", counts},
		{"a job's own count, from its log or by datagram, is its rate", countsOwn},
		{"memory limits go down over page cache, and never below what is held", conform("systemd",
			suite{"Docker by containerd", "docker", "TestConformsByContainerd/host/" + memoryCases},
			suite{"Docker by its API", "docker", "TestConformsByDockerAPI/host/" + memoryCases},
			suite{"containerd", "containerd", "TestConformsUnderSystemd/host/" + memoryCases})},
		{"files that take minutes to read again are kept in memory that nobody uses", epochs},
		{"what is read of a control group is what containerd's library reads", readsAlike},
		{"each knob is moved by a plan, read back, and put back", eachKnob},
		{"daemon-reload leaves limits as trimtab set them", reloadKeepsLimits},
		{"daemon-reload leaves a GPU that systemd knows", reloadKeepsKnown},
		{"daemon-reload takes a hook's GPU, and trimtab gives it back", reloadIsHealed},
		{"a hidden GPU stays hidden and a shown one open, over daemon-reload, restarts of runtimes and a foreign update", hides},
		{"containerd restarts", restartsOf("containerd")},
		{"Docker restarts", restartsOf("docker")},
		{"systemctl restart hands over", restartHandsOver},
		{"an upgrade hands over", upgradeHandsOver},
		{"kill -9 restores", killRestores},
		{"OnFailure restores when the daemon cannot stay up", failureRestores},
		{"what systemctl set-property writes is not trimtab's", yields},
		{"a reboot comes back clean", reboots},
		{"systemctl stop restores", stopRestores},
		{"nothing in the journal is an error", journalIsClean},
		{"apt remove restores, and apt purge leaves nothing", purges},
	})
}

type part struct {
	name string
	run  func(*testing.T, *machine)
}

// run runs parts one after another and prints the table of what was checked.
func (m *machine) run(t *testing.T, parts []part) {
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			m.told(t, p.name)
			p.run(t, m)
		})
	}
	t.Log("\n" + strings.Join(m.table, "\n"))
}

// layout is how a guest's control groups are mounted.
type layout struct {
	name    string
	kernel  string // what makes systemd mount them so, on the kernel's command line
	version string // as Docker tells it
	mounts  string // the kinds of file system at /sys/fs/cgroup and /sys/fs/cgroup/unified
	// pid is the directory above all groups by which a container's processes are found,
	// cpu the one that has its quota.
	pid, cpu string
	shares   string // what trimtab doctor says of CPU shares
}

// The layouts that systemd knows.
//
//trimtab:table three kinds of host, only read
var (
	v2 = layout{name: "v2", version: "2", mounts: "cgroup2fs", pid: "/sys/fs/cgroup", cpu: "/sys/fs/cgroup",
		shares: "shares 2, 512, 1024, 2048, 8192 become weights 1, 20, 39, 79, 313 (cgroups v2)"}
	hybrid = v1Layout("v1 with a v2 tree beside", "systemd.unified_cgroup_hierarchy=0", "tmpfs\ncgroup2fs", "hybrid")
	legacy = v1Layout("v1", "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1", "tmpfs", "v1")
)

func v1Layout(name, kernel, mounts, mode string) layout {
	return layout{name: name, kernel: kernel, version: "1", mounts: mounts, pid: "/sys/fs/cgroup/devices", cpu: "/sys/fs/cgroup/cpu",
		shares: "stand as they are (cgroups " + mode + ")"}
}

// readQuota is a command that prints the quota of a group below a layout's cpu directory
// as v2 has it: microseconds in each period of so many.
func (l layout) readQuota(group string) string {
	dir := l.cpu + group
	if l == v2 {
		return "cat " + dir + "/cpu.max"
	}
	return "paste -d ' ' " + dir + "/cpu.cfs_quota_us " + dir + "/cpu.cfs_period_us"
}

// machine is the guest as the parts use it.
type machine struct {
	g      *Guest
	layout layout
	before float64           // the job's rate without trimtab
	ids    map[string]string // of containers, by name
	table  []string
}

// told adds a test's line to the table of what was checked, when it has ended.
func (m *machine) told(t *testing.T, what string) {
	began := time.Now()
	t.Cleanup(func() {
		word := "passed"
		if t.Failed() {
			word = "FAILED"
		}
		m.table = append(m.table, fmt.Sprintf("%s %5.0f s  %s", word, time.Since(began).Seconds(), what))
	})
}

// made is what build makes: the same for all guests of a run.
var made struct {
	sync.Once
	archive string
	err     error
}

// given makes it for the first guest, in the folder that is kept.
func given(ctx context.Context, cache string) (string, error) {
	made.Do(func() {
		dir := filepath.Join(cache, "given")
		if made.err = os.RemoveAll(dir); made.err == nil { // of an earlier run
			made.archive, made.err = build(ctx, dir)
		}
	})
	return made.archive, made.err
}

func start(t *testing.T, l layout) *machine {
	t.Helper()
	if at := os.Getenv(envAt); at != "" {
		g, err := Attach(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		return &machine{g: g, layout: l, ids: map[string]string{}}
	}
	cache := os.Getenv(envCache)
	if cache == "" {
		t.Skip("needs a virtual machine of its own: make test-vm")
	}
	dir := t.TempDir()
	began := time.Now()
	var image, payload string
	var noImage, noPayload error
	var parts sync.WaitGroup
	parts.Go(func() { image, noImage = Image(t.Context(), cache) })
	parts.Go(func() { payload, noPayload = given(t.Context(), cache) })
	parts.Wait()
	if err := errors.Join(noImage, noPayload); err != nil {
		t.Fatal(err)
	}
	t.Logf("made the guest and what it is given in %.0f s", time.Since(began).Seconds())
	began = time.Now()
	g, err := Boot(t.Context(), image, payload, dir, l.kernel)
	m := &machine{g: g, layout: l, ids: map[string]string{}}
	if g != nil {
		t.Cleanup(func() { m.end(t, dir) })
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("booted by %s in %.0f s (emulation: %s)", g.Accel, time.Since(began).Seconds(), emulator(t.Context(), image))
	return m
}

// end keeps console and journal, and ends the guest.
func (m *machine) end(t *testing.T, dir string) {
	if logs := os.Getenv(envLogs); logs != "" {
		err := os.MkdirAll(logs, 0o755)
		if o, failed := m.g.Run(context.WithoutCancel(t.Context()), "journalctl --no-pager -o short-precise"); failed == nil && err == nil {
			err = os.WriteFile(filepath.Join(logs, "journal"), []byte(o.Stdout), 0o644)
		}
		if console, failed := os.ReadFile(m.g.console()); failed == nil && err == nil {
			err = os.WriteFile(filepath.Join(logs, "console"), console, 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if os.Getenv(envKeep) != "" {
		t.Logf("kept: %s=%s, PID %d", envAt, m.g.url, m.g.cmd.Process.Pid)
		<-m.g.ended
	}
	m.g.Close()
}

// try runs a script, whatever becomes of it.
func (m *machine) try(t *testing.T, script string) Outcome {
	t.Helper()
	o, err := m.g.Run(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// sh runs a script that must succeed and returns what it printed, trimmed.
func (m *machine) sh(t *testing.T, script string) string {
	t.Helper()
	o := m.try(t, "set -eu -o pipefail\n"+script)
	if o.Code != 0 {
		t.Fatalf("%s\nended with %d\n%s%s", script, o.Code, o.Stdout, o.Stderr)
	}
	return strings.TrimSpace(o.Stdout)
}

// until asks again and again, and fails with the last answer.
func until(t *testing.T, what string, good func() (string, bool)) {
	t.Helper()
	last, ok := "", false
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		if last, ok = good(); ok {
			return
		}
	}
	t.Fatalf("%s: not within %s; last %s", what, patience, last)
}

// container is what trimtab says of one; the zero value while it knows none.
func (m *machine) container(t *testing.T, name string) (c state.Container) {
	t.Helper()
	o := m.try(t, "trimtab explain "+name+" --output json")
	if o.Code == 0 {
		if err := json.Unmarshal([]byte(o.Stdout), &c); err != nil {
			t.Fatalf("explain: %v\n%s", err, o.Stdout)
		}
	}
	return c
}

func (m *machine) untilContainer(t *testing.T, name, what string, good func(state.Container) bool) (c state.Container) {
	t.Helper()
	defer m.saysWhy(t, name)
	until(t, name+": "+what, func() (string, bool) {
		c = m.container(t, name)
		return fmt.Sprintf("%+v", c), good(c)
	})
	return c
}

// saysWhy is to be deferred: of a test that has failed it tells what trimtab did to a container, and why.
func (m *machine) saysWhy(t *testing.T, name string) {
	t.Helper()
	if t.Failed() {
		t.Log(m.try(t, "trimtab explain "+name+"; trimtab history "+name).Stdout)
	}
}

func (m *machine) status(t *testing.T) (s api.Status) {
	t.Helper()
	if err := json.Unmarshal([]byte(m.sh(t, "trimtab status --output json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// group is a Docker container's scope, below the directory above all groups; it outlives
// a restart. Docker is asked once: its client takes seconds under emulation.
func (m *machine) group(t *testing.T, name string) string {
	t.Helper()
	if m.ids[name] == "" {
		m.ids[name] = m.sh(t, "docker inspect -f '{{.Id}}' "+name)
	}
	return "/system.slice/docker-" + m.ids[name] + ".scope"
}

// cgroup is the directory that has a container's processes, and on v1 its device rules.
func (m *machine) cgroup(t *testing.T, name string) string {
	t.Helper()
	return m.layout.pid + m.group(t, name)
}

// unit is what systemd calls it.
func (m *machine) unit(t *testing.T, name string) string {
	t.Helper()
	return path.Base(m.group(t, name))
}

// readQuota is a command that prints what stands in the kernel.
func (m *machine) readQuota(t *testing.T, name string) string {
	t.Helper()
	return m.layout.readQuota(m.group(t, name))
}

func (m *machine) quota(t *testing.T, name string) string {
	t.Helper()
	return m.sh(t, m.readQuota(t, name))
}

func (m *machine) wantQuota(t *testing.T, name, want, when string) {
	t.Helper()
	if got := m.quota(t, name); got != want {
		t.Errorf("%s: %s has %q, want %q", when, name, got, want)
	}
}

// sampled runs a script while a container's quota is read ten times a second, and returns
// what it was, in order, each once as long as it lasts.
func (m *machine) sampled(t *testing.T, name, script string) []string {
	t.Helper()
	// The script begins once there is a sample of what stood before: a shell takes its time to start, emulated.
	out := m.sh(t, `rm -f /tmp/samples; (while :; do `+m.readQuota(t, name)+`; sleep 0.1; done) >/tmp/samples 2>/dev/null & sampler=$!
trap 'kill $sampler' EXIT
until [ -s /tmp/samples ]; do sleep 0.1; done
{ `+script+`
} >&2
uniq /tmp/samples`)
	return strings.Split(out, "\n")
}

func (m *machine) number(t *testing.T, script string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(m.sh(t, script), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
