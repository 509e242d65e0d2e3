package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/trimtab/trimtab/tuner/statefile"
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
// its bounds were lowered or a burst was pruned. Done by Check only: while the
// daemon runs, freed pages are reused.
func (s *Store) compactIfLoose(ctx context.Context) error {
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
	return s.compact(ctx)
}

// compact copies all to a new file and renames it into place. Where it cannot, the old
// one still serves, and that is a warning.
func (s *Store) compact(ctx context.Context) error {
	warn := func(err error) { s.opts.Warn(fmt.Errorf("history %s: not compacted: %w", s.path, err)) }
	temp := s.path + ".compact"
	err := s.use(func(db *bolt.DB) error { return copyTo(ctx, temp, db) })
	if err == nil {
		err = os.Rename(temp, s.path)
	}
	if err != nil { // disk full, say
		if err = errors.Join(err, statefile.IgnoreMissing(os.Remove(temp))); ctx.Err() != nil {
			return err
		}
		warn(err)
		return nil
	}
	db, err := openFile(s.path)
	if old := errors.Join(s.db.Close(), statefile.SyncDir(filepath.Dir(s.path))); old != nil {
		warn(old)
	}
	s.db, s.closed = db, db == nil
	return err
}

func copyTo(ctx context.Context, path string, src *bolt.DB) error {
	if err := statefile.IgnoreMissing(os.Remove(path)); err != nil {
		return err
	}
	dst, err := bolt.Open(path, 0o640, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = mark(dst, true)
	if err == nil {
		err = src.View(func(tx *bolt.Tx) error {
			return errors.Join(copyBucket(ctx, dst, tx, bucketRecords), copyBucket(ctx, dst, tx, bucketAccounts))
		})
	}
	return errors.Join(err, dst.Close())
}

// copyBucket is bolt.Compact for one bucket, and ends with ctx: a daemon that stops must not
// wait for it. A file of an older version may lack the bucket.
func copyBucket(ctx context.Context, dst *bolt.DB, src *bolt.Tx, name []byte) error {
	from := src.Bucket(name)
	if from == nil {
		return nil
	}
	c := from.Cursor()
	k, v := c.First()
	for k != nil {
		err := dst.Update(func(tx *bolt.Tx) (err error) {
			b := tx.Bucket(name)
			b.FillPercent = fillShare
			for n := 0; k != nil && n < compactTxMax && err == nil; k, v = c.Next() {
				n += len(k) + len(v)
				err = b.Put(k, v)
			}
			return errors.Join(err, b.SetSequence(from.Sequence()), ctx.Err())
		})
		if err != nil {
			return err
		}
	}
	return nil
}
