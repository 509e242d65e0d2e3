package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	bolt "go.etcd.io/bbolt"

	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/state"
)

const hourNs = int64(time.Hour)

// startHour is the hour that startNs is in.
const startHour = startNs / hourNs * hourNs

// hourOf is an hour in which so many containers held a device, each ms of it computing.
func hourOf(start int64, containers int, ms int64) account.Hour {
	h := account.Hour{StartUnixNs: start, Hours: 1, Observed: ms}
	for i := range containers {
		r := account.Row{Key: fmt.Sprintf("docker-%03d", i), Name: "train", Image: "torch", Team: "vision", Sums: account.Sums{Observed: ms, Lent: 7, Given: 3},
			Peak: account.Peak{CPUs: 1.25, SinceNs: start, UntilNs: start + int64(i)*int64(time.Second)}}
		r.GPU[0][account.Held] = ms
		r.CPU[account.Idle][account.Held] = 2 * ms
		r.CPU[1][account.Lost] = 1
		h.Rows = append(h.Rows, r)
	}
	return h
}

func accounts(t testing.TB, s *Store, since int64) (out []account.Hour) {
	t.Helper()
	if err := s.Accounts(t.Context(), since, func(h account.Hour) { out = append(out, h) }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAccountsAddUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	s := openAt(t, path, Options{})
	first, second := hourOf(startHour, 2, 100), hourOf(startHour, 3, 50)
	later := hourOf(startHour+hourNs, 1, 10)
	if err := errors.Join(s.AddAccounts(first), s.AddAccounts(), s.AddAccounts(second, later), s.Append(rec(startNs, state.RecordChange, "a")), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, path, Options{})
	want := []account.Hour{account.Merge(first, second), later}
	if d := cmp.Diff(want, accounts(t, s, startHour)); d != "" {
		t.Error(d)
	}
	if got := want[0].Rows[0].GPU[0][account.Held]; got != 150 || len(want[0].Rows) != 3 {
		t.Errorf("merged: %d ms in %d rows", got, len(want[0].Rows))
	}
	if got := accounts(t, s, startHour+hourNs); len(got) != 1 {
		t.Errorf("%d hours since the second, want 1", len(got))
	}
}

// Old hours become days, and what is told of the whole stays the same, also of an hour that comes
// late. Days beyond a year go.
func TestOldAccountsAreKeptByTheDay(t *testing.T) {
	now := startNs
	s := openAt(t, filepath.Join(t.TempDir(), "history.db"), Options{Now: clock(&now)})
	s.db.NoSync = true
	day := account.Day(startHour)
	for h := range int64(12 * 24) {
		now = day + h*hourNs
		if err := s.AddAccounts(hourOf(now, 2, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddAccounts(hourOf(day+5*hourNs, 3, 100)); err != nil { // the clock was set back
		t.Fatal(err)
	}
	all := accounts(t, s, 0)
	var sum, days, last int64
	for _, h := range all {
		if h.StartUnixNs <= last {
			t.Errorf("%d comes after %d", h.StartUnixNs, last)
		}
		if last = h.StartUnixNs; h.Hours == account.HoursInDay {
			days++
		}
		for _, r := range h.Rows {
			sum += r.GPU[0][account.Held]
			if r.Peak.Told() != (h.Hours == 1) {
				t.Errorf("of %d hours a peak is told: %v", h.Hours, r.Peak.Told())
			}
		}
	}
	if days != 3 || int64(len(all)) != days+9*24 || sum != 12*24*200+300 {
		t.Errorf("%d days of %d stretches, %d ms; want 3 of %d, %d ms", days, len(all), sum, 3+9*24, 12*24*200+300)
	}
	now = day + 400*24*hourNs
	if err := s.AddAccounts(hourOf(now, 1, 1)); err != nil {
		t.Fatal(err)
	}
	for range len(all) {
		if err := s.AddAccounts(hourOf(now, 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if got := accounts(t, s, 0); len(got) != 1 {
		t.Errorf("after 400 days %d stretches are left, want the latest", len(got))
	}
}

// A clock that is years ahead for a minute, and then back, costs the two oldest hours.
func TestAClockThatJumpsKeepsTheAccounts(t *testing.T) {
	now := startHour
	s := openAt(t, filepath.Join(t.TempDir(), "history.db"), Options{Now: clock(&now)})
	s.db.NoSync = true
	add := func() {
		if err := s.AddAccounts(hourOf(now, 1, 100)); err != nil {
			t.Fatal(err)
		}
	}
	for range 48 {
		now += hourNs
		add()
	}
	before := accounts(t, s, 0)
	now += 3 * 366 * 24 * hourNs
	add()
	now -= 3 * 366 * 24 * hourNs
	add()
	after := accounts(t, s, 0)
	var held int64
	for _, h := range after {
		held += h.Rows[0].GPU[0][account.Held]
	}
	if want := int64(len(before)+2-pruneByAge) * 100; held != want {
		t.Errorf("%d ms are left in %d stretches, want %d", held, len(after), want)
	}
}

// Accounts keep to their part of the file, and records to the rest.
func TestAccountsStayBounded(t *testing.T) {
	now := startNs
	s := openAt(t, filepath.Join(t.TempDir(), "history.db"), Options{MaxBytes: 1 << 20, Now: clock(&now)})
	s.db.NoSync = true
	if err := s.Append(rec(startNs, state.RecordChange, "a")); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for h := range int64(100) {
		hour := hourOf(startHour+h*hourNs, 500, 1000)
		for i := range hour.Rows {
			hour.Rows[i].Key = fmt.Sprint(random.Uint64())
		}
		now = hour.StartUnixNs
		if err := s.AddAccounts(hour); err != nil {
			t.Fatal(err)
		}
	}
	var size int64
	err := s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketAccounts).ForEach(func(k, v []byte) error { size += int64(len(k) + len(v)); return nil })
	})
	got := accounts(t, s, 0)
	if err != nil || size > 1<<18 || len(got) < 10 || got[len(got)-1].StartUnixNs != startHour+99*hourNs {
		t.Errorf("%d bytes in %d stretches, %v; want at most %d, up to the newest", size, len(got), err, 1<<18)
	}
	if records := query(t, s, Filter{}); len(records) != 1 {
		t.Errorf("%d records are left beside them, want 1", len(records))
	}
}

func TestFileOfAnOlderVersionHasNoAccounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		meta, err := tx.CreateBucket(bucketMeta)
		if err == nil {
			err = errors.Join(meta.Put(keySchema, []byte("1")), meta.Put(keyUnclean, []byte("1")))
		}
		if err == nil {
			_, err = tx.CreateBucket(bucketRecords)
		}
		if err == nil {
			err = put(tx, []state.Record{rec(startNs, state.RecordChange, "a")})
		}
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	var warned []error
	s := openAt(t, path, warnings(&warned))
	if got := accounts(t, s, 0); len(got) != 0 || warned != nil {
		t.Errorf("%v, %v", got, warned)
	}
	if err := s.AddAccounts(hourOf(startHour, 1, 1)); err != nil || len(accounts(t, s, 0)) != 1 || len(query(t, s, Filter{})) != 1 {
		t.Errorf("then: %v", err)
	}
}

// What a newer version adds is read as far as it is known, and nothing of it is lost from a sum.
func TestAccountsOfANewerVersion(t *testing.T) {
	text := `{"observed":9,"causes":["device","ether","compute"],"later":{},"rows":[{"k":"docker-a","o":5,"x":1,
		"g":[[2,3,1,0,0,0,0,9,9],[1,4],[0,7],[77,1],[-1,1],[]]}]}`
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := decodeHour(accountKey(account.Hour{Hours: 1}), enc.EncodeAll([]byte(text), nil))
	want := account.Row{Key: "docker-a", Sums: account.Sums{Observed: 5}}
	want.GPU[0], want.GPU[3][account.Held], want.GPU[account.Unknown][account.Held] = account.Cell{3, 1}, 7, 6
	if err != nil || h.Observed != 9 || cmp.Diff([]account.Row{want}, h.Rows) != "" {
		t.Errorf("%v: %s", err, cmp.Diff([]account.Row{want}, h.Rows))
	}
}

func TestAccountsSurviveKillAndCompaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	s := openAt(t, path, Options{})
	want := hourOf(startHour, 5, 100)
	if err := errors.Join(s.AddAccounts(want), s.compact(t.Context()), s.db.Close()); err != nil { // marked as open
		t.Fatal(err)
	}
	s = openAt(t, path, Options{})
	if d := cmp.Diff([]account.Hour{want}, accounts(t, s, 0)); d != "" {
		t.Error(d)
	}
}

// What this version cannot read costs its own stretch, with a warning: not the other hours, and not
// the records. Keys of another length are a newer version's, and nothing is said of them.
func TestUnreadableAccountsCostOneStretch(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"", "x", strings.Repeat("\x00", 99), string(enc.EncodeAll([]byte(`{"rows":"none"}`), nil))} {
		path, now := filepath.Join(t.TempDir(), "history.db"), startHour
		var warned []error
		o := warnings(&warned)
		o.Now = clock(&now)
		s := openAt(t, path, o)
		good := hourOf(startHour+hourNs, 1, 100)
		err := errors.Join(s.Append(rec(startNs, state.RecordChange, "a")), s.AddAccounts(good), s.db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket(bucketAccounts)
			return errors.Join(b.Put(accountKey(account.Hour{StartUnixNs: startHour, Hours: 1}), []byte(value)), b.Put(append(timeKey(startHour), 1, 2), []byte("later")))
		}), s.db.Close()) // marked as open: the next Check reads it through
		if err != nil {
			t.Fatal(err)
		}
		s = openAt(t, path, o)
		warned = nil
		if got := accounts(t, s, 0); cmp.Diff([]account.Hour{good}, got) != "" || len(query(t, s, Filter{})) != 1 || len(warned) != 1 {
			t.Errorf("%q: %v, warned %v", value, got, warned)
		}
		again := hourOf(startHour, 1, 50)
		if err := s.AddAccounts(again); err != nil || len(warned) != 2 || cmp.Diff([]account.Hour{again, good}, accounts(t, s, 0)) != "" {
			t.Errorf("%q: added to: %v, warned %v", value, err, warned)
		}
		if err := s.db.Update(func(tx *bolt.Tx) error {
			return tx.Bucket(bucketAccounts).Put(accountKey(again), []byte(value))
		}); err != nil {
			t.Fatal(err)
		}
		now += 20 * 24 * hourNs
		if err := s.AddAccounts(hourOf(now, 1, 1)); err != nil || len(warned) != 3 || len(query(t, s, Filter{})) != 1 {
			t.Errorf("%q: summed: %v, warned %v", value, err, warned)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if aside, err := filepath.Glob(path + ".corrupt-*"); err != nil || len(aside) != 0 {
			t.Errorf("%q: set aside as %v, %v", value, aside, err)
		}
	}
}

