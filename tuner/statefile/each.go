package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// Each keeps one state file for each key of a topic, in a folder of its own:
//
//	DIR/TOPIC/KEY.json
//
// so that one that cannot be read costs one key, and a write touches nothing of the
// others. Its methods may be called concurrently.
type Each[T any] struct {
	s     *Store
	all   *Store // of the folder above, which kept all keys in one file once
	topic string
}

// OpenEach does not touch the disk: the folder is made by the first Save.
func OpenEach[T any](s *Store, topic string) *Each[T] {
	return &Each[T]{s: &Store{dir: filepath.Join(s.dir, topic)}, all: s, topic: topic}
}

// Load reads all keys. Unread are those whose file cannot be read, now or since an
// earlier Load: what it said is not known. An error is of the folder. What an
// earlier version left in one file TOPIC.json becomes a file for each key first.
func (e *Each[T]) Load() (all map[string]T, unread map[string]error, err error) {
	old, err := e.divide()
	if err != nil {
		return nil, nil, err
	}
	all, unread = map[string]T{}, map[string]error{}
	maps.Copy(all, old) // what could not be divided counts all the same
	_ = Sweep(e.s.dir)  // copies that a crash left unfinished are in nobody's way if they stay
	entries, err := os.ReadDir(e.s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("state folder: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if at := strings.LastIndex(name, suffix+corruptInfix); at > 0 {
			unread[name[:at]] = &CorruptError{Path: filepath.Join(e.s.dir, name[:at]+suffix), Aside: filepath.Join(e.s.dir, name), Err: errors.New("in an earlier run")}
			continue
		}
		if key, ok := strings.CutSuffix(name, suffix); ok {
			var v T
			if failed := e.s.GetState(key, &v); failed != nil {
				unread[key] = failed
				delete(all, key) // the old file may tell of an earlier time
				continue
			}
			all[key] = v
		}
	}
	return all, unread, nil
}

// divide makes a file for each key of what an earlier version kept in one, and returns what that had. Where
// it cannot be written, the old file stays.
func (e *Each[T]) divide() (old map[string]T, err error) {
	if err := e.all.GetState(e.topic, &old); err != nil {
		return nil, IgnoreMissing(err)
	}
	for key, v := range old {
		if _, err := os.Lstat(filepath.Join(e.s.dir, key+suffix)); err == nil {
			continue // divided before a crash, and perhaps changed since
		}
		if e.Save(key, v) != nil {
			return old, nil
		}
	}
	if path, err := e.all.path(e.topic); err == nil && os.Remove(path) == nil {
		_ = SyncDir(e.all.dir) // after a crash it is divided again, to the same end
	}
	return old, nil
}

// Save makes v durable: on an error what stood before stands.
func (e *Each[T]) Save(key string, v T) error {
	if err := MakeDir(e.s.dir, 0o750); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	return e.s.PutState(key, v)
}

// Remove forgets a key durably; one that has no file is no error.
func (e *Each[T]) Remove(key string) error {
	path, err := e.s.path(key)
	if err != nil {
		return err
	}
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	if err := e.forgetOld(key); err != nil {
		return fmt.Errorf("state %q: not removed: %w", key, err)
	}
	if err := IgnoreMissing(os.Remove(path)); err != nil {
		return fmt.Errorf("state %q: not removed: %w", key, err)
	}
	return IgnoreMissing(SyncDir(e.s.dir))
}

// forgetOld takes a key out of what an earlier version kept in one file, which stands where a full disk kept it
// from being divided: the next start would bring the key back. The last key takes the file with it, which a full
// disk allows.
func (e *Each[T]) forgetOld(key string) error {
	var old map[string]json.RawMessage
	if err := e.all.GetState(e.topic, &old); err != nil {
		return IgnoreMissing(err)
	}
	if _, ok := old[key]; !ok {
		return nil
	}
	delete(old, key)
	if len(old) > 0 {
		return e.all.PutState(e.topic, old)
	}
	path, err := e.all.path(e.topic)
	if err != nil {
		return err
	}
	return errors.Join(IgnoreMissing(os.Remove(path)), SyncDir(e.all.dir))
}
