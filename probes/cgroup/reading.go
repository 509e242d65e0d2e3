package cgroup

import (
	"bytes"
	"strconv"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/runtime"
)

// v1Unlimited: v1 says "no memory limit" as the largest multiple of a page below
// 2^63; no machine has half of that.
const v1Unlimited = 1 << 62

// reading fills one sample; what fails is named in the sample's Missing.
type reading struct {
	files *files
	part  *probes.Cgroup
	any   bool
}

func (r *reading) miss(name string) {
	r.part.Missing = append(r.part.Missing, name)
}

// text reads a file; a failure is noted under the file's name.
func (r *reading) text(dir, name string) ([]byte, bool) {
	if dir != "" {
		if b, err := r.files.read(dir, name); err == nil {
			r.any = true
			return b, true
		}
	}
	r.miss(name)
	return nil, false
}

// number reads a whole number; into stays where the file does not tell one.
func (r *reading) number(dir, name string, into *uint64) bool {
	b, ok := r.text(dir, name)
	if !ok {
		return false
	}
	v, ok := procfs.ParseUint(b)
	if !ok {
		r.miss(name)
		return false
	}
	*into = v
	return true
}

// table reads "name value" lines. A name that does not appear is noted as file:name.
func (r *reading) table(dir, file string, wants map[string]*uint64) {
	if b, ok := r.text(dir, file); ok {
		r.find(b, file, wants)
	}
}

func (r *reading) find(b []byte, file string, wants map[string]*uint64) {
	procfs.Find(b, wants)
	for name := range wants {
		r.miss(file + ":" + name)
	}
}

// usage reads the CPU use, and on v2, from the same file, what quotas withheld.
func (r *reading) usage(c *container) (own probes.Throttling, ok bool) {
	if !c.v2 {
		r.number(c.cpuacct, "cpuacct.usage", &r.part.CPUUsageNs)
		return own, false
	}
	usageUs := r.part.CPUUsageNs / 1000
	if b, ok := r.text(c.unified, "cpu.stat"); ok {
		r.find(b, "cpu.stat", map[string]*uint64{"usage_usec": &usageUs})
		r.part.CPUUsageNs = usageUs * 1000
		return withheld(b)
	}
	return own, false
}

// throttling reads the bandwidth accounting of the container and its ancestors.
// In v2 an ancestor without the cpu controller has no cpu.max; it is passed over,
// since it cannot throttle.
func (r *reading) throttling(c *container, own probes.Throttling, ownRead bool) {
	switch {
	case len(c.chain) == 0:
		r.miss("throttling")
		return
	case c.v2:
		ownRead = ownRead && quota(r.files, c.chain[0], true, &own)
	default:
		own, ownRead = bandwidth(r.files, c.chain[0], false)
	}
	if ownRead {
		r.any = true
		r.part.Throttling = append(r.part.Throttling, own)
	} else {
		r.miss("throttling")
	}
}

// above is a cgroup above containers. Many have the same: each is read once for all of them in one Read.
type above struct {
	throttling probes.Throttling
	ok         bool
}

func (r *reading) above(c *container, known map[string]above) {
	for _, dir := range c.ancestors() {
		a, read := known[dir]
		if !read {
			a.throttling, a.ok = bandwidth(r.files, dir, c.v2)
			known[dir] = a
		}
		if a.ok {
			r.part.Throttling = append(r.part.Throttling, a.throttling)
		}
	}
}

// settings reads what somebody set, and what seldom matters.
func (r *reading) settings(c *container) {
	if c.v2 {
		r.number(c.unified, "cpu.weight", &r.part.CPUWeight)
		r.cpuset(c.unified, "cpuset.cpus.effective")
		r.limitV2(c.unified)
	} else {
		r.number(c.cpu, "cpu.shares", &r.part.CPUWeight)
		r.cpuset(c.cpuset, "cpuset.effective_cpus")
		if v := uint64(0); r.number(c.memory, "memory.limit_in_bytes", &v) {
			if r.part.MemoryLimit = -1; v < v1Unlimited {
				r.part.MemoryLimit = int64(v)
			}
		}
	}
}

func (r *reading) cpuset(dir, name string) {
	if b, ok := r.text(dir, name); ok {
		r.part.Cpuset = string(bytes.TrimSpace(b))
	}
}

