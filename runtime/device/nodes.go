package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// A container's files are hostile: every path is opened below its root by openat2, so
// a link cannot lead to the host's, and what is found is looked at before it is
// touched. Only NVIDIA's numbers are made or removed.

// inside is a container's root directory. The caller closes it.
func (v *Visibility) inside(c runtime.Container) (*os.File, error) {
	if c.InitPID <= 0 {
		return nil, errors.New("its init process is not known")
	}
	path := filepath.Join(v.o.ProcRoot, strconv.Itoa(c.InitPID), "root")
	root, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, runtime.ErrGone
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w (trimtab needs CAP_SYS_PTRACE to look into it)", err)
	case err != nil:
		return nil, err
	}
	// The number may be another process's by now; once the root is open it stays this one's.
	if c.ID.StartTick != 0 {
		if tick, err := cgroup.StartTick(v.o.ProcRoot, c.InitPID); err != nil || tick != c.ID.StartTick {
			return nil, errors.Join(runtime.ErrGone, root.Close())
		}
	}
	return root, nil
}

// below opens a directory below root; a symbolic link on the way is refused.
func below(root *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat2(int(root.Fd()), name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), "/"+name), nil
}

// errHostsDev: what is removed there is gone for everybody.
var errHostsDev = errors.New("its /dev is the host's; an open is refused")

// devDir opens the container's own /dev. The host's is refused: a bind mount of it, or
// a devtmpfs, of which a host has one, wherever it is mounted.
func (v *Visibility) devDir(root *os.File) (*os.File, error) {
	dev, err := below(root, "dev")
	if err != nil {
		return nil, err
	}
	var theirs, ours unix.Stat_t
	if err := unix.Fstat(int(dev.Fd()), &theirs); err != nil {
		return nil, errors.Join(fmt.Errorf("/dev: %w", err), dev.Close())
	}
	if err := unix.Stat(v.hostDev, &ours); err != nil {
		return nil, errors.Join(fmt.Errorf("whether its /dev is the host's is not known: %s: %w", v.hostDev, err), dev.Close())
	}
	same := ours.Dev == theirs.Dev
	// This process may have a /dev of its own; the host's init has the host's.
	if err := unix.Stat(filepath.Join(v.o.ProcRoot, "1", "root", "dev"), &ours); err == nil {
		same = same || ours.Dev == theirs.Dev
	}
	if same {
		return nil, errors.Join(errHostsDev, dev.Close())
	}
	return dev, nil
}

// gpuMinor reads N of nvidiaN.
func gpuMinor(name string) (int, bool) {
	text, ok := strings.CutPrefix(name, "nvidia")
	minor, err := strconv.ParseUint(text, 10, 8)
	return int(minor), ok && err == nil && minor < firstControlMinor && strconv.FormatUint(minor, 10) == text
}

// firstControlMinor: below it are GPUs; 254 is nvidia-modeset, 255 nvidiactl.
const firstControlMinor = 254

// controlNodes have no GPU of their own; they go with the last.
//
//trimtab:table names of NVIDIA's nodes
var controlNodes = []string{"nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools"}

// nodeOf looks at one node; ok is false where there is none, or something else.
func nodeOf(dev *os.File, name string, majors []int) (Node, bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dev.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return Node{}, false, nil
	}
	if err != nil {
		return Node{}, false, fmt.Errorf("/dev/%s: %w", name, err)
	}
	n := Node{Name: name, Major: int(unix.Major(st.Rdev)), Minor: int(unix.Minor(st.Rdev)), Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid)}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || !slices.Contains(majors, n.Major) {
		return n, false, fmt.Errorf("/dev/%s is not the device of that name: left alone", name)
	}
	if minor, ok := gpuMinor(name); ok && (n.Major != nvidiaMajor || n.Minor != minor) {
		return n, false, fmt.Errorf("/dev/%s is device %d:%d: left alone", name, n.Major, n.Minor)
	}
	return n, true, nil
}

// removeNode removes what was found. Between the look and this the container may have
// put another file there: it is the container's own /dev, and its own loss.
func removeNode(dev *os.File, n Node) error {
	removeTemp(dev, n.Name)
	err := unix.Unlinkat(int(dev.Fd()), n.Name, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("/dev/%s is a mount and stays; an open is refused", n.Name)
	case err != nil:
		return fmt.Errorf("/dev/%s stays, and an open is refused: %w", n.Name, err)
	}
	return nil
}

// nodeTemp is where a node is made. A kill leaves it there, and never one of the node's
// own name with another mode, which would be taken for somebody else's.
func nodeTemp(name string) string { return ".trimtab-" + name }

func removeTemp(dev *os.File, name string) { _ = unix.Unlinkat(int(dev.Fd()), nodeTemp(name), 0) }

// makeNode makes a node again as it was, whole before it has its name. One that stands
// was made by somebody, as they want it.
func makeNode(dev *os.File, n Node, majors []int) error {
	if !slices.Contains(majors, n.Major) || n.Name != filepath.Base(n.Name) || !strings.HasPrefix(n.Name, "nvidia") {
		return fmt.Errorf("/dev/%s, device %d:%d, is not NVIDIA's (any more): not made", n.Name, n.Major, n.Minor)
	}
	removeTemp(dev, n.Name)
	if stands, err := isNode(dev, n); stands || err != nil {
		return err
	}
	unowned, err := makeTemp(dev, n)
	if err == nil {
		err = unix.Renameat2(int(dev.Fd()), nodeTemp(n.Name), int(dev.Fd()), n.Name, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		removeTemp(dev, n.Name)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		_, err := isNode(dev, n)
		return err
	case err != nil:
		return fmt.Errorf("/dev/%s cannot be made: %w", n.Name, err)
	}
	return unowned
}

// errTaken: a node's name is somebody else's, and so is whether it is to be there.
var errTaken = errors.New("something else by now: left alone")

// isNode tells whether a node stands, and fails where something else has its name.
func isNode(dev *os.File, n Node) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dev.Fd()), n.Name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("/dev/%s: %w", n.Name, err)
	case !n.is(st):
		return false, fmt.Errorf("/dev/%s is %w", n.Name, errTaken)
	}
	return true, nil
}

