package profiles

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/model"
	"pgregory.net/rapid"
)

// faster is a known job as a host measures it whose CPUs are so many times as fast.
func faster(k Known, times float64) Known {
	k.Name = ""
	for _, a := range []Attribute{TrainerCPU, LoaderCPU, OtherCPU, Batch} {
		if v, ok := k.Print.Value(a); ok {
			k.Print = k.Print.With(a, v/times)
		}
	}
	c := &k.Learned.Cost
	c.TrainerCPU, c.LoaderCPU, c.OtherCPU, c.Batch = c.TrainerCPU/times, c.LoaderCPU/times, c.OtherCPU/times, c.Batch/times
	k.Learned.Devices = nil
	return k
}

// jobs are n known jobs that are nothing alike.
func jobs(n int) []Known {
	r := rand.New(rand.NewPCG(3, 4))
	var out []Known
	for i := range n {
		p, c := someJob(r)
		out = append(out, Known{ID: uint64(i + 1), Name: fmt.Sprintf("train-%d", i), Print: p, Jobs: 1, FirstUnixNs: day, LastUnixNs: 2 * day, Learned: Learned{Cost: c, Correction: 1}})
	}
	return out
}

func book(host string, known ...Known) Book {
	return Book{Host: host, MadeUnixNs: 2 * day, Known: known}
}

func open(t *testing.T, own []Known) *Store {
	t.Helper()
	b, err := Open(own, 3*day)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCalibrated: by jobs that both hosts know, the others of a host twice as fast are found again.
func TestCalibrated(t *testing.T) {
	all := jobs(6)
	var there []Known
	for _, k := range all {
		there = append(there, faster(k, 2))
	}
	b := open(t, all[:4])
	got := Prepare(b.All(), book("gpu-7", there...), 3*day)
	if got.Shared != 4 || math.Abs(got.Ratio-2) > 0.01 || got.Refused != 0 {
		t.Fatalf("shared %d, ratio %.3f, refused %d", got.Shared, got.Ratio, got.Refused)
	}
	b.SetForeign(got.Known, 3*day)
	s, _, ok := b.Place(all[5].Print, all[5].Learned.Cost, 0)
	if !ok || s.Name != "gpu-7/6" || math.Abs(s.Knee-all[5].Learned.Cost.Knee()) > 0.01*s.Knee {
		t.Errorf("%+v %v, want the knee %.2f", s, ok, all[5].Learned.Cost.Knee())
	}
	if s.Confidence < 0.5 || s.Confidence > 0.7 {
		t.Errorf("confidence %.2f of one that is wholly alike", s.Confidence)
	}
	// What this host knows itself is not asked of others.
	if s, from, _ := b.Place(all[0].Print, all[0].Learned.Cost, 0); s.Name != "train-0" || len(from) != 1 {
		t.Errorf("%q from %v, want its own alone", s.Name, from)
	}
}

// TestShapeAlone: where too few jobs are shared, or they do not agree, no absolute figure comes over.
func TestShapeAlone(t *testing.T) {
	all := jobs(6)
	torn := []Known{faster(all[0], 1), faster(all[1], 2), faster(all[2], 3.9), faster(all[3], 0.5), faster(all[5], 1)}
	for i := range torn {
		torn[i].Learned.Response = &model.Learner{Version: 1, Source: torn[i].Print.Unit}
	}
	for what, c := range map[string]struct {
		own    []Known
		shared int
	}{"nothing in common": {nil, 0}, "two in common": {all[:2], 2}, "contradictory": {all[:4], 4}} {
		b := open(t, c.own)
		got := Prepare(b.All(), book("gpu-7", torn...), 3*day)
		if got.Ratio != 0 || got.Shared != c.shared {
			t.Fatalf("%s: ratio %g by %d shared", what, got.Ratio, got.Shared)
		}
		for _, k := range got.Known {
			if !k.Shape || k.Learned.Response != nil {
				t.Errorf("%s: %s brings absolute figures", what, k.Name)
			}
		}
		b.SetForeign(got.Known, 3*day)
		asked := all[5]
		asked.Learned.Cost = eachTime(asked.Learned.Cost, func(v float64) float64 { return 1.3 * v })
		s, _, ok := b.Place(asked.Print, asked.Learned.Cost, 0)
		if !ok || math.Abs(s.Knee/all[5].Learned.Cost.Knee()-1) > 0.01 || math.Abs(s.Cost.CPU()/asked.Learned.Cost.CPU()-1) > 0.01 {
			t.Errorf("%s: %+v, %v", what, s, ok)
		}
	}
}

// TestForeignNeverDisplaces: a full Store of this host's own takes nothing in, and own ones that come
// later go before others'.
func TestForeignNeverDisplaces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := full(t, r, someJob)
	theirs := jobs(3)
	for i := range theirs {
		theirs[i].Jobs = 1 << 30 // met more often than anything here, it says
	}
	b.SetForeign(Prepare(nil, book("gpu-7", theirs...), 3*day).Known, 3*day)
	if b.Foreign() != 0 || b.Len() != MaxKnown {
		t.Errorf("%d foreign of %d", b.Foreign(), b.Len())
	}
	b.Forget(1, "")
	b.Forget(2, "")
	b.SetForeign(Prepare(nil, book("gpu-7", theirs...), 3*day).Known, 3*day)
	if b.Foreign() != 2 {
		t.Fatalf("%d foreign, want the room of two", b.Foreign())
	}
	p, c := someJob(r)
	if b.Update(0, measurement("mine", p, c, 3*day)); b.Foreign() != 1 || b.Len() != MaxKnown {
		t.Errorf("%d foreign of %d after one of its own came", b.Foreign(), b.Len())
	}
}

