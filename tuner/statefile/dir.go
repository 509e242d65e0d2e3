package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// MakeDir makes a folder, with those above it, and syncs what names it: a file in it that is
// synced is no use where the folder itself is lost. One that is there is no error.
func MakeDir(dir string, perm fs.FileMode) error {
	err := os.Mkdir(dir, perm)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		if err = MakeDir(filepath.Dir(dir), perm); err == nil {
			err = os.Mkdir(dir, perm)
		}
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		if info, err := os.Stat(dir); err != nil || info.IsDir() {
			return err
		}
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case err != nil:
		return err
	}
	return SyncDir(filepath.Dir(dir))
}

// SyncDir makes durable which files a folder has: what was made, renamed or removed in it.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// tempPrefix begins the names of copies that are not in their place yet.
const tempPrefix = ".tmp-"

// Place writes a copy, syncs it, and puts it in its place by a rename, or by a link, which never
// replaces: after a crash, and where the disk is full, what stood there stands. Sweep removes what
// a crash leaves of the copy.
func Place(path string, text []byte, perm fs.FileMode, put func(from, to string) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, IgnoreMissing(os.Remove(f.Name()))) }()
	_, err = f.Write(text)
	if err == nil {
		err = errors.Join(f.Chmod(perm), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = put(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// Lock locks an open file against other processes until it is closed. It waits at most patience; the error is EWOULDBLOCK
// then.
func Lock(f *os.File, patience time.Duration) error { return lock(f, syscall.LOCK_EX, patience) }

// Share is Lock beside others that share it.
func Share(f *os.File, patience time.Duration) error { return lock(f, syscall.LOCK_SH, patience) }

func lock(f *os.File, how int, patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || !time.Now().Before(end) {
			return err
		}
	}
}

// Sweep removes copies that a crash left unfinished.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	errs := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			errs = append(errs, IgnoreMissing(os.Remove(filepath.Join(dir, e.Name()))))
		}
	}
	return errors.Join(errs...)
}
