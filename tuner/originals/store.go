package originals

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// DefaultDir is where originals are kept.
const DefaultDir = "/var/lib/trimtab/originals"

const (
	suffix        = ".json"
	tempSuffix    = ".json.tmp" // of earlier versions
	corruptSuffix = ".json.corrupt"
	// maxFileBytes bounds what is read: a file holds at most nine knobs and a few
	// paths, a few KiB, so a larger one is not ours.
	maxFileBytes = 1 << 20
)

// Options configure a store.
type Options struct {
	Dir string // DefaultDir if empty
	// Fault is called before and after each step of a durable write; tests kill
	// the process there. Nil: nothing.
	Fault func(point string)
}

// Store is a directory of originals files. Its methods may be called
// concurrently for different containers; writers of one container must take turns.
type Store struct {
	dir   string
	fault func(string)
}

// New returns the store of a directory, which is made at the first Save.
func New(o Options) *Store {
	s := &Store{dir: cmp.Or(o.Dir, DefaultDir), fault: o.Fault}
	if s.fault == nil {
		s.fault = func(string) {}
	}
	return s
}

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

// Load returns the file of a container; ok is false if it has none. A file that
// cannot be understood is set aside and gives ErrCorrupt, now and until a person
// has removed it.
func (s *Store) Load(id runtime.ID) (f File, ok bool, err error) {
	f, err = s.load(id.Key())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return File{}, false, s.setAsideBefore(id.Key())
	case err != nil:
		return File{}, false, err
	case f.ID != id:
		return File{}, false, fmt.Errorf("%s: holds container %s, not %s", s.path(id.Key()), f.ID.Container, id.Container)
	}
	return f, true, nil
}

// List returns all files, sorted by key. Those that cannot be read are reported
// in the error, joined, and do not hide the others.
func (s *Store) List() ([]File, error) { return s.list(func(string) bool { return true }) }

// Lives returns the files of other lives of a container: a restart makes a new one.
func (s *Store) Lives(id runtime.ID) ([]File, error) {
	files, err := s.list(func(key string) bool { return key != id.Key() && id.SameContainer(key) })
	return slices.DeleteFunc(files, func(f File) bool { return f.ID.Container != id.Container }), err
}

func (s *Store) list(wanted func(key string) bool) ([]File, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("originals directory %s: %w", s.dir, err)
	}
	var files []File
	var errs []error
	for _, e := range entries {
		key, isFile := strings.CutSuffix(e.Name(), suffix)
		if !isFile || !wanted(key) {
			continue
		}
		f, err := s.load(key)
		if err == nil {
			files = append(files, f)
		}
		errs = append(errs, statefile.IgnoreMissing(err))
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.ID.Key(), b.ID.Key()) })
	return files, errors.Join(errs...)
}

// Save writes a file durably: when it returns nil, the content survives a crash
// of the machine. On an error the previous content stands, or, where only the
// directory's sync failed, the new one.
func (s *Store) Save(f File) error {
	data, err := Encode(f)
	if err == nil {
		err = s.write(f.ID.Key(), data)
	}
	if err != nil {
		return fmt.Errorf("originals directory %s: %w (no change is made without a durable original: free space there, or make it writable)", s.dir, err)
	}
	return nil
}

func (s *Store) write(key string, data []byte) error {
	if err := statefile.MakeDir(s.dir, 0o700); err != nil {
		return err
	}
	s.fault("store.temp.before")
	return statefile.Place(s.path(key), data, 0o600, func(from, to string) error {
		s.fault("store.rename.before")
		err := os.Rename(from, to)
		s.fault("store.rename.after")
		return err
	})
}

// Remove forgets a container durably; one without a file is no error.
func (s *Store) Remove(id runtime.ID) error {
	s.fault("store.remove.before")
	err := statefile.IgnoreMissing(os.Remove(s.path(id.Key())))
	if err == nil {
		err = statefile.IgnoreMissing(statefile.SyncDir(s.dir))
	}
	if err != nil {
		return fmt.Errorf("originals directory %s: %w (make it writable; what is restored stays restored)", s.dir, err)
	}
	s.fault("store.remove.after")
	return nil
}

// Sweep removes temporary files that a crash left behind. Only the one process
// that owns the store may call it.
func (s *Store) Sweep() error {
	older, _ := filepath.Glob(filepath.Join(s.dir, "*"+tempSuffix)) // the pattern is well formed
	errs := []error{statefile.IgnoreMissing(statefile.Sweep(s.dir))}
	for _, p := range older {
		errs = append(errs, statefile.IgnoreMissing(os.Remove(p)))
	}
	return errors.Join(errs...)
}

func (s *Store) path(key string) string { return filepath.Join(s.dir, key+suffix) }

// load reads one file by key, and sets it aside if it cannot be understood. An
// error of the disk is not corruption: that file stays where it is.
func (s *Store) load(key string) (File, error) {
	data, err := readCapped(s.path(key))
	if err != nil {
		return File{}, fmt.Errorf("read originals: %w", err)
	}
	f, err := Decode(data)
	if err == nil && f.ID.Key() != key {
		err = fmt.Errorf("%w: it holds container %q", ErrCorrupt, f.ID.Key())
	}
	if err != nil {
		return File{}, s.setAside(key, err)
	}
	return f, nil
}

func (s *Store) setAside(key string, cause error) error {
	aside := filepath.Join(s.dir, key+corruptSuffix)
	if err := os.Rename(s.path(key), aside); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.path(key), cause), err)
	}
	return errors.Join(corrupt(aside, cause), statefile.SyncDir(s.dir))
}

// setAsideBefore reports a file that was set aside earlier.
func (s *Store) setAsideBefore(key string) error {
	aside := filepath.Join(s.dir, key+corruptSuffix)
	if _, err := os.Lstat(aside); err != nil {
		return statefile.IgnoreMissing(err)
	}
	return corrupt(aside, ErrCorrupt)
}

func corrupt(aside string, cause error) error {
	return fmt.Errorf("%w; set aside as %s: set the container's limits by hand, then remove that file", cause, aside)
}

func readCapped(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFileBytes))
}
