// Package cgroup finds a container's control group and reads the values that
// its knobs have in the kernel. It only reads: values are written by the
// runtime's write path, never here.
//
// The trap: on hybrid hosts the v2 tree holds membership and pressure only, and
// the limits are in the v1 trees; which files to read is decided for each
// controller, not for the host.
package cgroup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/runtime"
)

// controllers are those whose v1 directory is of use here.
//
//trimtab:table an array of names, only read
var controllers = [...]string{"cpu", "cpuacct", "cpuset", "memory", "blkio", "pids", "devices"}

// mount is one control group file system, as mountinfo shows it.
type mount struct {
	v2          bool
	root        string   // the part of the hierarchy that is mounted
	point       string   // where
	controllers []string // v1 only
}

// Locate finds the control group of a process. procRoot is "/proc" and
// cgroupRoot DefaultRoot on a live host; a cgroupRoot elsewhere stands for
// DefaultRoot in the mount table. A process that has ended gives runtime.ErrGone.
func Locate(procRoot, cgroupRoot string, pid int) (runtime.Cgroup, error) {
	mode, err := Detect(cgroupRoot)
	if err != nil {
		return runtime.Cgroup{}, err
	}
	paths, err := membership(procRoot, pid)
	if err != nil {
		return runtime.Cgroup{}, err
	}
	mounts, err := readMounts(procRoot, cgroupRoot)
	if err != nil {
		return runtime.Cgroup{}, err
	}
	cg := runtime.Cgroup{Mode: mode}
	for _, m := range mounts {
		m.place(&cg, paths)
	}
	return withID(cg)
}

// place adds what this mount shows of the process's control groups.
func (m mount) place(cg *runtime.Cgroup, paths map[string]string) {
	if m.v2 {
		if path, ok := paths[""]; ok && cg.Unified == "" {
			cg.Unified = m.dir(path)
		}
		return
	}
	for _, controller := range controllers {
		path, member := paths[controller]
		if !member || !slices.Contains(m.controllers, controller) || cg.V1[controller] != "" {
			continue
		}
		if cg.V1 == nil {
			cg.V1 = make(map[string]string)
		}
		cg.V1[controller] = m.dir(path)
	}
}

// dir turns a path of the hierarchy into one of the file system. In a container
// only part of the hierarchy is mounted, and paths outside it start with "/..".
func (m mount) dir(path string) string {
	rel, err := filepath.Rel(m.root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		rel = path
	}
	return filepath.Join(m.point, rel)
}

// withID reads the inode that names the control group.
func withID(cg runtime.Cgroup) (runtime.Cgroup, error) {
	dir := cmp.Or(cg.Unified, cg.Dir("cpu"))
	if dir == "" {
		return cg, fmt.Errorf("the process is in no control group that is mounted: mount the cpu controller, or cgroup2")
	}
	var st syscall.Stat_t
	err := syscall.Stat(dir, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return cg, fmt.Errorf("control group %s: %w", dir, runtime.ErrGone)
	}
	if err != nil {
		return cg, fmt.Errorf("control group %s: %w", dir, err)
	}
	cg.ID = st.Ino
	return cg, nil
}

// Enclosing returns a container's control group, at or above cg: an init process may have
// moved itself into a child (systemd and Docker inside a container do). asked is what its
// engine asked the runtime for (OCI's cgroupsPath); where it is "", the directory is named by
// the container's ID. Of several the outermost is the container's: those below it it makes
// itself, and names as it likes. Without such a directory cg is returned as it is.
func Enclosing(cg runtime.Cgroup, id, asked string) (runtime.Cgroup, error) {
	out, is := cg, namedBy(id, asked)
	out.Unified = enclosingDir(cg.Unified, is)
	if cg.V1 != nil {
		out.V1 = make(map[string]string, len(cg.V1))
	}
	for controller, dir := range cg.V1 {
		out.V1[controller] = enclosingDir(dir, is)
	}
	return withID(out)
}

func enclosingDir(dir string, is func(dir string) bool) string {
	outermost := dir
	for d := dir; len(d) > 1; d = filepath.Dir(d) {
		if is(d) {
			outermost = d
		}
	}
	return outermost
}

// namedBy tells a container's directory: by the path that was asked for, by systemd's
// SLICE:PREFIX:NAME for the scope PREFIX-NAME, or by the ID alone.
func namedBy(id, asked string) func(dir string) bool {
	parts := strings.Split(asked, ":")
	switch {
	case len(parts) == 3 && !strings.HasSuffix(parts[2], ".slice"):
		return func(dir string) bool { return filepath.Base(dir) == parts[1]+"-"+parts[2]+".scope" }
	case len(parts) == 1 && strings.Trim(asked, "/") != "":
		tail := "/" + strings.Trim(asked, "/")
		return func(dir string) bool { return strings.HasSuffix(dir, tail) }
	}
	return func(dir string) bool {
		base := filepath.Base(dir)
		return id != "" && (base == id || strings.HasSuffix(base, "-"+id+".scope"))
	}
}

