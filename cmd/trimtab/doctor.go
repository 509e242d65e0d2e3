package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/render"
	"github.com/trimtab/trimtab/probes/kernel"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/runtime/shares"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/state"
)

// finding is one line of the doctor's report.
type finding struct {
	What  string `json:"what"`
	Level string `json:"level"` // ok, degraded, broken
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"`
}

// btfFile tells the kernel's types, which programs are loaded by.
const btfFile = "/sys/kernel/btf/vmlinux"

// The levels; their order is the exit code.
const (
	levelOK       = "ok"
	levelDegraded = "degraded"
	levelBroken   = "broken"
)

func doctorCommand() *cobra.Command {
	var gpu bool
	cmd := withConfig(&cobra.Command{
		Use:   "doctor",
		Short: "Say what this host can and cannot do for trimtab, each with its fix",
		Long: "Exit status: 0 able to tune, 1 able with less, 2 cannot tune.\n" +
			"With --gpu: which containers could lose access to their GPUs, and by what; 0 none, 1 some.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if gpu {
				return doctorGPU(cmd)
			}
			findings := examineShown(cmd)
			return showGraded(cmd, findings, worst(findings), func() string { return findingsText(findings) })
		},
	})
	cmd.Flags().BoolVar(&gpu, "gpu", false, "report on the containers that hold a GPU")
	return cmd
}

// worst is the exit code of findings.
func worst(findings []finding) int {
	code := 0
	for _, f := range findings {
		code = max(code, slices.Index([]string{levelOK, levelDegraded, levelBroken}, f.Level))
	}
	return code
}

// examineShown examines, and says on a terminal what is being tried.
func examineShown(cmd *cobra.Command) []finding {
	var now steps
	now.begin("reading the config")
	_, stop := startProgress(cmd.ErrOrStderr(), now.text)
	defer stop()
	findings := examine(cmd, now.begin)
	now.begin("asking the daemon what it had no room for")
	if s, err := daemonClient(cmd).Status(cmd.Context()); err == nil { // else none runs, or answers: that is for `trimtab status`
		findings = append(findings, examineLosses(s.Daemon)...)
	}
	if d, err := daemonClient(cmd).Devices(cmd.Context()); err == nil {
		findings = append(findings, examineXIDs(d.Devices)...)
	}
	return findings
}

// examineLosses says which parts of a daemon that runs had no room for all that happened. What is
// counted since its start is past, and makes no host less able.
func examineLosses(d state.Daemon) (out []finding) {
	for _, p := range d.Probes {
		if p.LostEvents > 0 {
			out = append(out, finding{What: "losses", Level: levelOK, Text: fmt.Sprintf("%s had no room for %d events since the daemon started", render.Clean(p.Name), p.LostEvents),
				Hint: "a larger overhead.maps has room for more threads; the flight recorder and the history need a disk that is faster, or less full"})
		}
	}
	return out
}

// examine looks at everything; one failure does not end the rest. trying is told what comes next.
func examine(cmd *cobra.Command, trying func(string)) []finding {
	ctx := cmd.Context()
	file, dropDir := configFiles(cmd)
	cfg, warnings, err := config.Load(file, dropDir)
	findings := []finding{grade("config", err, levelBroken, cmp.Or(strings.Join(warnings, "; "), file), "`trimtab config check` names each problem")}
	if err != nil {
		cfg = config.Default()
	}
	_, btf := os.Stat(btfFile)
	findings = append(findings, examinePrivileges(), examineKernel(),
		grade("BTF", btf, levelBroken, btfFile, "a kernel built with CONFIG_DEBUG_INFO_BTF=y (all current distributions')"))
	trying("loading and attaching the kernel programs")
	findings = append(findings, examinePrograms()...)
	mode, cgroups := cgroup.Detect(cgroup.DefaultRoot)
	_, psi := os.ReadFile("/proc/pressure/cpu")
	findings = append(findings, grade("cgroups", cgroups, levelBroken, string(mode), "mount the control groups: systemd does"),
		grade("pressure", psi, levelDegraded, "PSI is on", "boot with psi=1: without it neighbours and memory are watched less closely"))
	trying("asking the engines what runs")
	findings = append(findings, examineEngines(ctx, cfg)...)
	trying("measuring what the runtimes make of CPU weights")
	findings = append(findings, examineShares(ctx)...)
	trying("asking NVML for the GPUs")
	findings = append(findings, examineGPU(lookNVML(ctx))...)
	trying("asking those that are told of decisions")
	findings = append(findings, examineReceivers(ctx, cfg)...)
	trying("looking at what is supported, and at the state on disk")
	findings = append(findings, examineSupport(cfg)...)
	return append(findings, examineState(cfg), examineBooks(ctx, cfg), examineDisabled())
}

