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

// files keeps descriptors open between readings. A file that is absent is tried
// again each time: a controller may be enabled later.
type files struct {
	open map[string]int
	buf  []byte
}

// read returns a file's content, valid until the next call.
func (f *files) read(path string) ([]byte, error) {
	fd, ok := f.open[path]
	if !ok {
		var err error
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		f.open[path] = fd
	}
	n, err := unix.Pread(fd, f.buf, 0)
	if err != nil {
		// ENODEV: the cgroup is gone. Another one may stand there now.
		_ = unix.Close(fd)
		delete(f.open, path)
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if n == len(f.buf) {
		return nil, fmt.Errorf("read %s: longer than %d bytes", path, len(f.buf))
	}
	return f.buf[:n], nil
}

func (f *files) close() {
	for path, fd := range f.open {
		_ = unix.Close(fd)
		delete(f.open, path)
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

func join(dir, name string) string { return filepath.Join(dir, name) }