// IsKubernetes reports whether the control group lies below kubelet's.
func IsKubernetes(cg runtime.Cgroup) bool {
	for _, controller := range controllers {
		for part := range strings.SplitSeq(cg.Dir(controller), "/") {
			if part == "kubepods" || strings.HasPrefix(part, "kubepods.") || strings.HasPrefix(part, "kubepods-") {
				return true
			}
		}
	}
	return false
}

// membership maps each v1 controller, and "" for v2, to the process's path.
func membership(procRoot string, pid int) (map[string]string, error) {
	name := filepath.Join(procRoot, strconv.Itoa(pid), "cgroup")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, goneOr(err, pid)
	}
	out := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: malformed line %q", name, line)
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			out[controller] = fields[2]
		}
	}
	return out, nil
}

// goneOr turns the errors by which /proc says that a process has ended into ErrGone.
func goneOr(err error, pid int) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process %d: %w", pid, runtime.ErrGone)
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

// readMounts lists the control group file systems that this process sees.
func readMounts(procRoot, cgroupRoot string) ([]mount, error) {
	table, err := os.ReadFile(filepath.Join(procRoot, "self", "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("mount table: %w", err)
	}
	var out []mount
	for line := range bytes.Lines(table) {
		if !bytes.Contains(line, []byte(" - cgroup")) {
			continue // a host of many containers has thousands of others
		}
		if m, ok := parseMount(string(line)); ok {
			m.point = rebase(m.point, cgroupRoot)
			out = append(out, m)
		}
	}
	return out, nil
}

// parseMount reads one line of mountinfo (proc(5)): fields up to a lone "-",
// then type, source and the options of the file system, which name the controllers.
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if !ok || len(left) < 5 || len(right) < 3 {
		return mount{}, false
	}
	m := mount{root: unescape(left[3]), point: unescape(left[4])}
	switch right[0] {
	case "cgroup2":
		m.v2 = true
	case "cgroup":
		m.controllers = strings.Split(right[2], ",")
	default:
		return mount{}, false
	}
	return m, true
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func rebase(point, cgroupRoot string) string {
	if rest, ok := strings.CutPrefix(point, DefaultRoot); ok && (rest == "" || rest[0] == '/') {
		return filepath.Join(cgroupRoot, rest)
	}
	return point
}

// startTimeField is starttime's place in /proc/PID/stat after the command's
// closing parenthesis: field 22, where the state is field 3 (proc(5)).
const startTimeField = 22 - 3

// flagsField is that of the kernel's flags of the process; exiting is PF_EXITING
// (include/linux/sched.h), set before the process leaves its control groups.
const (
	flagsField = 9 - 3
	exiting    = 0x4
)

// StartTick returns when a process started, in clock ticks since boot. A process
// that has ended, is ending, or of which only a zombie is left, gives runtime.ErrGone:
// one that is ending seems to be in v1's root control groups.
func StartTick(procRoot string, pid int) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(procRoot, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, goneOr(err, pid)
	}
	// The command may hold spaces and parentheses: only the last one ends it.
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return 0, fmt.Errorf("process %d: malformed stat", pid)
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) <= startTimeField {
		return 0, fmt.Errorf("process %d: stat has only %d fields", pid, len(fields)+2)
	}
	flags, _ := strconv.ParseUint(fields[flagsField], 10, 64)
	if fields[0] == "Z" || fields[0] == "X" || flags&exiting != 0 {
		return 0, goneOr(os.ErrNotExist, pid)
	}
	tick, err := strconv.ParseUint(fields[startTimeField], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("process %d: start time: %w", pid, err)
	}
	return tick, nil
}

// BootID returns the kernel's random ID of this boot.
func BootID(procRoot string) (string, error) {
	data, err := os.ReadFile(filepath.Join(procRoot, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("boot ID: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// DefaultRoot is where systemd and every container host mount control groups.
const DefaultRoot = "/sys/fs/cgroup"

// Detect tells the layout below root, which is DefaultRoot on a live host. A
// root without any control group is an error.
func Detect(root string) (runtime.CgroupMode, error) {
	if exists(filepath.Join(root, "cgroup.controllers")) {
		return runtime.CgroupV2, nil
	}
	if exists(filepath.Join(root, "unified", "cgroup.procs")) {
		return runtime.CgroupHybrid, nil
	}
	for _, controller := range []string{"cpu", "cpu,cpuacct", "memory"} {
		if exists(filepath.Join(root, controller, "cgroup.procs")) {
			return runtime.CgroupV1, nil
		}
	}
	return "", fmt.Errorf("no control groups below %s: mount them, or give the right cgroup root", root)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
