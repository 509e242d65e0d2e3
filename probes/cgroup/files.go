package cgroup

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"

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
}

// read returns a file's content, valid until the next call.
func (f *files) read(dir, file string) ([]byte, error) {
	n := name{dir, file}
	fd, ok := f.open[n]
	if !ok {
		var err error
		path := filepath.Join(dir, file)
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		f.open[n] = fd
	}
	got, err := unix.Pread(fd, f.buf, 0)
	if err != nil {
		// ENODEV: the cgroup is gone. Another one may stand there now.
		_ = unix.Close(fd)
		delete(f.open, n)
		return nil, fmt.Errorf("read %s in %s: %w", file, dir, err)
	}
	if got == len(f.buf) {
		return nil, fmt.Errorf("read %s in %s: longer than %d bytes", file, dir, len(f.buf))
	}
	return f.buf[:got], nil
}

func (f *files) close() {
	for n, fd := range f.open {
		_ = unix.Close(fd)
		delete(f.open, n)
	}
}

// fields calls visit for each line "name value" of b.
func fields(b []byte, visit func(name, value []byte)) {
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte{'\n'})
		b = rest
		if name, value, ok := bytes.Cut(line, []byte{' '}); ok {
			visit(name, bytes.TrimSpace(value))
		}
	}
}

func parseUint(b []byte) (uint64, bool) {
	v, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	return v, err == nil
}
