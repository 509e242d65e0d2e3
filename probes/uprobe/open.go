package uprobe

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/uprobe/symbols"
)

var (
	errNotALibrary = errors.New("not a regular file of a bearable size")
	errOtherFile   = errors.New("another file stands there now")
	errFUSE        = errors.New("on FUSE, where its mount was of another type")
)

// fileKey names a file as user space sees it.
type fileKey struct {
	dev, ino uint64
}

// stamp tells whether a file, or the file whose inode number it took over, is
// still the one that was looked into.
type stamp struct {
	size, changedNs int64
}

// handle is a file of a container, found but not yet opened for reading.
type handle struct {
	fd    int // O_PATH
	key   fileKey
	stamp stamp
}

// close does not wait: the file behind O_PATH is not told.
func (h handle) close() { _ = unix.Close(h.fd) }

// again is the same file by a descriptor of its own, to be closed apart.
func (h handle) again() (handle, error) {
	fd, err := unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return handle{}, fmt.Errorf("a second descriptor: %w", err)
	}
	h.fd = fd
	return h, nil
}

// reopen opens the file for reading. It is known to be a regular file, so the
// open does not wait for a peer. While it is open an exec may hang as reading may:
// whoever reads for longer does so apart.
func (h handle) reopen() (*os.File, error) {
	return os.OpenFile(selfPath(h.fd), os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// apart reads the file in a thread that has a table of open files of its own. A child that is
// started gets a copy of all files that its parent has open and closes them at its exec, which
// waits as reading does where nobody answers.
func (h handle) apart(read func(io.ReaderAt) error) error {
	done := make(chan error)
	go func() {
		goruntime.LockOSThread() // for good: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread's table is the process's, by which /proc/self/fd goes.
			done <- h.apart(read) // by another thread: this one is taken
			goruntime.UnlockOSThread()
			return
		}
		done <- h.here(read)
	}()
	return <-done
}

func (h handle) here(read func(io.ReaderAt) error) error {
	// Where a filter of system calls refuses it, the table is the process's.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_UNSHARE)
	fd, err := unix.Open(selfPath(h.fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // cannot fail usefully
	return read(descriptor(fd))
}

// descriptor reads a file by its number, as the calling thread has it.
type descriptor int

// ReadAt reads as io.ReaderAt does.
func (d descriptor) ReadAt(b []byte, at int64) (n int, err error) {
	for n < len(b) {
		got, err := unix.Pread(int(d), b[n:], at+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return n, err
		case got == 0:
			return n, io.EOF
		}
		n += got
	}
	return n, nil
}

// selfPath names an open file by descriptor. The kernel's link leads to the very
// file, whatever has become of its path.
func selfPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// opener reaches the mapped files of one process.
type opener struct {
	dir    string // /proc/PID
	byPath bool   // map_files is refused
	root   int    // the process's root directory, where byPath
}

func newOpener(procRoot string, pid int32) *opener {
	return &opener{dir: filepath.Join(procRoot, strconv.Itoa(int(pid))), root: -1}
}

func (o *opener) close() {
	if o.root >= 0 {
		_ = unix.Close(o.root)
	}
}

// find returns the mapped file; kind is the type of its file system, by the mounts.
// Opening a device or a FIFO can do things or wait; O_PATH does neither.
func (o *opener) find(m mapping, kind string) (handle, error) {
	fd, err := o.open(m)
	if err != nil {
		return handle{}, err
	}
	var st unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Fstatfs(fd, &system), unix.Fstat(fd, &st)); err != nil {
		_ = unix.Close(fd)
		return handle{}, fmt.Errorf("stat a mapped file: %w", err)
	}
	switch {
	case int64(system.Type) == unix.FUSE_SUPER_MAGIC && kind != "virtiofs": // mapped since
		err = errFUSE
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > symbols.MaxFileBytes:
		err = errNotALibrary
	case o.byPath && st.Ino != m.inode:
		err = errOtherFile
	}
	if err != nil {
		_ = unix.Close(fd)
		return handle{}, err
	}
	return handle{
		fd: fd, key: fileKey{dev: st.Dev, ino: st.Ino}, stamp: stamp{size: st.Size, changedNs: st.Ctim.Nano()},
	}, nil
}

func (o *opener) open(m mapping) (int, error) {
	if !o.byPath {
		fd, err := unix.Open(filepath.Join(o.dir, "map_files", m.addresses), unix.O_PATH|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			return fd, err
		}
		// map_files wants CAP_CHECKPOINT_RESTORE, and for users other than root
		// CAP_DAC_READ_SEARCH; the root directory neither.
		root, rootErr := unix.Open(filepath.Join(o.dir, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if rootErr != nil {
			return -1, fmt.Errorf("reach the files of a process: %w", rootErr)
		}
		o.byPath, o.root = true, root
	}
	fd, err := unix.Openat2(o.root, m.path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("open a mapped file: %w", err)
	}
	return fd, nil
}
