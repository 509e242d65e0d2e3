package profiles

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/tuner/identity"
)

func startOf(words ...string) Start {
	return Start{Host: "aGVyZWhl", Identity: identity.Of(identity.Start{Image: "train", ImageDigest: "sha256:1", Command: words}, bytes.Repeat([]byte{7}, identity.KeyBytes))}
}

func endOf(s Start, run string, cpus float64) End {
	return End{Run: RunOf(run), Setting: Setting{Job: s.Identity.Job, Host: s.Host, Image: s.Identity.Image}, UnixNs: day, CPUs: cpus, Numbers: s.Identity.Numbers}
}

// ran is a store in which a job ran, with these CPUs at the end of each run.
func ran(s Start, cpus ...float64) *Store {
	b := NewStore()
	for i, c := range cpus {
		b.End(0, s, "train", endOf(s, fmt.Sprint(i), c))
	}
	return b
}

func TestLastRuns(t *testing.T) {
	lr1, lr2 := startOf("train.py", "--lr", "1"), startOf("train.py", "--lr", "2")
	for _, tc := range []struct {
		name  string
		b     *Store
		s     Start
		cpus  float64
		doubt bool
	}{
		{"never ran", NewStore(), lr1, 0, false},
		{"one run", ran(lr1, 3), lr1, 3, false},
		{"runs that agree: the most", ran(lr1, 3, 3.3, 2.9), lr1, 3.3, false},
		{"two jobs behind one identity", ran(lr1, 1, 6), lr1, 0, true},
		{"nothing was enough", ran(lr1, 0, 0), lr1, 0, false},
		{"another number", ran(lr1, 3), lr2, 3, false},
		{"another job", ran(lr1, 3), startOf("other.py"), 0, false},
	} {
		if l := tc.b.LastRuns(tc.s, "", 0); l.CPUs != tc.cpus || (l.Doubt != "") != tc.doubt {
			t.Errorf("%s: %.2f CPUs, doubt %q", tc.name, l.CPUs, l.Doubt)
		}
	}
	// A number that matters tells its own runs apart.
	b := ran(lr1, 1, 1.1)
	b.End(0, lr2, "train", endOf(lr2, "x", 6))
	if one, two := b.LastRuns(lr1, "", 0), b.LastRuns(lr2, "", 0); one.CPUs != 1.1 || two.CPUs != 6 {
		t.Errorf("%.2f and %.2f CPUs", one.CPUs, two.CPUs)
	}
}

// What misled is not taken again, until runs agree once more with what would have been taken.
func TestTrustFallsAndComesBack(t *testing.T) {
	s := startOf("train.py")
	b := ran(s, 3)
	id := b.Identified(s.Identity)
	b.Recalled(id, false)
	if l := b.LastRuns(s, "", 0); l.CPUs != 0 || l.Doubt == "" || l.Expected != 3 {
		t.Errorf("%+v", l)
	}
	b.Recalled(id, true)
	if l := b.LastRuns(s, "", 0); l.CPUs != 3 {
		t.Errorf("%+v", l)
	}
}

