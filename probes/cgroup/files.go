package cgroup

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxFileBytes bounds what is read of one file: memory.stat, the longest, has
// about 2 KiB.
const maxFileBytes = 16 << 10

// files keeps descriptors open between readings, of the directories in use, up to a number. A file
// that is absent is tried again each time: a controller may be enabled later.
type files struct {
	dirs map[string]*dir
	buf  []byte
	room int // how many descriptors more may be kept open; what finds none is opened for each reading
}

// dir is a directory of containers: many have the same ones above them.
type dir struct {
	users int
	open  map[string]int
}

// newFiles has room for a quarter of the descriptors that the process may have: libraries and probes of
// uprobes take half (probes/uprobe), and the rest is for all else.
func newFiles() *files {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		limit.Cur = 1024 // the kernel's own
	}
	return &files{dirs: map[string]*dir{}, buf: make([]byte, maxFileBytes), room: int(min(limit.Cur, maxDescriptors) / 4)}
}

// maxDescriptors bounds it where the process may open any number.
const maxDescriptors = 1 << 18

func (f *files) use(dirs []string) {
	for _, name := range dirs {
		if f.dirs[name] == nil {
			f.dirs[name] = &dir{open: map[string]int{}}
		}
		f.dirs[name].users++
	}
}

// leave closes the files of a directory with its last user.
func (f *files) leave(dirs []string) {
	for _, name := range dirs {
		d := f.dirs[name]
		if d.users--; d.users > 0 {
			continue
		}
		for file := range d.open {
			f.drop(d, file)
		}
		delete(f.dirs, name)
	}
}

// read returns a file's content, valid until the next call.
func (f *files) read(in, file string) ([]byte, error) {
	d := f.dirs[in]
	if d != nil {
		if fd, kept := d.open[file]; kept {
			got, err := unix.Pread(fd, f.buf, 0)
			if err == nil {
				return f.content(in, file, got)
			}
			f.drop(d, file) // ENODEV: the cgroup is gone. Another one may stand there now.
		}
	}
	path := filepath.Join(in, file)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	got, err := unix.Pread(fd, f.buf, 0)
	if d != nil && f.room > 0 && err == nil {
		d.open[file] = fd
		f.room--
	} else {
		_ = unix.Close(fd)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s in %s: %w", file, in, err)
	}
	return f.content(in, file, got)
}

// content is what was read.
func (f *files) content(in, file string, got int) ([]byte, error) {
	if got == len(f.buf) {
		return nil, fmt.Errorf("read %s in %s: longer than %d bytes", file, in, len(f.buf))
	}
	return f.buf[:got], nil
}

func (f *files) drop(d *dir, file string) {
	_ = unix.Close(d.open[file])
	delete(d.open, file)
	f.room++
}
