package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/policies/lend"
	"github.com/trimtab/trimtab/policies/share"
	probecgroup "github.com/trimtab/trimtab/probes/cgroup"
	"github.com/trimtab/trimtab/probes/child"
	"github.com/trimtab/trimtab/probes/network"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/probes/uprobe"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/agent"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/metrics"
	"github.com/trimtab/trimtab/tuner/notify"
	"github.com/trimtab/trimtab/tuner/originals"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// disabledFile stops every write while it exists.
const disabledFile = "/etc/trimtab/disabled"

// builtin are the policies that decide, in the order in which they are asked: what is free is
// lent first; what is scarce is tried.
func builtin(k *policies.Constants) []policies.Policy {
	return []policies.Policy{lend.New(k), knee.New(k), share.New(k)}
}

// components are what the daemon is made of, with what must be closed at the end.
type components struct {
	cfg          config.Config
	loop         *agent.Agent
	engines      engines
	probes       []agent.Probe
	network      *network.Probe
	devices      *devices
	finder       *uprobe.Finder
	missing      []state.Part
	actuator     *actuator.Actuator
	manuals      *enrolment.Manuals
	holds        *holds
	visibilities *device.Visibility
	state        *statefile.Store
	history      *history.Store
	profileStore *profiles.Store
	known        *knownJobs
	identifier   identifier
	recorder     *recorder
	series       *series.Store
	receivers    *notify.Notifier
	handover     bool
	lastTick     atomic.Pointer[time.Time] // the agent's
	taken        [3]api.Meter              // connections, by the API, the metrics and the page
	lock         *os.File
	hostLock     *os.File // nil: none could be made
	log          *slog.Logger
}

// assemble makes the parts. What is optional degrades with a word in missing;
// an error is for what trimtab cannot be without: its state directory, above all.
func assemble(ctx context.Context, cfg config.Config, log *slog.Logger) (*components, error) {
	p := &components{cfg: cfg, log: log, series: new(series.Store)}
	var err error
	if p.lock, err = lockDir(cfg.StateDir); err != nil {
		return nil, err
	}
	if p.hostLock, err = lockHost(hostLockFile, cfg, log); err != nil {
		return nil, errors.Join(err, p.lock.Close())
	}
	if p.state, err = statefile.Open(cfg.StateDir); err != nil {
		return nil, errors.Join(err, p.unlock())
	}
	p.openState()
	if err := settleSwitchedOff(ctx, cfg, p.visibilities.Left, log); err != nil {
		log.Error("not all is back of an engine that is switched off; `trimtab restore` tries again while the daemon is stopped", "error", err)
	}
	if p.engines, err = openEngines(cfg, log); err != nil {
		return nil, errors.Join(err, p.unlock())
	}
	p.identifier = openIdentifier(cfg, log)
	p.openProbes()
	p.actuator = newActuator(cfg, p.engines, p.visibilities.Left, log)
	if p.receivers, err = newReceivers(cfg.Notify, func() *state.Snapshot { return p.loop.Snapshot() }, p.alive, log); err != nil {
		log.Error("nobody is told of decisions", "error", err)
	}
	return p, nil
}

// newActuator is shared with `trimtab restore --offline`. left is a container with the
// GPUs that it is to see.
func newActuator(cfg config.Config, all engines, left func(runtime.Container) runtime.Container, log *slog.Logger) *actuator.Actuator {
	return actuator.New(actuator.Options{
		Engines: all.byName(),
		Store:   originals.New(originals.Options{Dir: originalsDir(cfg)}),
		Preflight: func(ctx context.Context, c runtime.Container) (bool, string) {
			r := device.Preflight(ctx, left(c), device.Options{})
			return r.Green, r.String()
		},
		CheckGPU: func(ctx context.Context, c runtime.Container) error { return checkGPU(ctx, left(c)) }, Memory: memoryUse, Disabled: disabled, Logger: log,
	})
}

// tellLast bounds how long the end waits for what is still to be told.
const tellLast = 5 * time.Second

