package vm

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/state"
)

// The job's owner gave it a third of what it can use: 25 ms of loaders' CPU for a step
// that could take 62 ms. It may have twice as much: less than it can use however an
// emulator's clock runs, so one change is all there is to try.
const (
	startJob = `docker run -d --name job --network none --restart always --label trimtab.mode=tune --label trimtab.cpu.max=0.3 --cpus 0.15 job-image \
		trainer --kernels 4 --kernel-us 15000 --sync blocking --loader-threads 2 --loader-ms 25`
	owners = "15000 100000"
)

// nvidiaNodes are what a driver and its toolkit leave in /dev. Without the links runc
// does not tell systemd of a device.
const nvidiaNodes = `mkdir -p /dev/char; for n in 0:nvidia0 1:nvidia1 255:nvidiactl; do
[ -e /dev/${n#*:} ] || mknod -m 666 /dev/${n#*:} c 195 ${n%%:*}
ln -sf ../${n#*:} /dev/char/195:${n%%:*}
done
`

func aHost(t *testing.T, m *machine) {
	m.sh(t, `[ -e /sys/kernel/btf/vmlinux ] && [ -d /run/systemd/system ]`)
	until(t, "boot", func() (string, bool) {
		o := m.try(t, "systemctl is-system-running; systemctl list-jobs --no-pager; systemctl --failed --no-pager --plain")
		return o.Stdout, strings.HasPrefix(o.Stdout, "running")
	})
	m.drive(t, "systemd") // on v1 Docker takes the other one by itself
	if got := m.sh(t, "stat -f -c %T /sys/fs/cgroup /sys/fs/cgroup/unified 2>/dev/null || true"); got != m.layout.mounts {
		t.Fatalf("control groups are mounted as %q, want %q", got, m.layout.mounts)
	}
	m.sh(t, `docker import --change 'ENV LD_LIBRARY_PATH=/opt/trimtab-vgpu PATH=/bin' /opt/vm/job.tar job-image
`+nvidiaNodes)
	t.Log(m.sh(t, `uname -r; systemctl --version | head -1; docker version -f 'Docker {{.Server.Version}}'; containerd --version; runc --version | head -1; cat /sys/module/apparmor/parameters/enabled`))
}

// installs: the administrator's config is there first: a budget that fits an emulated CPU.
func installs(t *testing.T, m *machine) {
	m.sh(t, startJob)
	m.before = m.rate(t)
	m.install(t, version)
	until(t, "the service", func() (string, bool) {
		o := m.try(t, "systemctl is-active trimtab; systemctl is-enabled trimtab")
		return o.Stdout + o.Stderr, o.Stdout == "active\nenabled\n"
	})
	if s := m.status(t); s.Daemon.Version != version {
		t.Errorf("it is version %q", s.Daemon.Version)
	}
	doctor := m.sh(t, "trimtab doctor || [ $? = 1 ]")
	t.Log(doctor)
	if !strings.Contains(doctor, m.layout.shares) {
		t.Errorf("doctor does not say of runc: %s", m.layout.shares)
	}
	for _, p := range append(m.status(t).Daemon.Probes, m.status(t).Daemon.Engines...) {
		if !p.OK && p.Name != "nvml" && p.Name != "budget" { // reading less often where the guest is slow is as meant
			t.Errorf("%s does not work in the sandbox: %s", p.Name, p.Lost)
		}
	}
}

func (m *machine) install(t *testing.T, version string) {
	t.Helper()
	m.sh(t, `mkdir -p /etc/trimtab/conf.d
echo '{limits: {coolDown: 5s}, overhead: {cpu: 1, perContainer: 0.1}, gpu: {signal: true}}' >/etc/trimtab/conf.d/site.yaml
apt-get -qq -y install /opt/vm/trimtab-`+version+`.deb >&2`)
}

