package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

// maxNamespaces is how deep the kernel nests user namespaces.
const maxNamespaces = 32

// owner is whose engine it is that answers. Root's is believed. A user's (rootless Docker) could
// name any process of the host as a container's: it is believed on what that user owns.
// Safe for concurrent use.
type owner struct {
	mu    sync.Mutex
	known bool
	uid   uint32 // 0: root
}

// dial connects to the engine's socket and notes who listens there, by the kernel's word: what
// lies at the path may change. Two users in turn are refused, for answers would be mixed.
func (o *owner) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	uid, err := listenerOf(conn)
	if err == nil {
		err = o.note(uid)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", address, err), conn.Close())
	}
	return conn, nil
}

// listenerOf is the user ID of who listens at the other end; 0 where it is trimtab's own.
func listenerOf(conn net.Conn) (uid uint32, err error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, nil // no socket of a user's
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) { cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, inner); err != nil {
		return 0, fmt.Errorf("whose it is: %w", err)
	}
	if int(cred.Uid) == os.Geteuid() {
		return 0, nil
	}
	return cred.Uid, nil
}

// note keeps the first user.
func (o *owner) note(uid uint32) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known && uid != o.uid {
		return fmt.Errorf("it was user %d's engine and is user %d's: restart trimtab if that is meant", o.uid, uid)
	}
	o.known, o.uid = true, uid
	return nil
}

// check refuses a container whose init process the engine's owner does not own.
func (o *owner) check(host engine.Host, c runtime.Container) error {
	o.mu.Lock()
	uid := o.uid
	o.mu.Unlock()
	if uid == 0 {
		return nil
	}
	owns, err := ownsNamespace(host.ProcRoot, c.InitPID, uid)
	if alive := host.Alive(c); errors.Is(alive, runtime.ErrGone) { // what was looked at may be another process
		return alive
	}
	switch {
	case err != nil:
		return fmt.Errorf("container %q: %w: whose process %d is cannot be told: %w", c.Name, engine.ErrNotBelieved, c.InitPID, err)
	case !owns:
		return fmt.Errorf("container %q: %w: it is user %d's, and process %d, the container's by its word, is in no user namespace of that user",
			c.Name, engine.ErrNotBelieved, uid, c.InitPID)
	}
	return nil
}

// ownsNamespace: the process's user namespace, or one around it, is the user's. Then the kernel
// lets that user do with the process what they like. In the host's own namespace all is root's.
func ownsNamespace(procRoot string, pid int, uid uint32) (bool, error) {
	space, err := os.Open(filepath.Join(procRoot, strconv.Itoa(pid), "ns/user"))
	if err != nil {
		return false, err
	}
	defer func() { _ = space.Close() }() // only read
	for range maxNamespaces + 1 {
		fd := int(space.Fd()) //nolint:gosec // a descriptor fits
		of, err := unix.IoctlGetUint32(fd, unix.NS_GET_OWNER_UID)
		if err != nil {
			return false, fmt.Errorf("%s: %w", space.Name(), err)
		}
		if of == uid {
			return true, nil
		}
		parent, err := unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		if errors.Is(err, unix.EPERM) { // it is ours, that of the host
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", space.Name(), err)
		}
		_ = space.Close()
		space = os.NewFile(uintptr(parent), space.Name())
	}
	return false, nil
}
