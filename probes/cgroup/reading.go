package cgroup

import (
	"bytes"

	"github.com/trimtab/trimtab/probes"
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

func (r *reading) number(dir, name string) (uint64, bool) {
	b, ok := r.text(dir, name)
	if !ok {
		return 0, false
	}
	v, ok := parseUint(b)
	if !ok {
		r.miss(name)
	}
	return v, ok
}

// table reads "name value" lines into the given fields. A name that does not
// appear is noted as file:name.
func (r *reading) table(dir, file string, want map[string]*uint64) {
	b, ok := r.text(dir, file)
	if !ok {
		return
	}
	found := 0
	seen := make(map[string]bool, len(want))
	fields(b, func(name, value []byte) {
		if into, ok := want[string(name)]; ok {
			if v, ok := parseUint(value); ok {
				*into = v
				seen[string(name)] = true
				found++
			}
		}
	})
	if found == len(want) {
		return
	}
	for name := range want {
		if !seen[name] {
			r.miss(file + ":" + name)
		}
	}
}

func (r *reading) cpuV1(c *container) {
	if v, ok := r.number(c.cpuacct, "cpuacct.usage"); ok {
		r.part.CPUUsageNs = v
	}
	if v, ok := r.number(c.cpu, "cpu.shares"); ok {
		r.part.CPUWeight = v
	}
	r.cpuset(c.cpuset, "cpuset.effective_cpus")
}

func (r *reading) cpuV2(dir string) {
	var usageUs uint64
	r.table(dir, "cpu.stat", map[string]*uint64{"usage_usec": &usageUs})
	r.part.CPUUsageNs = usageUs * 1000
	if v, ok := r.number(dir, "cpu.weight"); ok {
		r.part.CPUWeight = v
	}
	r.cpuset(dir, "cpuset.cpus.effective")
}

func (r *reading) cpuset(dir, name string) {
	if b, ok := r.text(dir, name); ok {
		r.part.Cpuset = string(bytes.TrimSpace(b))
	}
}

// throttling reads the bandwidth accounting of the container and its ancestors.
// In v2 an ancestor without the cpu controller has no cpu.max; it is passed over,
// since it cannot throttle.
func (r *reading) throttling(c *container, above *above) {
	if len(c.chain) == 0 {
		r.miss("throttling")
		return
	}
	own, ok := bandwidth(r.files, c.chain[0], c.v2)
	if ok {
		r.any = true
		r.part.Throttling = append(r.part.Throttling, own)
	} else {
		r.miss("throttling")
	}
	for _, dir := range c.ancestors() {
		if t, ok := above.throttling(dir, c.v2); ok {
			r.part.Throttling = append(r.part.Throttling, t)
		}
	}
}

// memoryV1 reads the totals of the container's subtree: without "total_", v1's
// names count the cgroup alone.
func (r *reading) memoryV1(dir string) {
	p := r.part
	if v, ok := r.number(dir, "memory.usage_in_bytes"); ok {
		p.MemoryBytes = v
	}
	if v, ok := r.number(dir, "memory.limit_in_bytes"); ok && v < v1Unlimited {
		p.MemoryLimit = int64(v)
	}
	if v, ok := r.number(dir, "memory.failcnt"); ok {
		p.EventsMax = v
	}
	r.miss("memory.high") // v1 has none
	r.table(dir, "memory.oom_control", map[string]*uint64{"oom_kill": &p.OOMKills})
	var cache uint64
	r.table(dir, "memory.stat", map[string]*uint64{
		"total_rss": &p.Anon, "total_cache": &cache, "total_shmem": &p.Shmem,
		"total_inactive_file":           &p.InactiveFile,
		"total_workingset_refault_file": &p.RefaultFile,
		"total_workingset_refault_anon": &p.RefaultAnon,
		"total_pgmajfault":              &p.MajorFaults,
	})
	p.File = cache // like v2's "file", v1's cache holds shmem as well
}

func (r *reading) memoryV2(dir string) {
	p := r.part
	if v, ok := r.number(dir, "memory.current"); ok {
		p.MemoryBytes = v
	}
	if b, ok := r.text(dir, "memory.max"); ok && string(bytes.TrimSpace(b)) != "max" {
		if v, ok := parseUint(b); ok {
			p.MemoryLimit = int64(min(v, 1<<63-1))
		} else {
			r.miss("memory.max")
		}
	}
	r.table(dir, "memory.events", map[string]*uint64{
		"max": &p.EventsMax, "high": &p.EventsHigh, "oom_kill": &p.OOMKills,
	})
	r.table(dir, "memory.stat", map[string]*uint64{
		"anon": &p.Anon, "file": &p.File, "shmem": &p.Shmem, "inactive_file": &p.InactiveFile,
		"workingset_refault_file": &p.RefaultFile, "workingset_refault_anon": &p.RefaultAnon,
		"pgmajfault": &p.MajorFaults,
	})
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
	fields(b, func(name, value []byte) {
		_, total, ok := bytes.Cut(value, []byte("total="))
		if !ok {
			return
		}
		v, ok := parseUint(total)
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
