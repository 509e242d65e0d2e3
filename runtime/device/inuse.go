package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
)

// ErrInUse: a process of the container has the device open.
var ErrInUse = errors.New("the device is in use")

const (
	useTimeout   = 5 * time.Second // a look at all files of a container; milliseconds unless one of them hangs
	maxProcesses = 1 << 16
)

// inUse returns ErrInUse if a process of c has a node of a major number open, with
// one of the minor numbers, wherever the node lies and whatever it is called. A
// process that only kept a mapping is not found; NVIDIA's libraries keep the files.
func (v *Visibility) inUse(ctx context.Context, c runtime.Container, minors []int) error {
	ctx, cancel := context.WithTimeout(ctx, useTimeout)
	defer cancel()
	// A file of a network file system may hang its stat.
	_, err := aside(ctx, func() (struct{}, error) { return struct{}{}, v.findUser(ctx, c, minors) })
	switch {
	case errors.Is(err, ErrInUse):
		return fmt.Errorf("container %q: %w", c.Name, err)
	case err != nil:
		return fmt.Errorf("container %q: whether its devices are in use could not be found out: %w", c.Name, err)
	}
	return nil
}

func (v *Visibility) findUser(ctx context.Context, c runtime.Container, minors []int) error {
	pids, err := processesIn(c.Cgroup.Dir("devices"))
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return err
		}
		dir := filepath.Join(v.o.ProcRoot, strconv.Itoa(pid))
		minor, err := openMinor(ctx, filepath.Join(dir, "fd"), v.useMajor, minors)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH):
			continue // it ended
		case errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("the open files of process %d: %w (trimtab needs CAP_SYS_PTRACE for them)", pid, err)
		case err != nil:
			return fmt.Errorf("the open files of process %d: %w", pid, err)
		case minor >= 0:
			comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
			return fmt.Errorf("process %d (%q) has device %d:%d open: %w", pid, strings.TrimSpace(string(comm)), v.useMajor, minor, ErrInUse)
		}
	}
	return nil
}

// processesIn lists the processes of a control group and of all below it.
func processesIn(dir string) (pids []int, err error) {
	if dir == "" {
		return nil, errors.New("its control group is not known")
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var data []byte
		if err == nil && d.IsDir() {
			data, err = os.ReadFile(filepath.Join(path, "cgroup.procs"))
		}
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		switch {
		case path != dir && isGone(err): // it ended meanwhile
			return nil
		case len(pids) > maxProcesses:
			return fmt.Errorf("it has more than %d processes", maxProcesses)
		}
		return err
	})
	if isGone(err) {
		return nil, fmt.Errorf("its control group is gone: %w", runtime.ErrGone)
	}
	return pids, err
}

// openMinor returns the first of the minor numbers that one of the files is; -1: none.
func openMinor(ctx context.Context, dir string, major int, minors []int) (int, error) {
	found := -1
	err := eachEntry(ctx, dir, func(e os.DirEntry) bool {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, "/") {
			return true // closed meanwhile; or a socket, a pipe: not a node
		}
		var st unix.Statx_t
		// Not synced: the file's own server, a container's perhaps, is not asked.
		if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
			return true // closed meanwhile
		}
		if st.Mode&unix.S_IFMT == unix.S_IFCHR && int(st.Rdev_major) == major && slices.Contains(minors, int(st.Rdev_minor)) {
			found = int(st.Rdev_minor)
		}
		return found < 0
	})
	return found, err
}

// eachEntry goes through a directory until use says that it suffices. A container's has as
// many entries as it likes to make: few are held at a time.
func eachEntry(ctx context.Context, dir string, use func(os.DirEntry) bool) error {
	const held = 256
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(held)
		for _, e := range entries {
			if !use(e) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
}
