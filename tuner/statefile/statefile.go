// Package statefile keeps the daemon's small durable state – holds, pause,
// enablement – as one JSON file for each topic, apart from the history store, so
// that a broken history loses none of it:
//
//	DIR/TOPIC.json = {"format":"trimtab-state","version":1,"topic":TOPIC,"data":…}
//
// A file is replaced by renaming a synced copy into place: after a crash it
// holds the old state or the new, whole. A file that cannot be read is set aside
// as TOPIC.json.corrupt-TIME rather than overwritten.
package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"
)

const (
	format  = "trimtab-state"
	version = 1
	// maxBytes caps a topic: state is a few entries for each container of one host.
	maxBytes = 16 << 20
	suffix   = ".json"
	// corruptInfix follows the suffix in the names of files that were set aside.
	corruptInfix = ".corrupt-"
)

// ErrVersion: the file was written by a newer trimtab. It is left as it stands.
var ErrVersion = errors.New("state file has a newer format")

// CorruptError tells of a state file that could not be read and was set aside.
type CorruptError struct {
	Path  string // where it stood
	Aside string // where it is now; "" if it could not be moved
	Err   error
}

func (e *CorruptError) Error() string {
	if e.Aside == "" {
		return fmt.Sprintf("state file %s is corrupt and cannot be set aside: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("state file %s was corrupt: set aside as %s: %v", e.Path, e.Aside, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

type envelope struct {
	Format  string          `json:"format"`
	Version int             `json:"version"`
	Topic   string          `json:"topic"`
	Data    json.RawMessage `json:"data"`
}

// Store is a directory of state files. Its methods may be called concurrently;
// it does not guard against another process.
type Store struct {
	dir string
	mu  sync.Mutex
}

// Open prepares dir, makes it if it is missing, and removes copies that a crash
// left unfinished.
func Open(dir string) (*Store, error) {
	if err := MakeDir(dir, 0o750); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := Sweep(dir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return &Store{dir: dir}, nil
}

// PutState makes v the durable state of a topic.
// On an error (disk full, say) the state before it stands.
func (s *Store) PutState(topic string, v any) error {
	path, err := s.path(topic)
	if err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("state %q: %w", topic, err)
	}
	text, err := json.MarshalIndent(envelope{format, version, topic, data}, "", "  ")
	if err != nil {
		return fmt.Errorf("state %q: %w", topic, err)
	}
	if len(text) >= maxBytes {
		return fmt.Errorf("state %q: %d bytes, at most %d", topic, len(text), maxBytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := Place(path, append(text, '\n'), 0o640, os.Rename); err != nil {
		return fmt.Errorf("state %q: not saved: %w", topic, err)
	}
	return nil
}

// GetState reads a topic into v. Errors: fs.ErrNotExist where nothing was put
// yet, ErrVersion, and *CorruptError, after which the topic is empty.
func (s *Store) GetState(topic string, v any) error {
	path, err := s.path(topic)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := ReadRegular(path)
	if errors.Is(err, ErrNotState) {
		return s.setAside(path, err)
	}
	if err != nil {
		return fmt.Errorf("state %q: %w", topic, err)
	}
	if err := decode(text, topic, v); errors.Is(err, ErrVersion) {
		return fmt.Errorf("state file %s: %w: upgrade trimtab, or move the file away", path, err)
	} else if err != nil {
		return s.setAside(path, err)
	}
	return nil
}

// SetAside moves a topic's file away, so that another may be put in its place: for
// contents that their owner cannot use. The error tells where it is now.
func (s *Store) SetAside(topic string, cause error) error {
	path, err := s.path(topic)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setAside(path, cause)
}

// path is where a topic's file is. Topics are also keys of Each, which are made of names that containerd lets
// people choose.
func (s *Store) path(topic string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`).MatchString(topic) {
		return "", fmt.Errorf("state topic %q: want 1 to 128 letters, digits, dots, underscores and hyphens, a letter or digit first", topic)
	}
	return filepath.Join(s.dir, topic+suffix), nil
}

func (s *Store) setAside(path string, cause error) error {
	aside := path + corruptInfix + time.Now().UTC().Format("20060102T150405.000000000Z")
	if err := os.Rename(path, aside); err != nil {
		return &CorruptError{Path: path, Err: errors.Join(cause, err)}
	}
	return &CorruptError{Path: path, Aside: aside, Err: errors.Join(cause, SyncDir(s.dir))}
}

// Errors of a file that is not what it has to be.
var (
	ErrNotState = errors.New("not a state file")
	ErrOpen     = errors.New("open to others")
)

// ReadRegular reads a regular file of at most 16 MiB, never through a symlink; of anything else the error is ErrNotState.
func ReadRegular(path string) ([]byte, error) { return read(path, 0) }

// ReadPrivate is ReadRegular of a file that its owner alone may read; of another the error is ErrOpen.
func ReadPrivate(path string) ([]byte, error) { return read(path, 0o077) }

func read(path string, denied fs.FileMode) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%w: a symbolic link", ErrNotState)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing to lose
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %v", ErrNotState, info.Mode())
	}
	if info.Mode().Perm()&denied != 0 {
		return nil, fmt.Errorf("%w: %v", ErrOpen, info.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrNotState, maxBytes)
	}
	return text, err
}

func decode(text []byte, topic string, v any) error {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	if e.Format != format || e.Topic != topic {
		return fmt.Errorf("format %q, topic %q: want %q, %q", e.Format, e.Topic, format, topic)
	}
	if e.Version > version {
		return fmt.Errorf("%w: version %d, this one reads up to %d", ErrVersion, e.Version, version)
	}
	if len(bytes.TrimSpace(e.Data)) == 0 {
		return errors.New("no data")
	}
	return json.Unmarshal(e.Data, v)
}

// IgnoreMissing is nil for what is not there, and else the error.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