// A year of a host with 1,000 containers, as it is kept: 358 days, and the hours of 8 days.
func BenchmarkAccountsOfAYear(b *testing.B) {
	s := openAt(b, filepath.Join(b.TempDir(), "history.db"), Options{})
	s.db.NoSync = true
	random := rand.New(rand.NewPCG(1, 2))
	stretch := func(start, hours int64) account.Hour {
		h := account.Hour{StartUnixNs: start, Hours: hours, Observed: hours * 3600_000}
		for i := range 1000 {
			r := account.Row{Key: fmt.Sprintf("docker-%x-7c0b4f0e-%d", random.Uint64(), random.Uint32()), Name: fmt.Sprint("train-", i), Image: fmt.Sprintf("registry.example/team-%d/train:v%d", i%20, i%7), Team: fmt.Sprint("team-", i%20)}
			r.Observed, r.Lent = hours*3600_000, random.Int64N(3600_000)
			if hours == 1 {
				r.Peak = account.Peak{CPUs: 8 * random.Float64(), SinceNs: start - random.Int64N(30*24)*hourNs, UntilNs: start + hourNs}
			}
			for _, u := range []*account.Use{&r.GPU, &r.CPU} {
				for _, c := range []account.Cause{0, 3, 4, account.Idle, account.Unknown} {
					u[c][account.Held] = random.Int64N(hours * 3600_000)
				}
				u[4][account.Actionable] = u[4][account.Held]
				u[4][account.Proven], u[4][account.Saved] = random.Int64N(3600_000), random.Int64N(3600_000)
			}
			h.Rows = append(h.Rows, r)
		}
		return h
	}
	var bytes int64
	err := s.db.Update(func(tx *bolt.Tx) error {
		for d := range int64(358 + 8*24) {
			h := stretch(startHour+d*24*hourNs, 24)
			if d >= 358 {
				h = stretch(startHour+358*24*hourNs+(d-358)*hourNs, 1)
			}
			value, err := encodeHour(h)
			if err == nil {
				err = tx.Bucket(bucketAccounts).Put(accountKey(h), value)
			}
			if err != nil {
				return err
			}
			bytes += int64(len(value))
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	cpu := func() float64 { // others may run on this machine
		var ru syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
			b.Fatal(err)
		}
		return float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e6
	}
	query := func(b *testing.B, since int64) {
		began := cpu()
		for b.Loop() {
			tally := account.NewTally(account.ByTeam, since, startHour+1000*24*hourNs)
			if err := s.Accounts(b.Context(), since, tally.Add); err != nil {
				b.Fatal(err)
			}
			tally.Report()
		}
		b.ReportMetric((cpu()-began)/float64(b.N), "cpu-ms/op")
		b.ReportMetric(float64(bytes), "bytes")
		b.ReportMetric(float64(bytes)/float64((358+8*24)*1000), "bytes/row")
	}
	b.Run("year", func(b *testing.B) { query(b, 0) })
	b.Run("week", func(b *testing.B) { query(b, startHour+(358+1)*24*hourNs) })
	b.Run("add", func(b *testing.B) {
		h, began := stretch(startHour+2000*24*hourNs, 1), cpu()
		for b.Loop() {
			if err := s.AddAccounts(h); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((cpu()-began)/float64(b.N), "cpu-ms/op")
	})
}