func (n Node) is(st unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(uint32(n.Major), uint32(n.Minor))
}

// makeTemp makes the node under its temporary name. The container may swap files under our
// hands: mode and owner are set through a handle that was seen to be the node. Unowned: it
// is whole but for its owner, which takes a capability that the unit lacks.
func makeTemp(dev *os.File, n Node) (unowned, err error) {
	temp := nodeTemp(n.Name)
	if err := unix.Mknodat(int(dev.Fd()), temp, unix.S_IFCHR|n.Mode&0o777, int(unix.Mkdev(uint32(n.Major), uint32(n.Minor)))); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("/dev/%s is in the way", temp)
		}
		return nil, err
	}
	fd, err := unix.Openat(int(dev.Fd()), temp, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if !n.is(st) {
		return nil, fmt.Errorf("/dev/%s is something else by now: left alone", temp)
	}
	if st.Mode&0o7777 != n.Mode {
		if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), n.Mode&0o777); err != nil {
			return nil, fmt.Errorf("mode: %w", err)
		}
	}
	if int(st.Uid) != n.UID || int(st.Gid) != n.GID {
		if err := unix.Fchownat(fd, "", n.UID, n.GID, unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("/dev/%s: owner: %w (trimtab needs CAP_CHOWN for nodes that are not root's)", n.Name, err), nil
		}
	}
	return nil, nil
}

// The file that tells the container what it sees: one line for each GPU, its UUID or,
// where NVML does not tell, N of /dev/nvidiaN. Empty: none. No file: all it was given.
const (
	viewDir  = "trimtab"
	viewFile = "gpus"
	viewTemp = ".gpus.new"
)

// errHostsRun: the container's /run is the host's, with the daemon's own directory in it.
var errHostsRun = errors.New("its /run is the host's: no file is written there")

// runDir opens the container's /run/trimtab, and makes it if make is set.
func runDir(root *os.File, make bool) (*os.File, error) {
	run, err := below(root, "run")
	if errors.Is(err, fs.ErrNotExist) && make {
		if err := mkdirIn(root, "run"); err != nil {
			return nil, err
		}
		run, err = below(root, "run")
	}
	if err != nil {
		return nil, err
	}
	defer run.Close()
	var theirs, ours unix.Stat_t
	if err := unix.Fstat(int(run.Fd()), &theirs); err != nil {
		return nil, fmt.Errorf("/run: %w", err)
	}
	if err := unix.Stat("/run", &ours); err == nil && ours.Dev == theirs.Dev && ours.Ino == theirs.Ino {
		return nil, errHostsRun
	}
	if make {
		if err := mkdirIn(run, viewDir); err != nil {
			return nil, err
		}
	}
	dir, err := below(run, viewDir)
	if err != nil {
		return nil, fmt.Errorf("/run%w", err)
	}
	// Or the daemon's directory alone is mounted there, for all who mount it.
	if err := unix.Fstat(int(dir.Fd()), &theirs); err != nil {
		return nil, errors.Join(fmt.Errorf("/run/%s: %w", viewDir, err), dir.Close())
	}
	if err := unix.Stat(filepath.Join("/run", viewDir), &ours); err == nil && ours.Dev == theirs.Dev && ours.Ino == theirs.Ino {
		return nil, errors.Join(errHostsRun, dir.Close())
	}
	return dir, nil
}

// mkdirIn makes a directory that everybody in the container may read, whatever the
// daemon's umask is; one that exists stays as it is.
func mkdirIn(parent *os.File, name string) error {
	err := unix.Mkdirat(int(parent.Fd()), name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("/%s: %w", name, err)
	}
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("/%s: %w", name, err)
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, 0o755); err != nil {
		return fmt.Errorf("/%s: %w", name, err)
	}
	return nil
}

// writeView replaces the file in one step.
func writeView(root *os.File, text string) error {
	dir, err := runDir(root, true)
	if err != nil {
		return err
	}
	defer dir.Close()
	_ = unix.Unlinkat(int(dir.Fd()), viewTemp, 0) // what a crash left
	fd, err := unix.Openat(int(dir.Fd()), viewTemp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("/run/%s/%s: %w", viewDir, viewFile, err)
	}
	f := os.NewFile(uintptr(fd), viewFile)
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = unix.Renameat(int(dir.Fd()), viewTemp, int(dir.Fd()), viewFile)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("/run/%s/%s: %w", viewDir, viewFile, err), unix.Unlinkat(int(dir.Fd()), viewTemp, 0))
	}
	return nil
}

// removeView removes the file, and its directory if nothing else is in it.
func removeView(root *os.File) error {
	dir, err := runDir(root, false)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errHostsRun) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, name := range []string{viewFile, viewTemp} {
		if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("/run/%s/%s: %w", viewDir, name, err)
		}
	}
	run, err := below(root, "run")
	if err != nil {
		return err
	}
	defer run.Close()
	_ = unix.Unlinkat(int(run.Fd()), viewDir, unix.AT_REMOVEDIR) // not empty: somebody else's too
	return nil
}