// newReceivers makes those that the config names. What is wrong with one is said when it is told
// something, and by doctor.
func newReceivers(c config.Notify, latest func() *state.Snapshot, healthy func() error, log *slog.Logger) (*notify.Notifier, error) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.NewCollector(latest))
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return notify.New(notify.Options{Config: c, Host: host, Version: version(), Latest: latest, Healthy: healthy, Metrics: reg,
		Start: child.Start, Log: log.With("component", "notify")}), nil
}

// above is what bounds the control groups above a container.
func above(c runtime.Container) (a enrolment.AncestorLimit) {
	if cpus, group, err := cgroup.QuotaAbove(c.Cgroup); err == nil { // of a group that went away nothing is asked
		a.CPUs, a.Group = cpus, group
	}
	if bytes, group, err := cgroup.MemoryAbove(c.Cgroup); err == nil {
		a.Memory, a.MemoryGroup = bytes, group
	}
	return a
}

func originalsDir(cfg config.Config) string { return filepath.Join(cfg.StateDir, "originals") }

func disabled() bool {
	_, err := os.Lstat(disabledFile)
	return err == nil
}

// checkGPU fails only on a proved loss: where access cannot be tried, the
// preflight has already said so.
func checkGPU(ctx context.Context, c runtime.Container) error {
	if len(c.GPUs) == 0 {
		return nil
	}
	if access, err := device.CheckAccess(ctx, c); access == device.AccessRefused {
		return fmt.Errorf("container %q can no longer open its GPU: %w", c.Name, err)
	}
	return nil
}

// memoryUse reads what a memory limit must leave room for.
func memoryUse(_ context.Context, c runtime.Container) (actuator.MemoryUse, error) {
	m, err := probecgroup.ReadMemory(agent.Target(c))
	return actuator.MemoryUse{Anon: m.Anon, Shmem: m.Shmem, Swap: m.Swap, Usage: m.Usage, Rigid: m.Rigid}, err
}

// lockPatience: a child that a killed daemon was just starting holds its files, and the
// lock with them, until it is another program.
const lockPatience = 2 * time.Second

// lockDir refuses a second daemon on the same state, whatever its socket.
func lockDir(dir string) (*os.File, error) {
	if err := statefile.MakeDir(dir, 0o750); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	f, err := openLock(dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := statefile.Lock(f, lockPatience); err != nil {
		return nil, errors.Join(lockRefused(dir, err), f.Close())
	}
	return f, nil
}

// lockRefused: only a lock that somebody holds is another daemon's. A disk that knows no locks
// (ENOLCK, EOPNOTSUPP) says so itself.
func lockRefused(dir string, err error) error {
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another trimtab daemon works on %s: stop it first (`systemctl stop trimtab`)", dir)
	}
	return fmt.Errorf("state directory: lock %s: %w", filepath.Join(dir, "lock"), err)
}

// openLock opens the file that is locked. On a disk that became read-only originals can still be
// put back: an old lock file serves there, or the directory itself.
func openLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if !errors.Is(err, unix.EROFS) {
		return f, err
	}
	if f, err = os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0); !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	return os.Open(dir)
}

// openState opens what remembers; each part goes without if it must.
func (p *components) openState() {
	var err error
	p.holds = openHolds(p.state, p.log)
	if p.manuals, err = enrolment.OpenManuals(stored[[]enrolment.Manual]{p.state, topicManuals}); err != nil {
		// Who was taken out by hand is not known any more: nothing is changed until a person resumes.
		p.log.Error("what was enabled and disabled by hand cannot be read: paused until `trimtab resume`", "error", err)
		if err := p.holds.SetPaused(true); err != nil {
			p.log.Error("the pause ends with this daemon: it could not be stored", "error", err)
		}
	}
	p.visibilities = newVisibility(p.state)
	if err := p.visibilities.Unreadable(); err != nil {
		p.log.Error("GPUs may stay hidden", "error", err)
	}
	p.handover = p.takeHandover()
	p.history, err = history.Open(filepath.Join(p.cfg.StateDir, "history.db"), history.Options{MaxBytes: int64(p.cfg.History.MaxBytes), MaxAge: time.Duration(p.cfg.History.MaxAge),
		Warn: func(warning error) { p.log.Warn("history", "warning", warning) }})
	if err != nil {
		p.log.Error("history is not kept", "error", err)
	}
	if p.cfg.Record.Ring > 0 {
		if p.recorder, err = openRecorder(filepath.Join(p.cfg.StateDir, "flight"), int64(p.cfg.Record.Ring), coreConfig(p.cfg)); err != nil {
			p.log.Error("the flight recorder is off", "error", err)
		}
	}
	p.profileStore, p.known = openKnown(p.state, p.recorder, p.log)
}

