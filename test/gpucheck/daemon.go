package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/policies/lend"
	"github.com/trimtab/trimtab/policies/share"
	"github.com/trimtab/trimtab/probes"
	probecgroup "github.com/trimtab/trimtab/probes/cgroup"
	"github.com/trimtab/trimtab/probes/cuda"
	"github.com/trimtab/trimtab/probes/host"
	"github.com/trimtab/trimtab/probes/kernel"
	"github.com/trimtab/trimtab/probes/nccl"
	"github.com/trimtab/trimtab/probes/network"
	"github.com/trimtab/trimtab/probes/nvml"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/probes/ticks"
	"github.com/trimtab/trimtab/probes/uprobe"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/agent"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/originals"
	"github.com/trimtab/trimtab/tuner/state"
)

// daemon is trimtab's own loop, probes, engine and actuator in this process, over the
// check's containerd: what `trimtab daemon` runs, without API, history and metrics.
type daemon struct {
	loop   *agent.Agent
	tap    *tap
	cancel context.CancelFunc
	ended  chan error
	close  []func() error
}

// settings of one daemon.
type settings struct {
	mode policies.Mode
	// everyCall lifts the budget of uprobes: each launch is to be counted, whatever it costs.
	everyCall bool
	dir       string // for originals
	record    string // the recording's name, where recordings are kept; "": none
}

// launch starts a daemon on a container. end or restore must be called.
func (c *check) launch(ctx context.Context, j *job, s settings) (*daemon, error) {
	d := &daemon{tap: &tap{}, ended: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(c.log, nil))
	all, err := d.open(log)
	if err != nil {
		return nil, errors.Join(err, d.shut())
	}
	engine, err := c.site.newEngine(log)
	if err != nil {
		return nil, errors.Join(err, d.shut())
	}
	manuals, err := enrolment.OpenManuals(noManuals{})
	if err != nil {
		return nil, errors.Join(err, d.shut())
	}
	cfg := config.Default()
	cfg.Mode = s.mode
	if s.everyCall {
		cfg.Overhead.PerContainer = 0 // none is kept
	}
	opts := agent.Options{
		Engines: []runtime.Engine{engine}, Probes: all, ReadHost: d.readHost(log), Policies: func(k *policies.Constants) []policies.Policy {
			return []policies.Policy{lend.New(k), knee.New(k), share.New(k)}
		},
		Actuator: actuator.New(actuator.Options{Engines: map[string]actuator.Engine{engine.Name(): engine},
			Store:     originals.New(originals.Options{Dir: filepath.Join(s.dir, "originals")}),
			Preflight: green, CheckGPU: reaches, Logger: log}),
		Manuals: manuals, Holds: &noHolds{}, Preflight: why, Settings: agent.Settings{Core: control.Defaults(), Rules: cfg.Rules(), EnrolHost: cfg.Host,
			BudgetCPU: cfg.Overhead.CPU, BudgetMemory: uint64(cfg.Overhead.Memory), BudgetJob: cfg.Overhead.PerContainer, LoadedAt: time.Now()},
		Tick: time.Second, Version: "gpu-check", Log: log,
	}
	rec := &recorder{}
	if s.record != "" && c.o.record != "" {
		opts.Recorder = rec
	}
	d.loop = agent.New(opts)
	if opts.Recorder != nil {
		if err := rec.begin(c.o.record, s.record, d.loop.Epoch(), opts.Settings.Core); err != nil {
			return nil, errors.Join(err, d.shut())
		}
		d.close = append([]func() error{rec.close}, d.close...) // last: what the others still say is kept
	}
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() { d.ended <- d.loop.Run(ctx) }()
	return d, nil
}

// open loads the probes. All of them are wanted: what a daemon may do without, the
// check may not.
func (d *daemon) open(log *slog.Logger) (all []agent.Probe, err error) {
	mode, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		return nil, err
	}
	add := func(p probes.Probe) {
		all = append(all, agent.Probe{Probe: p})
		d.close = append(d.close, p.Close)
	}
	finder := uprobe.NewFinder()
	d.close = append(d.close, finder.Close)
	add(probecgroup.New())
	threads, err := kernel.New(kernel.Options{TasksByV1CPU: mode == runtime.CgroupV1})
	if err != nil {
		return all, fmt.Errorf("kernel probe: %w", err)
	}
	add(threads)
	ticks, err := ticks.New(finder)
	if err != nil {
		return all, fmt.Errorf("ticks probe: %w", err)
	}
	add(ticks)
	calls, err := cuda.New(finder)
	if err != nil {
		return all, fmt.Errorf("cuda probe: %w", err)
	}
	add(calls)
	var marks *ebpf.Map = calls.Counters()
	collectives, err := nccl.New(finder, marks)
	if err != nil {
		return all, fmt.Errorf("nccl probe: %w", err)
	}
	add(collectives)
	add(network.New(network.Options{TasksByV1CPU: mode == runtime.CgroupV1}))
	all = append(all, agent.Probe{Probe: d.tap}) // last: it sees what the others read
	return all, nil
}

// readHost is the host with its devices, as the daemon puts it together.
func (d *daemon) readHost(log *slog.Logger) func() (probes.Host, error) {
	h := host.New("/proc")
	owners := procfs.NewOwners("/proc")
	reader := nvml.New(nvml.Options{Owner: owners.Key, Logger: log})
	d.close = append(d.close, reader.Close)
	d.tap.owners = owners
	return func() (probes.Host, error) {
		reading, err := h.Read()
		if err != nil {
			return reading, err
		}
		if reading.Devices, err = reader.Read(context.Background()); err != nil {
			log.Warn("nvml", "error", err)
		}
		d.tap.devices(reading.Devices)
		return reading, nil
	}
}

