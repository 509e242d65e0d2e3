package uprobe

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/child"
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
	fd         int // O_PATH
	key        fileKey
	stamp      stamp
	modifiedNs int64
	system     int64 // the type of its file system
	regular    bool
}

// layer tells the file below an overlay; nil: nothing does for sure. Only an overlay that the host
// mounted is believed: a container's may show any file, also one that takes its numbers from FUSE. A
// file that a running system wrote has its own instant of change; one that is read from an image of a
// file system has the time that its builder gave, and a number that the next build has too.
func (h handle) layer(hosts func(dev uint64) bool) *layerFile {
	if h.system != unix.OVERLAYFS_SUPER_MAGIC || h.stamp.changedNs == h.modifiedNs || !hosts(h.key.dev) {
		return nil
	}
	return &layerFile{ino: h.key.ino, stamp: h.stamp, modifiedNs: h.modifiedNs}
}

// stands reports whether the file is still as it was found. A container that writes to a file of its
// image has it copied, and who has it open reads the copy from then on: under the same inode number, and
// at a time of change that nobody can set.
func (h handle) stands() bool {
	now, err := stat(h.fd)
	return err == nil && now.key == h.key && now.stamp == h.stamp && now.modifiedNs == h.modifiedNs
}

// close does not tell the file, which is behind O_PATH. It waits where it is the last user of
// a mount, which is synced then.
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

// apart reads the file in a thread that has a table of open files of its own, with those in
// it that are kept. A child that is started gets a copy of all files that its parent has open
// and closes them at its exec, which waits as reading does where nobody answers.
func (h handle) apart(kept []int, read func(descriptor) error) (err error) {
	child.OnThread(func() { err = h.here(kept, read) }) // the main thread's table is the process's, by which /proc/self/fd goes
	return err
}

func (h handle) here(kept []int, read func(descriptor) error) error {
	if err := keepOnly(kept); err != nil {
		return fmt.Errorf("a table of open files apart: %w", err)
	}
	fd, err := unix.Open(selfPath(h.fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // cannot fail usefully
	return read(descriptor(fd))
}

// keepOnly gives the calling thread a table of open files with the first three and those that
// are kept, in their order.
func keepOnly(kept []int) error {
	if len(kept) == 0 {
		return errors.New("Go's runtime has no files to wait by")
	}
	// The upper part first: it is not even copied.
	if err := unix.CloseRange(uint(kept[len(kept)-1]+1), math.MaxUint32, unix.CLOSE_RANGE_UNSHARE); err != nil {
		return err
	}
	from := 3
	for _, fd := range kept {
		if fd > from {
			if err := unix.CloseRange(uint(from), uint(fd-1), 0); err != nil {
				return err
			}
		}
		from = max(from, fd+1)
	}
	return nil
}

// runtimeFiles are the descriptors by which Go's runtime waits for files, and others of the
// same sort: it uses them in any thread, at the end of a garbage collection say, and ends the
// program where they are gone.
func runtimeFiles() ([]int, error) {
	r, w, err := os.Pipe() // it opens them when they are first needed
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer w.Close()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	var kept []int
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		fd, notNumber := strconv.Atoi(e.Name())
		if err == nil && notNumber == nil && (to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]") {
			kept = append(kept, fd)
		}
	}
	slices.Sort(kept)
	return kept, nil
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
	h, err := stat(fd)
	switch {
	case err != nil:
	case h.system == unix.FUSE_SUPER_MAGIC && kind != "virtiofs": // mapped since
		err = errFUSE
	case !h.regular || h.stamp.size > symbols.MaxFileBytes:
		err = errNotALibrary
	case o.byPath && h.key.ino != m.inode:
		err = errOtherFile
	}
	if err != nil {
		_ = unix.Close(fd)
		return handle{}, err
	}
	return h, nil
}

// stat is the handle of an open file, which stays the caller's where it fails.
func stat(fd int) (handle, error) {
	var st unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Fstatfs(fd, &system), unix.Fstat(fd, &st)); err != nil {
		return handle{}, fmt.Errorf("stat a mapped file: %w", err)
	}
	return handle{
		fd: fd, key: fileKey{dev: st.Dev, ino: st.Ino}, stamp: stamp{size: st.Size, changedNs: st.Ctim.Nano()}, modifiedNs: st.Mtim.Nano(),
		system: int64(system.Type), regular: st.Mode&unix.S_IFMT == unix.S_IFREG,
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
