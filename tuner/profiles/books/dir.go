package books

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Suffix of the files that are read of a directory. What begins with a dot is none of them: rsync
// writes so what it has not finished.
const Suffix = ".book.gz"

// maxFiles of a directory are read, the first by name.
const maxFiles = 256

// File is what became of one file of a directory, or of one book where it holds several.
type File struct {
	Name string `json:"name"`
	Host string `json:"host,omitempty"`
	Jobs int    `json:"jobs"`
	// MadeUnixNs is by the clock of that host.
	MadeUnixNs int64  `json:"made,omitempty"`
	Reason     Reason `json:"reason,omitempty"` // "": it is used
	Text       string `json:"text,omitempty"`   // for people
}

// Directory is read anew when something in it has another size, time or inode: that tells of a
// rename, of a write over NFS, and of a ConfigMap whose symbolic links were turned.
type Directory struct {
	path    string
	trust   Trust
	serials Serials
	seen    map[string]stamp
	err     string
	was     bool // it was there
}

type stamp struct {
	size, mtimeNs int64
	inode         uint64
	mode          fs.FileMode
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), mtimeNs: info.ModTime().UnixNano(), mode: info.Mode()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// NewDirectory does not touch the disk.
func NewDirectory(path string, trust Trust, serials Serials) *Directory {
	return &Directory{path: path, trust: trust, serials: serials}
}

// Changed reports whether there is something else to read than at the last Read.
func (d *Directory) Changed() bool {
	root, names, err := d.open()
	if err != nil {
		return err.Error() != d.err
	}
	defer root.Close() // read only: nothing to lose
	return d.err != "" || d.seen == nil || !maps.Equal(d.seen, stamps(root, names))
}

// open lists the books. A directory that is missing has none.
func (d *Directory) open() (*os.Root, []string, error) {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, nil, err
	}
	dir, err := root.Open(".")
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	all, err := dir.Readdirnames(16 * maxFiles)
	if closed := dir.Close(); err != nil && !errors.Is(err, io.EOF) || closed != nil {
		return nil, nil, errors.Join(err, closed, root.Close())
	}
	names := slices.DeleteFunc(all, func(name string) bool { return !strings.HasSuffix(name, Suffix) || strings.HasPrefix(name, ".") })
	slices.Sort(names)
	return root, names[:min(len(names), maxFiles)], nil
}

func stamps(root *os.Root, names []string) map[string]stamp {
	out := map[string]stamp{}
	for _, name := range names {
		if info, err := root.Stat(name); err == nil {
			out[name] = stampOf(info)
		} else {
			out[name] = stamp{}
		}
	}
	return out
}

// Read reads all books and hands those over that may be used, one at a time; nil: they are only told
// of. Of two of one host the later one is used, if none was before that is later still. An error is of the directory,
// one that has never been there holds no books, or of the serials.
func (d *Directory) Read(now time.Time, use func(Found)) (files []File, err error) {
	root, names, err := d.open()
	d.seen, d.err = nil, ""
	if err != nil {
		d.err = err.Error()
		if errors.Is(err, fs.ErrNotExist) && !d.was {
			err = nil
		}
		return nil, err
	}
	defer root.Close() // read only: nothing to lose
	d.was, d.seen = true, stamps(root, names)
	all := make([][]Found, len(names))
	cut := make([]*Refusal, len(names)) // what could not be read any more
	latest := map[string]*Found{}       // by host
	for i, name := range names {
		cut[i] = withFile(root, name, func(f io.ReadSeeker) (refused *Refusal) {
			all[i], refused = scan(f, d.trust)
			return refused
		})
		if cut[i] != nil && cut[i].Reason == Changed {
			all[i] = nil
		}
		leaveLatest(all[i], latest, now)
	}
	books := slices.Collect(maps.Values(latest))
	if err = d.serials.Refuse(books...); err == nil && use != nil {
		err = d.serials.take(books...)
	}
	if err != nil {
		d.err = err.Error()
		return nil, err
	}
	for i, name := range names {
		if changed := d.hand(root, name, all[i], use); changed != nil {
			all[i], cut[i] = nil, changed
		}
		for _, f := range all[i] {
			files = append(files, fileOf(name, f, now))
		}
		if cut[i] != nil {
			files = append(files, File{Name: name, Reason: cut[i].Reason, Text: cut[i].Text})
		}
	}
	return files, nil
}

// later reports whether one of two books of a host was made after the other: by their serials, or by the
// clock where both are of an earlier trimtab.
func (f *Found) later(than *Found, now time.Time) bool {
	return cmp.Or(cmp.Compare(f.Serial, than.Serial), cmp.Compare(f.made(now), than.made(now))) > 0
}

