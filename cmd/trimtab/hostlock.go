package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/tuner/config"
)

// hostLockFile keeps apart daemons that work on one host with different state directories: each
// would take the other's values for originals. The one with the default directory holds it alone.
// Others, which tests and trials are, share it.
const hostLockFile = "/run/trimtab/host.lock"

// lockHost refuses a daemon beside another one. Where the file cannot be made there is no lock: the
// state directory and the socket still keep two apart.
func lockHost(path string, cfg config.Config, log *slog.Logger) (*os.File, error) {
	how := unix.LOCK_SH
	if filepath.Clean(cfg.StateDir) == config.Default().StateDir {
		how = unix.LOCK_EX
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	if err != nil {
		log.Warn("a daemon with another state directory would not be noticed", "error", err)
		return nil, nil
	}
	if err := flock(f, how); err != nil {
		return nil, errors.Join(fmt.Errorf("another trimtab daemon, with a state directory other than %s, works on this host: stop it first", cfg.StateDir), f.Close())
	}
	return f, nil
}

// flock waits lockPatience for a lock.
func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	for end := time.Now().Add(lockPatience); errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	}
	return err
}
