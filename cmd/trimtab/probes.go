package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trimtab/trimtab/probes"
	probecgroup "github.com/trimtab/trimtab/probes/cgroup"
	"github.com/trimtab/trimtab/probes/cuda"
	"github.com/trimtab/trimtab/probes/host"
	"github.com/trimtab/trimtab/probes/kernel"
	"github.com/trimtab/trimtab/probes/mpi"
	"github.com/trimtab/trimtab/probes/nccl"
	"github.com/trimtab/trimtab/probes/network"
	"github.com/trimtab/trimtab/probes/nvml"
	"github.com/trimtab/trimtab/probes/process"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/probes/rate"
	"github.com/trimtab/trimtab/probes/ticks"
	"github.com/trimtab/trimtab/probes/uprobe"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/tuner/agent"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/state"
)

// openProbes attaches what can be attached. The order counts: the kernel probe
// makes the part that others add their ticks to.
func (p *components) openProbes() {
	mode, err := cgroup.Detect(cgroup.DefaultRoot)
	if err != nil {
		p.without("cgroup", "limits and memory are not read", err.Error())
	}
	p.probes = append(p.probes, agent.Probe{Probe: probecgroup.New(), All: true})
	if k, err := kernel.New(kernel.Options{TasksByV1CPU: mode == runtime.CgroupV1}.FitMaps(uint64(p.cfg.Overhead.Maps))); err != nil {
		p.without("kernel", "no breakdown, no verdicts, nothing is tuned", err.Error())
	} else {
		p.with(k, k.Missing())
	}
	p.with(process.New("/proc"), nil)
	p.openUprobes()
	p.network = network.New(network.Options{TasksByV1CPU: mode == runtime.CgroupV1})
	p.with(p.network, p.network.Missing())
	owners := procfs.NewOwners("/proc")
	counts := rate.New(rate.Options{
		Logs: p.engines.Logs, Dir: filepath.Join(filepath.Dir(p.cfg.API.Socket), "rate"), Logger: p.log,
		Owner: owners.Key, TasksByV1CPU: mode == runtime.CgroupV1,
	})
	p.with(counts, counts.Missing())
	p.devices = newDevices(owners, p.log)
	p.probes = append(p.probes, agent.Probe{Probe: p.devices, All: true})
}

// openUprobes loads the probes on libraries; they share one finder, and nothing is
// attached before a watched process maps what one of them knows.
func (p *components) openUprobes() {
	p.finder = uprobe.NewFinder()
	p.finder.HashLibraries(func(text string) string { return identity.Word(p.identifier.key, "mapped libraries", text) })
	t, err := ticks.New(p.finder)
	p.withOpened("ticks", "rates come from calls and wake-ups alone", t, err)
	var marks *ebpf.Map
	c, err := cuda.New(p.finder)
	if err == nil {
		marks = c.Counters()
	}
	p.withOpened("cuda", "launches, copies and waits for devices are not seen", c, err)
	m, err := mpi.New(p.finder)
	p.withOpened("mpi", "waits of MPI ranks look like work", m, err)
	n, err := nccl.New(p.finder, marks)
	p.withOpened("nccl", "collectives are not seen", n, err)
}

// withOpened takes a probe, or says what it costs that it could not be opened.
func (p *components) withOpened(name, costs string, probe probes.Probe, err error) {
	if err != nil {
		p.without(name, costs, err.Error())
		return
	}
	p.with(probe, nil)
}

func (p *components) with(probe probes.Probe, missing []string) {
	for _, lost := range missing {
		p.without(probe.Name()+" (part)", "a part of the probe is off", lost) // the probe itself reads
	}
	p.probes = append(p.probes, agent.Probe{Probe: probe})
}

// without says once what is off, and what that costs.
func (p *components) without(name, costs, why string) {
	p.log.Warn(costs, "probe", name, "error", why)
	p.missing = append(p.missing, state.Part{Name: name, Since: time.Now().UnixNano(), Lost: why})
}

// readHost puts the node's reading together.
func (p *components) readHost() func() (probes.Host, error) {
	h := host.New("/proc")
	return func() (probes.Host, error) {
		reading, err := h.Read()
		if err != nil {
			return reading, err
		}
		// What these cannot read their own probes tell; the host's reading goes on.
		reading.Devices, _ = p.devices.reader.Read(context.Background())
		reading.Links, _ = p.network.HostLinks()
		return reading, nil
	}
}

// devices tells NVML's readings, and who sends datagrams, whose process is whose, and the agent how NVML fares.
type devices struct {
	reader  *nvml.Reader
	owners  *procfs.Owners
	targets map[string]probes.Target
	unsure  bool // of some container, or not asked about it yet
}

func newDevices(owners *procfs.Owners, log *slog.Logger) *devices {
	return &devices{reader: nvml.New(nvml.Options{Owner: owners.Key, Logger: log}), owners: owners, targets: map[string]probes.Target{}}
}

func (d *devices) Name() string { return "nvml" }

func (d *devices) Watch(t probes.Target) error {
	d.targets[t.Key], d.unsure = t, true
	return nil
}

func (d *devices) Unwatch(key string) {
	delete(d.targets, key)
	d.unsure = true // Read sees to it, once for all that came and went
}

// Read adds nothing to samples: devices are the host's. Of those that came and went it learns whose
// processes are whose. A container whose cgroup cannot be found is mostly one that has just ended:
// until the next time its processes are the host's.
func (d *devices) Read(context.Context, map[string]*probes.Sample) error {
	if d.unsure {
		all := slices.SortedFunc(maps.Values(d.targets), func(a, b probes.Target) int { return strings.Compare(a.Key, b.Key) })
		d.unsure = d.owners.Set(all) != nil
	}
	if ok, lost := d.reader.Status(); !ok {
		return errors.New(lost)
	}
	return nil
}

// Note says why there is no device to read.
func (d *devices) Note() string {
	_, note := d.reader.Status()
	return note
}

func (d *devices) Cost() probes.Cost {
	cpuNs, rssBytes := d.reader.Spent()
	return probes.Cost{ChildNs: cpuNs, ChildBytes: rssBytes}
}

func (d *devices) Close() error { return d.reader.Close() }
