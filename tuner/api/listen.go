package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning says that another daemon holds the socket.
var ErrRunning = errors.New("another trimtab daemon is running")

// Most connections at once, by what those may do who made them. Each kind has a room of its own:
// strangers cannot keep others out, nor those who may look an operator who has to act. Beyond
// it, connections are closed.
const (
	maxWriters   = 128
	maxReaders   = 96
	maxStrangers = 8
)

// Listener is the bound socket; it accepts connections and knows their peers.
type Listener struct {
	*net.UnixListener
	groups Groups
	ids    groupIDs
	rooms  map[Access]chan struct{}
	close  func() error
	Meter  *Meter // of what taking connections costs; nil: it is not counted
}

// Listen binds the socket. It fails with ErrRunning if another daemon holds it; a
// socket that nobody answers at is replaced. The caller closes it, which removes it.
func Listen(path string, groups Groups) (*Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // the socket is for all, see the package comment
		return nil, fmt.Errorf("socket: %w", err)
	}
	lock, err := acquire(path + ".lock")
	if err != nil {
		return nil, err
	}
	l, err := bind(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	// The lock is held until the path is gone, so the path is still ours.
	closing := sync.OnceValue(func() error { return errors.Join(os.Remove(path), l.Close(), lock.Close()) })
	return &Listener{UnixListener: l, groups: groups, close: closing,
		rooms: map[Access]chan struct{}{AccessWrite: make(chan struct{}, maxWriters), AccessRead: make(chan struct{}, maxReaders),
			AccessNone: make(chan struct{}, maxStrangers)}}, nil
}

// ListenFor is Listen for those alone who are root or in a group: others are let go at once.
func ListenFor(path, group string) (net.Listener, error) {
	l, err := Listen(path, Groups{Read: group})
	if err != nil {
		return nil, err
	}
	delete(l.rooms, AccessNone) // a nil room has no place
	return l, nil
}

// acquire takes the lock that two daemons cannot both hold. The file is never
// removed: that would let two hold locks on two files of one name.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600) //nolint:gosec // from the host's config
	if err != nil {
		return nil, fmt.Errorf("socket's lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { //nolint:gosec // a descriptor fits
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: it holds %s; stop it first", ErrRunning, path)
		}
		return nil, fmt.Errorf("socket's lock %s: %w", path, err)
	}
	return f, nil
}

// bind makes the socket in a folder that only root may enter, sets its mode
// there, and moves it into place: nobody meets a half-made one.
func bind(path string) (*net.UnixListener, error) {
	if err := checkFree(path); err != nil {
		return nil, err
	}
	private := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.RemoveAll(private); err != nil { // left by a crash; ours, by the lock
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := os.Mkdir(private, 0o700); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	defer os.RemoveAll(private) //nolint:errcheck // empty by then; removed at the next start otherwise
	made := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l.SetUnlinkOnClose(false)                                                         // by then it has another name
	if err := errors.Join(os.Chmod(made, 0o666), os.Rename(made, path)); err != nil { //nolint:gosec // see the package comment
		return nil, fmt.Errorf("socket: %w", errors.Join(err, l.Close()))
	}
	return l, nil
}

// checkFree refuses a path at which somebody answers, or that is no socket.
func checkFree(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is no socket: remove it, or set another path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("%w: it answers at %s; stop it first", ErrRunning, path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%w, or something else is in the way: %w", ErrRunning, err)
	}
	return nil
}

// Accept returns the next connection that there is room for.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := PeerOf(conn)
		if err != nil {
			_ = conn.Close() // it went away already
			continue
		}
		access := l.groups.access(peer, &l.ids)
		room := l.rooms[access]
		l.Meter.Note()
		select {
		case room <- struct{}{}:
			return &peerConn{UnixConn: conn, access: access, room: room}, nil
		default:
			_ = conn.Close() // nothing was said
		}
	}
}

// Close stops listening, removes the socket and gives up the lock; it may be
// called more than once.
func (l *Listener) Close() error { return l.close() }

// peerConn is a connection with what its peer may do.
type peerConn struct {
	*net.UnixConn
	access Access
	room   chan struct{}
	once   sync.Once
}

// Close also makes room for another.
func (c *peerConn) Close() error {
	c.once.Do(func() { <-c.room })
	return c.UnixConn.Close()
}
