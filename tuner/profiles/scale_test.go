package profiles

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/model"
	"pgregory.net/rapid"
)

// someJob is one of many kinds: counted by one of the sources that there are, on one of some devices.
func someJob(r *rand.Rand) (Print, policies.Cost) {
	spread := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
	units := []string{"torch.backward", "graph launches", "device waits", "log", "datagram", "tf.session"}
	c := policies.Cost{TrainerCPU: spread(0.002, 0.2), LoaderCPU: spread(0.002, 2), OtherCPU: spread(1e-4, 0.02), Device: spread(0.005, 1), Batch: spread(0.01, 2),
		Loaders: 1 + r.IntN(16), Ticks: 100}
	p := Print{Unit: units[r.IntN(len(units))], Image: fmt.Sprintf("registry.example.com/team/train-%d:1", r.IntN(200)), Device: fmt.Sprintf("NVIDIA A%d", r.IntN(4)), Steps: 100}
	for a := range NumAttributes {
		p = p.With(a, spread(0.01, 1000))
	}
	p = p.With(TrainerCPU, c.TrainerCPU).With(LoaderCPU, c.LoaderCPU).With(OtherCPU, c.OtherCPU).With(DeviceWait, c.Device).With(Batch, c.Batch).
		With(StepTime, c.Floor()).With(Loaders, float64(c.Loaders)).With(Ranks, float64(1+r.IntN(8))).With(Activity, r.Float64()).With(SyncShare, r.Float64())
	return p, c
}

// full is a Store of as many jobs as can be.
func full(tb testing.TB, r *rand.Rand, job func(*rand.Rand) (Print, policies.Cost)) *Store {
	tb.Helper()
	var all []Known
	for i := range MaxKnown {
		p, c := job(r)
		learner := &model.Learner{Version: 1, Source: p.Unit, Cost: c}
		for x := range 5 {
			learner.Cells = append(learner.Cells, model.Cell{X: math.Pow(1.3, float64(x)), Log: r.Float64(), Weight: 1 + r.Float64()})
		}
		all = append(all, Known{ID: uint64(i + 1), Name: fmt.Sprintf("train-%d", i), Print: p, Jobs: 1, FirstUnixNs: day, LastUnixNs: day + int64(i),
			Learned: Learned{Cost: c, Correction: 1, Devices: CostsOf(map[string]policies.Cost{p.Device: c}), Response: learner}})
	}
	b, err := Open(all, 2*day)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// BenchmarkLookup is one look-up among 10,000 known jobs: of many kinds, and, as the worst case,
// all of the unit and cost that is looked for.
func BenchmarkLookup(b *testing.B) {
	alike := func(r *rand.Rand) (Print, policies.Cost) {
		p, c := someJob(r)
		q, d := input(0.05)
		c.TrainerCPU, c.LoaderCPU, c.OtherCPU = d.TrainerCPU, d.LoaderCPU, d.OtherCPU
		p.Unit = q.Unit
		return p, c
	}
	for _, bench := range []struct {
		name string
		job  func(*rand.Rand) (Print, policies.Cost)
	}{{"many-kinds", someJob}, {"all-of-one-cost", alike}} {
		b.Run(bench.name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			store := full(b, r, bench.job)
			asked := make([]Print, 64)
			costs := make([]policies.Cost, 64)
			for i := range asked {
				asked[i], costs[i] = bench.job(r)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				store.Place(asked[i%64], costs[i%64], 0)
			}
		})
	}
}

// BenchmarkLookupByIdentity is one start looked up among 10,000 known jobs.
func BenchmarkLookupByIdentity(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	all := full(b, r, someJob).All()
	command := func(i int) string {
		return string([]rune{rune(97 + i/676%26), rune(97 + i/26%26), rune(97 + i%26)}) + ".py"
	}
	for i := range all {
		all[i] = foreignRan(all[i], command(i), 2)
	}
	store, err := Open(all, 2*day)
	if err != nil {
		b.Fatal(err)
	}
	var asked [64]Start
	for i := range asked {
		asked[i] = start(command(150 * i))
	}
	for i := 0; b.Loop(); i++ {
		if store.LastRuns(asked[i%64], "", 0).CPUs != 2 {
			b.Fatal("not known")
		}
	}
}

