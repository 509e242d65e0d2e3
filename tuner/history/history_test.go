package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/tuner/state"
)

const startNs = int64(1_700_000_000_000_000_000)

// clock is a wall clock that tests set.
func clock(ns *int64) func() time.Time { return func() time.Time { return time.Unix(0, *ns) } }

func openAt(t testing.TB, path string, opts Options) *Store {
	t.Helper()
	if opts.Now == nil {
		now := startNs
		opts.Now = clock(&now)
	}
	s, err := Open(path, opts)
	if err == nil {
		err = s.Check(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// warnings collects what a store warns of.
func warnings(into *[]error) Options {
	return Options{Warn: func(err error) { *into = append(*into, err) }}
}

func rec(ns int64, kind state.RecordKind, name string) state.Record {
	return state.Record{UnixNs: ns, Kind: kind, Name: name, Text: "text of " + name}
}

func query(t *testing.T, s *Store, f Filter) []state.Record {
	t.Helper()
	got, err := s.Query(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestQueryChooses(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "history.db"), Options{})
	all := []state.Record{
		rec(startNs, state.RecordVerdict, "a"),
		rec(startNs, state.RecordChange, "a"), // the same instant: order kept
		rec(startNs+1, state.RecordChange, `b"<`),
		rec(startNs+2, state.RecordTrial, "a"),
		rec(startNs+3, state.RecordRollback, "a"),
	}
	all[2].Text = `says "a" too`
	if err := errors.Join(s.Append(all[:3]...), s.Append(), s.Append(all[3:]...)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		f    Filter
		want []int
	}{
		{"all", Filter{}, []int{0, 1, 2, 3, 4}},
		{"changed", Filter{ChangedOnly: true}, []int{1, 2, 4}},
		{"name", Filter{Name: "a"}, []int{0, 1, 3, 4}},
		{"quoted name", Filter{Name: `b"<`}, []int{2}},
		{"unknown name", Filter{Name: "c"}, nil},
		{"newest two", Filter{Limit: 2}, []int{3, 4}},
		{"newest change of a", Filter{Name: "a", ChangedOnly: true, Limit: 1}, []int{4}},
		{"since", Filter{SinceNs: startNs + 2}, []int{3, 4}},
		{"in the future", Filter{SinceNs: startNs + 9}, nil},
		{"until", Filter{UntilNs: startNs + 2}, []int{0, 1, 2, 3}},
		{"the newest of a moment", Filter{UntilNs: startNs + 1, Name: "a", Limit: 1}, []int{1}},
		{"before the first", Filter{UntilNs: startNs - 1}, nil},
	} {
		var want []state.Record
		for _, i := range tc.want {
			want = append(want, all[i])
		}
		if d := cmp.Diff(want, query(t, s, tc.f)); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
	}
}

func TestQueryAgreesWithAPlainFilter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		now := int64(100)
		s, err := Open(filepath.Join(dir, "h.db"), Options{Now: clock(&now)})
		if err == nil {
			err = s.Check(t.Context())
		}
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		s.db.NoSync = true
		kinds := []state.RecordKind{state.RecordChange, state.RecordVerdict, state.RecordRestore}
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) state.Record {
			return rec(rapid.Int64Range(-5, 20).Draw(t, "ns"), rapid.SampledFrom(kinds).Draw(t, "kind"),
				rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "name"))
		}), 1, 30).Draw(rt, "records")
		if err := s.Append(all...); err != nil {
			rt.Fatal(err)
		}
		f := Filter{rapid.Int64Range(-6, 21).Draw(rt, "since"), rapid.Int64Range(-6, 21).Draw(rt, "until"),
			rapid.Bool().Draw(rt, "changed"), rapid.SampledFrom([]string{"", "a"}).Draw(rt, "name"), rapid.IntRange(0, 9).Draw(rt, "limit"),
			rapid.SampledFrom(append(kinds, "")).Draw(rt, "only")}
		slices.SortStableFunc(all, func(a, b state.Record) int { return int(a.UnixNs - b.UnixNs) })
		var want []state.Record
		for _, r := range all {
			if (f.SinceNs == 0 || r.UnixNs >= f.SinceNs) && (f.UntilNs == 0 || r.UnixNs <= f.UntilNs) &&
				(!f.ChangedOnly || r.Changed()) && (f.Name == "" || f.Name == r.Name) && (f.Kind == "" || f.Kind == r.Kind) {
				want = append(want, r)
			}
		}
		if f.Limit > 0 && len(want) > f.Limit {
			want = want[len(want)-f.Limit:]
		}
		got, err := s.Query(context.Background(), f)
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			rt.Fatal(d)
		}
	})
}

