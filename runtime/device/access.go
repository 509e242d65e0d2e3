package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"

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
// node. It needs no GPU: a node of major 195 gives EPERM where the control group
// refuses it, and ENXIO where it is allowed and no driver answers.
//
// On v1, one thread of this process enters the container's devices group for the
// length of one open, and leaves; no other controller's group is touched, so
// neither the container's limits nor its freezer reach the thread, and a crash
// leaves nothing behind. On v2 the answer is unknown: a thread cannot enter alone,
// and a process that is born in a group somebody pauses at that moment stops before
// its exec, holds its parent's fork, and stays inside until the group is thawed.
func CheckAccess(ctx context.Context, c runtime.Container) (Access, error) {
	if err := ctx.Err(); err != nil {
		return AccessUnknown, err
	}
	dir, ok := c.Cgroup.V1["devices"]
	if !ok {
		return AccessUnknown, fmt.Errorf("container %q: on v2 control groups access to the GPU cannot be tried from outside", c.Name)
	}
	own, err := cgroup.Locate("/proc", cgroup.DefaultRoot, os.Getpid())
	if err != nil {
		return AccessUnknown, fmt.Errorf("own control group: %w", err)
	}
	if own.V1["devices"] == "" {
		return AccessUnknown, fmt.Errorf("own control group: no devices controller")
	}
	node, err := openUnlinkedNode()
	if err != nil {
		return AccessUnknown, fmt.Errorf("container %q: no device node to try: %w", c.Name, err)
	}
	defer unix.Close(node)
	result := make(chan error, 1)
	go onOwnThread(func() { result <- openInside(node, dir, own.V1["devices"]) })
	return judge(c, <-result)
}

// judge reads the answer of open.
func judge(c runtime.Container, err error) (Access, error) {
	switch {
	case err == nil, errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return AccessAllowed, nil
	case errors.Is(err, errEntry):
		return AccessUnknown, fmt.Errorf("container %q: %w", c.Name, err)
	case errors.Is(err, unix.EPERM):
		return AccessRefused, nil
	}
	return AccessUnknown, fmt.Errorf("container %q: %w", c.Name, err)
}

// errEntry: the thread did not get in, so open was not tried.
var errEntry = errors.New("its devices group cannot be entered")

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

// openInside opens the node while the calling thread is in the container's devices group.
func openInside(node int, container, own string) (err error) {
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
	fd, err := unix.Open(fmt.Sprintf("/proc/thread-self/fd/%d", node), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// openUnlinkedNode makes a node, keeps only a handle that is not an open device,
// and removes it again, so that no crash later on can leave it behind.
func openUnlinkedNode() (fd int, err error) {
	for _, parent := range []string{"/dev", os.TempDir()} {
		if fd, err = nodeIn(parent); err == nil {
			return fd, nil
		}
	}
	return -1, err
}

func nodeIn(parent string) (int, error) {
	var fsInfo unix.Statfs_t
	if err := unix.Statfs(parent, &fsInfo); err != nil {
		return -1, fmt.Errorf("%s: %w", parent, err)
	}
	if fsInfo.Flags&unix.ST_NODEV != 0 {
		return -1, fmt.Errorf("%s is mounted with nodev", parent)
	}
	dir, err := os.MkdirTemp(parent, ".trimtab-")
	if err != nil {
		return -1, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "node")
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(nvidiaMajor, nvidiactlMinor))); err != nil {
		return -1, fmt.Errorf("mknod %s: %w", path, err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}
