package profiles

import (
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/observe"
)

// readings gives a run seconds of a rate, and counts how often it is told slower.
func readings(r *Run, from, seconds int, rate float64) (told int) {
	for i := from; i < from+seconds; i++ {
		if r.Rate("loop", observe.RateSample{StartNs: int64(i) * 1e9, EndNs: int64(i+1) * 1e9, Rate: rate}, func() End { return End{} }) != nil {
			told++
		}
	}
	return told
}

// paced is a store in which a job ran eight times, at 20 steps per second, 50 blocks long.
func paced(s Start) *Store {
	b := NewStore()
	for i := range 8 {
		e := endOf(s, string(rune('a'+i)), 0)
		e.Source, e.Pace = "loop", Pace{Rate: 20, Spread: 0.01, Blocks: 50, Slowest: 19.8}
		b.End(0, s, "train", e)
	}
	return b
}

// A run is told slower once, whatever it does later; it counts as slower until it is not.
func TestSlowerIsToldOnce(t *testing.T) {
	s := startOf("train.py")
	var r Run
	r.Begin(paced(s), &s, "key", "", 0)
	told := readings(&r, 0, 20, 17)
	if told != 1 || r.Show().Slower < 0.1 {
		t.Fatalf("told %d times, %+v", told, r.Show())
	}
	for i := range 4 { // to and fro
		told += readings(&r, 20+10*i, 5, 18.3) + readings(&r, 25+10*i, 5, 17)
		if r.Show().Slower == 0 {
			t.Errorf("no longer slower: %+v", r.Show())
		}
	}
	r.Written(runtime.KnobCPUQuota, 3)
	told += readings(&r, 60, 20, 17)
	if readings(&r, 80, 10, 20); told != 1 || r.Show().Slower != 0 {
		t.Errorf("told %d times, %+v", told, r.Show())
	}
}

// Nobody knows what comes later in a run than any before it came to.
func TestNotJudgedBeyondWhatRan(t *testing.T) {
	s := startOf("train.py")
	var r Run
	r.Begin(paced(s), &s, "key", "", 0)
	if readings(&r, 0, 110, 20); readings(&r, 110, 60, 10) != 0 {
		t.Errorf("told: %+v", r.Show())
	}
	var again Run // a raise is another pace, and yet as late in the run
	again.Begin(paced(s), &s, "key", "", 0)
	readings(&again, 0, 110, 20)
	again.Written(runtime.KnobCPUQuota, 3)
	if readings(&again, 110, 60, 10) != 0 {
		t.Errorf("told: %+v", again.Show())
	}
}

// keeps has a run tell what was enough, once each 15 s, and end.
func keeps(r *Run, b *Store, cpus ...float64) {
	for i, c := range cpus {
		r.Keep(b, 0, "train", End{UnixNs: day, CPUs: c}, 0, int64(i+1)*keepEveryNs, i == len(cpus)-1)
	}
}

// A run is judged, and remembered, by what it worked with: neither by the data that it prepares first
// nor by the results that it writes last.
func TestQuietBeginAndEnd(t *testing.T) {
	s := startOf("train.py")
	for name, tc := range map[string]struct {
		cpus         []float64
		kept         float64
		right, wrong int
	}{
		"a quiet beginning":                {[]float64{0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 3, 3, 3, 3}, 3, 1, 0},
		"a quiet end":                      {[]float64{3, 3, 3, 3, 0.1, 0.1, 0.1, 0.1, 0.1}, 3, 1, 0},
		"an end of which nothing is known": {[]float64{3, 3, 3, 0, 0}, 3, 1, 0},
		"a short burst":                    {[]float64{3, 3, 3, 9, 9, 3, 3}, 3, 1, 0},
		"another job":                      {[]float64{1, 1, 1, 1}, 1, 0, 1},
		"ended soon":                       {[]float64{1}, 1, 0, 0},
	} {
		b := ran(s, 3)
		var r Run
		r.Begin(b, &s, "key", "", 0)
		if r.Written(runtime.KnobCPUQuota, 3) != 3 {
			t.Fatal("not given")
		}
		keeps(&r, b, tc.cpus...)
		k := b.All()[0]
		if got := k.Ends.All()[k.Ends.Len()-1].CPUs; k.Ends.Len() != 2 || got != tc.kept || k.RunsRight != tc.right || k.RunsWrong != tc.wrong || k.Learned.Right+k.Learned.Wrong != 0 {
			t.Errorf("%s: %.2f CPUs kept, %d right, %d wrong, %+v", name, got, k.RunsRight, k.RunsWrong, k.Learned)
		}
	}
}

// What was not taken cannot have been wrong.
func TestOnlyWhatWasTakenIsWrong(t *testing.T) {
	s := startOf("train.py")
	b := ran(s, 3)
	var r Run
	r.Begin(b, &s, "key", "", 0)
	if cpus := r.Written(runtime.KnobCPUQuota, 8); cpus != 0 { // lent since something else stopped it
		t.Errorf("%.2f CPUs of the last runs", cpus)
	}
	if keeps(&r, b, 8, 8, 8, 8); b.All()[0].RunsWrong != 0 || len(r.Show().Took) != 0 {
		t.Errorf("%+v, took %v", b.All()[0], r.Show().Took)
	}
}

