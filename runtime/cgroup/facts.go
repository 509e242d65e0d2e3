package cgroup

import (
	"path/filepath"

	"github.com/trimtab/trimtab/runtime"
)

// QuotaAbove returns the fewest CPUs that the quota of a group above a control group
// leaves to all below it, and that group's directory; none has one: "".
func QuotaAbove(cg runtime.Cgroup) (cpus float64, group string, err error) {
	return least(cg, "cpu", func(r *reader, dir string, isV1 bool) (float64, bool) {
		if isV1 {
			r.quotaV1(dir)
		} else {
			r.quotaV2(dir)
		}
		return r.values[runtime.KnobCPUQuota].CPUs()
	})
}

// MemoryAbove returns the least memory limit, bytes, of the groups above a control group, and
// that group's directory; none has one: "".
func MemoryAbove(cg runtime.Cgroup) (bytes float64, group string, err error) {
	return least(cg, "memory", func(r *reader, dir string, isV1 bool) (float64, bool) {
		if isV1 {
			r.memoryV1(dir)
		} else {
			r.memoryV2(dir)
		}
		n, limited := r.values[runtime.KnobMemoryLimit].Int()
		return float64(n), limited
	})
}

// least is the least of what limits the groups above a control group.
func least(cg runtime.Cgroup, controller string, read func(r *reader, dir string, isV1 bool) (has float64, limited bool)) (least float64, group string, err error) {
	own := cg.Dir(controller)
	if own == "" {
		return 0, "", nil
	}
	_, isV1 := cg.V1[controller]
	// Above the root of the hierarchy is no control group.
	for dir := filepath.Dir(own); exists(filepath.Join(dir, "cgroup.procs")); dir = filepath.Dir(dir) {
		r := reader{values: make(runtime.Values)}
		has, limited := read(&r, dir, isV1)
		if r.err != nil {
			return 0, "", r.err
		}
		if limited && (group == "" || has < least) {
			least, group = has, dir
		}
	}
	return least, group, nil
}
