// Package history keeps what trimtab did, and would have done, in one bounded
// bbolt file. Nothing that a restore needs is in it: originals and holds are
// files of their own, so a lost history costs memory of the past and nothing else.
//
//	meta/
//	  schema   → "1"
//	  unclean  → "1" while a daemon has the file open: the next Check then reads all of it
//	records/
//	  KEY      → state.Record as JSON
//	accounts/
//	  HOUR     → what devices and CPUs were held for, see accounts.go; versions that do not know
//	             the bucket leave it alone, but drop it where they compact the file
//
// KEY is 13 bytes, so that records sort by time:
//
//	0..7   UnixNs, big-endian, sign flipped
//	8..11  counter, big-endian: records of one instant stay in order
//	12     flags: 1 where a value changed (state.Record.Changed)
//
// The trap: bbolt maps the file into memory, and a damaged or truncated one
// faults wherever it is touched. So all work goes through guarded, which turns
// faults into ErrCorrupt; the file is then set aside and a new one begun.
//
// Open is quick, whatever the file's size. What reads or copies all of it is Check's,
// so that no daemon waits for it before it restores.
package history

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/statefile"
)

const (
	schema        = "1"
	defaultBytes  = 256 << 20
	defaultMaxAge = 30 * 24 * time.Hour
	lockTimeout   = time.Second
	checkPatience = 2 * time.Second
	keyBytes      = 13
	fillShare     = 0.9 // of a page: keys only ever grow, so no room is left in between
	flagChanged   = 1
)

// The buckets and keys, see the package comment.
var ( // byte slices cannot be constants; never assigned
	bucketMeta     = []byte("meta")
	bucketRecords  = []byte("records")
	bucketAccounts = []byte("accounts")
	keySchema      = []byte("schema")
	keyUnclean     = []byte("unclean")
)

// Errors that a caller acts on.
var (
	ErrLocked    = errors.New("history is in use by another process")
	ErrCorrupt   = errors.New("history is corrupt")
	ErrSchema    = errors.New("history has a newer schema")
	ErrClosed    = errors.New("history is closed")
	ErrUnchecked = errors.New("history is being checked: it was not closed well, or is being compacted; ask again in a minute")
)

// Options bound the store; zeros take the defaults.
type Options struct {
	MaxBytes int64            // 256 MiB, of pages in use
	MaxAge   time.Duration    // 30 days
	Now      func() time.Time // time.Now
	// Warn is told that the history was corrupt and where it is now, that it could not be
	// compacted, or that accounts of an hour cannot be read. Nil: nobody.
	Warn func(error)
	// since is the time since Open, by a clock that nobody sets; tests say how it goes.
	since func(opened time.Time) time.Duration
	// each is called for each record that Check reads; tests hold it up there.
	each func()
}

// Store is an open history. Its methods may be called concurrently.
type Store struct {
	opened time.Time
	path   string
	opts   Options

	mu      sync.RWMutex // for reading: queries
	db      *bolt.DB
	broken  atomic.Pointer[error] // set once db was found corrupt
	checked chan struct{}         // closed once Check has been through
	closed  bool
}

