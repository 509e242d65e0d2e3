package rate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	limit "golang.org/x/time/rate"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/procfs"
)

// SocketName is the socket's name in Options.Dir. Its directory is what
// containers mount: the socket is made anew by each daemon, the directory stays.
const SocketName = "rate.sock"

const (
	maxMessage = 256
	// All containers together may send messagesPerS, one of them perContainerPerS: a
	// trainer says one thing a step. The socket's filter deals them (shares); its bursts,
	// before the next deal, are read at once up to maxBurst. Where the filter is refused
	// the socket is read late beyond that, and one that floods costs others theirs.
	messagesPerS     = 2000
	perContainerPerS = 500
	maxBurst         = 4 * messagesPerS
	maxSenders       = 64 // processes of one container
	senderGoodFor    = 2 * time.Second
	maxKnown         = 4096 // senders remembered, foreign ones included
)

// listener receives datagrams in a goroutine and counts them by container and process.
type listener struct {
	conn    *net.UnixConn
	path    string
	owner   func(pid int32) string
	tell    func(key, problem string)
	ended   chan struct{}
	shares  *shares // nil: the kernel refused the filter
	refusal error   // why

	mu      sync.Mutex
	senders map[string]map[int32]*counter // by container and process
	dropped uint64                        // malformed, or of no watched container

	// The goroutine's own.
	known map[int32]sender
	all   *limit.Limiter
}

// sender is where a process was found to be.
type sender struct {
	key  string
	till time.Time
}

func listen(opts Options, tell func(key, problem string)) (*listener, error) {
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(opts.Dir, SocketName)
	// A daemon before left it. Remove takes a link as a link.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	l := &listener{conn: conn, path: path, owner: opts.Owner, tell: tell, ended: make(chan struct{}),
		senders: map[string]map[int32]*counter{}, known: map[int32]sender{}, all: limit.NewLimiter(messagesPerS, maxBurst)}
	if err := errors.Join(os.Chmod(opts.Dir, 0o755), open(conn, path)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l.shares, l.refusal = newShares(conn, opts.TasksByV1CPU, tell)
	go l.run()
	return l, nil
}

// open lets everybody write to the socket, and the kernel say who did.
func open(conn *net.UnixConn, path string) error {
	// A container that mounted the directory may put a link in the socket's place: the
	// mode goes to what was opened without following one, and only if it is a socket.
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%s: something else was put in the socket's place: mount %s read-only into containers", path, filepath.Dir(path))
	}
	if err := os.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o666); err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var passErr error
	err = raw.Control(func(fd uintptr) { passErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	return errors.Join(err, passErr)
}

func (l *listener) watch(t probes.Target) {
	if l.shares != nil {
		if err := l.shares.watch(t); err != nil {
			l.tell(t.Key, err.Error())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.senders[t.Key] = map[int32]*counter{}
}

func (l *listener) unwatch(key string) {
	if l.shares != nil {
		l.shares.unwatch(key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.senders, key)
}

// readings returns a container's counters by process, and forgets processes that ended.
func (l *listener) readings(key string) map[int32]counter {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.senders[key]
	out := make(map[int32]counter, len(s))
	for tgid, c := range s {
		out[tgid] = *c
		if _, err := os.Lstat(procfs.Path("/proc", tgid, "")); errors.Is(err, fs.ErrNotExist) {
			delete(s, tgid)
		}
	}
	return out
}

// lost is what was dropped: malformed, of no watched container, or beyond a share.
func (l *listener) lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shares == nil {
		return l.dropped
	}
	_, refused, foreign, err := l.shares.totals()
	if err != nil {
		return l.dropped
	}
	return l.dropped + refused + foreign
}

// stop closes the socket, waits for the goroutine and removes the socket's file.
func (l *listener) stop() error {
	err := l.conn.Close()
	<-l.ended
	if l.shares != nil {
		err = errors.Join(err, l.shares.close())
	}
	if rm := os.Remove(l.path); !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

func (l *listener) run() {
	defer close(l.ended)
	buf, oob := make([]byte, maxMessage+1), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	for {
		n, oobn, _, _, err := l.conn.ReadMsgUnix(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			l.take(buf[:n], oob[:oobn])
		}
		// Over the bound, or in an error that stays, the reader rests: it is not woken by
		// each datagram, and senders find the queue full.
		if !l.all.Allow() || err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// take counts one datagram.
func (l *listener) take(message, oob []byte) {
	pid := senderOf(oob)
	key := l.containerOf(pid, time.Now())
	n, numbered, ok := parseMessage(message)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.senders[key]
	if !ok || s == nil {
		l.dropped++
		return
	}
	c := s[pid]
	if c == nil {
		if len(s) >= maxSenders {
			l.dropped++
			return
		}
		c = &counter{}
		s[pid] = c
	}
	if atNs := procfs.MonotonicNs(); numbered {
		c.step(n, atNs)
	} else {
		c.tick(atNs)
	}
}

// containerOf finds the container that a process is in; "": none.
func (l *listener) containerOf(pid int32, now time.Time) string {
	if s, ok := l.known[pid]; ok && now.Before(s.till) {
		return s.key
	}
	if len(l.known) >= maxKnown {
		clear(l.known)
	}
	key := l.owner(pid)
	if key != "" { // a container that has just started is known a moment later
		l.known[pid] = sender{key: key, till: now.Add(senderGoodFor)}
	}
	return key
}

// senderOf is the process that the kernel names as a datagram's sender; 0: none.
func senderOf(oob []byte) int32 {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for i := range messages {
		if cred, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			return cred.Pid
		}
	}
	return 0
}

// parseMessage reads "step" or "step=123".
func parseMessage(b []byte) (n uint64, numbered, ok bool) {
	b = bytes.TrimSpace(b)
	if len(b) > maxMessage {
		return 0, false, false
	}
	if string(b) == stepGroup {
		return 0, false, true
	}
	digits, ok := bytes.CutPrefix(b, []byte(stepGroup+"="))
	if !ok {
		return 0, false, false
	}
	n, err := strconv.ParseUint(string(digits), 10, 64)
	return n, true, err == nil
}