func (r *reading) limitV2(dir string) {
	b, ok := r.text(dir, "memory.max")
	if !ok {
		return
	}
	if string(bytes.TrimSpace(b)) == "max" {
		r.part.MemoryLimit = -1
	} else if v, ok := procfs.ParseUint(b); ok {
		r.part.MemoryLimit = int64(min(v, 1<<63-1))
	} else {
		r.miss("memory.max")
	}
}

// memoryV1 reads the totals of the container's subtree: without "total_", v1's
// names count the cgroup alone.
func (r *reading) memoryV1(dir string) {
	p := r.part
	r.number(dir, "memory.usage_in_bytes", &p.MemoryBytes)
	r.number(dir, "memory.failcnt", &p.EventsMax)
	r.table(dir, "memory.oom_control", map[string]*uint64{"oom_kill": &p.OOMKills})
	// As with v2's "file", v1's cache holds shmem as well.
	r.table(dir, "memory.stat", map[string]*uint64{"total_rss": &p.Anon, "total_cache": &p.File, "total_shmem": &p.Shmem,
		"total_inactive_file":           &p.InactiveFile,
		"total_workingset_refault_file": &p.RefaultFile, "total_workingset_refault_anon": &p.RefaultAnon,
		"total_pgmajfault": &p.MajorFaults})
}

func (r *reading) memoryV2(dir string) {
	p := r.part
	r.number(dir, "memory.current", &p.MemoryBytes)
	r.table(dir, "memory.events", map[string]*uint64{"max": &p.EventsMax, "oom_kill": &p.OOMKills})
	r.table(dir, "memory.stat", map[string]*uint64{"anon": &p.Anon, "file": &p.File, "shmem": &p.Shmem, "inactive_file": &p.InactiveFile,
		"workingset_refault_file": &p.RefaultFile, "workingset_refault_anon": &p.RefaultAnon, "pgmajfault": &p.MajorFaults})
}

// pressure reads PSI; HasPSI only if all three resources tell.
func (r *reading) pressure(dir string) {
	all := true
	for _, res := range []struct {
		file string
		into *probes.Pressure
	}{{"cpu.pressure", &r.part.CPU}, {"memory.pressure", &r.part.Memory}, {"io.pressure", &r.part.IO}} {
		b, ok := r.text(dir, res.file)
		if !ok {
			all = false
			continue
		}
		if !parsePressure(b, res.into) {
			r.miss(res.file)
			all = false
		}
	}
	r.part.HasPSI = all
}

// parsePressure reads the totals of "some …" and "full …". cpu.pressure had no
// "full" before 5.13, where it is zero by its meaning.
func parsePressure(b []byte, into *probes.Pressure) bool {
	some := false
	procfs.Fields(b, func(name, value []byte) {
		_, total, ok := bytes.Cut(value, []byte("total="))
		if !ok {
			return
		}
		v, ok := procfs.ParseUint(total)
		if !ok {
			return
		}
		switch string(name) {
		case "some":
			into.SomeUs, some = v, true
		case "full":
			into.FullUs = v
		}
	})
	return some
}

// bandwidth reads a cgroup's quota and what it has withheld so far; false where
// one of the files is not there or says something else.
func bandwidth(f *files, dir string, v2 bool) (probes.Throttling, bool) {
	b, err := f.read(dir, "cpu.stat")
	if err != nil {
		return probes.Throttling{}, false
	}
	t, ok := withheld(b)
	ok = ok && quota(f, dir, v2, &t)
	return t, ok
}

func quota(f *files, dir string, v2 bool, t *probes.Throttling) bool {
	if v2 {
		return quotaV2(f, dir, t)
	}
	ok := whole(f, dir, "cpu.cfs_quota_us", &t.QuotaUs) && whole(f, dir, "cpu.cfs_period_us", &t.PeriodUs)
	t.QuotaUs = max(t.QuotaUs, -1)
	return ok
}

func whole(f *files, dir, file string, into *int64) bool {
	b, err := f.read(dir, file)
	if err == nil {
		*into, err = strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	}
	return err == nil
}

func quotaV2(f *files, dir string, t *probes.Throttling) bool {
	b, err := f.read(dir, "cpu.max")
	if err == nil {
		t.QuotaUs, t.PeriodUs, err = runtime.ParseQuota(runtime.Value(bytes.TrimSpace(b)))
	}
	return err == nil
}

// withheld finds in cpu.stat what a quota has withheld.
func withheld(stat []byte) (t probes.Throttling, ok bool) {
	wants := map[string]*uint64{"nr_periods": &t.Periods, "nr_throttled": &t.Throttled}
	procfs.Find(stat, wants)
	return t, len(wants) == 0
}
