// Package torch counts the backward passes of PyTorch processes by one entry
// uprobe on autograd's engine. What it delivers are ticks: passes, never steps.
//
// The trap: PyTorch may be built in without exporting the engine, or call it
// several times for a step; a container without ticks is no error.
package torch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/trimtab/trimtab/probes"
)

// Source names the ticks.
const Source = "torch.backward"

const (
	scanEvery = 3 * time.Second
	// A process without the engine may load it later, so it is looked at again, each time
	// after twice as long.
	maxLookAgain = time.Minute
	// filesPerScan bounds the files looked into in one scan, 0.3 ms each; a Python process
	// maps a few hundred, each is looked into once, likely ones first.
	filesPerScan = 32
	maxKnown     = 16384 // files remembered
)

// attachment is one uprobe.
type attachment struct {
	link   link.Link
	cookie uint64
	users  int // processes that map the file
}

// process is one process that has been looked at.
type process struct {
	id       processID
	on       *fileKey // the file with the engine that it maps; nil: none so far
	key      string   // its container
	nextLook time.Time
	wait     time.Duration
}

// Probe counts backward passes. Its methods are called from one goroutine.
type Probe struct {
	procRoot  string
	objs      uprobeObjects
	targets   map[string]string // container to the directory with its processes
	processes map[int32]*process
	offsets   map[fileKey]uint64 // 0: has no engine
	attached  map[fileKey]*attachment
	cookies   uint64
	nextScan  time.Time
	failed    uint64
}

var _ probes.Probe = (*Probe)(nil)

// New loads the program; nothing is attached before a process needs it.
func New() (*Probe, error) {
	p := &Probe{
		procRoot: "/proc", targets: map[string]string{}, processes: map[int32]*process{},
		offsets: map[fileKey]uint64{}, attached: map[fileKey]*attachment{},
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("torch probe: raise RLIMIT_MEMLOCK: %w; run as root", err)
	}
	if err := loadUprobeObjects(&p.objs, nil); err != nil {
		return nil, fmt.Errorf("torch probe: load: %w; needs Linux 5.15, CONFIG_UPROBE_EVENTS, CAP_BPF and CAP_PERFMON", err)
	}
	return p, nil
}

// Name is "torch".
func (p *Probe) Name() string { return "torch" }

// Watch looks for PyTorch in the container's processes from the next Read on.
func (p *Probe) Watch(t probes.Target) error {
	dir := t.Unified
	if dir == "" && t.Dir != nil {
		dir = t.Dir("cpu")
	}
	if dir == "" {
		return fmt.Errorf("torch probe: container %s: no cgroup directory", t.Key)
	}
	p.targets[t.Key] = dir
	p.nextScan = time.Time{}
	return nil
}

// Unwatch forgets a container's processes and detaches what nobody else uses.
func (p *Probe) Unwatch(key string) {
	delete(p.targets, key)
	for pid, proc := range p.processes {
		if proc.key == key {
			p.forget(pid)
		}
	}
}

// Read adds Ticks to the Kernel parts that are there: it comes after the kernel
// probe. Every few seconds it also looks at processes that are new.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	var err error
	if now := time.Now(); !now.Before(p.nextScan) {
		p.nextScan = now.Add(scanEvery)
		err = p.scan(ctx, now)
	}
	for pid, proc := range p.processes {
		sample := into[proc.key]
		if proc.on == nil || sample == nil || sample.Kernel == nil {
			continue
		}
		var t uprobeTicks
		if p.objs.Processes.Lookup(uint32(pid), &t) != nil || t.Count == 0 {
			continue
		}
		sample.Kernel.Ticks = append(sample.Kernel.Ticks,
			probes.Ticks{Source: Source, TGID: pid, Count: t.Count, LastNs: int64(t.LastNs)})
	}
	for _, sample := range into {
		if sample.Kernel != nil {
			slices.SortFunc(sample.Kernel.Ticks, compareTicks)
		}
	}
	return err
}

func compareTicks(a, b probes.Ticks) int {
	if a.TGID != b.TGID {
		return int(a.TGID) - int(b.TGID)
	}
	switch {
	case a.Source < b.Source:
		return -1
	case a.Source > b.Source:
		return 1
	}
	return 0
}

