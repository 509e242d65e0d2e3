package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

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