// options wires the agent.
func (p *components) options(status func(string)) agent.Options {
	o := agent.Options{
		Engines: p.engines.list(), Probes: p.probes, Missing: p.missing, ReadHost: p.readHost(), Policies: builtin, Store: p.profileStore, Known: p.known,
		Identify: p.identifier.Of, Actuator: p.actuator, Manuals: p.manuals, Holds: p.holds, Preflight: p.preflight, Above: above, GPU: p.visibilities, GPUMemory: stored[map[string][]runtime.DeviceRule]{p.state, topicGPU}, Visibility: &actuator.Visibility{GPUVisibilities: p.visibilities}, Disabled: disabled,
		Settings: settings(p.cfg), Tick: time.Duration(p.cfg.Tick), Version: version(), Handover: p.handover,
		Notify: status, Alive: p.beat, Series: p.series, Log: p.log,
		Others: func() (sum time.Duration) {
			for i := range p.taken {
				sum += p.taken[i].Spent()
			}
			return sum
		},
	}
	if p.history != nil {
		o.History, o.Accounts = p.history, p.history
	}
	if p.recorder != nil {
		o.Recorder = p.recorder
	}
	if p.receivers != nil {
		o.Receivers = p.receivers
	}
	return o
}

func (p *components) preflight(ctx context.Context, c runtime.Container) string {
	if r := device.Preflight(ctx, p.visibilities.Left(c), device.Options{}); !r.Green {
		return r.String()
	}
	return ""
}

// settings derives from the config what the agent may be given anew.
func settings(cfg config.Config) agent.Settings {
	return agent.Settings{Core: coreConfig(cfg), Rules: cfg.Rules(), EnrolHost: cfg.Host, BudgetCPU: cfg.Overhead.CPU, BudgetMemory: uint64(cfg.Overhead.Memory), BudgetMaps: uint64(cfg.Overhead.Maps), RepairGPUAccess: cfg.RepairGPUAccess, GPUSignal: cfg.GPU.Signal, BudgetJob: cfg.Overhead.PerContainer, LoadedAt: time.Now()}
}

// coreConfig is the part of the config that the core works with.
func coreConfig(cfg config.Config) control.Config {
	c := control.Defaults()
	k := &c.Constants
	k.Notable, k.Exposed, k.MaxSteal, k.PlanMinGain = cfg.Thresholds.Severity, cfg.Thresholds.Communication, cfg.Thresholds.MaxExcessSteal, cfg.Thresholds.MinGain
	k.CoolSeconds = cfg.Limits.CoolDown.D().Seconds()
	k.HideUnused, k.ShowFree = cfg.GPU.HideAfter.D().Seconds(), cfg.GPU.ShowAfter.D().Seconds()
	// Others of the host may be short of no more than a container.
	c.LeftCPUShare = k.RightMargin

	c.ReserveCPUs, c.ReserveCPUShare = cfg.Reserve.CPUs.CPUs, cfg.Reserve.CPUs.Share // of the host's, not of those that the daemon may run on
	c.ReserveMemory, c.ReserveMemoryShare = cfg.Reserve.Memory.Bytes, cfg.Reserve.Memory.Share
	c.MaxTuned, c.Objective = cfg.MaxTuned, cfg.Objective
	c.Idle.AfterNs = time.Duration(cfg.GPU.IdleAfter).Nanoseconds()
	c.ChangesPerMinute = cfg.Limits.ChangesPerMinute
	return c
}

// beat notes that the agent ticks, for watchdog and health.
func (p *components) beat() {
	now := time.Now() // with the monotonic clock: a step of the wall clock is no hang
	p.lastTick.Store(&now)
}

// alive is an error where the agent has not ticked for long.
func (p *components) alive() error {
	last := p.lastTick.Load()
	if last == nil {
		return nil // not started
	}
	if age := time.Since(*last); age > max(10*time.Second, 10*time.Duration(p.cfg.Tick)) {
		return fmt.Errorf("the agent has not ticked for %s", age.Round(time.Second))
	}
	return nil
}