// scan forgets processes that ended and looks at new ones.
func (p *Probe) scan(ctx context.Context, now time.Time) error {
	for pid, proc := range p.processes {
		if start, err := startTick(p.procRoot, pid); err != nil || start != proc.id.startTick {
			p.forget(pid)
		}
	}
	budget := filesPerScan
	var errs []error
	for key, dir := range p.targets {
		for _, pid := range processesIn(dir) {
			if budget <= 0 || ctx.Err() != nil {
				break // the rest by the next scan
			}
			if err := p.visit(pid, key, now, &budget); err != nil {
				errs = append(errs, fmt.Errorf("torch probe: container %s: process %d: %w", key, pid, err))
			}
		}
	}
	return errors.Join(errs...)
}

// visit looks at a process if it is time to.
func (p *Probe) visit(pid int32, key string, now time.Time, budget *int) error {
	proc := p.processes[pid]
	if proc == nil {
		start, err := startTick(p.procRoot, pid)
		if err != nil {
			return nil // it has ended
		}
		proc = &process{id: processID{pid, start}, key: key, wait: scanEvery}
		p.processes[pid] = proc
	}
	if proc.on != nil || now.Before(proc.nextLook) {
		return nil
	}
	err := p.look(proc, budget)
	if *budget > 0 { // else it was not looked at to the end
		proc.nextLook = now.Add(proc.wait)
		proc.wait = min(2*proc.wait, maxLookAgain)
	}
	return err
}

// look searches a process's mappings for the engine. Finding nothing, or the
// process gone meanwhile, is no error.
func (p *Probe) look(proc *process, budget *int) error {
	dir := filepath.Join(p.procRoot, strconv.Itoa(int(proc.id.pid)))
	maps, err := readCapped(filepath.Join(dir, "maps"), maxMapsBytes)
	if err != nil {
		return nil
	}
	for _, r := range executableMaps(maps) {
		path := filepath.Join(dir, "map_files", r)
		file, err := identify(path)
		if err != nil {
			continue
		}
		offset, known := p.offsets[file]
		if !known {
			if *budget--; *budget <= 0 {
				return nil
			}
			offset = p.remember(file, path)
		}
		if offset == 0 {
			continue
		}
		if err := p.attach(file, path, offset, proc); err != nil {
			p.failed++
			return err
		}
		return nil
	}
	return nil
}

func (p *Probe) remember(file fileKey, path string) uint64 {
	if len(p.offsets) >= maxKnown {
		clear(p.offsets)
	}
	offset, err := symbolIn(path, file)
	if err != nil {
		offset = 0
	}
	p.offsets[file] = offset
	return offset
}

// attach makes the file's uprobe where it is not there yet, and enters the process.
func (p *Probe) attach(file fileKey, path string, offset uint64, proc *process) error {
	a := p.attached[file]
	if a == nil {
		exe, err := link.OpenExecutable(path)
		if err != nil {
			return fmt.Errorf("open the file with the engine: %w", err)
		}
		p.cookies++
		a = &attachment{cookie: p.cookies}
		a.link, err = exe.Uprobe("", p.objs.OnBackward, &link.UprobeOptions{Address: offset, Cookie: a.cookie})
		if err != nil {
			return fmt.Errorf("attach to the engine: %w", err)
		}
		p.attached[file] = a
	}
	a.users++
	proc.on = &file
	if err := p.objs.Processes.Put(uint32(proc.id.pid), uprobeTicks{Cookie: a.cookie}); err != nil {
		p.forget(proc.id.pid)
		return fmt.Errorf("enter the process: %w", err)
	}
	return nil
}

// forget drops a process, and the uprobe with its last user.
func (p *Probe) forget(pid int32) {
	proc := p.processes[pid]
	delete(p.processes, pid)
	if proc == nil || proc.on == nil {
		return
	}
	// Absent is what is wanted.
	_ = p.objs.Processes.Delete(uint32(pid))
	a := p.attached[*proc.on]
	if a == nil {
		return
	}
	if a.users--; a.users == 0 {
		// The kernel detaches when the descriptor is closed, which cannot fail usefully.
		_ = a.link.Close()
		delete(p.attached, *proc.on)
	}
}

// Cost tells the map's memory, and as Lost the processes whose engine refused the uprobe.
func (p *Probe) Cost() probes.Cost {
	cost := probes.Cost{Lost: p.failed}
	if info, err := p.objs.Processes.Info(); err == nil {
		if bytes, ok := info.Memlock(); ok {
			cost.MapBytes = bytes
		}
	}
	if stats, err := p.objs.OnBackward.Stats(); err == nil {
		cost.KernelNs, cost.Runs = uint64(stats.Runtime), stats.RunCount
	}
	return cost
}

// Close detaches everything.
func (p *Probe) Close() error {
	for pid := range p.processes {
		p.forget(pid)
	}
	return p.objs.Close()
}
