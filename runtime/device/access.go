package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// Access is whether a container's processes may open its GPU.
type Access string

// Unknown is not a yes: the error beside it tells why.
const (
	AccessAllowed Access = "allowed"
	AccessRefused Access = "refused"
	AccessUnknown Access = "unknown"
)

// CheckAccess tells whether c's control group lets processes open NVIDIA's control
// node. It needs no GPU, and no driver is asked: a node of major 195 gives EPERM
// where the control group refuses it.
//
// On v1, one thread of this process enters the container's devices group for the
// length of one question, and leaves; no other controller's group is touched, so
// neither the container's limits nor its freezer reach the thread, and a crash
// leaves nothing behind. On v2 a thread cannot enter alone, and a process that is
// born in a group somebody pauses at that moment stops before its exec, holds its
// parent's fork, and stays inside until the group is thawed: there the group's
// programs are read and run here (evaluate.go).
func CheckAccess(ctx context.Context, c runtime.Container) (Access, error) {
	return tryOpen(ctx, c, []int{nvidiactlMinor})
}

// tryOpen is CheckAccess for several minor numbers of NVIDIA's major: refused if one is.
func tryOpen(ctx context.Context, c runtime.Container, minors []int) (Access, error) {
	if err := ctx.Err(); err != nil {
		return AccessUnknown, err
	}
	dir, ok := c.Cgroup.V1["devices"]
	switch {
	case !ok && c.Cgroup.Unified == "":
		return AccessUnknown, fmt.Errorf("container %q: its control group is not known", c.Name)
	case c.Cgroup.Unified != "":
		// Beside v1 programs are rare, and asking them needs more privileges.
		access, err := askPrograms(c.Cgroup.Unified, minors)
		if err != nil {
			err = fmt.Errorf("container %q: %w", c.Name, err)
		}
		if access == AccessRefused || !ok {
			return access, err
		}
	}
	own, err := cgroup.Locate("/proc", cgroup.DefaultRoot, os.Getpid())
	if err != nil {
		return AccessUnknown, fmt.Errorf("own control group: %w", err)
	}
	if own.V1["devices"] == "" {
		return AccessUnknown, fmt.Errorf("own control group: no devices controller")
	}
	ctx, cancel := context.WithTimeout(ctx, accessTimeout)
	defer cancel()
	result := make(chan error, 1)
	go onOwnThread(func() { result <- tryMinors(minors, dir, own.V1["devices"]) })
	select {
	case err := <-result:
		switch {
		case err == nil:
			return AccessAllowed, nil
		case errors.Is(err, unix.EPERM) && !errors.Is(err, errEntry):
			return AccessRefused, nil
		}
		return AccessUnknown, fmt.Errorf("container %q: %w", c.Name, err)
	case <-ctx.Done():
		return AccessUnknown, fmt.Errorf("container %q: the kernel does not answer: %w", c.Name, ctx.Err())
	}
}

// accessTimeout bounds a try, which takes microseconds unless control groups are locked.
const accessTimeout = 2 * time.Second

// tryMinors asks for nodes of its own.
func tryMinors(minors []int, container, own string) error {
	var nodes []int
	defer func() {
		for _, node := range nodes {
			unix.Close(node)
		}
	}()
	for _, minor := range minors {
		node, err := openUnlinkedNode(minor)
		if err != nil {
			return fmt.Errorf("%w: no device node to try: %w", errEntry, err)
		}
		nodes = append(nodes, node)
	}
	return askInside(nodes, container, own)
}

// askPrograms asks the device programs of a group of the v2 tree.
func askPrograms(dir string, minors []int) (Access, error) {
	programs, err := newProgramCache().of(dir)
	if err != nil {
		return AccessUnknown, err
	}
	for _, minor := range minors {
		who, err := refusing(programs, openRequest(nvidiaMajor, minor))
		if who != nil {
			return AccessRefused, nil
		}
		if err != nil {
			return AccessUnknown, err
		}
	}
	return AccessAllowed, nil
}

// errEntry: the thread did not get in, so nothing was tried.
var errEntry = errors.New("its devices group cannot be asked")

// onOwnThread calls f on a thread that ends with it, so whatever f leaves undone
// ends too. The main thread cannot end: if it is the one that came, it is held
// until another has been found.
func onOwnThread(f func()) {
	goruntime.LockOSThread() // and never unlocked, but on the main thread
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		goruntime.LockOSThread()
		f()
	}()
	<-done
	goruntime.UnlockOSThread()
}

// askInside asks whether the nodes may be read while the calling thread is in the
// container's devices group. access(2) asks all that open does, device rules included
// (inode_permission), and then leaves the driver alone, which may be what hangs.
func askInside(nodes []int, container, own string) (err error) {
	tid := strconv.Itoa(unix.Gettid())
	if err := os.WriteFile(filepath.Join(container, "tasks"), []byte(tid), 0); err != nil {
		return fmt.Errorf("%w: %w", errEntry, err)
	}
	defer func() {
		// If this fails the thread still ends in a moment, and leaves by that.
		if back := os.WriteFile(filepath.Join(own, "tasks"), []byte(tid), 0); back != nil && err == nil {
			err = fmt.Errorf("%w: no way back: %w", errEntry, back)
		}
	}()
	for _, node := range nodes {
		if err := unix.Faccessat(unix.AT_FDCWD, fmt.Sprintf("/proc/thread-self/fd/%d", node), unix.R_OK, 0); err != nil {
			return err
		}
	}
	return nil
}

// openUnlinkedNode makes a node, keeps only a handle that is not an open device,
// and removes it again, so that a crash can leave it behind only in between; the
// next call removes that.
func openUnlinkedNode(minor int) (fd int, err error) {
	for _, parent := range []string{"/dev", os.TempDir()} {
		if fd, err = nodeIn(parent, minor); err == nil {
			return fd, nil
		}
	}
	return -1, err
}

func nodeIn(parent string, minor int) (int, error) {
	var fsInfo unix.Statfs_t
	if err := unix.Statfs(parent, &fsInfo); err != nil {
		return -1, fmt.Errorf("%s: %w", parent, err)
	}
	if fsInfo.Flags&unix.ST_NODEV != 0 {
		return -1, fmt.Errorf("%s is mounted with nodev", parent)
	}
	sweepNodes(parent)
	dir, err := os.MkdirTemp(parent, nodePrefix)
	if err != nil {
		return -1, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "node")
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(nvidiaMajor, uint32(minor)))); err != nil {
		return -1, fmt.Errorf("mknod %s: %w", path, err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// nodePrefix begins the names of directories with a node, and staleNode is the age
// from which on nobody is about to remove one.
const (
	nodePrefix = ".trimtab-"
	staleNode  = time.Minute
)

// sweepNodes removes what a process that was killed between making and removing left.
func sweepNodes(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, nodePrefix+"*")) // the pattern is well-formed
	for _, dir := range left {
		var st unix.Stat_t
		if unix.Lstat(dir, &st) != nil || st.Mode != unix.S_IFDIR|0o700 || int(st.Uid) != os.Geteuid() || time.Since(time.Unix(st.Mtim.Unix())) < staleNode {
			continue
		}
		_ = os.RemoveAll(dir) // tried again next time
	}
}
