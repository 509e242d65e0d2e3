package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// hostLockFile keeps apart daemons that work on one host with different state directories: each
// would take the other's values for originals. The one with the default directory holds it alone.
// Others, which tests and trials are, share it.
const hostLockFile = "/run/trimtab/host.lock"

// lockHost refuses a daemon beside another one. Where the file cannot be made or locked there is no
// lock: the state directory and the socket still keep two apart.
func lockHost(path string, cfg config.Config, log *slog.Logger) (*os.File, error) {
	take := statefile.Share
	if filepath.Clean(cfg.StateDir) == config.Default().StateDir {
		take = statefile.Lock
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	if err == nil {
		if err = take(f, lockPatience); err == nil {
			return f, nil
		}
		_ = f.Close() // nothing was written
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("another trimtab daemon, with a state directory other than %s, works on this host: stop it first", cfg.StateDir)
	}
	log.Warn("a daemon with another state directory would not be noticed", "error", err)
	return nil, nil
}

// unlock is for the end of all else.
func (p *components) unlock() error {
	if p.hostLock == nil {
		return p.lock.Close()
	}
	return errors.Join(p.lock.Close(), p.hostLock.Close())
}
