// Package cgroup reads what the cgroup files say of each watched container: CPU
// use and throttling along its ancestors, memory with refaults, pressure, pids.
// It knows v1, v2 and the hybrid of both, where v1 carries the limits and the v2
// tree beside it the pressure.
//
// The trap: an absent file is not a zero. What could not be read is named in
// Missing, and its field must not be used.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
)

// Probe reads cgroup files. It keeps them open: reading again costs a third to half of
// opening them each time (BenchmarkRead, BenchmarkReadOpening). What need not be read
// each time takes turns, see turns.
type Probe struct {
	containers map[string]*container
	files      *files
	above      map[string]above // of this Read, by directory
	watched    int64            // so far
	now        func() int64
}

// New returns a probe without containers.
func New() *Probe {
	return &Probe{containers: map[string]*container{}, files: newFiles(), above: map[string]above{}, now: procfs.MonotonicNs}
}

// Name is "cgroup".
func (p *Probe) Name() string { return "cgroup" }

// Watch notes where a container's files are; they are opened by the first Read.
func (p *Probe) Watch(t probes.Target) error {
	if _, ok := p.containers[t.Key]; ok {
		return nil
	}
	if t.Dir == nil {
		return fmt.Errorf("cgroup probe: container %s: no cgroup directories", t.Key)
	}
	c := newContainer(t, p.files)
	p.watched++
	c.readSchedule.phase = p.watched % phases
	p.containers[t.Key] = c
	p.files.use(c.dirs())
	return nil
}

// Unwatch closes a container's files.
func (p *Probe) Unwatch(key string) {
	if c, ok := p.containers[key]; ok {
		p.files.leave(c.dirs())
		delete(p.containers, key)
	}
}

// Read adds a Cgroup part for each container of which anything could be read.
func (p *Probe) Read(ctx context.Context, into map[string]*probes.Sample) error {
	var errs []error
	clear(p.above)
	for key, c := range p.containers {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		part := c.read(p.now(), p.above)
		if part == nil {
			errs = append(errs, fmt.Errorf("cgroup probe: container %s: no file of %s can be read: is it gone?", key, c.cpuacct))
			continue
		}
		if into[key] == nil {
			into[key] = &probes.Sample{Container: key}
		}
		into[key].Cgroup = part
	}
	return errors.Join(errs...)
}

// Cost is zero: the probe holds nothing in the kernel but open files.
func (p *Probe) Cost() probes.Cost { return probes.Cost{} }

// Close closes all files.
func (p *Probe) Close() error {
	for key := range p.containers {
		p.Unwatch(key)
	}
	return nil
}

// container is one watched container's places.
type container struct {
	files                        *files
	v2                           bool
	cpu, cpuacct, cpuset, memory string
	unified                      string
	chain                        []string // cpu directories, the container's own first
	readSchedule                 readSchedule
}

func newContainer(t probes.Target, files *files) *container {
	c := &container{
		files:   files,
		v2:      t.V2,
		cpu:     t.Dir("cpu"),
		cpuacct: t.Dir("cpuacct"),
		cpuset:  t.Dir("cpuset"),
		memory:  t.Dir("memory"),
		unified: t.Unified,
	}
	c.chain = ancestors(c.cpu)
	return c
}

// dirs are those that the container's files are in.
func (c *container) dirs() []string {
	return append([]string{c.cpu, c.cpuacct, c.cpuset, c.memory, c.unified}, c.chain...)
}

// ancestors are the cgroups above the container's own.
func (c *container) ancestors() []string { return c.chain[min(1, len(c.chain)):] }

// maxDepth bounds the walk to the root of the hierarchy.
const maxDepth = 32

// ancestors lists dir and the cgroups above it, nearest first, without the root:
// a root has no cgroup.type (v2), or has cgroup.sane_behavior (v1), and no quota.
func ancestors(dir string) []string {
	var chain []string
	for len(chain) < maxDepth && dir != "" && dir != "/" {
		v1Root := exists(filepath.Join(dir, "cgroup.sane_behavior"))
		if !exists(filepath.Join(dir, "cgroup.procs")) || v1Root {
			break
		}
		v1 := exists(filepath.Join(dir, "notify_on_release"))
		if !v1 && !exists(filepath.Join(dir, "cgroup.type")) {
			break
		}
		chain = append(chain, dir)
		dir = filepath.Dir(dir)
	}
	return chain
}

func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }
