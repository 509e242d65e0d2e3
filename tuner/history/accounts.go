package history

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	fastjson "github.com/segmentio/encoding/json"
	bolt "go.etcd.io/bbolt"

	"github.com/trimtab/trimtab/tuner/account"
)

// Accounts are kept by the hour, and once they are old by the day of UTC. A key is the stretch's
// begin as in records, and one byte: its hours, 1 or 24. A value is zstd-compressed JSON, see
// storedHour. One value holds all containers of a stretch, since their texts and figures are
// much alike: it is some 50 bytes for each, where a record for each would be 300.
const (
	accountKeyBytes  = 9
	accountMaxAge    = 366 * 24 * time.Hour
	accountHourlyAge = 8 * 24 * time.Hour // from then on by the day: a report of a week is by the hour
	accountShare     = 4                  // of Options.MaxBytes a quarter: records have the rest
	accountWindow    = 256 << 10          // how far back the compression looks: the encoder's memory
	accountMaxBytes  = 64 << 20           // of one stretch, before compression: far above 4,096 containers
)

// storedHour is account.Hour on disk. Terms are numbered as account.Term; causes are named once,
// and numbered by their place in that list. Fields are only added.
type storedHour struct {
	Observed int64       `json:"observed,omitempty"` // ms
	Causes   []string    `json:"causes"`
	Rows     []storedRow `json:"rows,omitempty"`
}

// storedRow is one container. GPU and CPU are lists of a cause's number and its terms, ms, with no
// zeros at the end.
type storedRow struct {
	Key      string    `json:"k"`
	Name     string    `json:"n,omitempty"`
	Image    string    `json:"i,omitempty"`
	Team     string    `json:"t,omitempty"`
	Observed int64     `json:"o,omitempty"`
	Lent     int64     `json:"l,omitempty"`
	Given    int64     `json:"v,omitempty"`
	Peak     []int64   `json:"p,omitempty"` // thousandths of CPUs, from, to (unix s)
	GPU      [][]int64 `json:"g,omitempty"`
	CPU      [][]int64 `json:"c,omitempty"`
}

// AddAccounts adds what was counted to what is stored of the same hours, all or none, and brings
// the accounts nearer to their bounds: a year, and a quarter of Options.MaxBytes. It syncs the
// file. Errors are those of Append.
func (s *Store) AddAccounts(hours ...account.Hour) error {
	if len(hours) == 0 {
		return nil
	}
	return s.durably("accounts", func() error { return s.addAccounts(hours) })
}

func (s *Store) addAccounts(hours []account.Hour) error {
	now := s.opts.Now()
	return s.use(func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucketAccounts)
			if err != nil {
				return err
			}
			for _, h := range hours {
				if err := s.addAccount(b, h); err != nil {
					return err
				}
			}
			// In this order, else what a clock that jumps ahead makes go is a day, not an hour.
			if err := pruneAccounts(b, now.Add(-accountMaxAge).UnixNano(), s.opts.MaxBytes/accountShare); err != nil {
				return err
			}
			return s.sumDay(b, now.Add(-accountHourlyAge).UnixNano())
		})
	})
}

// addAccount adds to the hour, or to its day where that was summed already.
func (s *Store) addAccount(b *bolt.Bucket, h account.Hour) error {
	day := account.Hour{StartUnixNs: account.Day(h.StartUnixNs), Hours: account.HoursInDay}
	if b.Get(accountKey(day)) != nil {
		h.StartUnixNs, h.Hours = day.StartUnixNs, day.Hours
	}
	key := accountKey(h)
	if old := b.Get(key); old != nil {
		if before, err := decodeHour(key, old); err != nil {
			s.opts.Warn(fmt.Errorf("history %s: replaced: %w", s.path, err))
		} else {
			h = account.Merge(before, h)
		}
	}
	for i := range h.Rows {
		if h.Hours > 1 {
			h.Rows[i].Peak = account.Peak{} // only that of a moment ago is read back
		}
	}
	value, err := encodeHour(h)
	if err != nil {
		return err
	}
	return b.Put(key, value)
}

// sumDay makes a day of the hours of the oldest day that ended before horizonNs, if any: one at a
// time, so that no call takes long.
func (s *Store) sumDay(b *bolt.Bucket, horizonNs int64) error {
	c := b.Cursor()
	sum, found := account.Hour{Hours: account.HoursInDay}, false
	var keys [][]byte
	for k, v := c.First(); k != nil; k, v = c.Next() {
		start := keyTime(k)
		if start >= horizonNs || found && account.Day(start) != sum.StartUnixNs {
			break
		}
		if len(k) != accountKeyBytes || k[8] != 1 || account.Day(start)+account.HoursInDay*int64(time.Hour) > horizonNs {
			continue
		}
		h, err := decodeHour(k, v)
		if err != nil {
			s.opts.Warn(fmt.Errorf("history %s: dropped: %w", s.path, err))
		}
		sum.StartUnixNs, found = account.Day(start), true
		sum = account.Merge(sum, h)
		keys = append(keys, slices.Clone(k))
	}
	if !found {
		return nil
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return s.addAccount(b, sum)
}

// pruneByAge is how many stretches go at most with one call for their age: a minute adds to one. So a
// clock that jumps ahead for a while costs some of the oldest, not all.
const pruneByAge = 2

// pruneAccounts deletes the oldest: a few of those before horizonNs, and all while they are above
// maxBytes; never the newest. A year has some 560 keys, so they may be walked each time.
func pruneAccounts(b *bolt.Bucket, horizonNs, maxBytes int64) error {
	type stretch struct {
		key  []byte
		size int64
	}
	var all []stretch
	var size int64
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		all = append(all, stretch{slices.Clone(k), int64(len(k) + len(v))})
		size += int64(len(k) + len(v))
	}
	for i, x := range all[:max(0, len(all)-1)] {
		if size <= maxBytes && (i >= pruneByAge || keyTime(x.key) >= horizonNs) {
			break
		}
		if err := b.Delete(x.key); err != nil {
			return err
		}
		size -= x.size
	}
	return nil
}

// Accounts calls each for what is stored of an instant and after, oldest first. A day that is
// stored whole is told whole. Errors are those of Query.
func (s *Store) Accounts(ctx context.Context, sinceNs int64, each func(account.Hour)) error {
	if err := s.awaitCheck(ctx); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	err := s.use(func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error { return s.readAccounts(ctx, tx, sinceNs, each) })
	})
	if err != nil {
		return fmt.Errorf("history: accounts: %w", err)
	}
	return nil
}

// readAccounts leaves out what it cannot read, and warns of it; a key of another length is a newer
// version's.
func (s *Store) readAccounts(ctx context.Context, tx *bolt.Tx, sinceNs int64, each func(account.Hour)) error {
	b := tx.Bucket(bucketAccounts)
	if b == nil {
		return nil // an older version made the file
	}
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(k) != accountKeyBytes || keyTime(k)+int64(k[8])*int64(time.Hour) <= sinceNs {
			continue
		}
		if h, err := decodeHour(k, v); err != nil {
			s.opts.Warn(fmt.Errorf("history %s: left out: %w", s.path, err))
		} else {
			each(h)
		}
	}
	return nil
}

func accountKey(h account.Hour) []byte { return append(timeKey(h.StartUnixNs), byte(h.Hours)) }

func encodeHour(h account.Hour) ([]byte, error) {
	out := storedHour{Observed: h.Observed}
	for c := range account.NumCauses {
		out.Causes = append(out.Causes, c.String())
	}
	for i := range h.Rows {
		r := &h.Rows[i]
		out.Rows = append(out.Rows, storedRow{r.Key, r.Name, r.Image, r.Team, r.Observed, r.Lent, r.Given, storedPeak(r.Peak), storedUse(&r.GPU), storedUse(&r.CPU)})
	}
	text, err := fastjson.Marshal(out)
	if err != nil {
		return nil, err
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(accountWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	return enc.EncodeAll(text, nil), enc.Close()
}

// storedPeak rounds up what was wanted, and away what is less than a second of when.
func storedPeak(p account.Peak) []int64 {
	if !p.Told() {
		return nil
	}
	return []int64{int64(math.Ceil(min(max(p.CPUs, 0), 1e6) * 1e3)), p.SinceNs / 1e9, p.UntilNs / 1e9}
}

func readPeak(stored []int64) account.Peak {
	if len(stored) < 3 {
		return account.Peak{}
	}
	return account.Peak{CPUs: float64(stored[0]) / 1e3, SinceNs: stored[1] * 1e9, UntilNs: stored[2] * 1e9}
}

func storedUse(u *account.Use) (out [][]int64) {
	for c := range account.NumCauses {
		last := int(account.NumTerms)
		for last > 0 && u[c][last-1] == 0 {
			last--
		}
		if last > 0 {
			out = append(out, append([]int64{int64(c)}, u[c][:last]...))
		}
	}
	return out
}

// decodeHour reads a value. One that this version cannot read is an hour without rows and an error, which
// costs that stretch alone: records and the others are read on.
func decodeHour(key, value []byte) (account.Hour, error) {
	h := account.Hour{StartUnixNs: keyTime(key), Hours: int64(key[8])}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(accountMaxBytes))
	if err != nil {
		return h, err // not met: the options are good
	}
	defer dec.Close()
	text, err := dec.DecodeAll(value, nil)
	var in storedHour
	if err == nil {
		err = fastjson.Unmarshal(text, &in)
	}
	if err != nil {
		return h, fmt.Errorf("accounts cannot be read: those of %s: %w", time.Unix(0, h.StartUnixNs).UTC().Format(time.RFC3339), err)
	}
	causes := make([]account.Cause, len(in.Causes))
	for i, name := range in.Causes {
		causes[i] = account.CauseOf(name)
	}
	h.Observed, h.Rows = in.Observed, make([]account.Row, len(in.Rows))
	for i, r := range in.Rows {
		h.Rows[i] = account.Row{Key: r.Key, Name: r.Name, Image: r.Image, Team: r.Team, Sums: account.Sums{Observed: r.Observed, Lent: r.Lent, Given: r.Given}, Peak: readPeak(r.Peak)}
		readUse(&h.Rows[i].GPU, r.GPU, causes)
		readUse(&h.Rows[i].CPU, r.CPU, causes)
	}
	return h, nil
}

// readUse reads what storedUse wrote, of this version or another.
func readUse(u *account.Use, stored [][]int64, causes []account.Cause) {
	for _, x := range stored {
		if len(x) == 0 {
			continue
		}
		c := account.Unknown
		if x[0] >= 0 && x[0] < int64(len(causes)) {
			c = causes[x[0]]
		}
		for t, v := range x[1:min(len(x), 1+int(account.NumTerms))] {
			u[c][t] += v
		}
	}
}