// TestMisleads: an entry that a first allocation was taken from which failed is dropped and stays
// away, a host that misled thrice is set aside whole, and both can be forgotten.
func TestMisleads(t *testing.T) {
	got := Prepare(nil, book("gpu-7", jobs(8)...), 3*day).Known
	b := open(t, nil)
	b.Expire(3 * day)
	b.SetForeign(got, 3*day)
	b.Judge([]uint64{got[0].ID, got[1].ID}, false) // one failure, though two had a part in it
	b.Judge([]uint64{got[2].ID}, true)
	if m := b.Marks(); b.Foreign() != 6 || m.Misled["gpu-7"] != 1 || len(m.Gone) != 2 {
		t.Fatalf("%d left, %+v", b.Foreign(), m)
	}
	b.SetForeign(got, 3*day) // read again
	if b.Foreign() != 6 || b.find(got[2].ID).Learned.Right != 1 {
		t.Errorf("%d left after it was read again; %+v", b.Foreign(), b.find(got[2].ID).Learned)
	}
	b.Judge([]uint64{got[3].ID}, false)
	b.Judge([]uint64{got[4].ID}, false)
	if m := b.Marks(); b.Foreign() != 0 || m.Aside["gpu-7"] != 3*day {
		t.Fatalf("%d left, %+v", b.Foreign(), m)
	}
	again := open(t, nil) // the next start
	again.Mark(b.Marks(), 4*day)
	if again.SetForeign(got, 4*day); again.Foreign() != 0 {
		t.Error("a book that was set aside is back after a restart")
	}
	once := open(t, nil)
	once.Mark(Marks{Misled: map[string]int{"gpu-7": maxMisled - 1}}, 4*day) // as on disk, before any host was set aside
	once.SetForeign(got, 4*day)
	if once.Judge([]uint64{got[0].ID}, false); once.Foreign() != 0 || !once.Aside("gpu-7") {
		t.Errorf("%d left of a host that misled for the third time after a restart", once.Foreign())
	}
	late := open(t, nil)
	late.Mark(b.Marks(), 4*day+MaxAgeNs)
	if m := late.Marks(); len(m.Aside)+len(m.Misled) != 0 {
		t.Errorf("set aside for ever: %+v", m)
	}
	again.ForgetHost("gpu-7")
	if again.SetForeign(got, 4*day); again.Foreign() != 8 {
		t.Errorf("%d, want all 8 of a host whose marks were forgotten", again.Foreign())
	}
}