// end stops reading and leaves what stands.
func (d *daemon) end() error {
	d.cancel()
	return errors.Join(<-d.ended, d.shut())
}

// restore stops it as SIGTERM does: every original goes back.
func (d *daemon) restore(ctx context.Context) error {
	d.cancel()
	err := <-d.ended
	return errors.Join(err, d.loop.Shutdown(ctx, false), d.shut())
}

// shut closes in reverse: the finder after its clients.
func (d *daemon) shut() (err error) {
	for i := len(d.close) - 1; i >= 0; i-- {
		err = errors.Join(err, d.close[i]())
	}
	d.close = nil
	return err
}

// view is what trimtab publishes of the container.
func (d *daemon) view() (v state.Container, ok bool) {
	for _, c := range d.loop.Snapshot().Containers {
		return c, true
	}
	return v, false
}

func why(ctx context.Context, c runtime.Container) string {
	if r := device.Preflight(ctx, c, device.Options{}); !r.Green {
		return r.String()
	}
	return ""
}

func green(ctx context.Context, c runtime.Container) (bool, string) {
	w := why(ctx, c)
	return w == "", w
}

func reaches(ctx context.Context, c runtime.Container) error {
	if access, err := device.CheckAccess(ctx, c); access == device.AccessRefused {
		return fmt.Errorf("container %q can no longer open its GPU: %w", c.Name, err)
	}
	return nil
}

// tap keeps the raw readings of the latest tick.
type tap struct {
	owners *procfs.Owners

	mu    sync.Mutex
	key   string
	last  probes.Sample
	reads int
	duty  map[string][]probes.DutySample // by device
	all   []probes.Device
}

func (t *tap) Name() string { return "tap" }

func (t *tap) Watch(target probes.Target) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.key = target.Key
	return t.owners.Set([]probes.Target{target})
}

func (t *tap) Unwatch(string) {}

func (t *tap) Read(_ context.Context, into map[string]*probes.Sample) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := into[t.key]; s != nil {
		t.last = *s
		t.reads++
	}
	return nil
}

func (t *tap) Cost() probes.Cost { return probes.Cost{} }

func (t *tap) Close() error { return nil }

func (t *tap) devices(all []probes.Device) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.duty == nil {
		t.duty = map[string][]probes.DutySample{}
	}
	for _, d := range all {
		t.duty[d.UUID] = append(t.duty[d.UUID], d.Duty...)
	}
	t.all = all
}

// activities is the latest reading of each device, in words.
func (t *tap) activities() (out []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	value := func(v *float64) string {
		if v == nil {
			return "not told"
		}
		return fmt.Sprintf("%.3g", *v)
	}
	for _, d := range t.all {
		out = append(out, fmt.Sprintf("GPU %d: SMs %s, tensor cores %s, memory %s (shares); %s W, %s of %s MHz %v; PCIe to it %s B/s, from it %s B/s", d.Index,
			value(d.SMActive), value(d.TensorActive), value(d.DRAMActive), value(d.PowerW), value(d.ClockMHz), value(d.MaxClockMHz), d.Slowdown, value(d.PCIeRxBps), value(d.PCIeTxBps)))
	}
	return out
}

func (t *tap) sample() probes.Sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

func (t *tap) readings() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reads
}

// readPatience is for what a busy machine delays: probes that attach, and the next readings.
const readPatience = time.Minute

// counting waits until the probes have counted a launch; if none comes, the check that follows tells.
func (d *daemon) counting(ctx context.Context) error {
	return d.until(ctx, func() bool { return counts(d).Launches > 0 })
}

// readsOn waits for two readings, of which the second began later than now.
func (d *daemon) readsOn(ctx context.Context) error {
	before := d.tap.readings()
	return d.until(ctx, func() bool { return d.tap.readings() >= before+2 })
}

func (d *daemon) until(ctx context.Context, ready func() bool) error {
	for began := time.Now(); !ready() && time.Since(began) < readPatience; {
		if err := workload.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// meanDuty is the mean of the samples of the busiest device between two instants
// of CLOCK_MONOTONIC; n: how many.
func (t *tap) meanDuty(from, to time.Duration) (mean float64, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, samples := range t.duty {
		sum, count := 0.0, 0
		for _, s := range samples {
			if s.AtNs >= from.Nanoseconds() && s.AtNs <= to.Nanoseconds() {
				sum += s.Share
				count++
			}
		}
		if count > 0 && (n == 0 || sum/float64(count) > mean) {
			mean, n = sum/float64(count), count
		}
	}
	return mean, n
}

// noManuals and noHolds: nobody enrols or freezes by hand here.
type noManuals struct{}

func (noManuals) Load() ([]enrolment.Manual, error) { return nil, nil }
func (noManuals) Save([]enrolment.Manual) error     { return nil }

type noHolds struct{}

func (*noHolds) Yielded(string) []runtime.Knob { return nil }
func (*noHolds) AddYield(string, runtime.Knob) {}
func (*noHolds) Prune(func(string) bool)       {}
func (*noHolds) Held(string) bool              { return false }
func (*noHolds) SetHeld(bool, ...string) error { return nil }
func (*noHolds) Paused() bool                  { return false }
func (*noHolds) SetPaused(bool) error          { return nil }
func (*noHolds) Save() error                   { return nil }

// openLog is the daemon's log: for people, after a run with problems.
func openLog(dir string) (*os.File, error) {
	return os.Create(filepath.Join(dir, "trimtab.log"))
}
