package main

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trimtab/trimtab/probes/procfs"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// identityKeyFile is the host's own key, in stateDir.
const identityKeyFile = "identity.key"

// identifier says what containers that start are known by, under the key of the host or the fleet.
type identifier struct {
	key  []byte
	host string
	// passing: the key ends with the daemon
	passing bool
}

// openIdentifier reads the key, and makes the host's own where there is none. Without a key that lasts
// jobs are known again until the daemon ends.
func openIdentifier(cfg config.Config, log *slog.Logger) identifier {
	key, err := identityKey(cfg)
	if err != nil {
		log.Error("jobs are known again by their start only until the daemon ends", "error", err)
		key = newKey()
	}
	name, _ := os.Hostname() // a host without a name is one like all such hosts
	return identifier{key: key, host: identity.Word(key, "host", name), passing: err != nil}
}

// identityKey is the fleet's key, where the config names one, else the host's.
func identityKey(cfg config.Config) ([]byte, error) {
	path := cmp.Or(cfg.IdentityKey, filepath.Join(cfg.StateDir, identityKeyFile))
	key, err := readKey(path)
	if cfg.IdentityKey == "" && errors.Is(err, fs.ErrNotExist) {
		key, err = makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("identity key: %w", err)
	}
	return key, nil
}

// readKey reads 32 bytes in hexadecimal from a regular file that nobody but its owner may read.
func readKey(path string) ([]byte, error) {
	text, err := statefile.ReadPrivate(path)
	key, errHex := hex.DecodeString(strings.TrimSpace(string(text)))
	switch {
	case errors.Is(err, statefile.ErrNotState):
		return nil, fmt.Errorf("%s must be a regular file, not a link", path)
	case errors.Is(err, statefile.ErrOpen):
		return nil, fmt.Errorf("%s must be a file that its owner alone may read: `chmod 600 %s`", path, path)
	case err != nil:
		return nil, err
	case errHex != nil || len(key) != identity.KeyBytes:
		return nil, fmt.Errorf("%s does not hold %d bytes in hexadecimal: make it by `openssl rand -hex %d`", path, identity.KeyBytes, identity.KeyBytes)
	}
	return key, nil
}

// makeKey makes a key durable before it is used: what is hashed by a key that is lost is known no more.
func makeKey(path string) ([]byte, error) {
	key := newKey()
	return key, statefile.Place(path, []byte(hex.EncodeToString(key)+"\n"), 0o600, os.Rename)
}

func newKey() []byte {
	key := make([]byte, identity.KeyBytes)
	rand.Read(key) // never fails
	return key
}

// Of is what a container is known by when it starts; nil where its engine tells nothing of that.
func (i identifier) Of(c runtime.Container) *profiles.Start {
	if c.Start == nil {
		return nil
	}
	s := identity.Start{ImageDigest: c.Start.ImageDigest, Image: c.Image, Entrypoint: c.Start.Entrypoint, Command: c.Start.Command, Env: c.Start.Env, Mounts: c.Start.Mounts}
	out := &profiles.Start{Identity: identity.Of(s, i.key), Host: i.host, Kernel: firstLine("/proc/sys/kernel/osrelease"), Passing: i.passing,
		Run: profiles.RunOf(identity.Word(i.key, "run", c.Key())), Fresh: fresh(c.ID)}
	if len(c.GPUs) > 0 {
		out.Driver = firstLine("/sys/module/nvidia/version")
	}
	if !out.Identity.Known() {
		return nil
	}
	return out
}

// freshFor is how long after its start a container has made no step yet: programs load their libraries first.
const freshFor = 3 * time.Second

// fresh reports whether a container has just started.
func fresh(id runtime.ID) bool {
	const tick = time.Second / 100 // USER_HZ, on all that Linux runs on
	return id.StartTick > 0 && time.Duration(procfs.BootNs())-time.Duration(id.StartTick)*tick < freshFor
}

// firstLine of a small file of the kernel; "" where there is none.
func firstLine(path string) string {
	text, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