func TestForgottenForeignStaysAway(t *testing.T) {
	got := Prepare(nil, book("gpu-7", jobs(2)...), 3*day).Known
	b := open(t, nil)
	b.SetForeign(got, 3*day)
	if gone := b.Forget(0, "gpu-7/train-0"); len(gone) != 1 {
		t.Fatalf("%d went", len(gone))
	}
	if b.SetForeign(got, 3*day); b.Foreign() != 1 {
		t.Errorf("%d are there", b.Foreign())
	}
	late := 4*day + MaxAgeNs
	for i := range got {
		got[i].LastUnixNs = late
	}
	again := open(t, nil)
	again.Mark(Marks{Gone: b.Marks().Gone}, late) // of a version that did not note when
	if again.SetForeign(got, late); again.Foreign() != 1 {
		t.Errorf("%d are there once their time was not known", again.Foreign())
	}
	if b.SetForeign(got, late); b.Foreign() != 2 || len(b.Marks().GoneAt) != 0 {
		t.Errorf("%d are there after longer than anything is kept", b.Foreign())
	}
}

// TestBadBooks: what cannot be true is left out, clocks that differ are told and borne with, and
// counts that nobody here has made are not believed.
func TestBadBooks(t *testing.T) {
	good, long := jobs(1)[0], strings.Repeat("x", maxText+1)
	change := func(f func(*Known)) Known {
		k := good
		f(&k)
		return k
	}
	for what, c := range map[string]struct {
		book    Book
		taken   int
		refused int
	}{
		"a good one":        {book("h", good), 1, 0},
		"duplicates":        {book("h", good, good, good), 1, 2},
		"no number":         {book("h", change(func(k *Known) { k.ID = 0 })), 0, 1},
		"poisoned":          {book("h", change(func(k *Known) { k.Learned.Cost.LoaderCPU = math.Inf(1) })), 0, 1},
		"costs nothing":     {book("h", change(func(k *Known) { k.Learned.Cost = policies.Cost{} })), 0, 1},
		"a share beyond 1":  {book("h", change(func(k *Known) { k.Learned.Lost = 3 })), 0, 1},
		"a correction":      {book("h", change(func(k *Known) { k.Learned.Correction = 1e9 })), 1, 0},
		"a long name":       {book("h", change(func(k *Known) { k.Name = strings.Repeat("\u202e<b>🙂", 1000) })), 1, 0},
		"an escape":         {book("h", change(func(k *Known) { k.Name = "\x1b]0;pwned\a" })), 1, 0},
		"of a clock ahead":  {Book{Host: "h", MadeUnixNs: 400 * day, Known: []Known{change(func(k *Known) { k.LastUnixNs = 399 * day })}}, 1, 0},
		"a long model":      {book("h", change(func(k *Known) { k.Learned.Devices = CostsOf(map[string]policies.Cost{long: k.Learned.Cost}) })), 0, 1},
		"a long source":     {book("h", change(func(k *Known) { k.Learned.Response = &model.Learner{Version: 1, Source: long, Cost: k.Learned.Cost} })), 0, 1},
		"long hashes":       {book("h", change(func(k *Known) { k.Ends = EndsOf(End{Run: 1, Setting: Setting{Data: long}}) })), 0, 1},
		"later than itself": {book("h", change(func(k *Known) { k.LastUnixNs = 399 * day })), 0, 1},
	} {
		got := Prepare(nil, c.book, 3*day)
		if len(got.Known) != c.taken || got.Refused != c.refused {
			t.Errorf("%s: %d taken, %d refused", what, len(got.Known), got.Refused)
		}
		for _, k := range got.Known {
			if l := k.Learned; l.Correction != 1 || l.Kept+l.Failed+l.Right+l.Wrong != 0 || k.Jobs > maxForeignJobs || len(k.Name) > maxText || k.LastUnixNs > 3*day || k.Host != "h" {
				t.Errorf("%s: %+v", what, k)
			}
		}
	}
}

