// Package cgroup finds a container's control group and reads the values that
// its knobs have in the kernel. It only reads: values are written by the
// runtime's write path, never here.
//
// The trap: on hybrid hosts the v2 tree holds membership and pressure only, and
// the limits are in the v1 trees; which files to read is decided for each
// controller, not for the host.
package cgroup

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/trimtab/trimtab/runtime"
)

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