// made is when a book was made, for comparing it with others; 0 where that is more than a day to come: a
// clock that was once ahead would keep later books away until then.
func (f *Found) made(now time.Time) int64 {
	if f.MadeUnixNs > now.Add(24*time.Hour).UnixNano() {
		return 0
	}
	return f.MadeUnixNs
}

// leaveLatest refuses of each host all books but the latest.
func leaveLatest(all []Found, latest map[string]*Found, now time.Time) {
	for i := range all {
		f := &all[i]
		if f.Refused != nil {
			continue
		}
		old := latest[f.Host]
		if old != nil && !f.later(old, now) {
			old, f = f, old
		}
		if latest[f.Host] = f; old != nil {
			old.Refused = refuse(Older, "is not the latest of its host")
		}
	}
}

// hand reads those books of a file that are left, and hands them over.
func (d *Directory) hand(root *os.Root, name string, scanned []Found, use func(Found)) *Refusal {
	if use == nil || !slices.ContainsFunc(scanned, func(f Found) bool { return f.Refused == nil }) {
		return nil
	}
	return withFile(root, name, func(f io.ReadSeeker) *Refusal {
		return decode(f, d.trust, scanned, false, func(_ int, f Found) { use(f) })
	})
}

func fileOf(name string, f Found, now time.Time) File {
	out := File{Name: name, Host: f.Host, Jobs: f.Jobs, MadeUnixNs: f.MadeUnixNs}
	if f.Refused == nil && f.made(now) != f.MadeUnixNs {
		out.Text = fmt.Sprintf("was made in %s by its host's clock, which is to be set: without a serial any other of its host goes before it", time.Duration(f.MadeUnixNs-now.UnixNano()).Round(time.Hour))
	}
	if f.Refused != nil {
		out.Jobs, out.Reason, out.Text = 0, f.Refused.Reason, f.Refused.Text
	}
	return out
}

// withFile opens one file of a directory, and nothing that a link leads to outside of it.
func withFile(root *os.Root, name string, do func(io.ReadSeeker) *Refusal) *Refusal {
	info, err := root.Stat(name)
	if err != nil {
		return cannotOpen(root, name, err)
	}
	if !info.Mode().IsRegular() { // opening a device can do something
		return refuse(Irregular, "is no regular file: %s", info.Mode().Type())
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return cannotOpen(root, name, err)
	}
	defer f.Close() // read only: nothing to lose
	return opened(f, do)
}

// ReadFile reads the books of one file by its path, for the command line.
func ReadFile(path string, trust Trust) (all []Found, refused *Refusal) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, refuse(Unreadable, "cannot be read: %v", err)
	}
	defer f.Close() // read only: nothing to lose
	refused = opened(f, func(r io.ReadSeeker) (refused *Refusal) {
		all, refused = read(r, trust, true)
		return refused
	})
	if refused != nil && refused.Reason == Changed {
		return nil, refused
	}
	return all, refused
}

func cannotOpen(root *os.Root, name string, err error) *Refusal {
	if info, lerr := root.Lstat(name); lerr == nil && info.Mode()&fs.ModeSymlink != 0 && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return refuse(Outside, "is a symbolic link that leads out of the directory")
	}
	return refuse(Unreadable, "cannot be read: %v", err)
}

// opened looks at a file before and after something is done with it.
func opened(f *os.File, do func(io.ReadSeeker) *Refusal) *Refusal {
	before, err := f.Stat()
	switch {
	case err != nil:
		return refuse(Unreadable, "cannot be read: %v", err)
	case !before.Mode().IsRegular():
		return refuse(Irregular, "is no regular file: %s", before.Mode().Type())
	case before.Size() > MaxBytes:
		return refuse(TooBig, "is of %d MiB; allowed are %d MiB", before.Size()>>20, MaxBytes>>20)
	}
	refused := do(f)
	if after, err := f.Stat(); err != nil || stampOf(after) != stampOf(before) {
		return changed()
	}
	return refused
}

// Merge is one file of the books of several: of each host the one that was made latest, with its
// signature. Books that were refused are no part of it. An error: no reader would take it.
func Merge(all []Found, now time.Time) (text []byte, hosts []string, err error) {
	latest := map[string]*Found{}
	leaveLatest(slices.Clone(all), latest, now)
	hosts, plain := slices.Sorted(maps.Keys(latest)), 0
	for _, host := range hosts {
		if text, err = appendPacked(text, latest[host].raw); err != nil {
			return nil, nil, fmt.Errorf("the book of %s: %w", host, err)
		}
		plain += len(latest[host].raw)
	}
	if len(hosts) > maxBooks || len(text) > MaxBytes || plain > maxPlain {
		return nil, nil, fmt.Errorf("%d books of %d MiB, %d MiB unpacked, are too much for one file; allowed are %d, %d MiB and %d MiB: make several",
			len(hosts), len(text)>>20, plain>>20, maxBooks, MaxBytes>>20, maxPlain>>20)
	}
	return text, hosts, nil
}