// Open opens the history at path, or begins one; its directory must exist. Check must come
// before the first Append or Query. A file that is seen to be corrupt is renamed to
// PATH.corrupt-TIME and a new one begun. Errors: ErrLocked, ErrSchema, and those of the
// file system.
func Open(path string, opts Options) (*Store, error) {
	opts.MaxBytes, opts.MaxAge = cmp.Or(max(opts.MaxBytes, 0), defaultBytes), cmp.Or(max(opts.MaxAge, 0), defaultMaxAge)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.since == nil {
		opts.since = func(opened time.Time) time.Duration { return opts.Now().Sub(opened) } // CLOCK_MONOTONIC, by time.Now
	}
	if opts.Warn == nil {
		opts.Warn = func(error) {}
	}
	if opts.each == nil {
		opts.each = func() {}
	}
	s := &Store{path: path, opts: opts, opened: opts.Now(), checked: make(chan struct{})}
	db, err := openFile(path)
	if errors.Is(err, ErrCorrupt) {
		db, err = s.startAnew(err)
	}
	s.db = db
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Check reads a file through that was not closed well, sets it aside if it is corrupt, and
// compacts one that is far larger than what it holds. That may take a minute; a file that
// was closed well takes a sync. Until it is through, Append and Query answer ErrUnchecked.
// Where it ended early, with ctx say, it may be called again.
func (s *Store) Check(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isUnchecked() {
		return nil
	}
	err := s.use(func(db *bolt.DB) error { return s.prepare(ctx, db) })
	if err == nil {
		err = s.compactIfLoose(ctx)
	}
	if errors.Is(err, ErrCorrupt) {
		err = s.replace(err)
	}
	if err != nil {
		return fmt.Errorf("history %s: not checked: %w", s.path, err)
	}
	close(s.checked)
	return nil
}

func (s *Store) isUnchecked() bool {
	select {
	case <-s.checked:
		return false
	default:
		return true
	}
}

// Append makes records durable, in this order, all or none, and prunes a small
// batch where the history outgrew its bounds. After an error (disk full, say)
// what was stored before still stands. It syncs the file: milliseconds.
func (s *Store) Append(records ...state.Record) error {
	if len(records) == 0 {
		return nil
	}
	return s.durably(fmt.Sprintf("%d records", len(records)), func() error { return s.append(records) })
}

// durably writes, and once more to a new file where this one turns out corrupt.
func (s *Store) durably(what string, write func() error) error {
	if s.isUnchecked() {
		return fmt.Errorf("%s not stored: %w", what, ErrUnchecked)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := write()
	if errors.Is(err, ErrCorrupt) {
		if err = s.replace(err); err == nil {
			err = write()
		}
	}
	if err != nil {
		return fmt.Errorf("history: %s not stored: %w", what, err)
	}
	return nil
}

func (s *Store) append(records []state.Record) error {
	// A clock that is set forward makes no record older, and one that was ahead at the start
	// and is corrected makes none old at once.
	horizonNs := min(s.opened.Add(s.opts.since(s.opened)).UnixNano(), s.opts.Now().UnixNano()) - int64(s.opts.MaxAge)
	return s.use(func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error {
			if err := put(tx, records); err != nil {
				return err
			}
			return prune(tx, horizonNs, s.opts.MaxBytes, max(pruneBatch, 2*len(records)))
		})
	})
}

// Close ends the store. It waits for calls in progress. A file that was not checked is
// left as it was found: the next Check reads it.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	err := s.use(func(db *bolt.DB) error {
		if s.isUnchecked() {
			return db.Close()
		}
		return errors.Join(mark(db, false), db.Close())
	})
	s.closed = true
	return err
}

// use runs f on the file. Once it was found corrupt it is not touched again: a
// transaction that faulted may have left bbolt's locks held.
func (s *Store) use(f func(*bolt.DB) error) error {
	if s.closed {
		return ErrClosed
	}
	if p := s.broken.Load(); p != nil {
		return *p
	}
	err := guarded(func() error { return f(s.db) })
	if errors.Is(err, ErrCorrupt) {
		s.broken.Store(&err)
	}
	return err
}

// startAnew sets the corrupt file aside and opens an empty one.
func (s *Store) startAnew(cause error) (*bolt.DB, error) {
	aside := s.path + ".corrupt-" + s.opts.Now().UTC().Format("20060102T150405.000000000Z")
	if err := os.Rename(s.path, aside); err != nil {
		return nil, fmt.Errorf("history %s cannot be set aside: %w (%w)", s.path, err, cause)
	}
	cause = errors.Join(cause, statefile.SyncDir(filepath.Dir(s.path)))
	s.opts.Warn(fmt.Errorf("history %s set aside as %s, a new one is begun: %w", s.path, aside, cause))
	return openFile(s.path)
}

// replace does the same with a file that turned out corrupt while it was open.
// That one is never closed, see use: a descriptor and a mapping stay until the
// process ends.
func (s *Store) replace(cause error) error {
	if s.closed {
		return ErrClosed
	}
	db, err := s.startAnew(cause)
	if err != nil {
		return err
	}
	s.db = db
	s.broken.Store(nil)
	return s.use(func(db *bolt.DB) error { return mark(db, true) })
}