// TestMemoryWithRuns: what 10,000 jobs take that each ran often, which is what a host comes to, with all that
// is known of a run.
func TestMemoryWithRuns(t *testing.T) {
	for _, c := range []struct{ runs, most int }{{0, 14}, {1, 16}, {4, 18}, {MaxEnds, 20}} {
		r := rand.New(rand.NewPCG(1, 2))
		all := full(t, r, someJob).All()
		for i := range all {
			k := foreignRan(all[i], fmt.Sprintf("%c%c%c.py", 97+i/676%26, 97+i/26%26, 97+i%26), 2)
			all[i].Identities = k.Identities
			var ends []End
			for n := range c.runs {
				e := k.Ends.All()[0]
				e.Source = k.Print.Unit
				e.Run, e.UnixNs, e.Queued = RunID(r.Uint64()), 20_000*day+int64(r.Uint32()), r.Float32()
				e.CPUs, e.Allowed, e.Memory = 9*r.Float64(), 64*r.Float64(), r.Float64()*(64<<30)
				e.Pace = Pace{Rate: 9 * r.Float32(), Spread: r.Float32(), Blocks: r.Int32N(1e5), Slowest: r.Float32(), Least: r.Float32(), First: r.Float32()}
				e.Numbers = []identity.Hash{identity.Hash(fmt.Appendf(nil, "%08x", n)), identity.Hash(fmt.Appendf(nil, "%08x", 1_000_000+i))}
				ends = append(ends, e)
			}
			all[i].Ends = EndsOf(ends...)
		}
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		all = nil
		before := reachable()
		var read []Known
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		b, err := Open(read, 2*day)
		if err != nil {
			t.Fatal(err)
		}
		read = nil
		after := reachable()
		goruntime.KeepAlive(text)
		if mb := (after - before) / 1e6; mb > float64(c.most) || b.Len() != MaxKnown {
			t.Errorf("%d jobs with %d runs each take %.1f MB, want %d at the most", b.Len(), c.runs, mb, c.most)
		} else {
			t.Logf("%d runs each: %.1f MB; %.1f MB of text", c.runs, mb, float64(len(text))/1e6)
		}
	}
}

// reachable is the heap in bytes once collections free no more. Pools let go of what they hold at the second, and
// what runs behind them, on a busy machine, later.
func reachable() float64 {
	least := math.Inf(1)
	for same := 0; same < 3; {
		var now goruntime.MemStats
		goruntime.GC()
		goruntime.ReadMemStats(&now)
		if same++; float64(now.HeapAlloc) < least-1e4 {
			least, same = float64(now.HeapAlloc), 0
		}
	}
	return least
}

// BenchmarkUpdate is one measurement taken in among 10,000 known jobs.
func BenchmarkUpdate(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	store := full(b, r, someJob)
	known := store.All()
	for i := 0; b.Loop(); i++ {
		k := known[i%len(known)]
		store.Update(k.ID, measurement(k.Name, k.Print, k.Learned.Cost, 2*day))
	}
}

// TestCandidatesAreBounded: of too many the latest of this host's are looked at, before others'.
func TestCandidatesAreBounded(t *testing.T) {
	p, c := someJob(rand.New(rand.NewPCG(1, 2)))
	var own, theirs []Known
	for i := range maxCandidates + 10 {
		own = append(own, Known{ID: uint64(i + 1), Print: p, Jobs: 1, LastUnixNs: day, Learned: Learned{Cost: c, Correction: 1}})
		theirs = append(theirs, own[i])
	}
	for of, most := range map[int]int{maxCandidates + 10: 0, 10: maxCandidates - 10} {
		b := open(t, own[len(own)-of:])
		b.SetForeign(Prepare(nil, book("gpu-7", theirs...), 3*day).Known, 3*day)
		all, foreign, least := 0, 0, uint64(foreignID)
		for k := range b.candidates(p, c) {
			if all++; k.Host != "" {
				foreign++
			}
			least = min(least, k.ID)
		}
		if all != maxCandidates || foreign != most || least != 11+uint64(max(0, maxCandidates-of)) {
			t.Errorf("of %d own: %d looked at, %d of them others', the first own is %d", of, all, foreign, least)
		}
	}
}

