// Package procfs reads what several probes want of /proc, to a bound: a process says of itself what
// it likes, at any length.
package procfs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// MonotonicNs is CLOCK_MONOTONIC, by which samples are dated.
func MonotonicNs() int64 { return clock(unix.CLOCK_MONOTONIC) }

// BootNs is CLOCK_BOOTTIME, the time since the host's start, by which starts of processes are dated: nobody sets it.
func BootNs() int64 { return clock(unix.CLOCK_BOOTTIME) }

func clock(id int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // both exist on every Linux; the call cannot fail
	return ts.Nano()
}

// Read reads a file's first bytes, limit at the most.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// Fields calls visit for each line "name value" of b.
func Fields(b []byte, visit func(name, value []byte)) {
	for line := range bytes.Lines(b) {
		if name, value, ok := bytes.Cut(line, []byte{' '}); ok {
			visit(name, bytes.TrimSpace(value))
		}
	}
}

// Find fills in what is asked of a file of "name value" lines, where a unit may follow; wants keeps what is not there.
func Find(b []byte, wants map[string]*uint64) {
	Fields(b, func(name, value []byte) {
		into, ok := wants[string(name)]
		if !ok {
			return
		}
		number, _, _ := bytes.Cut(value, []byte{' '})
		if v, ok := ParseUint(number); ok {
			*into = v
			delete(wants, string(name))
		}
	})
}

// ParseUint reads a whole number, with blanks around it.
func ParseUint(b []byte) (v uint64, ok bool) {
	v, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	return v, err == nil
}

// Path is a file of a process.
func Path(procRoot string, pid int32, name string) string {
	return filepath.Join(procRoot, strconv.Itoa(int(pid)), name)
}

// membership is one cgroup of a process: its path in the hierarchy of these controllers, with commas;
// "" is v2's.
type membership struct{ controllers, path string }

// maxCgroupBytes bounds /proc/PID/cgroup: 14 controllers of v1, paths of 4 KiB.
const maxCgroupBytes = 64 << 10

// memberships reads a process's cgroups, the roots of hierarchies aside.
func memberships(procRoot string, pid int32) ([]membership, error) {
	b, err := Read(Path(procRoot, pid, "cgroup"), maxCgroupBytes)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	var out []membership
	for line := range bytes.Lines(b) {
		f := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(":"), 3)
		if len(f) == 3 && len(f[2]) > 1 && f[2][0] == '/' {
			out = append(out, membership{string(f[1]), filepath.Clean(string(f[2]))})
		}
	}
	return out, nil
}

// Stat is what /proc/PID/stat says (proc(5)): with its start, a PID names a process for as long as
// the host is up; its size changes when it maps a library.
type Stat struct {
	Parent    int32
	Ended     bool   // it only waits for its parent to take notice; one of whose threads hangs has not
	Flags     uint64 // PF_* of include/linux/sched.h
	StartTick uint64 // clock ticks since boot
	SizeBytes uint64
}

// maxStatBytes is more than a name of 16 bytes and 50 numbers need.
const maxStatBytes = 4096

// ReadStat reads a process's stat.
func ReadStat(procRoot string, pid int32) (Stat, error) {
	b, err := Read(Path(procRoot, pid, "stat"), maxStatBytes)
	if err != nil {
		return Stat{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return s, fmt.Errorf("process %d: stat: %w", pid, err)
	}
	return s, nil
}

// parseStat reads fields 3, 4, 9, 20, 22 and 23. The name in field 2 may hold anything, so what follows
// its last parenthesis is counted.
func parseStat(b []byte) (s Stat, err error) {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 21 {
		return s, fmt.Errorf("%d fields after the name, want 21", len(f))
	}
	parent, err := strconv.ParseInt(string(f[1]), 10, 32)
	if err != nil {
		return s, fmt.Errorf("parent: %w", err)
	}
	numbers, threads := Stat{Parent: int32(parent)}, uint64(0)
	for _, n := range []struct {
		field int
		into  *uint64
	}{{6, &numbers.Flags}, {17, &threads}, {19, &numbers.StartTick}, {20, &numbers.SizeBytes}} {
		if *n.into, err = strconv.ParseUint(string(f[n.field]), 10, 64); err != nil {
			return s, fmt.Errorf("field %d: %w", n.field+3, err)
		}
	}
	numbers.Ended = f[0][0] == 'Z' && threads <= 1 || f[0][0] == 'X' // the state is the main thread's alone
	return numbers, nil
}