func TestHistorySurvivesReopeningAndKilling(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	s := openAt(t, path, Options{})
	if err := errors.Join(s.Append(rec(startNs, state.RecordChange, "a")), s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Query(context.Background(), Filter{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
	s = openAt(t, path, Options{})
	if err := s.Append(rec(startNs+1, state.RecordChange, "b")); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "killed.db") // what a kill leaves: marked as open
	text, err := os.ReadFile(path)
	if err = errors.Join(err, os.WriteFile(copied, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	var warned []error
	killed := openAt(t, copied, warnings(&warned))
	if got := query(t, killed, Filter{}); len(got) != 2 || warned != nil {
		t.Errorf("after a kill: %d records, want 2 and no warning", len(got))
	}
}

func TestOldRecordsGo(t *testing.T) {
	now := startNs
	s := openAt(t, filepath.Join(t.TempDir(), "history.db"), Options{MaxAge: time.Hour, Now: clock(&now)})
	for i := range 4 {
		now = startNs + int64(i)*int64(30*time.Minute)
		if err := s.Append(rec(now, state.RecordChange, "a")); err != nil {
			t.Fatal(err)
		}
	}
	if got := query(t, s, Filter{}); len(got) != 3 || got[0].UnixNs != startNs+int64(30*time.Minute) {
		t.Errorf("after 90 minutes: %v, want the last three", got)
	}
}

func fill(t testing.TB, s *Store, from, batches, size int) {
	t.Helper()
	for i := range batches {
		batch := make([]state.Record, 50)
		for j := range batch {
			batch[j] = rec(startNs+int64(from+i*50+j), state.RecordVerdict, "a")
			batch[j].Text = strings.Repeat("x", size)
		}
		if err := s.Append(batch...); err != nil {
			t.Fatal(err)
		}
	}
}

func fileSize(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestSizeStaysBoundedAndTheNewestStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	s := openAt(t, path, Options{MaxBytes: 2 << 20})
	s.db.NoSync = true
	fill(t, s, 0, 200, 1000) // 10 MB in all
	if size := fileSize(t, path); size > 4<<20 {
		t.Errorf("the file has %d bytes, want at most twice the bound of %d", size, 2<<20)
	}
	got := query(t, s, Filter{})
	if n := len(got); n < 500 || got[n-1].UnixNs != startNs+200*50-1 {
		t.Errorf("%d records left, want 500 or more up to the newest", n)
	}
}

func TestLooseFileIsCompactedWhenOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	s := openAt(t, path, Options{})
	s.db.NoSync = true
	fill(t, s, 0, 400, 1000)
	before := fileSize(t, path)
	s.opts.MaxBytes = 1 << 20 // as if the bound had been lowered
	for range 60 {
		fill(t, s, 400*50, 1, 10)
	}
	want := query(t, s, Filter{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var warned []error
	opts := warnings(&warned)
	opts.MaxBytes = 1 << 20
	s = openAt(t, path, opts)
	if after := fileSize(t, path); after > before/4 || warned != nil {
		t.Errorf("%d bytes, %d before; warning %v", after, before, warned)
	}
	if d := cmp.Diff(want, query(t, s, Filter{})); d != "" {
		t.Errorf("compaction changed the records: %s", d)
	}
	if err := s.Append(rec(startNs+1e9, state.RecordChange, "z")); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	openAt(t, path, Options{})
	if _, err := Open(path, Options{}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want ErrLocked with the path", err)
	}
}

// wellFormed returns the text of a history of so many records.
func wellFormed(t *testing.T, batches int, closed bool) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.db")
	s := openAt(t, path, Options{})
	fill(t, s, 0, batches, 200)
	if closed {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestCorruptFilesAreSetAside(t *testing.T) {
	good := wellFormed(t, 40, false)
	zeroed := bytes.Clone(good)
	clear(zeroed[4*4096:]) // behind the meta pages
	other := filepath.Join(t.TempDir(), "other.db")
	db, err := bolt.Open(other, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"text":             []byte(strings.Repeat("not a database ", 4096)),
		"short":            []byte("x"),
		"zeros":            make([]byte, 1<<16),
		"truncated":        good[:len(good)/4],
		"metas only":       good[:2*4096],
		"pages zeroed":     zeroed,
		"another database": foreign,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "history.db")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			var warned []error
			s := openAt(t, path, warnings(&warned))
			if w := errors.Join(warned...); len(warned) != 1 || !errors.Is(w, ErrCorrupt) || !strings.Contains(w.Error(), "set aside as") {
				t.Errorf("warnings %v, want one ErrCorrupt and where it went", warned)
			}
			aside, err := filepath.Glob(path + ".corrupt-*")
			if err != nil || len(aside) != 1 {
				t.Fatalf("set aside: %v, %v", aside, err)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, text) {
				t.Errorf("what was set aside is not what stood there: %v", err)
			}
			if err := s.Append(rec(startNs, state.RecordChange, "a")); err != nil || len(query(t, s, Filter{})) != 1 {
				t.Errorf("the new history does not work: %v", err)
			}
		})
	}
}

// Damage at any page of a closed history never ends the process: it is an
// error, or shows records that are whole.
func TestDamageAtAnyPageIsAnError(t *testing.T) {
	good := wellFormed(t, 4, true)
	for page := range len(good) / 4096 {
		for _, fillByte := range []byte{0, 0xff} {
			text := bytes.Clone(good)
			for i := range 4096 {
				text[page*4096+i] = fillByte
			}
			path := filepath.Join(t.TempDir(), fmt.Sprint(page))
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			now := startNs
			s, err := Open(path, Options{Now: clock(&now)})
			if err == nil {
				err = s.Check(t.Context())
			}
			if err != nil {
				t.Errorf("page %d: %v", page, err)
				continue
			}
			if got, err := s.Query(context.Background(), Filter{}); err == nil && len(got) > 200 {
				t.Errorf("page %d: %d records out of 200", page, len(got))
			}
			if err := s.Append(rec(startNs+1e9, state.RecordChange, "z")); err != nil {
				t.Errorf("page %d: Append: %v", page, err)
			}
			_ = s.Close() // a damaged file may well say so
		}
	}
}

func TestNewerSchemaIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	s := openAt(t, path, Options{})
	err := s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keySchema, []byte("2")) })
	if err = errors.Join(err, s.db.Close()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrSchema) {
		t.Fatalf("got %v, want ErrSchema", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed: %v", err)
	}
}

