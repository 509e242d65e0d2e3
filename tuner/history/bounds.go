package history

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
)

const (
	// pruneBatch records go at most with one Append: about a millisecond's work, and
	// far more than one Append adds.
	pruneBatch = 512
	// looseBytes and looseFactor say when a file is far over: pages in use times the
	// factor, and so many bytes that it matters.
	looseBytes   = 8 << 20
	looseFactor  = 2
	compactTxMax = 1 << 20 // bytes in one transaction of a compaction
)

// prune deletes at most batch of the oldest records, those before horizonNs and,
// while the file holds more than maxBytes, any. bbolt reuses their pages, so the
// file stops growing.
func prune(tx *bolt.Tx, horizonNs, maxBytes int64, batch int) error {
	b := tx.Bucket(bucketRecords)
	tooLarge := usedBytes(tx) > maxBytes
	c := b.Cursor()
	var old [][]byte
	for k, _ := c.First(); k != nil && len(old) < batch; k, _ = c.Next() {
		if !tooLarge && keyTime(k) >= horizonNs {
			break
		}
		old = append(old, bytes.Clone(k))
	}
	for _, k := range old {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// usedBytes is the size of the pages that hold something.
func usedBytes(tx *bolt.Tx) int64 {
	stats := tx.DB().Stats()
	free := int64(stats.FreePageN+stats.PendingPageN) * int64(tx.DB().Info().PageSize)
	return tx.Size() - free
}

// compactIfLoose rewrites a file that is far larger than what it holds, after
// its bounds were lowered or a burst was pruned. Done at Open only: while the
// daemon runs, freed pages are reused. s.db is nil after an error that left
// nothing open.
func (s *Store) compactIfLoose() error {
	var size, used int64
	err := s.use(func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			size, used = tx.Size(), usedBytes(tx)
			return nil
		})
	})
	if err != nil || size < used*looseFactor || size-used < looseBytes {
		return err
	}
	if err := s.compact(); err != nil {
		return fmt.Errorf("history %s: not compacted: %w", s.path, err)
	}
	return nil
}

// compact copies all to a new file and renames it into place.
func (s *Store) compact() error {
	temp := s.path + ".compact"
	err := s.use(func(db *bolt.DB) error { return copyTo(temp, db) })
	if err != nil { // disk full, say: the old file still serves
		return errors.Join(err, removeIfThere(temp))
	}
	err = s.db.Close()
	s.db = nil
	if err != nil {
		return errors.Join(err, removeIfThere(temp))
	}
	err = os.Rename(temp, s.path)
	if err == nil {
		err = syncDir(s.path)
	}
	db, openErr := openChecked(s.path)
	s.db = db
	return errors.Join(err, openErr)
}

func copyTo(path string, src *bolt.DB) error {
	if err := removeIfThere(path); err != nil {
		return err
	}
	dst, err := bolt.Open(path, 0o640, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	return errors.Join(bolt.Compact(dst, src, compactTxMax), dst.Sync(), dst.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