func sandbox(t *testing.T, m *machine) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"trimtab.service", "trimtab-restore.service"} {
		out := m.sh(t, "systemd-analyze security --no-pager "+unit)
		level := regexp.MustCompile(`Overall exposure level for \S+ ([0-9.]+)`).FindStringSubmatch(out)
		if level == nil || !strings.Contains(string(page), level[1]) {
			t.Errorf("%s: %v, and docs/security.md does not say so\n%s", unit, level, out)
		}
	}
	// CAP_NET_ADMIN 12, CAP_MKNOD 27, CAP_SYS_PTRACE 19, CAP_SYS_ADMIN 21, CAP_PERFMON 38, CAP_BPF 39
	want := "CapEff:\t000000c008281000\nCapBnd:\t000000c008281000\nNoNewPrivs:\t1\nSeccomp:\t2"
	got := m.sh(t, `grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/$(systemctl show -p MainPID --value trimtab)/status`)
	if got != want {
		t.Errorf("the daemon runs with\n%s\nwant\n%s", got, want)
	}
	covered := m.sh(t, `awk '$5 ~ "^/proc/(kallsyms|kcore|sys|sysrq-trigger)$" {print $5}' /proc/$(systemctl show -p MainPID --value trimtab)/mountinfo | sort -u`)
	if covered != "/proc/kallsyms\n/proc/kcore\n/proc/sys\n/proc/sysrq-trigger" {
		t.Errorf("of /proc the unit covers\n%s", covered)
	}
	if disk := m.sh(t, `head -c 1 "$(findmnt -no SOURCE /)" >/dev/null && echo disk`); disk != "disk" {
		t.Errorf("outside the unit the disk cannot be read either: %s", disk)
	}
	opened := m.sh(t, `sh -c 'echo $$ >/sys/fs/cgroup/system.slice/trimtab.service/cgroup.procs
head -c 1 /dev/zero >/dev/null && echo zero
head -c 1 "$(findmnt -no SOURCE /)" >/dev/null && echo disk; true'`)
	if opened != "zero" {
		t.Errorf("of devices the unit opens\n%s", opened)
	}
}

func changed(c state.Container) bool { return len(c.Changed) > 0 }

// settled: what stands was proved by a trial, which is asked for where no CPU is idle, or is a loan
// of all that it may have, less what is not worth a write, or of what is known to be enough; and
// no trial runs.
func settled(c state.Container) bool {
	if !changed(c) || c.Trial != nil || c.Rate.PerSecond <= 0 {
		return false
	}
	// All that it may have stands, whether it was lent or a trial proved it: then it is stopped by it still, and stays "lent".
	if now, ok := c.Now[runtime.KnobCPUQuota].CPUs(); ok && c.Enrolment.CPU.Max > 0 && now*(1+policies.DefaultConstants().MinStep) >= c.Enrolment.CPU.Max {
		return true
	}
	if c.Loan == nil {
		return c.Tuning == string(control.StateSettled)
	}
	return c.Loan.Settled
}

// steady waits until the job has its loan, pauses, so that nothing new is tried
// while it is looked at, and returns it with the function that ends the pause.
func (m *machine) steady(t *testing.T) (quota string, resume func()) {
	t.Helper()
	until(t, "a loan that stands", func() (string, bool) {
		m.untilContainer(t, "job", "a settled change", settled)
		m.sh(t, "trimtab pause")
		if c := m.container(t, "job"); !settled(c) {
			m.sh(t, "trimtab resume")
			return "a new trial began", false
		}
		return "", true
	})
	return m.quota(t, "job"), func() { m.sh(t, "trimtab resume") }
}

func tunes(t *testing.T, m *machine) {
	c := m.untilContainer(t, "job", "a settled loan", func(c state.Container) bool { return c.Loan != nil && settled(c) })
	now := m.quota(t, "job")
	if now == owners {
		t.Fatalf("it says that it changed %v, and %q stands", c.Changed, now)
	}
	if after := m.rate(t); after < 1.2*m.before {
		t.Errorf("the job printed %.2f steps/s before and %.2f after", m.before, after)
	} else {
		t.Logf("%q; %.2f steps/s, then %.2f; %s; rate from %s", now, m.before, after, c.Loan.Why, c.Rate.Source)
	}
	if got := m.sh(t, "docker inspect -f '{{.HostConfig.NanoCpus}}' job"); got != "150000000" {
		t.Errorf("docker inspect shows %s", got)
	}
	if got := m.sh(t, "systemctl show -p CPUQuotaPerSecUSec --value "+m.unit(t, "job")); got == "150ms" {
		t.Error("systemd still has the owner's quota")
	}
}

