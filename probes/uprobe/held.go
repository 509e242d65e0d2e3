package uprobe

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/probes/procfs"
)

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
