package profiles

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/tuner/identity"
)

// someEnd is any end, also one that cannot be.
func someEnd(t *rapid.T) End {
	amount := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 64), rapid.SampledFrom([]float64{0, -1, 1.35, 4096, 1<<30 + 1, 1 << 59, math.Inf(1), math.NaN()}))
	small := rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{0, -1, 99.8, float32(math.Inf(1)), math.MaxFloat32}))
	e := End{
		Run: RunID(rapid.Uint64().Draw(t, "run")), UnixNs: rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, -1, day, -day})).Draw(t, "at"),
		CPUs: amount.Draw(t, "cpus"), Allowed: amount.Draw(t, "allowed"), Memory: amount.Draw(t, "memory"), Queued: small.Draw(t, "queued"),
		Pace: Pace{Rate: small.Draw(t, "rate"), Spread: small.Draw(t, "spread"), Blocks: rapid.Int32().Draw(t, "blocks"), Slowest: small.Draw(t, "slowest"), Least: small.Draw(t, "least"), First: small.Draw(t, "first")},
	}
	for range rapid.IntRange(0, 40).Draw(t, "numbers") {
		text := rapid.OneOf(rapid.SampledFrom([]string{"AAAAAAAA", "-_09azAZ", "", "A", "AAAA====", "\x1b[31m\u202e", "🙂🙂", "A\nAAAAAA"}), rapid.StringMatching("[A-Za-z0-9_-]{8}")).Draw(t, "number")
		var h identity.Hash
		copy(h[:], text)
		e.Numbers = append(e.Numbers, h)
	}
	if job := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "job"); job != "" {
		e.Setting = Setting{Job: job}
	}
	return e
}

// What is held of runs is what was given, whatever that is.
func TestEndsAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(someEnd), 0, 10).Draw(t, "ends")
		kept := EndsOf(all...)
		if diff := cmp.Diff(all, kept.All(), cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" || kept.Len() != len(all) || kept.IsZero() != (len(all) == 0) {
			t.Fatalf("%d of %d: %s", kept.Len(), len(all), diff)
		}
		if again := EndsOf(kept.All()...); !again.Equal(kept) {
			t.Fatal("held again they are others")
		}
		if len(all) > 0 && kept.Equal(EndsOf(all[1:]...)) {
			t.Fatal("fewer are the same")
		}
	})
}

// What more runs than are kept of any have alike is not looked for among all of them: whoever writes a book
// chooses how many there are.
func TestManyEndsAreNotCompared(t *testing.T) {
	most := maxIdentities * MaxEnds
	var all []End
	for i := range 2 * most {
		all = append(all, End{Run: RunID(i + 1), Setting: Setting{Ranks: i % (most + 1)}})
	}
	kept := EndsOf(all...)
	if got := len(EndsOf(all[:most]...).settings); got != most || len(kept.settings) != len(all) {
		t.Errorf("%d and %d settings are held", got, len(kept.settings))
	}
	if diff := cmp.Diff(all, kept.All()); diff != "" {
		t.Error(diff)
	}
}

// Rounding takes nothing that counts, the amount of memory is never less, and it takes it once.
func TestRounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share, rate := rapid.Float32Range(0, 1), rapid.Float32Range(0, 1e6)
		e := End{
			Run: 1, UnixNs: rapid.Int64().Draw(t, "at"), Setting: Setting{Job: "AAAAAAAAAAAAAAAA"}, Queued: share.Draw(t, "queued"),
			CPUs: rapid.Float64Range(0, maxCPUs).Draw(t, "cpus"), Allowed: rapid.Float64Range(0, 64).Draw(t, "allowed"), Memory: rapid.Float64Range(0, maxBytes).Draw(t, "memory"),
			Pace: Pace{Rate: rate.Draw(t, "rate"), Spread: share.Draw(t, "spread"), Slowest: rate.Draw(t, "slowest"), Least: rate.Draw(t, "least"), First: rate.Draw(t, "first")},
		}
		r := e.rounded()
		near := func(a, b float32) bool { return math.Abs(float64(a-b)) <= math.Abs(float64(b))/8000+1e-40 }
		if math.Abs(r.CPUs-e.CPUs) > 1e-5 || math.Abs(r.Allowed-e.Allowed) > 1e-5 || r.Memory < e.Memory || r.Memory > e.Memory+pageBytes ||
			!near(r.Queued, e.Queued) || !near(r.Spread, e.Spread) || !near(r.Slowest, e.Slowest) || !near(r.Least, e.Least) || !near(r.First, e.First) || r.Rate != e.Rate {
			t.Fatalf("%+v of %+v", r, e)
		}
		if diff := cmp.Diff(r, r.rounded()); diff != "" || r.valid() != nil {
			t.Fatalf("%s, %v", diff, r.valid())
		}
	})
}

// Runs are a list in JSON, as they always were; eight take some 50 bytes each.
func TestEndsInJSON(t *testing.T) {
	var ends []End
	for i := range MaxEnds {
		h := identity.Hash([]byte("AAAAAAA" + string(rune('a'+i))))
		ends = append(ends, End{Run: RunID(i + 1), UnixNs: 20_000 * day, Setting: Setting{Job: "job"}, Numbers: []identity.Hash{h}, CPUs: 1.35, Allowed: 2, Memory: 1359 << 20,
			Pace: Pace{Rate: 9.1, Spread: 0.01, Blocks: 50, Slowest: 9, Least: 9}}.rounded())
	}
	plain, err := json.Marshal(ends)
	if err != nil {
		t.Fatal(err)
	}
	k := Known{Ends: EndsOf(ends...)}
	if len(k.Ends.text) > 50*MaxEnds {
		t.Errorf("%d bytes", len(k.Ends.text))
	}
	text, err := json.Marshal(k)
	var back Known
	var old struct{ Ends []End } // as earlier versions read it
	if err != nil || json.Unmarshal(text, &back) != nil || json.Unmarshal(text, &old) != nil || !back.Ends.Equal(k.Ends) || !slices.EqualFunc(old.Ends, ends, func(a, b End) bool { return cmp.Equal(a, b) }) {
		t.Errorf("%s, %v", text, err)
	}
	if again, err := json.Marshal(old.Ends); err != nil || string(again) != string(plain) {
		t.Errorf("%s\nwas %s, %v", again, plain, err)
	}
	if text, _ := json.Marshal(Known{}); json.Unmarshal(text, &struct{ Ends *[]End }{}) != nil || strings.Contains(string(text), "ends") {
		t.Errorf("%s", text)
	}
}
