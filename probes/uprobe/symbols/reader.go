package symbols

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/child"
)

const (
	// idleFor is how long children are kept after the last file: libraries come in bursts.
	idleFor = 10 * time.Second
	// patience is how long a child may take beyond the time that it was given: it has to
	// start, on a machine that is busy.
	patience = 5 * time.Second
	// maxBusy files are read at once; others wait for their turn.
	maxBusy = 4
	// maxChildren bounds them, those that hang in the kernel included: on a disk that does
	// not answer they end when they can.
	maxChildren = 32
)

// Errors of who reads; others are of the file.
var (
	// ErrReader: the file was not read to its end. It may be the file's fault or not.
	ErrReader = errors.New("not read")
	// ErrBusy: nor was it begun.
	ErrBusy = errors.New("not begun")
)

var (
	errClosed = errors.New("it is closed")
	errMany   = fmt.Errorf("%d of them are busy", maxChildren)
	errLost   = errors.New("this program does not call symbols.ChildMain")
)

// readerError is an ErrReader. It wraps nothing: what failed is no file of a container.
type readerError struct {
	why  string
	busy bool
}

func (e *readerError) Error() string   { return "the process that reads symbols: " + e.why }
func (e *readerError) Is(t error) bool { return t == ErrReader || t == ErrBusy && e.busy }

// Reader has files read by children that have no capability and no system calls
// but those that reading takes. A child reads one file at a time; there are as many as
// files are read at once, and none once there was nothing to read for a while. Its
// methods may be called from any goroutine.
type Reader struct {
	argv              []string
	idleFor, patience time.Duration
	busy              chan struct{} // one for each file that is read
	closing           chan struct{} // closed by Close

	mu       sync.Mutex
	all      []*process // that were not yet seen to have ended
	starting int
	idle     []*process
	timer    *time.Timer // ends those that are idle
	closed   bool
	spent    time.Duration // of CPU by those that have ended
}

// NewReader makes a reader without children. Its program calls [ChildMain].
func NewReader() *Reader {
	return &Reader{argv: []string{"/proc/self/exe", childCommand}, idleFor: idleFor, patience: patience,
		busy: make(chan struct{}, maxBusy), closing: make(chan struct{})}
}

// process is one child.
type process struct {
	cmd   *exec.Cmd
	conn  *net.UnixConn
	said  child.Tail
	ended <-chan struct{}
	fresh bool // it has answered nothing yet
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// File is a file to be read. Lend opens it and calls send with its descriptor, where the
// socket is valid too. It may wait for ever, and send never does.
type File struct {
	Lend func(socket int, send func(fd int) error) error
	Size int64
}

// Find is the function of the same name, in a child, which gets as long as limit.
// Errors that are not the file's own are [ErrReader]. It waits for its turn, and for the
// end of a child that hangs, though others have their turn meanwhile: who asks for one
// file after the other has one child at the most.
func (r *Reader) Find(file File, want Want, limit time.Duration) ([]Symbol, error) {
	for {
		p, found, broken, err := r.ask(file, want, limit)
		if broken == nil {
			return found, err
		}
		fresh := p.fresh
		r.end(p, r.closing)
		if gone := errors.Is(broken, io.EOF) || errors.Is(broken, unix.EPIPE) || errors.Is(broken, unix.ECONNRESET); !gone || fresh {
			return nil, &readerError{why: p.lastWords(broken)}
		}
		// It may have been ended while it was idle.
	}
}

// ask has a file read by a child, which is of no use any more where broken says why.
func (r *Reader) ask(file File, want Want, limit time.Duration) (p *process, found []Symbol, broken, err error) {
	select {
	case r.busy <- struct{}{}:
	case <-r.closing:
		return nil, nil, nil, &readerError{errClosed.Error(), true}
	}
	// A file that cannot be opened, or closed, keeps its place no longer than a child would.
	free := sync.OnceFunc(func() { <-r.busy })
	defer time.AfterFunc(limit+r.patience, free).Stop()
	defer free()
	if p, err = r.take(); err != nil {
		return nil, nil, nil, &readerError{err.Error(), errors.Is(err, errMany)}
	}
	if found, broken, err = p.find(file, want, limit, r.patience); broken == nil {
		r.put(p)
	}
	return p, found, broken, err
}

// lastWords says why a child is of no use any more.
func (p *process) lastWords(broken error) string {
	if said := p.said.LastLine(); said != "" && p.hasEnded() {
		return said
	}
	switch {
	case errors.Is(broken, os.ErrDeadlineExceeded):
		return "no answer"
	case errors.Is(broken, io.EOF):
		return "it ended"
	}
	return broken.Error()
}

// Spent is the CPU time of children that have ended.
func (r *Reader) Spent() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count()
	return r.spent
}

