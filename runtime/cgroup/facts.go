package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/runtime"
)

// LowReaches reports whether memory.low of a control group can have an effect: each
// group above it must protect something of its own, since protection is handed
// down and never made below. Runtimes' slices seldom do.
func LowReaches(cg runtime.Cgroup) bool {
	if cg.Mode != runtime.CgroupV2 || cg.Unified == "" {
		return false
	}
	for dir := filepath.Dir(cg.Unified); ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "memory.low"))
		if err != nil { // the root has none, and hands down whatever is asked
			_, errRoot := os.Stat(filepath.Join(dir, "cgroup.type"))
			return errRoot != nil
		}
		if strings.TrimSpace(string(data)) == "0" {
			return false
		}
	}
}

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

// maxPinned bounds the threads that are looked at.
const maxPinned = 4096

// maxGroups bounds the groups that are looked through for them.
const maxGroups = 256

// Pinned says that threads of a control group bound themselves to fewer CPUs than
// it has: a change of its set makes kernels before 6.2 forget that (torvalds/linux
// 8f9ea86fdf99). "" if none did.
func Pinned(procRoot string, cg runtime.Cgroup) (string, error) {
	dir := cg.Dir("cpuset")
	r := reader{}
	may := ""
	for _, name := range []string{"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"} {
		if text, ok := r.line(dir, name); ok && text != "" {
			may = text
			break
		}
	}
	all, err := runtime.ParseCPUList(may)
	if err != nil || len(all) == 0 {
		return "", fmt.Errorf("cpuset of %s cannot be read", dir)
	}
	seen := 0
	for _, pid := range groupPIDs(dir) {
		tasks, err := os.ReadDir(filepath.Join(procRoot, pid, "task"))
		if err != nil {
			continue // it ended
		}
		for _, task := range tasks {
			if seen++; seen > maxPinned {
				return fmt.Sprintf("it has more than %d threads: whether any pins itself is not known", maxPinned), nil
			}
			cpus, ok := allowedCPUs(filepath.Join(procRoot, pid, "task", task.Name(), "status"))
			if ok && !slices.Equal(cpus, all) {
				return fmt.Sprintf("thread %s pins itself to %d of %d CPUs, and this kernel would forget that", task.Name(), len(cpus), len(all)), nil
			}
		}
	}
	return "", nil
}

// groupPIDs are the processes of a group and of those below it, the nearest first,
// within the bounds: a container may make groups below its own, as many as it likes.
func groupPIDs(dir string) []string {
	var out []string
	groups := []string{dir}
	for i := 0; i < len(groups) && len(out) < maxPinned; i++ {
		data, err := os.ReadFile(filepath.Join(groups[i], "cgroup.procs"))
		if err == nil { // a group that went away has no processes
			out = append(out, strings.Fields(string(data))...)
		}
		groups = append(groups, below(groups[i], maxGroups-len(groups))...)
	}
	return out
}

// below are up to n of the groups right below one.
func below(dir string, n int) []string {
	if n <= 0 {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []string
	// A group has fewer files than maxGroups: all of them are passed, and n groups are met.
	for read := 0; read < 2*maxGroups; {
		entries, err := f.ReadDir(maxGroups)
		for _, e := range entries {
			if e.IsDir() && len(out) < n {
				out = append(out, filepath.Join(dir, e.Name()))
			}
		}
		if read += len(entries); err != nil || len(out) == n {
			break
		}
	}
	return out
}

// allowedCPUs reads Cpus_allowed_list of a status file.
func allowedCPUs(path string) ([]int, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, false
	}
	for line := range bytes.Lines(data) {
		if list, ok := bytes.CutPrefix(line, []byte("Cpus_allowed_list:")); ok {
			cpus, err := runtime.ParseCPUList(string(bytes.TrimSpace(list)))
			return cpus, err == nil && len(cpus) > 0
		}
	}
	return nil, false
}

// NodesWithCPUs counts the memory nodes that have CPUs; 0 if that cannot be read.
func NodesWithCPUs(sysRoot string) int {
	data, err := os.ReadFile(filepath.Join(sysRoot, "devices/system/node/has_cpu"))
	if err != nil {
		return 0
	}
	nodes, err := runtime.ParseCPUList(string(data))
	if err != nil {
		return 0
	}
	return len(nodes)
}

// ForgetsPins reports whether a kernel of this release forgets threads' own CPU
// masks when their group's set changes. A release that cannot be read is taken for old.
func ForgetsPins(release string) bool {
	major, rest, _ := strings.Cut(release, ".")
	minor := strings.FieldsFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	a, err := strconv.Atoi(major)
	if err != nil || len(minor) == 0 {
		return true
	}
	b, err := strconv.Atoi(minor[0])
	return err != nil || a < 6 || a == 6 && b < 2
}