// Whatever is told of runs, the store stays within its bounds, reads what it wrote, and no clock
// decides which runs are the last.
func TestEndsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewStore()
		for range rapid.IntRange(0, 120).Draw(t, "ends") {
			s := startOf(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "job"), "--lr", fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "lr")))
			e := endOf(s, fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "run")), rapid.SampledFrom([]float64{0, 1, 2, math.NaN(), -1, math.Inf(1)}).Draw(t, "cpus"))
			e.UnixNs = rapid.Int64Range(0, 10*day).Draw(t, "at")
			b.End(rapid.Uint64Range(0, 3).Draw(t, "entry"), s, "job", e)
		}
		runs := map[string]bool{}
		for _, k := range b.All() {
			if len(k.Identities) > maxIdentities || k.Ends.Len() > maxIdentities*MaxEnds {
				t.Fatalf("%d identities, %d ends", len(k.Identities), k.Ends.Len())
			}
			for _, e := range k.Ends.All() {
				if id := fmt.Sprint(e.Job, e.Run); runs[id] {
					t.Fatalf("run %s is there twice", id)
				} else {
					runs[id] = true
				}
			}
		}
		text, err := json.Marshal(b.All())
		if err != nil {
			t.Fatal(err)
		}
		var all []Known
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		again, err := Open(all, 10*day)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b.All(), again.All(), cmp.AllowUnexported(Print{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A file that somebody edited, or another host wrote, costs the entries that cannot be.
func TestEndsThatCannotBe(t *testing.T) {
	s := startOf("train.py", "--lr", "1")
	run := func(f func(*End)) func(*Known) { return func(k *Known) { k.Ends = k.Ends.Each(f) } }
	for name, f := range map[string]func(*Known){
		"a readable job":      func(k *Known) { k.Identities[0].Job = "--password=x" },
		"too many":            func(k *Known) { k.Identities = append(k.Identities, make([]identity.Identity, 9)...) },
		"negative CPUs":       run(func(e *End) { e.CPUs = -1 }),
		"endless memory":      run(func(e *End) { e.Memory = math.Inf(1) }),
		"a readable host":     run(func(e *End) { e.Setting = Setting{Host: "gpu-7.example.org"} }),
		"out of order":        run(func(e *End) { e.Numbers = []identity.Hash{{2}, {1}} }),
		"a long name":         run(func(e *End) { e.Setting = Setting{Driver: strings.Repeat("x", 5000)} }),
		"no run":              run(func(e *End) { e.Run = 0 }),
		"no setting":          run(func(e *End) { e.Setting = Setting{} }),
		"a rate below 0":      run(func(e *End) { e.Rate = -3 }),
		"no runs, no print":   func(k *Known) { k.Ends = Ends{} },
		"of another, to come": func(k *Known) { k.Host, k.LastUnixNs = "gpu-7", 90*day },
	} {
		all := ran(s, 1, 2).All()
		f(&all[0])
		if b, err := Open(all, 2*day); err == nil || b.Len() != 0 {
			t.Errorf("%s: %d known, %v", name, b.Len(), err)
		}
	}
	// A clock that was ahead for a while dates a run; it is kept, and forgotten with its job.
	all := ran(s, 1).All()
	all[0].Ends = all[0].Ends.Each(func(e *End) { e.UnixNs = 90 * day })
	if b, err := Open(all, 2*day); err != nil || b.Len() != 1 {
		t.Errorf("%v", err)
	}
	// So is all of this host where its clock is behind, as it is at a start without a battery.
	if b, err := Open(ran(s, 1, 2).All(), -900*day); err != nil || b.Len() != 1 {
		t.Errorf("%d known by a clock that is behind, %v", b.Len(), err)
	}
}

// A job that was known by its runs alone counts its steps one day: its runs go with it.
func TestRunsFollowTheJob(t *testing.T) {
	s := startOf("train.py")
	b := ran(s, 1, 1.1)
	p, c := input(0.05)
	id := b.Update(0, measurement("train", p, c, day))
	if id = b.End(id, s, "train", endOf(s, "now", 1.2)); b.Len() != 1 || b.All()[0].Ends.Len() != 3 || b.Identified(s.Identity) != id {
		t.Errorf("%d known, %+v", b.Len(), b.All())
	}
}

// Of a full store the single runs go first, and the one just told stays, though its clock was stepped back.
func TestAFullStoreTakesRunsByAClockThatWentBack(t *testing.T) {
	learned := ran(startOf("learned.py"), 1, 1.1).All()[0]
	learned.LastUnixNs = day // before all others
	all := []Known{learned}
	for i := range MaxKnown - 1 {
		k := learned
		k.ID, k.LastUnixNs, k.Ends = uint64(i+2), 2*day, EndsOf(learned.Ends.All()[0])
		all = append(all, k)
	}
	b, err := Open(all, 3*day)
	if err != nil {
		t.Fatal(err)
	}
	s := startOf("new.py")
	e := endOf(s, "x", 2)
	e.UnixNs = 5 // long before
	id := b.End(0, s, "new", e)
	if b.find(id) == nil || b.Len() != MaxKnown || b.find(learned.ID) == nil {
		t.Errorf("%d known, the new one %v, the learned one %v", b.Len(), b.find(id), b.find(learned.ID))
	}
}

// What an earlier version wrote of a run is read, and the same is written: a number of a run that is no
// number stands for its hash.
func TestEndsAsTheyWereWritten(t *testing.T) {
	const before = `{"run":"00a1b2c3d4e5f607","job":"OK7oTNPmRPZtJ38I","at":5,"host":"aGVyZWhl","kernel":"6.1","numbers":["IVSFheVH"],"ranks":2,"cpus":1.1,"memory":1425014784,"shared":true,"source":"steps","rate":9.5,"blocks":9}`
	var e, again End
	if err := json.Unmarshal([]byte(before), &e); err != nil || e.valid() != nil {
		t.Fatal(err, e.valid())
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if json.Unmarshal([]byte(before), &want) != nil || json.Unmarshal(text, &got) != nil || !cmp.Equal(want, got) {
		t.Errorf("%s became %s", before, text)
	}
	if err := json.Unmarshal([]byte(`{"run":"docker/abc"}`), &again); err != nil || again.Run != RunOf("docker/abc") {
		t.Errorf("%v: run %x", err, again.Run)
	}
}