// openFile opens the file, and looks at what says so at once if it is not a whole history.
func openFile(path string) (*bolt.DB, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("history %s: %v, want a regular file", path, info.Mode())
	}
	var db *bolt.DB
	err := guarded(func() (err error) {
		db, err = bolt.Open(path, 0o640, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("history %s: %w: is another trimtab running?", path, ErrLocked)
	case isInvalid(err):
		return nil, fmt.Errorf("history %s: %w: %w", path, ErrCorrupt, err)
	case err != nil:
		return nil, fmt.Errorf("history %s: %w", path, err)
	}
	err = guarded(func() error { return db.View(look) })
	switch {
	case errors.Is(err, ErrCorrupt): // left open, see replace
		return nil, fmt.Errorf("history %s: %w", path, err)
	case err != nil:
		return nil, fmt.Errorf("history %s: %w", path, errors.Join(err, db.Close()))
	}
	return db, nil
}

func isInvalid(err error) bool {
	return errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) ||
		errors.Is(err, bolterrors.ErrVersionMismatch) || errors.Is(err, ErrCorrupt) ||
		err != nil && strings.HasPrefix(err.Error(), "file size too small")
}

// look checks size and schema: a few pages.
func look(tx *bolt.Tx) error {
	info, err := os.Stat(tx.DB().Path())
	if err != nil {
		return err
	}
	if tx.Size() > info.Size() {
		return fmt.Errorf("%w: %d bytes, %d of them missing", ErrCorrupt, info.Size(), tx.Size()-info.Size())
	}
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return fmt.Errorf("%w: another program's database, it holds %q", ErrCorrupt, name)
		}
		return nil
	}
	if got := string(meta.Get(keySchema)); got != schema {
		return fmt.Errorf("%w: %q, this trimtab knows %q: upgrade trimtab, or move the file away", ErrSchema, got, schema)
	}
	return nil
}

// prepare reads the file through if it was not closed well, and marks it open.
func (s *Store) prepare(ctx context.Context, db *bolt.DB) error {
	unclean := false
	err := db.View(func(tx *bolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		if unclean = meta != nil && meta.Get(keyUnclean) != nil; !unclean {
			return nil
		}
		return s.readThrough(ctx, tx)
	})
	if err != nil || unclean {
		return err
	}
	return mark(db, true)
}

// readThrough touches every record, so that damage shows now and not in a query.
func (s *Store) readThrough(ctx context.Context, tx *bolt.Tx) error {
	records := tx.Bucket(bucketRecords)
	if records == nil {
		return fmt.Errorf("%w: no records bucket", ErrCorrupt)
	}
	err := records.ForEach(func(k, v []byte) error {
		s.opts.each()
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(k) != keyBytes || !json.Valid(v) {
			return fmt.Errorf("%w: a record that is none", ErrCorrupt)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.readAccounts(ctx, tx, math.MinInt64, func(account.Hour) {})
}

// mark creates the buckets and notes whether the file is open.
func mark(db *bolt.DB, open bool) error {
	return db.Update(func(tx *bolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists(bucketMeta)
		if err != nil {
			return err
		}
		for _, name := range [][]byte{bucketRecords, bucketAccounts} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		if err := meta.Put(keySchema, []byte(schema)); err != nil {
			return err
		}
		if !open {
			return meta.Delete(keyUnclean)
		}
		return meta.Put(keyUnclean, []byte("1"))
	})
}

// guarded runs f and turns a panic or a fault of the mapped file into ErrCorrupt.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case goruntime.Error:
			err = fmt.Errorf("%w: %w", ErrCorrupt, p)
		default:
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	return f()
}

// put stores records under new keys.
func put(tx *bolt.Tx, records []state.Record) error {
	b := tx.Bucket(bucketRecords)
	if b == nil {
		return fmt.Errorf("%w: no records bucket", ErrCorrupt)
	}
	b.FillPercent = fillShare
	for _, r := range records {
		value, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("record of %q: %w", r.Name, err)
		}
		n, err := b.NextSequence()
		if err != nil {
			return err
		}
		if err := b.Put(recordKey(r, uint32(n)), value); err != nil {
			return err
		}
	}
	return nil
}

func recordKey(r state.Record, counter uint32) []byte {
	key := timeKey(r.UnixNs)
	key = binary.BigEndian.AppendUint32(key, counter)
	if r.Changed() {
		return append(key, flagChanged)
	}
	return append(key, 0)
}

// timeKey is the prefix of all keys of an instant; it sorts as the numbers do.
func timeKey(unixNs int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(unixNs)^(1<<63))
}

func keyTime(key []byte) int64 {
	if len(key) < 8 {
		return math.MinInt64
	}
	return int64(binary.BigEndian.Uint64(key) ^ (1 << 63))
}
