package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// diskArgs are docker's limits on what a part reads. A limit makes the disk the
// bottleneck by construction, however fast it is.
func diskArgs(ctx context.Context, p Part) ([]string, error) {
	if p.DiskMBps == 0 && p.DiskReads == 0 {
		return nil, nil
	}
	disk, err := dataDisk(ctx)
	if err != nil {
		return nil, err
	}
	var args []string
	if p.DiskMBps > 0 {
		args = append(args, "--device-read-bps", fmt.Sprintf("%s:%dmb", disk, p.DiskMBps))
	}
	if p.DiskReads > 0 {
		args = append(args, "--device-read-iops", disk+":"+strconv.Itoa(p.DiskReads))
	}
	return args, nil
}

// dataDisk is the whole block device that Docker's containers lie on: the kernel
// limits disks, not partitions.
func dataDisk(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", "info", "--format", "{{.DockerRootDir}}").Output()
	if err != nil {
		return "", fmt.Errorf("docker info: %w", err)
	}
	var st unix.Stat_t
	root := strings.TrimSpace(string(out))
	if err := unix.Stat(root, &st); err != nil {
		return "", fmt.Errorf("%s: %w", root, err)
	}
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return "", fmt.Errorf("needs Docker's directory %s on a block device: %w", root, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	return "/dev/" + filepath.Base(dir), nil
}