// checkHost is `trimtab daemon --check`: the doctor's findings, as an error where
// the host cannot be tuned.
func checkHost(cmd *cobra.Command) error {
	findings := examineShown(cmd)
	if err := show(cmd, findings, func() string { return findingsText(findings) }); err != nil {
		return err
	}
	if worst(findings) == 2 {
		return errors.New("this host cannot be tuned")
	}
	return nil
}

// grade makes a finding of an error.
func grade(what string, err error, level, text, hint string) finding {
	if err == nil {
		return finding{What: what, Level: levelOK, Text: text}
	}
	return finding{What: what, Level: level, Text: err.Error(), Hint: hint}
}

func examinePrivileges() finding {
	if os.Geteuid() == 0 {
		return finding{What: "privileges", Level: levelOK, Text: "root"}
	}
	return finding{What: "privileges", Level: levelBroken, Text: "not root: programs cannot be loaded, nor other users' processes read",
		Hint: "run as root, or as the systemd service with the capabilities of packaging/trimtab.service"}
}

func examineKernel() finding {
	var u unix.Utsname
	_ = unix.Uname(&u) // fails for a bad address alone
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 5 || major == 5 && minor < 15) {
		return finding{What: "kernel", Level: levelBroken, Text: release + " is older than 5.15", Hint: "boot a kernel of at least 5.15"}
	}
	return finding{What: "kernel", Level: levelOK, Text: release}
}

// examinePrograms loads and attaches, as the daemon would.
func examinePrograms() []finding {
	p, err := kernel.New(kernel.Options{})
	if err != nil {
		return []finding{grade("programs", err, levelBroken, "", "see above; without them nothing is measured and nothing tuned")}
	}
	missing := p.Missing()
	if err := p.Close(); err != nil || len(missing) == 0 {
		return []finding{grade("programs", err, levelDegraded, "all loaded and attached", "")}
	}
	var out []finding
	for _, lost := range missing {
		out = append(out, finding{What: "programs", Level: levelDegraded, Text: lost, Hint: "a newer kernel"})
	}
	return out
}

// examineReceivers asks each that is told of decisions whether it could be.
func examineReceivers(ctx context.Context, cfg config.Config) (out []finding) {
	none := func() *state.Snapshot { return &state.Snapshot{} }
	n, err := newReceivers(cfg.Notify, none, func() error { return nil }, slog.New(slog.DiscardHandler))
	if err != nil {
		return []finding{grade("notify", err, levelDegraded, "", "")}
	}
	n.Check(ctx, func(name string, err error) {
		out = append(out, grade(name, err, levelDegraded, "can be told of decisions", "the rest goes on without it; docs/notify.md"))
	})
	return out
}

// examineState writes and removes a file where originals would go.
func examineState(cfg config.Config) finding {
	const hint = "make the state directory writable, and free disk space: without a durable original nothing is changed"
	f, err := os.CreateTemp(cfg.StateDir, ".doctor-*")
	if errors.Is(err, os.ErrNotExist) {
		return finding{What: "state", Level: levelOK, Text: cfg.StateDir + " will be made at the first start"}
	}
	if err != nil {
		return grade("state", err, levelBroken, "", hint)
	}
	_, err = f.WriteString("trimtab")
	err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
	return grade("state", err, levelBroken, cfg.StateDir+" is writable", hint)
}

