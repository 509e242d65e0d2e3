package symbols

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/child"
)

const (
	// idleFor is how long a child is kept that has nothing to read: libraries come in bursts.
	idleFor = 10 * time.Second
	// patience is how long a child may take beyond the time that it was given: it has to
	// start, on a machine that is busy.
	patience = 5 * time.Second
)

// ErrReader: the file was not read, through no fault of its own.
var ErrReader = errors.New("the process that reads symbols")

var (
	errClosed = errors.New("closed")
	errLost   = errors.New("this program, started to read symbols, does not call symbols.ChildMain")
)

// Reader has files read by children that have no capability and no system calls
// but those that reading takes. A child reads one file at a time; there are as many as
// files are read at once, and none once there was nothing to read for a while. Its
// methods may be called from any goroutine.
type Reader struct {
	argv              []string
	idleFor, patience time.Duration

	mu     sync.Mutex
	idle   []*process
	timer  *time.Timer // ends those that are idle
	closed bool
	spent  time.Duration // of CPU by those that have ended
}

// NewReader makes a reader without children. Its program calls [ChildMain], or
// [Child] when its first argument is [ChildCommand].
func NewReader() *Reader {
	return &Reader{argv: []string{"/proc/self/exe", ChildCommand}, idleFor: idleFor, patience: patience}
}

// process is one child.
type process struct {
	cmd   *exec.Cmd
	conn  *net.UnixConn
	ended <-chan struct{}
	fresh bool // it has answered nothing yet
}

// Find is the function of the same name, in a child, which gets as long as limit.
// Errors that are not the file's are [ErrReader].
func (r *Reader) Find(file *os.File, want Want, limit time.Duration) ([]Symbol, error) {
	for {
		p, err := r.take()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrReader, err)
		}
		fresh := p.fresh
		found, err := p.find(file, want, limit, time.Now().Add(limit+r.patience))
		if !errors.Is(err, ErrReader) {
			r.put(p)
			return found, err
		}
		r.end(p)
		if fresh {
			return nil, err
		}
		// It may have been ended while it was idle.
	}
}

// Spent is the CPU time of children that have ended.
func (r *Reader) Spent() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spent
}

// Close ends the children. One that reads ends when it has read.
func (r *Reader) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.endIdle()
}

func (r *Reader) take() (*process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	if last := len(r.idle) - 1; last >= 0 {
		p := r.idle[last]
		r.idle = r.idle[:last]
		return p, nil
	}
	return start(r.argv)
}

func (r *Reader) put(p *process) {
	p.fresh = false
	r.mu.Lock()
	if !r.closed {
		r.idle = append(r.idle, p)
		if r.timer == nil {
			r.timer = time.AfterFunc(r.idleFor, r.endIdle)
		} else {
			r.timer.Reset(r.idleFor)
		}
		p = nil
	}
	r.mu.Unlock()
	if p != nil {
		r.end(p)
	}
}

func (r *Reader) endIdle() {
	r.mu.Lock()
	idle := r.idle
	r.idle = nil
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	for _, p := range idle {
		r.end(p)
	}
}

// end ends one child. One that hangs in the kernel, on a disk that does not answer,
// is not waited for: it ends when it can.
func (r *Reader) end(p *process) {
	_ = p.conn.Close()
	_ = p.cmd.Process.Kill() // it may have ended already
	select {
	case <-p.ended:
	case <-time.After(r.patience):
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent += p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

func start(argv []string) (*process, error) {
	if isChild() {
		return nil, errLost // else each child would start more of them
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("a socket: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "child")
	defer theirs.Close()
	conn, err := packets(os.NewFile(uintptr(fds[0]), "parent"))
	if err != nil {
		return nil, fmt.Errorf("a socket: %w", err)
	}
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), conn: conn, fresh: true}
	p.cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=single"}
	p.cmd.ExtraFiles = []*os.File{theirs}
	if p.ended, err = child.Start(p.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start: %w", err), conn.Close())
	}
	return p, nil
}

func (p *process) find(file *os.File, want Want, limit time.Duration, until time.Time) ([]Symbol, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("a library: %w", err)
	}
	b, err := json.Marshal(request{Want: want, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("encode a request: %w", err)
	}
	if err := p.conn.SetDeadline(until); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReader, err)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("a library: %w", err)
	}
	var sent error
	if err := raw.Control(func(fd uintptr) {
		_, _, sent = p.conn.WriteMsgUnix(b, unix.UnixRights(int(fd)), nil)
	}); err != nil {
		return nil, fmt.Errorf("a library: %w", err)
	}
	if sent != nil {
		return nil, fmt.Errorf("%w: %w", ErrReader, sent)
	}
	packet := make([]byte, maxPacketBytes)
	return gather(func() ([]byte, error) {
		n, err := p.conn.Read(packet)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrReader, err)
		}
		return packet[:n], nil
	}, uint64(info.Size()))
}
