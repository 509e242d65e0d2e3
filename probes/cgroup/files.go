package cgroup

import (
	"bytes"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxFileBytes bounds what is read of one file: memory.stat, the longest, has
// about 2 KiB.
const maxFileBytes = 16 << 10

// name is a file: its directory and its own name, so that no path need be put
// together to find it open.
type name struct{ dir, file string }

// files keeps descriptors open between readings. A file that is absent is tried
// again each time: a controller may be enabled later.
type files struct {
	open map[name]int
	buf  []byte // may be shared by those that are read one after another
	room *room  // nil: any number may be open
}

// room is how many descriptors more may be kept open; what finds none is opened for each reading.
type room struct{ left int }

// newRoom is a quarter of the descriptors that the process may have: libraries and probes of
// uprobes take half (probes/uprobe), and the rest is for all else.
func newRoom() *room {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		limit.Cur = 1024 // the kernel's own
	}
	return &room{left: int(min(limit.Cur, maxDescriptors) / 4)}
}

// maxDescriptors bounds it where the process may open any number.
const maxDescriptors = 1 << 18

// read returns a file's content, valid until the next call.
func (f *files) read(dir, file string) ([]byte, error) {
	n := name{dir, file}
	fd, kept := f.open[n]
	if !kept {
		var err error
		path := filepath.Join(dir, file)
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		if kept = f.room.take(); kept {
			f.open[n] = fd
		}
	}
	got, err := unix.Pread(fd, f.buf, 0)
	if err != nil && kept {
		// ENODEV: the cgroup is gone. Another one may stand there now.
		f.drop(n)
	} else if !kept {
		_ = unix.Close(fd)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s in %s: %w", file, dir, err)
	}
	if got == len(f.buf) {
		return nil, fmt.Errorf("read %s in %s: longer than %d bytes", file, dir, len(f.buf))
	}
	return f.buf[:got], nil
}

func (f *files) close() {
	for n := range f.open {
		f.drop(n)
	}
}

func (f *files) drop(n name) {
	_ = unix.Close(f.open[n])
	delete(f.open, n)
	if f.room != nil {
		f.room.left++
	}
}

func (r *room) take() bool {
	if r == nil {
		return true
	}
	if r.left <= 0 {
		return false
	}
	r.left--
	return true
}

// fields calls visit for each line "name value" of b.
func fields(b []byte, visit func(name, value []byte)) {
	for line := range bytes.Lines(b) {
		if name, value, ok := bytes.Cut(line, []byte{' '}); ok {
			visit(name, bytes.TrimSpace(value))
		}
	}
}

// want is a value that a file of "name value" lines is asked for.
type want struct {
	name string
	into *uint64
}

// find fills in what is asked for; the answer has a bit for each that is not there.
func find(b []byte, wants []want) (absent uint) {
	absent = 1<<len(wants) - 1
	fields(b, func(name, value []byte) {
		if absent == 0 {
			return
		}
		for i, w := range wants {
			if string(name) != w.name {
				continue
			}
			if v, ok := parseUint(value); ok {
				*w.into = v
				absent &^= 1 << i
			}
			return
		}
	})
	return absent
}

// parseUint reads a whole number without making a string of it.
func parseUint(b []byte) (v uint64, ok bool) {
	b = bytes.TrimSpace(b)
	const most = 1<<64 - 1
	for _, c := range b {
		d := uint64(c - '0')
		if c < '0' || c > '9' || v > most/10 || v*10 > most-d {
			return 0, false
		}
		v = v*10 + d
	}
	return v, len(b) > 0
}

// parseInt is parseUint with a sign.
func parseInt(b []byte) (int64, bool) {
	digits, negative := bytes.CutPrefix(b, []byte{'-'})
	v, ok := parseUint(digits)
	switch {
	case !ok || v > 1<<63-1:
		return 0, false
	case negative:
		return -int64(v), true
	}
	return int64(v), true
}
