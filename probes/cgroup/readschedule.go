package cgroup

import (
	"slices"

	"github.com/trimtab/trimtab/probes"
)

const (
	// everyNs is how often all of a container's files are read. Ticks come a little early.
	everyNs = 45e8
	// longNs is the same for a container that was quiet each of the last settledLooks
	// times, and is still.
	longNs       = 95e8
	settledLooks = 3
	// phases spread the containers' full readings over everyNs.
	phases = 5
	// A container is quiet below quietCPU of one CPU, quietWait of the time in which
	// something of it waited, quietBytes of growth, and without any event or refault. What
	// wakes ten times a second for half a millisecond, as runtimes and notebooks do, is quiet.
	quietCPU   = 0.01
	quietWait  = 0.01
	quietBytes = 1 << 20
)

// readSchedule is what one container's readings leave out. Settings, which change by
// somebody's hand, are read every everyNs. So is all but the CPU use of one that was
// quiet when last looked at: a process that hardly runs changes little else, and
// what it waits for is counted all the same and seen a turn later. Beside a thousand
// idle containers this is most of what reading costs. One that was quiet for several
// looks is looked at half as often.
type readSchedule struct {
	phase   int64 // 0..phases-1
	last    *probes.Cgroup
	fullNs  int64 // when all files were read
	busyNs  int64 // when all but the settings were
	quiet   bool
	looks   int                 // in a row that found it quiet
	own     []probes.Throttling // the container's own, where it could be read
	missing struct{ use, settings []string }
}

// due says what is to be read, given the CPU use now.
func (t *readSchedule) due(part *probes.Cgroup) (use, settings bool) {
	if t.last == nil {
		return true, true
	}
	quiet := t.quiet && t.idle(part)
	every := int64(everyNs)
	if quiet && t.looks >= settledLooks {
		every = longNs
	}
	if part.AtNs-t.fullNs >= every {
		return true, true
	}
	return !quiet, false
}

// idle: the CPU use since the reading before is next to none.
func (t *readSchedule) idle(part *probes.Cgroup) bool {
	return float64(part.CPUUsageNs-min(part.CPUUsageNs, t.last.CPUUsageNs)) < quietCPU*float64(part.AtNs-t.last.AtNs)
}

// settle judges, after a reading of all that moves, whether the container is quiet.
func (t *readSchedule) settle(now *probes.Cgroup) {
	before := t.last
	if before == nil {
		return
	}
	us := quietWait * float64(now.AtNs-t.busyNs) / 1e3
	calm := func(now, before probes.Pressure) bool {
		return float64(now.SomeUs-min(now.SomeUs, before.SomeUs)) <= us
	}
	grown := int64(now.MemoryBytes) - int64(before.MemoryBytes)
	t.quiet = t.idle(now) && calm(now.CPU, before.CPU) && calm(now.Memory, before.Memory) && calm(now.IO, before.IO) &&
		grown < quietBytes && now.EventsMax == before.EventsMax && now.OOMKills == before.OOMKills &&
		now.RefaultFile == before.RefaultFile && now.RefaultAnon == before.RefaultAnon
	if t.looks++; !t.quiet {
		t.looks = 0
	}
}

// read takes one sample; nil if not a single file could be read.
func (c *container) read(atNs int64, above map[string]above) *probes.Cgroup {
	part := &probes.Cgroup{AtNs: atNs, MemoryLimit: -1}
	t := &c.readSchedule
	if t.last != nil { // what cannot be read stands: a counter that reads as zero once seems to count all anew after it
		part.CPUUsageNs = t.last.CPUUsageNs
		keepUse(part, t.last)
		keepSettings(part, t.last)
	}
	r := &reading{files: c.files, part: part}
	own, ownRead := r.usage(c)
	use, settings := t.due(part)
	if !r.any {
		use, settings = true, true // it may be gone: whatever still answers is asked
	}
	missing := part.Missing
	part.Missing = nil
	if use {
		r.throttling(c, own, ownRead)
		t.own = slices.Clone(part.Throttling)
		r.use(c)
		t.missing.use = part.Missing
	} else {
		part.Throttling = slices.Clone(t.own)
	}
	part.Missing = nil
	if settings {
		r.settings(c)
		t.missing.settings = part.Missing
	}
	r.above(c, above)
	if !r.any {
		return nil
	}
	if missing = slices.Concat(missing, t.missing.use, t.missing.settings); len(missing) > 0 {
		slices.Sort(missing)
		part.Missing = missing
	} else {
		part.Missing = nil
	}
	if use {
		t.settle(part)
		t.busyNs = atNs
	}
	if settings {
		first := t.last == nil
		if t.fullNs = atNs; first {
			t.fullNs -= t.phase * everyNs / phases
		}
	}
	t.last = part
	return part
}

// use reads what moves as the container works.
func (r *reading) use(c *container) {
	if c.v2 {
		r.memoryV2(c.unified)
	} else {
		r.memoryV1(c.memory)
	}
	r.pressure(c.unified)
}

// keepUse takes over what was left out of this reading.
func keepUse(part, last *probes.Cgroup) {
	part.MemoryBytes, part.Anon, part.File, part.Shmem, part.InactiveFile = last.MemoryBytes, last.Anon, last.File, last.Shmem, last.InactiveFile
	part.RefaultFile, part.RefaultAnon, part.MajorFaults = last.RefaultFile, last.RefaultAnon, last.MajorFaults
	part.EventsMax, part.OOMKills = last.EventsMax, last.OOMKills
	part.HasPSI, part.CPU, part.Memory, part.IO = last.HasPSI, last.CPU, last.Memory, last.IO
}

func keepSettings(part, last *probes.Cgroup) {
	part.CPUWeight, part.Cpuset, part.MemoryLimit = last.CPUWeight, last.Cpuset, last.MemoryLimit
}