// TestPoisonMovesNothingOfOurs: whatever others' books hold, what this host has measured is found
// as without them, at the same distance.
func TestPoisonMovesNothingOfOurs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 9))
		own := jobs(5)
		clean, err := Open(own, 3*day)
		if err != nil {
			t.Fatal(err)
		}
		dirty, _ := Open(own, 3*day)
		var poison []Known
		for i := range 20 {
			p, c := someJob(r)
			for a := range NumAttributes {
				if r.IntN(3) == 0 {
					p = p.With(a, maxValue*r.Float64())
				}
			}
			poison = append(poison, Known{ID: uint64(i + 1), Print: p, Jobs: 1 << 30, LastUnixNs: 2 * day,
				Learned: Learned{Cost: c, Correction: 2, Right: 1 << 30}})
		}
		dirty.SetForeign(Prepare(own, book("evil", poison...), 3*day).Known, 3*day)
		for _, k := range own {
			x, _, _ := clean.Place(k.Print, k.Learned.Cost, 0)
			y, _, _ := dirty.Place(k.Print, k.Learned.Cost, 0)
			if x != y {
				t.Fatalf("%+v became %+v", x, y)
			}
			if id := dirty.Update(0, measurement("again", k.Print, k.Learned.Cost, 3*day)); id != k.ID {
				t.Fatalf("a measurement of %d went to %d", k.ID, id)
			}
			clean.Update(0, measurement("again", k.Print, k.Learned.Cost, 3*day))
		}
	})
}

// start is how a job begins that has such a command.
func start(command string) Start {
	return Start{Identity: identity.Of(identity.Start{Image: "train:1", Command: []string{"python3", command}}, bytes.Repeat([]byte{7}, identity.KeyBytes)), Host: "here"}
}

// ran is a known job that settled at so many CPUs each time that it ran.
func foreignRan(k Known, command string, cpus float64) Known {
	who := start(command)
	k.Identities = []identity.Identity{who.Identity}
	k.Ends = EndsOf(End{Run: 1, Setting: Setting{Job: who.Identity.Job, Kernel: "6.1"}, UnixNs: day, CPUs: cpus}, End{Run: 2, Setting: Setting{Job: who.Identity.Job, Source: "u"}, UnixNs: day, CPUs: cpus, Pace: Pace{Rate: 9}})
	return k
}

// TestForeignRuns: a job that never ran here begins with what it settled to elsewhere, its own runs
// go to an entry of this host's, and from then on these alone tell.
func TestForeignRuns(t *testing.T) {
	b, who := open(t, nil), start("train.py")
	got := Prepare(nil, book("gpu-7", foreignRan(jobs(1)[0], "train.py", 2.5)), 3*day).Known
	b.SetForeign(got, 3*day)
	l := b.LastRuns(who, "", 0)
	if l.CPUs != 2.5 || l.Entry != got[0].ID || l.Doubt != "" {
		t.Fatalf("%+v", l)
	}
	for _, e := range l.Ends {
		if e.Kernel != "" || e.Rate != 0 {
			t.Errorf("another host's pace is compared with: %+v", e)
		}
	}
	id := b.End(0, who, "mine", End{Run: 3, Setting: Setting{Job: who.Identity.Job}, UnixNs: 3 * day, CPUs: 4})
	if k := b.find(id); k == nil || k.Host != "" || b.find(got[0].ID).Ends.Len() != 2 {
		t.Fatalf("its own run went to %+v", k)
	}
	if l := b.LastRuns(who, "", 0); l.CPUs != 4 || l.Entry != id {
		t.Errorf("%+v, want its own run", l)
	}
	if l := b.LastRuns(start("other.py"), "", 0); l.Entry != 0 {
		t.Errorf("another job ran as %+v", l)
	}
}

// TestForeignMemory: a limit is raised by another host's runs only where it is calibrated, and not far
// beyond what runs here were found to need.
func TestForeignMemory(t *testing.T) {
	const gib = 1 << 30
	all, who := jobs(6), start("train.py")
	var there []Known
	for i, k := range all {
		all[i] = foreignRan(k, fmt.Sprintf("%c.py", rune(97+i)), 1)
		all[i].Ends = all[i].Ends.Each(func(e *End) { e.Memory = gib })
		there = append(there, faster(k, 2))
	}
	for what, c := range map[string]struct {
		own          []Known
		memory, want float64
	}{
		"not calibrated":   {nil, gib, 0},
		"as much as here":  {all[:4], 1.5 * gib, 1.5 * gib},
		"all that can be":  {all[:4], 1 << 59, 0},
		"none known here":  {without(all[:4]), gib, 0},
		"twice, and a bit": {all[:4], 2*gib + 1, 0},
	} {
		theirs := append([]Known(nil), there...)
		theirs[5] = foreignRan(theirs[5], "train.py", 2)
		theirs[5].Ends = theirs[5].Ends.Each(func(e *End) { e.Memory = c.memory })
		b := open(t, nil)
		b.SetForeign(Prepare(c.own, book("gpu-7", theirs...), 3*day).Known, 3*day)
		if l := b.LastRuns(who, "", 0); l.Memory != c.want || l.CPUs != 2 {
			t.Errorf("%s: %v bytes and %v CPUs, want %v", what, l.Memory, l.CPUs, c.want)
		}
	}
}

