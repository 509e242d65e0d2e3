package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Where a container finds what the check gives it.
const (
	insideDir  = "/run/gpucheck" // read-only: train.py, the virtual libraries
	insideNode = "/run/vgpu"
	insideSave = "/run/checkpoints"
)

// groupName is the control group that holds the containers'.
const groupName = "trimtab-gpucheck"

// removeGroups removes what runc leaves: the group above the containers', once empty.
func removeGroups() {
	for _, pattern := range []string{"/sys/fs/cgroup/" + groupName, "/sys/fs/cgroup/*/" + groupName} {
		dirs, _ := filepath.Glob(pattern) // the patterns are well-formed
		for _, dir := range dirs {
			_ = os.Remove(dir) // another check may be using it
		}
	}
}

// rootFS mounts the machine's own root, read-only with all that is mounted on it,
// as the root of containers: Python, PyTorch and the driver's libraries are there
// as on the host, wherever they were installed.
func rootFS(at string) error {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("/", at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind of / at %s: %w", at, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(-1, at, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("%s read-only (needs Linux 5.12): %w", at, err)
	}
	return nil
}

// controlGroups mounts control groups where the machine has none mounted.
func controlGroups() error {
	entries, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil || len(entries) > 0 {
		return err
	}
	if err := unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("no control groups are mounted, and they cannot be: %w", err)
	}
	return nil
}

// spec describes a container: namespaces of its own, no network, a cgroup of its
// own, the devices of NVIDIA's driver and no others.
func (c *check) spec(id string, w work) *specs.Spec {
	s := &specs.Spec{
		Version: "1.0.2", Hostname: "gpucheck",
		Root: &specs.Root{Path: c.root, Readonly: true},
		Process: &specs.Process{Args: w.args, Cwd: "/", Env: append(c.env(), w.env...), NoNewPrivileges: true,
			Capabilities: capabilities()},
		Mounts: c.mounts(),
		Linux: &specs.Linux{
			CgroupsPath: "/" + groupName + "/" + id,
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace}},
			Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
		},
	}
	if w.cpus > 0 {
		quota, period := int64(w.cpus*100_000), uint64(100_000)
		s.Linux.Resources.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	}
	addDevices(s)
	return s
}

func (c *check) mounts() []specs.Mount {
	tmp := func(at string, options ...string) specs.Mount {
		return specs.Mount{Destination: at, Type: "tmpfs", Source: "tmpfs", Options: append([]string{"nosuid", "mode=755"}, options...)}
	}
	bind := func(from, to, access string) specs.Mount {
		return specs.Mount{Destination: to, Type: "bind", Source: from, Options: []string{"bind", access}}
	}
	out := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"}, tmp("/dev"),
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666", "mode=0620"}},
		tmp("/dev/shm", "mode=1777"), tmp("/run"),
		bind(c.o.dir, insideDir, "ro"), bind(c.saves, insideSave, "rw"),
	}
	if c.node != nil {
		out = append(out, bind(filepath.Dir(c.node.Path), insideNode, "rw"))
	}
	return out
}

// env is the check's own environment where PyTorch needs it, and the virtual
// libraries' where they are used.
func (c *check) env() []string {
	keep := []string{"PATH=", "LD_LIBRARY_PATH=", "PYTHONPATH=", "VIRTUAL_ENV=", "CUDA_HOME=", "LANG=", "LC_ALL="}
	env := []string{"PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1", "HOME=/run", "TMPDIR=/dev/shm"}
	for _, kv := range os.Environ() {
		if slices.ContainsFunc(keep, func(k string) bool { return strings.HasPrefix(kv, k) }) {
			env = append(env, kv)
		}
	}
	if c.node != nil {
		env = append(env, "TRIMTAB_VGPU_NODE="+insideNode+"/"+filepath.Base(c.node.Path), "LD_LIBRARY_PATH="+insideDir+"/vgpu")
	}
	return env
}

// gpuNodes lists the nodes of NVIDIA's driver.
func gpuNodes() (nodes []string) {
	for _, pattern := range []string{"/dev/nvidia*", "/dev/nvidia-caps/*"} {
		found, _ := filepath.Glob(pattern) // the patterns are well-formed
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeCharDevice != 0 {
				nodes = append(nodes, path)
			}
		}
	}
	return nodes
}

// addDevices gives a container the driver's nodes, and the right to the numbers of
// nvidiactl and the first GPU also where no driver is: the check of access needs none.
func addDevices(s *specs.Spec) {
	allow := func(major, minor int64) {
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices,
			specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major, Minor: &minor, Access: "rwm"})
	}
	const nvidiaMajor, nvidiactlMinor = 195, 255 // Documentation/admin-guide/devices.txt has the major
	allow(nvidiaMajor, nvidiactlMinor)
	nodes := gpuNodes()
	if len(nodes) == 0 {
		allow(nvidiaMajor, 0)
	}
	for _, path := range nodes {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			continue // gone since it was listed
		}
		mode, major, minor := os.FileMode(0o666), int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
		s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{Path: path, Type: "c", Major: major, Minor: minor, FileMode: &mode})
		allow(major, minor)
	}
}

// detach takes the containers' root away, with all that is mounted on it.
func detach(root string) error { return unix.Unmount(root, unix.MNT_DETACH) }