// count takes out of r.all what has ended.
func (r *Reader) count() {
	r.all = slices.DeleteFunc(r.all, func(p *process) bool {
		if !p.hasEnded() {
			return false
		}
		r.spent += p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
		return true
	})
}

// Close ends the children, also one that reads.
func (r *Reader) Close() {
	r.mu.Lock()
	if !r.closed {
		close(r.closing)
	}
	r.closed, r.idle = true, nil
	all := slices.Clone(r.all)
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	for _, p := range all {
		r.endSoon(p)
	}
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
	r.count()
	if len(r.all)+r.starting >= maxChildren {
		return nil, errMany
	}
	r.starting++
	r.mu.Unlock() // others need not wait for an exec
	p, err := start(r.argv)
	r.mu.Lock()
	r.starting--
	if err != nil {
		return nil, err
	}
	r.all = append(r.all, p)
	if r.closed {
		go r.endSoon(p)
		return nil, errClosed
	}
	return p, nil
}

func (r *Reader) put(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.fresh = false; r.closed {
		return // it is being ended
	}
	r.idle = append(r.idle, p)
	if r.timer == nil {
		r.timer = time.AfterFunc(r.idleFor, r.endIdle)
	} else {
		r.timer.Reset(r.idleFor)
	}
}

func (r *Reader) endIdle() {
	r.mu.Lock()
	idle := r.idle
	r.idle = nil
	r.mu.Unlock()
	for _, p := range idle {
		r.endSoon(p)
	}
}

// end ends one child, and waits for its end, or for that of patience.
func (r *Reader) end(p *process, patience <-chan struct{}) {
	_ = p.conn.Close()
	_ = p.cmd.Process.Kill() // it may have ended already
	select {
	case <-p.ended:
	case <-patience:
	}
}

// endSoon ends one child; if it hangs in the kernel it is not waited for.
func (r *Reader) endSoon(p *process) {
	ctx, cancel := context.WithTimeout(context.Background(), r.patience)
	defer cancel()
	r.end(p, ctx.Done())
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
	p.cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}
	p.cmd.ExtraFiles, p.cmd.Stderr = []*os.File{theirs}, &p.said
	p.cmd.WaitDelay = patience
	if p.ended, err = child.Start(p.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start: %w", err), conn.Close())
	}
	return p, nil
}

// find asks the child. broken: it can no longer be asked; else err is of the file.
func (p *process) find(file File, want Want, limit, patience time.Duration) (found []Symbol, broken, err error) {
	b, err := json.Marshal(request{Want: want, Limit: limit})
	if err != nil {
		return nil, nil, fmt.Errorf("encode a request: %w", err)
	}
	socket, err := p.socket()
	if err != nil {
		return nil, err, nil
	}
	sent := false
	err = file.Lend(socket, func(fd int) error {
		sent = true
		return unix.Sendmsg(socket, b, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
	})
	_ = unix.Close(socket) // a copy
	switch {
	case err != nil && sent:
		return nil, err, nil
	case err != nil:
		return nil, nil, fmt.Errorf("a library is %w: %w", ErrReader, err)
	}
	if err := p.conn.SetDeadline(time.Now().Add(limit + patience)); err != nil {
		return nil, err, nil
	}
	packet := make([]byte, maxPacketBytes)
	return gather(func() ([]byte, error) {
		n, err := p.conn.Read(packet)
		return packet[:n], err
	}, uint64(max(0, file.Size)))
}

// socket is a copy of the connection's descriptor, which outlives it.
func (p *process) socket() (fd int, err error) {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 3) }); e != nil {
		return -1, e
	}
	return fd, err
}