// A run that goes on as before writes nothing to disk; what changes, and its end, are kept.
func TestARunAtRestChangesNothing(t *testing.T) {
	s := startOf("train.py")
	b := NewStore()
	var r Run
	r.Begin(b, &s, "key", "", 0)
	keep := func(at int64, cpus float64, ended bool) (changed bool) {
		was := b.Revision()
		r.Keep(b, 0, "train", End{UnixNs: at * keepEveryNs, CPUs: cpus}, 0, at*keepEveryNs, ended)
		return b.Revision() != was
	}
	for i, tc := range []struct {
		at          int64
		cpus        float64
		ended, want bool
	}{{1, 2, false, true}, {2, 2.01, false, false}, {3, 2, false, false}, {4, 1.5, false, false}, {300, 2, false, true}, {301, 2, true, true}} {
		if got := keep(tc.at, tc.cpus, tc.ended); got != tc.want {
			t.Errorf("step %d: changed %t", i, got)
		}
	}
}

// The daemon began anew: the run goes on, and is no run before itself.
func TestARunIsNotItsOwnPast(t *testing.T) {
	s := startOf("train.py")
	b := NewStore()
	var r, again Run
	r.Begin(b, &s, "key", "", 0)
	keeps(&r, b, 3, 3, 3, 3)
	again.Begin(b, &s, "key", "", 0)
	if v := again.Show(); v.Runs != 0 || v.CPUs != 0 || again.Entry() == 0 {
		t.Errorf("%+v, entry %d", v, again.Entry())
	}
	if keeps(&again, b, 0.1, 0.1, 0.1, 0.1); b.All()[0].Ends.Len() != 1 || b.All()[0].Ends.All()[0].CPUs != 3 {
		t.Errorf("%+v", b.All()[0].Ends.All())
	}
	// So it does for a later version that tells runs apart by another hash, and one that starts then is so told.
	later := s
	later.Run = 7
	again.Begin(b, &later, "key", "", 0)
	if keeps(&again, b, 3, 3, 3, 3); b.All()[0].Ends.Len() != 1 {
		t.Errorf("%+v", b.All()[0].Ends.All())
	}
	fresh := NewStore()
	again.Begin(fresh, &later, "key", "", 0)
	if keeps(&again, fresh, 3, 3, 3, 3); fresh.All()[0].Ends.All()[0].Run != 7 {
		t.Errorf("%+v", fresh.All()[0].Ends.All())
	}
	b.End(0, s, "train", endOf(s, "other", 2))
	again.Begin(b, &s, "key", "", 0)
	if v := again.Show(); v.Runs != 1 || v.CPUs != 2 {
		t.Errorf("%+v", v)
	}
}

// Names that somebody makes up, and keys that end with the daemon, leave a job what it knows.
func TestOtherNamesLeaveAJobItsRuns(t *testing.T) {
	s := startOf("train.py")
	b := ran(s, 3, 3)
	id := b.Identified(s.Identity)
	for i := range 9 {
		other := startOf("made-up" + string(rune('a'+i)))
		b.End(id, other, "x", endOf(other, "x", 1))
	}
	if l := b.LastRuns(s, "", 0); l.CPUs != 3 || l.Runs != 2 {
		t.Errorf("%+v", l)
	}
	other := startOf("passing")
	other.Passing = true
	var r Run
	r.Begin(b, &other, "key", "", 0)
	if r.Keep(b, id, "x", End{UnixNs: day, CPUs: 2}, 0, 30e9, true); b.Identified(other.Identity) == id || b.Identified(other.Identity) == 0 {
		t.Errorf("a passing identity is in entry %d", b.Identified(other.Identity))
	}
}

// Of last runs that misled, or came to different ends, neither amounts nor curves are taken; of others both.
func TestCurvesComeWithTrust(t *testing.T) {
	s := startOf("train.py")
	misled := ran(s, 3)
	misled.Recalled(misled.Identified(s.Identity), false)
	for name, tc := range map[string]struct {
		b    *Store
		want bool
	}{"agree": {ran(s, 3, 3), true}, "misled": {misled, false}, "apart": {ran(s, 1, 6), false}} {
		var r Run
		r.Begin(tc.b, &s, "key", "", 0)
		if cpus, _ := r.Last(nil); (r.Entry() != 0) != tc.want || (cpus > 0) != tc.want || (r.Show().Doubt == "") != tc.want {
			t.Errorf("%s: entry %d, %.2f CPUs, doubt %q", name, r.Entry(), cpus, r.Show().Doubt)
		}
	}
}

