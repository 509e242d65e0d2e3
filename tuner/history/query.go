package history

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/trimtab/trimtab/tuner/state"
)

// Filter chooses records; its zero value chooses the newest state.MaxRecords.
type Filter struct {
	SinceNs     int64  // unix ns, inclusive; 0: from the first
	UntilNs     int64  // unix ns, inclusive; 0: to the newest
	ChangedOnly bool   // only where a value changed (state.Record.Changed)
	Name        string // container's name, or its key; "": all
	Limit       int    // the newest so many; 0, or more than state.MaxRecords: state.MaxRecords
	// Kind is the only one, "": all.
	Kind state.RecordKind
}

// Query returns the records chosen, oldest first. ErrCorrupt: the file is
// damaged; the next Append sets it aside. ErrUnchecked: Check is not through, and
// will not be in a moment. It ends with ctx, for Append waits for it.
func (s *Store) Query(ctx context.Context, f Filter) ([]state.Record, error) {
	if err := s.awaitCheck(ctx); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []state.Record
	err := s.use(func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) (err error) {
			out, err = f.run(ctx, tx)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	slices.Reverse(out)
	return out, nil
}

// awaitCheck waits for a check in progress, which holds the lock: that of a file that was
// closed well is through in a moment.
func (s *Store) awaitCheck(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	select {
	case <-s.checked:
		return nil
	case <-ctx.Done():
		return ErrUnchecked
	}
}

// run walks backward from the newest, and decodes only what can match.
func (f Filter) run(ctx context.Context, tx *bolt.Tx) ([]state.Record, error) {
	b := tx.Bucket(bucketRecords)
	if b == nil {
		return nil, fmt.Errorf("%w: no records bucket", ErrCorrupt)
	}
	limit := f.Limit
	if limit <= 0 || limit > state.MaxRecords {
		limit = state.MaxRecords
	}
	quoted, err := json.Marshal(f.Name)
	if err != nil {
		return nil, err
	}
	kind, err := json.Marshal(f.Kind)
	if err != nil {
		return nil, err
	}
	var out []state.Record
	c := b.Cursor()
	for k, v := f.newest(c); k != nil && len(out) < limit; k, v = c.Prev() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f.SinceNs != 0 && keyTime(k) < f.SinceNs {
			break
		}
		if f.ChangedOnly && k[len(k)-1]&flagChanged == 0 || f.Name != "" && !bytes.Contains(v, quoted) || f.Kind != "" && !bytes.Contains(v, kind) {
			continue
		}
		var r state.Record
		if err := json.Unmarshal(v, &r); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if (f.Name == "" || r.Name == f.Name || r.Key == f.Name) && (f.Kind == "" || r.Kind == f.Kind) {
			out = append(out, r)
		}
	}
	return out, nil
}

// newest moves to the last record that is not after UntilNs.
func (f Filter) newest(c *bolt.Cursor) (k, v []byte) {
	if f.UntilNs == 0 || f.UntilNs == math.MaxInt64 {
		return c.Last()
	}
	if k, _ := c.Seek(timeKey(f.UntilNs + 1)); k == nil {
		return c.Last()
	}
	return c.Prev()
}