// without are jobs none of whose runs is known.
func without(all []Known) []Known {
	out := append([]Known(nil), all...)
	for i := range out {
		out[i].Ends = Ends{}
	}
	return out
}

// TestForeignRunMisleads: one that turned out wrong is gone, and told of.
func TestForeignRunMisleads(t *testing.T) {
	b := open(t, nil)
	b.SetForeign(Prepare(nil, book("gpu-7", foreignRan(jobs(1)[0], "train.py", 2.5)), 3*day).Known, 3*day)
	b.Recalled(b.LastRuns(start("train.py"), "", 0).Entry, false)
	if l := b.LastRuns(start("train.py"), "", 0); l.Entry != 0 || b.Marks().Misled["gpu-7"] != 1 {
		t.Errorf("%+v, %+v", l, b.Marks())
	}
}

// TestContradictoryBooks: where two hosts' runs came to different ends, none is taken over.
func TestContradictoryBooks(t *testing.T) {
	b := open(t, nil)
	var all []Known
	for host, cpus := range map[string]float64{"gpu-7": 1, "gpu-8": 3} {
		all = append(all, Prepare(nil, book(host, foreignRan(jobs(1)[0], "train.py", cpus)), 3*day).Known...)
	}
	b.SetForeign(all, 3*day)
	if l := b.LastRuns(start("train.py"), "", 0); l.CPUs != 0 || l.Doubt == "" || len(l.Ends) != 4 {
		t.Errorf("%+v", l)
	}
}

// TestCalibratedByIdentity: jobs that are the same by their identity are shared, whatever they look like.
func TestCalibratedByIdentity(t *testing.T) {
	var own, there []Known
	for i, k := range jobs(4) {
		other := faster(k, 2)
		other.Print = other.Print.With(Processes, 1e6).With(Threads, 1e6).With(VRAM, 1e15).With(Launches, 1e9)
		own, there = append(own, foreignRan(k, string(rune(97+i))+".py", 1)), append(there, foreignRan(other, string(rune(97+i))+".py", 1))
	}
	if got := Prepare(own, book("gpu-7", there...), 3*day); got.Shared != 4 || math.Abs(got.Ratio-2) > 0.01 {
		t.Errorf("%d shared, ratio %.2f", got.Shared, got.Ratio)
	}
	for i := range own {
		own[i].Identities, there[i].Identities, own[i].Ends, there[i].Ends = nil, nil, Ends{}, Ends{}
	}
	if got := Prepare(own, book("gpu-7", there...), 3*day); got.Shared != 0 || got.Ratio != 0 {
		t.Errorf("without identities %d shared", got.Shared)
	}
}

// TestForeignSpeeds: of a host that is not calibrated no rate is told; of one that is, none counts
// as measured here.
func TestForeignSpeeds(t *testing.T) {
	all := jobs(4)
	k := all[0]
	k.Learned.Devices = CostsOf(map[string]policies.Cost{k.Print.Device: k.Learned.Cost})
	there := append([]Known{k}, all[1:]...)
	for _, own := range [][]Known{nil, all} {
		got := Prepare(own, book("gpu-7", there...), 3*day).Known[0]
		speeds := NewPredictor(nil).SpeedsOf(got, 4, []string{k.Print.Device})
		switch {
		case own == nil && len(speeds) != 0:
			t.Errorf("a rate of another host as it stands: %+v", speeds)
		case own != nil && (len(speeds) != 1 || speeds[0].Measured || speeds[0].Low > speeds[0].PerSecond/1.3):
			t.Errorf("%+v", speeds)
		}
	}
}