func examineDisabled() finding {
	if disabled() {
		return finding{What: "disabled", Level: levelBroken, Text: disabledFile + " stops every write", Hint: "remove it"}
	}
	return finding{What: "disabled", Level: levelOK, Text: "no " + disabledFile}
}

func findingsText(findings []finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-11s %-9s %s\n", f.What, f.Level, f.Text)
		if f.Hint != "" {
			fmt.Fprintf(&b, "%21s hint: %s\n", "", f.Hint)
		}
	}
	b.WriteString([]string{"this host can be tuned", "this host can be tuned, with less confidence", "this host cannot be tuned"}[worst(findings)])
	return b.String() + "\n"
}

// reachTimeout bounds the look at each engine.
const reachTimeout = 5 * time.Second

// examineEngines connects to each and finds its write path. One that does not
// answer is broken only where no other does.
func examineEngines(ctx context.Context, cfg config.Config) []finding {
	all, err := openEngines(cfg, nil)
	if err != nil {
		return []finding{grade("engines", err, levelBroken, "", "correct docker.host and containerd.address in the config")}
	}
	defer all.Close()
	var out []finding
	answered := false
	for _, e := range all {
		found, ok := examineEngine(ctx, cfg, e)
		out, answered = append(out, found...), answered || ok
	}
	for i := range out {
		if out[i].Level == levelBroken && answered {
			out[i].Level = levelDegraded
		}
	}
	return out
}

func examineEngine(ctx context.Context, cfg config.Config, e runtime.Engine) (out []finding, ok bool) {
	address, hint := cfg.Docker.Host, "start Docker (`systemctl start docker`), or set docker.host in the config; on a host with containerd alone: docker.enabled: false, containerd.enabled: true"
	if e.Name() == containerd.EngineName {
		address, hint = cfg.Containerd.Address, "start containerd (`systemctl start containerd`), or set containerd.address in the config"
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	running, err := listRunning(ctx, e)
	if err != nil {
		return []finding{grade(e.Name(), err, levelBroken, "", hint)}, false
	}
	text := fmt.Sprintf("reached at %s, %d running containers", address, len(running))
	kubernetes := 0
	for _, c := range running {
		if c.Kubernetes {
			kubernetes++
		}
	}
	if kubernetes > 0 {
		text += fmt.Sprintf(", %d of them Kubernetes': observed only", kubernetes)
	}
	out = []finding{{What: e.Name(), Level: levelOK, Text: text}}
	if d, isDocker := e.(*docker.Engine); isDocker && len(running) == 0 {
		socket, err := d.Containerd(ctx)
		return append(out, grade("writes", err, levelDegraded, "containerd answers at "+socket+"; whether it is Docker's a running container will tell", writesHint)), true
	}
	if len(running) == 0 {
		return out, true
	}
	writes := finding{What: "writes", Level: levelOK, Text: e.WritePath(ctx, running[0])}
	if e.Name() == docker.EngineName && !strings.HasPrefix(writes.Text, "containerd/") {
		writes.Level, writes.Hint = levelDegraded, writesHint
	}
	return append(out, writes), true
}

const writesHint = "let trimtab reach containerd's socket (docker.containerd in the config): Docker's own API cannot take back all that it sets"

// examineShares tells what CPU shares, Docker's --cpu-shares, become on this host:
// versions of runtimes convert them in different ways, so each that is here is tried.
func examineShares(ctx context.Context) []finding {
	if os.Geteuid() != 0 {
		return nil
	}
	var out []finding
	for _, name := range []string{"runc", "crun"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		got, err := shares.Calibrate(ctx, path)
		f := grade("shares", err, levelDegraded, filepath.Base(path)+": "+got.String(), "ratios of CPU weights are not known; see the error")
		out = append(out, f)
	}
	return out
}