func (p *components) close() {
	for _, pr := range p.probes {
		if err := pr.Close(); err != nil {
			p.log.Warn("probe", "probe", pr.Name(), "error", err)
		}
	}
	if err := p.finder.Close(); err != nil {
		p.log.Warn("uprobes", "error", err)
	}
	var errs []error
	if p.recorder != nil {
		errs = append(errs, p.recorder.Close())
	}
	if p.history != nil {
		errs = append(errs, p.history.Close())
	}
	errs = append(errs, p.engines.Close(), p.unlock())
	if err := errors.Join(errs...); err != nil {
		p.log.Warn("closing", "error", err)
	}
}

// The topics of the state directory.
const (
	topicManuals  = "enrolled"
	topicHolds    = "holds"
	topicHandover = "handover"
	topicGPU      = "gpu-access" // what containers could reach of their GPUs
)

// stored is one topic of the state directory; nothing where it was not put yet.
type stored[T any] struct {
	s     *statefile.Store
	topic string
}

func (m stored[T]) Load() (v T, err error) {
	if err = m.s.GetState(m.topic, &v); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return v, err
}

func (m stored[T]) Save(v T) error { return m.s.PutState(m.topic, v) }

// handoverMark says that the daemon before left on purpose what stands.
type handoverMark struct {
	Boot   string `json:"boot"`
	UnixNs int64  `json:"time"`
	// SinceBootNs is CLOCK_BOOTTIME, which nobody sets: it tells the mark's age. 0: of an earlier version.
	SinceBootNs int64 `json:"sinceBoot,omitempty"`
}

// age is how long ago the mark was left, in this boot.
func (m handoverMark) age() time.Duration {
	if m.SinceBootNs == 0 {
		return time.Since(time.Unix(0, m.UnixNs))
	}
	return time.Duration(procfs.BootNs() - m.SinceBootNs)
}

// handoverFor is how long a mark counts: a restart or an upgrade takes seconds,
// and what nobody has looked after for longer goes back.
const handoverFor = 5 * time.Minute

func (p *components) markHandover() error {
	boot, err := cgroup.BootID("/proc")
	if err != nil {
		return err
	}
	return p.state.PutState(topicHandover, handoverMark{Boot: boot, UnixNs: time.Now().UnixNano(), SinceBootNs: procfs.BootNs()})
}

// takeHandover reads the mark and removes it, so that a crash from now on restores.
func (p *components) takeHandover() bool {
	var m handoverMark
	if err := p.state.GetState(topicHandover, &m); err != nil {
		return false
	}
	boot, err := cgroup.BootID("/proc")
	age := m.age()
	fresh := err == nil && m.Boot == boot && age >= 0 && age < handoverFor
	if err := p.state.PutState(topicHandover, handoverMark{}); err != nil {
		p.log.Error("the handover mark stays; what an earlier daemon left is restored", "error", err)
		return false
	}
	return fresh
}

// hostLockFile keeps apart daemons that work on one host with different state directories: each
// would take the other's values for originals. The one with the default directory holds it alone.
// Others, which tests and trials are, share it.
const hostLockFile = "/run/trimtab/host.lock"

// lockHost refuses a daemon beside another one. Where the file cannot be made or locked there is no
// lock: the state directory and the socket still keep two apart.
func lockHost(path string, cfg config.Config, log *slog.Logger) (*os.File, error) {
	take := statefile.Share
	if filepath.Clean(cfg.StateDir) == config.Default().StateDir {
		take = statefile.Lock
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	if err == nil {
		if err = take(f, lockPatience); err == nil {
			return f, nil
		}
		_ = f.Close() // nothing was written
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("another trimtab daemon, with a state directory other than %s, works on this host: stop it first", cfg.StateDir)
	}
	log.Warn("a daemon with another state directory would not be noticed", "error", err)
	return nil, nil
}

// unlock is for the end of all else.
func (p *components) unlock() error {
	if p.hostLock == nil {
		return p.lock.Close()
	}
	return errors.Join(p.lock.Close(), p.hostLock.Close())
}
