package uprobe

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/procfs"
)

const (
	// linkFiles is how many descriptors an attachment holds at the most: a perf event and
	// the link of the program to it.
	linkFiles = 2
	// maxFiles bounds the finder where the process may open any number.
	maxFiles = 1 << 16
)

var (
	errNoRoom = errors.New("no room: half of the files that this process may open hold libraries and probes")
	errShare  = errors.New("its share of the files that hold libraries and probes is taken: half of what it leaves free")
)

// room counts the descriptors that a finder holds, up to half of those that its
// process may open: the other half is for all that is not the containers' doing.
type room struct {
	ceiling int64
	used    atomic.Int64
	mu      sync.Mutex
	held    map[string]int64 // of used: libraries and probes, by container
}

func newRoom() room {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		limit.Cur = 1024 // the kernel's own
	}
	return room{ceiling: int64(min(limit.Cur/2, maxFiles)), held: map[string]int64{}}
}

// takeFor makes room for a container's libraries and probes, and freeFor frees it. One that has some gets more as long
// as it holds less than half of what is free: one that wants all of it gets a third.
func (r *room) takeFor(key string, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := r.ceiling - r.used.Load()
	if err := r.take(n); err != nil {
		return err
	}
	if held := r.held[key]; held > 0 && 2*held >= free {
		r.free(n)
		return errShare
	}
	r.held[key] += int64(n)
	return nil
}

func (r *room) freeFor(key string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[key] -= int64(n); r.held[key] <= 0 {
		delete(r.held, key)
	}
	r.free(n)
}

// take makes room for n descriptors; what took it frees it again.
func (r *room) take(n int) error {
	if r.used.Add(int64(n)) > r.ceiling {
		r.free(n)
		return errNoRoom
	}
	return nil
}

// toSpare: half of the room is left, so that what only saves time takes none from
// libraries and probes.
func (r *room) toSpare() bool { return r.used.Load() < r.ceiling/2 }

func (r *room) free(n int) { r.used.Add(-int64(n)) }

// held is a file of the kernel's that is read again and again. It is kept open
// where the room allows: with a thousand containers, opening took most of the time
// that looking for new libraries did. One of a process answers for that process
// alone, whoever has its number later. The zero value is ready.
type held struct{ fd int } // one more than the descriptor; 0: not open

func (h *held) isOpen() bool { return h.fd != 0 }

// open opens the file if there is room to keep it, and if it can.
func (h *held) open(r *room, path string) {
	if !r.toSpare() || r.take(1) != nil {
		return
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		r.free(1)
		return
	}
	h.fd = fd + 1
}

// read returns what stands in the file now, at most maxListBytes, valid until buf
// is used again.
func (h *held) read(r *room, path string, buf *[]byte) ([]byte, error) {
	if h.fd == 0 {
		h.open(r, path)
	}
	if h.fd == 0 {
		return procfs.Read(path, maxListBytes)
	}
	b, err := readAll(h.fd-1, buf)
	if err != nil {
		h.close(r)
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}

// wholeBytes is how short the first answer of cgroup.procs or statm is all there is:
// the kernel fills a page before it gives less than was asked for, and asking once
// more was half the cost.
const wholeBytes = 2048

func readAll(fd int, buf *[]byte) ([]byte, error) {
	have := 0
	for {
		if have == len(*buf) {
			if have >= maxListBytes {
				return *buf, nil
			}
			*buf = append(*buf, make([]byte, max(have, 4096))...)
		}
		n, err := unix.Pread(fd, (*buf)[have:], int64(have))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return (*buf)[:have], err
		}
		if have += n; have <= wholeBytes {
			return (*buf)[:have], nil
		}
	}
}

// close gives the descriptor back; it may be called twice.
func (h *held) close(r *room) {
	if h.fd == 0 {
		return
	}
	// Opened for reading: closing it cannot fail usefully.
	_ = unix.Close(h.fd - 1)
	r.free(1)
	h.fd = 0
}