// rate is what the job printed over ten seconds.
func (m *machine) rate(t *testing.T) float64 {
	t.Helper()
	return m.number(t, `sleep 10; docker logs --since 10s job 2>&1 | awk '/^step=/ {sub("step=", "", $1); sub("t=", "", $2); if (!n) {n = $1; t = $2} else if ($2 > t) {r = ($1 - n) / ($2 - t)}} END {print r + 0}'`)
}

// counts: uprobes on CUDA's library in the container.
func counts(t *testing.T, m *machine) {
	m.untilContainer(t, "job", "a rate from CUDA's calls", func(c state.Container) bool {
		return strings.Contains(c.Rate.Source, "launches") || strings.Contains(c.Rate.Source, "synchronisations")
	})
}

// countsOwn: by each of the two ways of docs/rate.md a job's own count is its rate, from within the sandbox.
func countsOwn(t *testing.T, m *machine) {
	m.sh(t, `docker run -d --name logs --network none --label 'trimtab.rate.log=step (\d+)' job-image sh -c 'n=0; while :; do n=$((n+1)); echo step $n; sleep 0.25; done'
docker run -d --name sends --network none --label trimtab.mode=observe -v /run/trimtab/rate:/run/trimtab/rate:ro -v /opt/vm/inside:/inside:ro job-image /inside steps 4`)
	for name, source := range map[string]string{"logs": probes.SourceLog, "sends": probes.SourceDatagram} {
		m.untilContainer(t, name, "a rate by its own count", func(c state.Container) bool {
			return c.Rate.Source == source && c.Rate.PerSecond > 1 && c.Rate.PerSecond < 8
		})
	}
	m.sh(t, "docker rm -f logs sends")
}

func reloadKeepsLimits(t *testing.T, m *machine) {
	now, resume := m.steady(t)
	defer resume()
	got := m.sampled(t, "job", "for i in 1 2 3; do systemctl daemon-reload; sleep 1; done")
	if len(got) != 1 || got[0] != now {
		t.Errorf("over three reloads %q became %q", now, got)
	}
}

// yields: what an administrator sets by systemd is theirs, at once and for good.
func yields(t *testing.T, m *machine) {
	const theirs = "20000 100000"
	now, resume := m.steady(t)
	resume()
	got := m.sampled(t, "job", `systemctl set-property --runtime `+m.unit(t, "job")+` CPUQuota=20%; n=0
until trimtab explain job --output json | grep -q '"yielded"' || [ $n = 100 ]; do n=$((n+1)); sleep 0.5; done
sleep 15`)
	if !slices.Equal(got, []string{now, theirs}) {
		t.Errorf("the quota was %q, want %q and then theirs alone", got, now)
	}
	if c := m.container(t, "job"); !slices.Contains(c.Yielded, runtime.KnobCPUQuota) {
		t.Errorf("it says that it yielded %v, and why it does nothing: %q", c.Yielded, c.WhyNot)
	}
	m.sh(t, "trimtab restore job")
	m.wantQuota(t, "job", theirs, "restored")
	m.sh(t, "trimtab resume job; docker restart -t 0 job") // another life, with the owner's
	m.untilContainer(t, "job", "a change in its new life", changed)
}

// journalIsClean: what the parts before provoked is no error of the daemon's.
func journalIsClean(t *testing.T, m *machine) {
	if got := m.try(t, `journalctl --no-pager -u trimtab -u trimtab-restore -o cat | grep -E 'level=ERROR|panic:|fatal error:' | grep -v 'mode: nonsense'`).Stdout; got != "" {
		t.Errorf("trimtab's journal has errors:\n%s", got)
	}
	if got := m.try(t, `journalctl --no-pager -k -o cat | grep -E 'apparmor="DENIED"|type=1326' | grep trimtab`).Stdout; got != "" {
		t.Errorf("the kernel refused something:\n%s", got)
	}
}
