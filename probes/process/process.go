// Package process reads what tells the processes of a container apart: their arguments, whether
// they were forked or started, and the rank that their launcher gave them. It reads /proc a few
// times for each program that a process starts. Of the environment the keys below alone are kept.
//
// A process may place its arguments and environment on memory that its own file server answers
// for, and never does. So each container is read by a goroutine of its own, which nobody waits for.
package process

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
)

// rankKeys are what launchers tell a rank by, the surest first: torchrun and those like it; Horovod,
// whose own launcher may run below one of MPI's or Slurm's, and hands on what that set; Open MPI,
// MPICH and PMIx; Slurm, whose key a launcher below it bears as well; the rank on this host alone.
//
//trimtab:table read only
var rankKeys = []string{"RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "LOCAL_RANK"}

// Bounds of what is read of a process, which may hold what it likes.
const (
	maxEnviron = 64 << 10 // bytes
	maxArgs    = 16 << 10 // bytes
	maxMounts  = 64 << 10 // bytes
	maxRank    = 1 << 20
	again      = 3    // readings of a new process: it may be about to start another program
	maxNew     = 16   // processes of one container that are looked at in one reading
	maxKept    = 1024 // processes of one container
	closeWait  = time.Second
	// maxReaders goroutines read at once. Those that hang count, also where their container has
	// ended: one that starts again and again on a file server that does not end with it leaves one each time.
	maxReaders = 512
)

// forkNoExec is PF_FORKNOEXEC of the kernel's task flags (include/linux/sched.h): it was forked,
// and has started no program since.
const forkNoExec = 0x40

// Probe reads the processes of watched containers. Its methods are called from one goroutine.
type Probe struct {
	procRoot   string
	containers map[string]*container
	reading    int
	readers    atomic.Int32
	most       int32 // maxReaders, but for tests
	running    sync.WaitGroup
}

// container is what is known of one.
type container struct {
	known map[int32]*entry // by TGID
	busy  bool             // a goroutine reads
	read  chan []found     // what it found; it holds one answer
}

// entry is what is known of one process.
type entry struct {
	facts   probes.Process
	startNs uint64
	comm    string
	left    int // how many times it is still read
	seen    int // the latest reading that had it
}

// found is what was read of one process.
type found struct {
	startNs uint64
	facts   probes.Process
}

// New reads below procRoot, "/proc" but for tests.
func New(procRoot string) *Probe {
	return &Probe{procRoot: procRoot, containers: map[string]*container{}, most: maxReaders}
}

// Name is "process".
func (p *Probe) Name() string { return "process" }

// Watch reads a container's processes from the next Read on.
func (p *Probe) Watch(t probes.Target) error {
	p.containers[t.Key] = &container{known: map[int32]*entry{}, read: make(chan []found, 1)}
	return nil
}

// Unwatch forgets a container.
func (p *Probe) Unwatch(key string) { delete(p.containers, key) }

// Read adds the processes to samples that the kernel probe filled before. What is new shows in a
// later reading. A process that is gone before it could be read is left out, and is no error.
func (p *Probe) Read(_ context.Context, into map[string]*probes.Sample) error {
	p.reading++
	for key, c := range p.containers {
		s := into[key]
		if s == nil || s.Kernel == nil {
			continue
		}
		c.take()
		room := 0
		if !c.busy && p.readers.Load() < p.most {
			room = maxNew
		}
		var due []found
		for i := range s.Kernel.Threads {
			if t := &s.Kernel.Threads[i]; t.TID == t.TGID && !t.Exited {
				due = c.look(p.reading, t, due, room)
			}
		}
		if len(due) > 0 {
			c.busy = true
			p.readers.Add(1)
			p.running.Go(func() {
				defer p.readers.Add(-1)
				c.read <- p.readAll(due)
			})
		}
		for tgid, e := range c.known {
			if e.seen != p.reading {
				delete(c.known, tgid)
			} else if e.facts.TGID != 0 {
				s.Processes = append(s.Processes, e.facts)
			}
		}
		slices.SortFunc(s.Processes, func(a, b probes.Process) int { return int(a.TGID) - int(b.TGID) })
	}
	return nil
}

// take takes in what a goroutine has found.
func (c *container) take() {
	select {
	case all := <-c.read:
		c.busy = false
		for _, f := range all {
			if e := c.known[f.facts.TGID]; e != nil && e.startNs == f.startNs {
				if !f.facts.Ranked { // who gives itself a title, as Ray's workers do, writes it over its environment
					f.facts.Rank, f.facts.Ranked = e.facts.Rank, e.facts.Ranked
				}
				e.facts = f.facts
			}
		}
	default:
	}
}

// look takes up a process by its main thread, and adds it to what is due, up to room, where it is
// new or runs another program.
func (c *container) look(reading int, t *probes.Thread, due []found, room int) []found {
	e := c.known[t.TGID]
	if e == nil && len(c.known) >= maxKept {
		return due
	}
	if e == nil || e.startNs != t.StartNs {
		e = &entry{startNs: t.StartNs, comm: t.Comm, left: again}
		c.known[t.TGID] = e
	}
	e.seen = reading
	if e.comm != t.Comm {
		e.comm, e.left = t.Comm, again
	}
	if e.left == 0 || len(due) >= room {
		return due
	}
	e.left--
	return append(due, found{startNs: t.StartNs, facts: probes.Process{TGID: t.TGID}})
}

// readAll reads what is due, and returns what could be read of it.
func (p *Probe) readAll(due []found) (out []found) {
	for _, f := range due {
		if facts, ok := p.read(f.facts.TGID); ok {
			out = append(out, found{startNs: f.startNs, facts: facts})
		}
	}
	return out
}

// read reads one process; ok is false where it is gone, or is no program of user space. No link is
// followed and no file of the container is touched.
func (p *Probe) read(tgid int32) (f probes.Process, ok bool) {
	stat, err := procfs.ReadStat(p.procRoot, tgid)
	if err != nil {
		return f, false
	}
	args, err := procfs.Read(procfs.Path(p.procRoot, tgid, "cmdline"), maxArgs)
	if err != nil {
		return f, false
	}
	environ, err := procfs.Read(procfs.Path(p.procRoot, tgid, "environ"), maxEnviron)
	if err != nil {
		return f, false
	}
	f = probes.Process{TGID: tgid, Args: argsHash(args), Forked: stat.Flags&forkNoExec != 0}
	f.Rank, f.Ranked = rankOf(environ)
	if mounts, err := procfs.Read(procfs.Path(p.procRoot, tgid, "mountinfo"), maxMounts); err == nil && len(mounts) < maxMounts {
		f.SharedBytes, f.NetworkMount = sharedBytes(mounts), networkMount(mounts)
	}
	return f, true
}

// argsHash is the same for arguments that differ in numbers alone, as those of ranks do.
func argsHash(args []byte) uint64 {
	h := fnv.New64a()
	digits := false
	for i, c := range args {
		number := c >= '0' && c <= '9'
		if !number {
			_, _ = h.Write(args[i : i+1]) // a hash takes all
		} else if !digits {
			_, _ = h.Write([]byte{'0'})
		}
		digits = number
	}
	return h.Sum64()
}

// rankOf finds the rank by the surest key that names one.
func rankOf(environ []byte) (rank int32, ok bool) {
	best := len(rankKeys)
	for pair := range bytes.SplitSeq(environ, []byte{0}) {
		key, value, _ := bytes.Cut(pair, []byte{'='})
		if len(value) > 8 {
			continue
		}
		if i := slices.Index(rankKeys[:best], string(key)); i >= 0 {
			if n, err := strconv.ParseUint(string(value), 10, 31); err == nil && n < maxRank {
				best, rank, ok = i, int32(n), true
			}
		}
	}
	return rank, ok
}

// Cost is nothing that the kernel holds.
func (p *Probe) Cost() probes.Cost { return probes.Cost{} }

// Close waits for readings under way, but not for one that a container's file server holds up: it
// ends when that answers, or with the daemon.
func (p *Probe) Close() error {
	done := make(chan struct{})
	go func() {
		p.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(closeWait):
		return errors.New("process probe: a container's process does not let itself be read")
	}
}

// sharedBytes is the size of the tmpfs that a process sees at /dev/shm, by its mountinfo (proc(5)): the
// mount is not touched, which may be a file server of the container's. 0: none is there, or one of the
// default size, half of the host's memory, which the kernel does not show.
func sharedBytes(mountinfo []byte) (size uint64) {
	for line := range bytes.Lines(mountinfo) {
		before, after, _ := bytes.Cut(line, []byte(" - "))
		f, of := bytes.Fields(before), bytes.Fields(after)
		if len(f) < 6 || len(of) < 3 || string(f[4]) != "/dev/shm" {
			continue
		}
		size = 0 // what is mounted last hides what was there
		for option := range bytes.SplitSeq(of[2], []byte{','}) {
			value, ok := bytes.CutPrefix(option, []byte("size="))
			kib, inKiB := bytes.CutSuffix(value, []byte{'k'})
			if n, err := strconv.ParseUint(string(kib), 10, 53); ok && inKiB && err == nil && string(of[0]) == "tmpfs" {
				size = n << 10
			}
		}
	}
	return size
}