// What the lowest rank maps at the first block is kept, whichever is the slowest and whatever is loaded later.
func TestLibrariesOfARun(t *testing.T) {
	of := func(first, second string) End {
		return EndOf(&observe.Reading{Root: 9, Peers: []observe.Peer{{Root: 7}, {Root: 9}, {Root: 11}}, Window: &observe.Window{Facts: []probes.Process{
			{TGID: 5, Libraries: "launcher"}, {TGID: 7, Ranked: true, Rank: 1, Libraries: second}, {TGID: 9, Ranked: true, Rank: 2, Libraries: second}, {TGID: 11, Ranked: true, Libraries: first},
		}}}, policies.Paging{}, nil, "")
	}
	s, b := startOf("train.py"), NewStore()
	run := func() (r Run) {
		r.Begin(b, &s, "docker-x", "", 0)
		return r
	}
	r := run()
	steps := func(seconds int, e End) {
		for i := range seconds {
			r.Rate("loop", observe.RateSample{StartNs: int64(i) * 1e9, EndNs: int64(i+1) * 1e9, Rate: 20}, func() End { return e })
		}
	}
	if e := r.complete(of("AAAAAAAA", "BBBBBBBB")); e.Libraries != "" {
		t.Errorf("before its first block: %q", e.Libraries)
	}
	steps(4, of("CCCCCCCC", "BBBBBBBB"))
	keep := func(e End) {
		e.UnixNs = day
		r.Keep(b, 0, "train", e, 0, 0, false)
	}
	keep(of("AAAAAAAA", "BBBBBBBB"))
	kept := b.Revision()
	keep(of("DDDDDDDD", "BBBBBBBB"))
	keep(End{})
	if e := r.complete(End{}); e.Libraries != "CCCCCCCC" || e.valid() != nil || b.Revision() != kept {
		t.Errorf("later: %q, %v, written again %t", e.Libraries, e.valid(), b.Revision() != kept)
	}
	r = run() // the daemon began anew
	if steps(4, of("DDDDDDDD", "BBBBBBBB")); r.complete(End{}).Libraries != "CCCCCCCC" {
		t.Errorf("after the daemon began anew: %q", r.complete(End{}).Libraries)
	}
	if (End{Run: 1, Setting: Setting{Job: s.Identity.Job, Libraries: "libtorch_cpu.so"}}).valid() == nil {
		t.Error("a readable name passes")
	}
}

// A run that had all that may be lent is remembered with that where nothing else is known of it.
func TestAllIsBetterThanNothing(t *testing.T) {
	b, s, r := NewStore(), startOf("train.py"), Run{}
	r.Begin(b, &s, "docker-x", "", 0)
	r.Keep(b, 0, "train", End{UnixNs: day}, 8, 2*keepEveryNs, true)
	if l := b.LastRuns(s, "", 0); l.CPUs != 8 {
		t.Errorf("%+v", l)
	}
}

// By its first steps a run is judged where these were seen, all of them; what they told stands until the
// phases that are in the usual rate have come.
func TestFirstSteps(t *testing.T) {
	s := startOf("train.py")
	s.Fresh = true
	b := NewStore()
	run := func(name string, share float64, during func(*Run)) (r Run, told int) { // half the time at half speed, later
		r.Begin(b, &s, name, "", 0)
		if told = readings(&r, 0, 4, 20*share); during != nil {
			during(&r)
		}
		told += readings(&r, 4, 8, 20*share)
		told += readings(&r, 12, 40, 10*share) + readings(&r, 52, 30, 20*share)
		r.Keep(b, 0, name, End{UnixNs: day}, 0, 100e9, true)
		return r, told
	}
	for i := range leastRuns {
		if _, told := run(string(rune('a'+i)), 1, nil); told != 0 {
			t.Fatalf("told %d times of run %d", told, i)
		}
	}
	if r, told := run("as ever", 1, nil); told != 0 || b.All()[0].Ends.All()[leastRuns].First != 20 {
		t.Errorf("told %d times: %+v, %+v", told, r.Show(), b.All()[0].Ends.All())
	}
	kept := *b
	for name, c := range map[string]struct {
		fresh  bool
		during func(*Run)
		told   int
	}{
		"slower":                 {true, nil, 1},
		"watched later":          {false, nil, 0},
		"a raise":                {true, func(r *Run) { r.Written(runtime.KnobCPUQuota, 3) }, 0},
		"steps in between":       {true, func(r *Run) { r.pacer.untilNs -= 2e9 }, 0},
		"none of these":          {true, func(r *Run) { r.pacer.untilNs -= 1e6 }, 1},
		"a rate of another kind": {true, func(r *Run) { r.pacer.anew("other") }, 0},
	} {
		*b, s.Fresh = kept, c.fresh
		var r Run
		r.Begin(b, &s, "slower", "", 0)
		told := readings(&r, 0, 4, 17)
		if c.during != nil {
			c.during(&r)
		}
		if told += readings(&r, 4, 5, 17); told != c.told || (r.Show().Slower > 0.1) != (c.told > 0) {
			t.Errorf("%s: told %d times, %+v", name, told, r.Show())
		}
		if readings(&r, 9, 9, 17); c.told > 0 && r.Show().Slower == 0 {
			t.Errorf("%s: no longer slower: %+v", name, r.Show())
		}
		if readings(&r, 18, 20, 20); r.Show().Slower != 0 {
			t.Errorf("%s: still slower: %+v", name, r.Show())
		}
	}
}