// TestCandidatesMissNone: what the marks rule out is not alike.
func TestCandidatesMissNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 7))
		var all []Known
		near := func(x float64) float64 { return x * math.Pow(1.5, 2*r.Float64()-1) }
		p, c := someJob(r)
		for i := range 50 {
			other := c
			other.TrainerCPU, other.LoaderCPU, other.Device = near(c.TrainerCPU), near(c.LoaderCPU), near(c.Device)
			k := Known{ID: uint64(i + 1), Print: p.With(TrainerCPU, other.TrainerCPU), Jobs: 1, Learned: Learned{Cost: other, Correction: 1}}
			if r.IntN(2) == 0 {
				there := other
				there.LoaderCPU = near(near(c.LoaderCPU))
				k.Learned.Devices = CostsOf(map[string]policies.Cost{p.Device: there})
			}
			all = append(all, k)
		}
		b, err := Open(all, 0)
		if err != nil {
			t.Fatal(err)
		}
		found := map[uint64]bool{}
		for k := range b.candidates(p, c) {
			found[k.ID] = true
		}
		for i := range b.known {
			if k := &b.known[i]; sameCost(c, k.costOn(p.Device)) && Compare(p, k.Print, b.ranges).Distance < NearAt && !found[k.ID] {
				t.Fatalf("left out %+v for %+v", k.costOn(p.Device), c)
			}
		}
	})
}

// TestMarksFollow: whatever is done to a Store, its marks are those of its jobs.
func TestMarksFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 7))
		b := NewStore()
		var ids []uint64
		b.SetForeign(Prepare(nil, book("gpu-7", jobs(5)...), 3*day).Known, 3*day)
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			p, c := someJob(r)
			switch at := int64(i) * day; {
			case len(ids) > 0 && r.IntN(4) == 0:
				b.Forget(ids[r.IntN(len(ids))], "")
			case len(ids) > 0 && r.IntN(3) == 0:
				b.Update(ids[r.IntN(len(ids))], measurement("again", p, c, at))
			case r.IntN(3) == 0:
				who := start(string(rune(97+r.IntN(4))) + ".py")
				ids = append(ids, b.End(0, who, "run", End{Run: RunID(i + 1), Setting: Setting{Job: who.Identity.Job}, UnixNs: at, CPUs: 1}))
			default:
				ids = append(ids, b.Update(0, measurement("new", p, c, at)))
			}
			b.Expire(int64(i) * 3 * day)
			if len(b.marks) != len(b.known) {
				t.Fatalf("%d marks of %d jobs", len(b.marks), len(b.known))
			}
			if !slices.IsSortedFunc(b.known, byID) {
				t.Fatal("the jobs are out of order")
			}
			for i := range b.known {
				if b.marks[i] != markOf(&b.known[i]) {
					t.Fatalf("the mark at place %d is another's", i)
				}
			}
		}
	})
}

// TestBoundKeepsWhatIsUsed: beyond the count the old goes, and what was met often later.
func TestBoundKeepsWhatIsUsed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := full(t, r, someJob).All()
	for i := range all {
		all[i].LastUnixNs = day * 50
	}
	all[0].LastUnixNs = day * 40
	all[1].LastUnixNs, all[1].Jobs = day*40, 64 // six weeks' worth
	p, c := someJob(r)
	for i := range 2 {
		all = append(all, Known{ID: uint64(MaxKnown + 1 + i), Print: p, Jobs: 1, LastUnixNs: day * 50, Learned: Learned{Cost: c, Correction: 1}})
	}
	b, err := Open(all, 51*day)
	if err != nil {
		t.Fatal(err)
	}
	if b.Len() != MaxKnown || b.find(1) != nil || b.find(2) == nil {
		t.Errorf("%d are left; the old one is there: %v; the one that was used: %v", b.Len(), b.find(1) != nil, b.find(2) != nil)
	}
}
