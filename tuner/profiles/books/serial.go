package books

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trimtab/trimtab/tuner/statefile"
)

// Serials is a file of the highest serial of each key's signed books, by the key's fingerprint: of other
// hosts' that were used here, and of this host's own. A signature does not tell an old book from the
// latest; this does, whatever clocks say. "" remembers nothing.
type Serials string

// ErrSerials: what is remembered of books cannot be read or written. The error names the file and the fix.
var ErrSerials = errors.New("the serials of books, without which none is used or signed")

// errDamaged: the file was read, and is none of serials.
var errDamaged = errors.New("damaged")

// failed names the file and the fix of what went wrong with it.
func (s Serials) failed(err error) error {
	fix := "see to the disk"
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errDamaged), errors.Is(err, statefile.ErrNotState):
		fix = "remove the file to begin anew"
	case errors.Is(err, fs.ErrPermission):
		fix = "ask as root, who must be able to read and write it"
	case errors.Is(err, syscall.EWOULDBLOCK):
		fix = "end the process that `lslocks` names"
	}
	return fmt.Errorf("%w: %s: %w: %s", ErrSerials, s, err, fix)
}

// Next is the serial of the next book that a key signs: now in Unix nanoseconds, or one more than the last
// where the clock was set back. So it still rises where the file is lost. It is durable when it returns.
func (s Serials) Next(key ssh.PublicKey, now time.Time) (next int64, err error) {
	err = s.update(func(last map[string]int64) bool {
		of := ssh.FingerprintSHA256(key)
		next = max(now.UnixNano(), last[of]+1)
		last[of] = next
		return true
	})
	return next, s.failed(err)
}

// Refuse refuses those books that are older than one of the same key that was taken before. None may be
// used where it fails.
func (s Serials) Refuse(all ...*Found) error {
	last, err := s.load()
	for _, f := range all {
		if f.Refused != nil || f.Key == "" || f.Serial >= last[f.Key] {
			continue
		}
		text := "is of %s, and older than a book of it that was used here before: make another on %[1]s with `trimtab profiles export`, and copy that"
		if f.Serial == 0 {
			text = "is of %s, and has no serial, as a book of it that was used here before had. It is old, or an earlier trimtab made it: upgrade trimtab on %[1]s, make another with `trimtab profiles export`, and copy that"
		}
		f.Refused = refuse(Replayed, text, f.Host)
	}
	return s.failed(err)
}

// take remembers books as taken: those that somebody signed, and that raise what is remembered.
func (s Serials) take(all ...*Found) error {
	rise := func(last map[string]int64) (risen bool) {
		for _, f := range all {
			if f.Key != "" && f.Serial > last[f.Key] {
				last[f.Key], risen = f.Serial, true
			}
		}
		return risen
	}
	last, err := s.load() // they only rise: what needs no change without the lock needs none with it
	if err == nil && rise(last) {
		err = s.update(rise)
	}
	return s.failed(err)
}

func (s Serials) load() (map[string]int64, error) {
	last, read := map[string]int64{}, map[string]int64(nil)
	if s == "" {
		return last, nil
	}
	text, err := statefile.ReadRegular(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	maps.Copy(last, read) // null is an empty one
	return last, nil
}

// lockPatience is how long another may take to read and write the file.
const lockPatience = 5 * time.Second

// update changes the file, if change says so, under a lock: the daemon and the command line do. The lock is a file
// of its own, for the file itself is replaced, and the state directory is locked by others.
func (s Serials) update(change func(last map[string]int64) bool) (err error) {
	if s == "" {
		change(map[string]int64{})
		return nil
	}
	if err := statefile.MakeDir(filepath.Dir(string(s)), 0o750); err != nil {
		return err
	}
	path := string(s) + ".lock"
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // nothing was written; it unlocks
	if err := statefile.Lock(lock, lockPatience); err != nil {
		return fmt.Errorf("another process has held %s for %s: %w", path, lockPatience, err)
	}
	last, err := s.load()
	if err != nil || !change(last) {
		return err
	}
	text, err := json.Marshal(last)
	if err != nil {
		return err
	}
	return statefile.Place(string(s), text, 0o600, os.Rename)
}