func TestFullDiskHarmsNothingStored(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("needs root and mounting: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	path := filepath.Join(dir, "history.db")
	s := openAt(t, path, Options{})
	if err := s.Append(rec(startNs, state.RecordChange, "a")); err != nil {
		t.Fatal(err)
	}
	big := rec(startNs+1, state.RecordChange, "b")
	big.Text = strings.Repeat("x", 512<<10)
	if err := s.Append(big); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC", err)
	}
	if got := query(t, s, Filter{}); len(got) != 1 {
		t.Errorf("%d records, want the one before", len(got))
	}
	if err := s.Append(rec(startNs+2, state.RecordChange, "c")); err != nil {
		t.Errorf("a small record afterwards: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	var warned []error
	if s = openAt(t, path, warnings(&warned)); len(query(t, s, Filter{})) != 2 || warned != nil {
		t.Errorf("after reopening: %v", query(t, s, Filter{}))
	}
}

func TestConcurrentUse(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "history.db"), Options{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 25 {
				if err := s.Append(rec(startNs+int64(i), state.RecordChange, fmt.Sprint(w))); err != nil {
					t.Error(err)
				}
				if _, err := s.Query(context.Background(), Filter{Name: fmt.Sprint(w)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := query(t, s, Filter{}); len(got) != 100 {
		t.Errorf("%d records, want 100", len(got))
	}
}

// A process killed between and inside transactions loses nothing acknowledged.
func TestKillLosesNothingAcknowledged(t *testing.T) {
	const child = "TRIMTAB_HISTORY_KILLED"
	if path := os.Getenv(child); path != "" {
		s := openAt(t, path, Options{})
		for i := int64(0); ; i++ {
			if err := s.Append(rec(startNs+i, state.RecordChange, "a")); err != nil {
				t.Fatal(err)
			}
			fmt.Println("stored", i)
		}
	}
	path := filepath.Join(t.TempDir(), "history.db")
	stored := 0
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillLosesNothingAcknowledged$")
		cmd.Env = append(os.Environ(), child+"="+path)
		out, err := cmd.StdoutPipe()
		if err = errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		acknowledged := 0
		for acknowledged < 20 {
			n, err := out.Read(buf)
			if err != nil {
				t.Fatalf("the child ended: %v", err)
			}
			acknowledged += bytes.Count(buf[:n], []byte("stored"))
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		var warned []error
		s := openAt(t, path, warnings(&warned))
		stored += acknowledged
		if got := query(t, s, Filter{}); len(got) < stored || warned != nil {
			t.Fatalf("%d records after a kill, %d were acknowledged", len(got), stored)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
