package torch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Bounds on what one container can make the probe look at.
const (
	maxProcesses  = 1024
	maxMapsBytes  = 4 << 20
	maxFileBytes  = 4 << 30
	maxCgroupDirs = 256
)

// fileKey names a mapped file as user space sees it.
type fileKey struct {
	dev, ino uint64
}

// processID names a process for as long as the host is up.
type processID struct {
	pid       int32
	startTick uint64
}

// processes lists the processes in a cgroup directory and below it.
func processesIn(dir string) []int32 {
	var pids []int32
	dirs := 0
	// Directories that vanish in between are no loss.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if dirs++; dirs > maxCgroupDirs || len(pids) >= maxProcesses {
			return fs.SkipAll
		}
		b, err := readCapped(filepath.Join(path, "cgroup.procs"), 1<<20)
		if err != nil {
			return nil
		}
		for _, f := range bytes.Fields(b) {
			if pid, err := strconv.ParseInt(string(f), 10, 32); err == nil && pid > 0 && len(pids) < maxProcesses {
				pids = append(pids, int32(pid))
			}
		}
		return nil
	})
	return pids
}

func readCapped(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// startTick is field 22 of /proc/PID/stat. The name in field 2 may hold anything.
func startTick(procRoot string, pid int32) (uint64, error) {
	b, err := readCapped(filepath.Join(procRoot, strconv.Itoa(int(pid)), "stat"), 4096)
	if err != nil {
		return 0, err
	}
	_, rest, ok := bytes.Cut(b[max(0, bytes.LastIndexByte(b, ')')):], []byte(")"))
	f := bytes.Fields(rest)
	if !ok || len(f) < 20 {
		return 0, fmt.Errorf("process %d: stat has no start time", pid)
	}
	return strconv.ParseUint(string(f[19]), 10, 64)
}

// executableMaps lists the address ranges of executable file mappings, those
// first whose path speaks of torch: the path is the container's word, good
// enough for an order.
func executableMaps(maps []byte) []string {
	var likely, others []string
	for line := range bytes.Lines(maps) {
		f := bytes.Fields(line)
		if len(f) < 6 || len(f[1]) != 4 || f[1][2] != 'x' || f[5][0] != '/' || bytes.Equal(f[4], []byte("0")) {
			continue
		}
		if bytes.Contains(f[5], []byte("torch")) {
			likely = append(likely, string(f[0]))
		} else {
			others = append(others, string(f[0]))
		}
	}
	return append(likely, others...)
}

// identify looks at a mapped file without opening it: opening a device can do
// things. Regular files of a bearable size only.
func identify(path string) (fileKey, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileKey{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxFileBytes {
		return fileKey{}, errNoSymbol
	}
	return fileKey{dev: st.Dev, ino: st.Ino}, nil
}

// symbolIn looks for the engine in the file that a map_files link leads to, if
// that is still the file identified.
func symbolIn(path string, want fileKey) (uint64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	if (fileKey{dev: st.Dev, ino: st.Ino}) != want || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, errors.New("another file stands there now")
	}
	return findSymbol(f)
}
