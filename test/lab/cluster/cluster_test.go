package cluster

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/test/lab/tables"
)

// all mechanisms, the daemon among them.
func all(s Setup) []Mechanism {
	return append(Rivals(), Daemon(s.EpochS))
}

// seeds is how many a test runs: of the daemon, each second of which is stepped, one.
func seeds(m Mechanism, n uint64) uint64 {
	if m.Name == "trimtab" {
		return 1
	}
	return n
}

func curves(t testing.TB) []tables.Curve {
	t.Helper()
	c, err := tables.Curves()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func named(t testing.TB, model string) *tables.Curve {
	all := curves(t)
	for i := range all {
		if all[i].Model == model {
			return &all[i]
		}
	}
	t.Fatalf("no %s", model)
	return nil
}

// TestByHand: AlexNet and BERT with four GPUs each and 100 s of work share a server.
// BERT uses 4 of its 12 CPUs. AlexNet makes 1 on its 12 CPUs and 1.53 on 20 (five each GPU), with
// 62.5 GB a GPU. Its best case, 48 CPUs, fits nowhere.
func TestByHand(t *testing.T) {
	jobs := []Job{{ID: 0, GPUs: 4, WorkS: 100, Curve: named(t, "AlexNet")}, {ID: 1, GPUs: 4, WorkS: 100, Curve: named(t, "BERT")}}
	for _, c := range []struct {
		m    Mechanism
		want float64 // AlexNet's end
	}{
		{Rivals()[0], 100},
		{Rivals()[1], 100 / 1.53},
		{Rivals()[2], 100 / 1.53},
		{Rivals()[3], 100},
		{Daemon(60), 3 + 97/1.53}, // what BERT leaves is lent after three seconds
	} {
		done, err := Run(jobs, 1, SynergyServer(), c.m, 1)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(done[0].FinishS-c.want) > 1e-6 || math.Abs(done[1].FinishS-100) > 1e-6 {
			t.Errorf("%s: AlexNet ends at %.3f s, want %.3f; BERT at %.3f s, want 100", c.m.Name, done[0].FinishS, c.want, done[1].FinishS)
		}
	}
}

// TestSynergyGivesTheBestCase where it fits: AlexNet on one GPU takes 12 CPUs and
// 125 GB beside BERT on seven, which leaves 17 and 354.
func TestSynergyGivesTheBestCase(t *testing.T) {
	jobs := []Job{{ID: 0, GPUs: 1, WorkS: 100, Curve: named(t, "AlexNet")}, {ID: 1, GPUs: 7, WorkS: 100, Curve: named(t, "BERT")}}
	done, err := Run(jobs, 1, SynergyServer(), Rivals()[3], 1)
	if err != nil {
		t.Fatal(err)
	}
	if want := 100 / 2.94; math.Abs(done[0].FinishS-want) > 1e-6 {
		t.Errorf("ends at %.3f s, want %.3f", done[0].FinishS, want)
	}
}

// TestQueueByHand: nobody overtakes, though the third job would fit beside the first.
func TestQueueByHand(t *testing.T) {
	bert := named(t, "BERT")
	jobs := []Job{{ID: 0, GPUs: 4, WorkS: 50, Curve: bert}, {ID: 1, GPUs: 8, SubmitS: 10, WorkS: 30, Curve: bert}, {ID: 2, GPUs: 2, SubmitS: 20, WorkS: 10, Curve: bert}}
	done, err := Run(jobs, 1, SynergyServer(), Rivals()[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][2]float64{{0, 50}, {50, 80}, {80, 90}} {
		if math.Abs(done[i].StartS-want[0]) > 1e-6 || math.Abs(done[i].FinishS-want[1]) > 1e-6 {
			t.Errorf("job %d ran from %.3f to %.3f s, want %v", i, done[i].StartS, done[i].FinishS, want)
		}
	}
}

// drawSetup draws what the daemon is told, and how the curves are read.
func drawSetup(t *rapid.T, curves []tables.Curve) (Setup, []tables.Curve) {
	s := TraceSetup()
	s.Parts = rapid.Bool().Draw(t, "parts")
	out := slices.Clone(curves)
	for i := range out {
		out[i].Parts = s.Parts
	}
	return s, out
}

// drawJobs makes any jobs that fit one server.
func drawJobs(t *rapid.T, curves []tables.Curve) []Job {
	n := rapid.IntRange(1, 25).Draw(t, "jobs")
	out := make([]Job, n)
	at := 0.0
	for i := range out {
		at += rapid.Float64Range(0, 200).Draw(t, "gap")
		out[i] = Job{ID: i, GPUs: rapid.IntRange(1, 8).Draw(t, "gpus"), SubmitS: at, WorkS: rapid.Float64Range(1, 200).Draw(t, "work"),
			Curve: &curves[rapid.IntRange(0, len(curves)-1).Draw(t, "model")]}
	}
	return out
}

// TestWorkIsConserved, and capacity is never exceeded: Run fails where CPUs or
// memory are; GPUs are counted here from what it says.
func TestWorkIsConserved(t *testing.T) {
	known := curves(t)
	rapid.Check(t, func(t *rapid.T) {
		s, known := drawSetup(t, known)
		jobs, servers := drawJobs(t, known), rapid.IntRange(1, 3).Draw(t, "servers")
		for _, m := range all(s) {
			done, err := Run(jobs, servers, SynergyServer(), m, 7)
			if err != nil {
				t.Fatal(err)
			}
			for i, d := range done {
				if math.Abs(d.DoneS-d.WorkS) > 1e-6*d.WorkS || d.WorkS != jobs[i].WorkS {
					t.Fatalf("%s: job %d did %v of %v", m.Name, i, d.DoneS, d.WorkS)
				}
				if d.StartS < d.SubmitS || d.FinishS <= d.StartS {
					t.Fatalf("%s: job %d: %+v", m.Name, i, d)
				}
				gpus := 0
				for k, other := range done {
					if other.StartS <= d.StartS && other.FinishS > d.StartS+1e-9 {
						gpus += jobs[k].GPUs
					}
				}
				if gpus > 8*servers {
					t.Fatalf("%s: %d GPUs of %d run at %v s", m.Name, gpus, 8*servers, d.StartS)
				}
			}
		}
	})
}

// TestNobodyLosesByTuning: what the daemon's policy does on one server leaves no
// job slower than its proportional share made it; nor does Synergy's tuning.
func TestNobodyLosesByTuning(t *testing.T) {
	known := curves(t)
	rapid.Check(t, func(t *rapid.T) {
		s, known := drawSetup(t, known)
		n, used := 0, 0
		var jobs []Job
		for _, j := range drawJobs(t, known) {
			if used+j.GPUs <= 8 { // all at once: nobody queues, so ends compare
				j.ID, j.SubmitS = n, 0
				jobs, n, used = append(jobs, j), n+1, used+j.GPUs
			}
		}
		for _, m := range []Mechanism{Rivals()[3], Daemon(s.EpochS)} {
			done, err := Run(jobs, 1, SynergyServer(), m, 7)
			if err != nil {
				t.Fatal(err)
			}
			for i, d := range done {
				if d.FinishS > jobs[i].WorkS*(1+1e-6) {
					t.Fatalf("%s: job %d (%s, %d GPUs) ends at %v s, its share makes it %v", m.Name, i, jobs[i].Curve.Model, jobs[i].GPUs, d.FinishS, jobs[i].WorkS)
				}
			}
		}
	})
}

// TestSameSeedSameFigures, to the bit; and another seed differs.
func TestSameSeedSameFigures(t *testing.T) {
	trace, err := tables.Trace()
	if err != nil {
		t.Fatal(err)
	}
	s, known := TraceSetup(), curves(t)
	s.Jobs = 20
	for _, m := range all(s) {
		run := func(seed uint64) []Done {
			done, err := Run(s.Build(trace, known, 1, seed), s.Servers, s.Server, m, seed)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		first, again, other := run(1), run(1), run(2)
		same := true
		for i := range first {
			if first[i] != again[i] {
				t.Fatalf("%s: job %d: %+v, then %+v", m.Name, i, first[i], again[i])
			}
			same = same && first[i] == other[i]
		}
		if same && m.Name != "proportional" { // all rates are 1 there, whatever the model
			t.Errorf("%s: two seeds give the same", m.Name)
		}
	}
}

// TestMonotoneInLoad: the same jobs, submitted closer together, queue longer.
func TestMonotoneInLoad(t *testing.T) {
	trace, err := tables.Trace()
	if err != nil {
		t.Fatal(err)
	}
	s, known := TraceSetup(), curves(t)
	s.Jobs = 30
	for _, m := range all(s) {
		for seed := uint64(1); seed <= seeds(m, 3); seed++ {
			before := -1.0
			for _, load := range []float64{0.25, 0.5, 1, 2, 4} {
				done, err := Run(s.Build(trace, known, load, seed), s.Servers, s.Server, m, seed)
				if err != nil {
					t.Fatal(err)
				}
				f := summarise(done)
				if f.queue < before-1e-9 {
					t.Errorf("%s, seed %d: at load %g jobs queue for %.2f s, at the one before for %.2f", m.Name, seed, load, f.queue, before)
				}
				before = f.queue
			}
		}
	}
}

func TestBuildGivesTheLoad(t *testing.T) {
	trace, err := tables.Trace()
	if err != nil {
		t.Fatal(err)
	}
	known := curves(t)
	for _, s := range []Setup{TraceSetup(), DaySetup()} {
		for _, load := range []float64{0.5, 1, 2} {
			jobs := s.Build(trace, known, load, 1)
			var work float64
			for _, j := range jobs {
				work += j.WorkS * float64(j.GPUs)
			}
			// the mean gap follows the last job; cycles of the trace end within one of them
			span := jobs[len(jobs)-1].SubmitS * float64(len(jobs)) / float64(len(jobs)-1)
			if got := work / (span * float64(s.Servers*s.Server.GPUs)); math.Abs(got-load) > 0.01*load {
				t.Errorf("%d jobs at load %g: %g", len(jobs), load, got)
			}
		}
	}
}

// greedy grants more than there is; idle grants nothing.
type greedy struct{}

func (greedy) Divide(_ float64, s Server, jobs []*Running) float64 {
	for _, r := range jobs {
		r.Have, r.MemoryGB = s.CPUs+1, 1
	}
	return 0
}

type idle struct{}

func (idle) Divide(float64, Server, []*Running) float64 { return 0 }

func TestBadMechanismsFail(t *testing.T) {
	jobs := []Job{{ID: 0, GPUs: 1, WorkS: 1, Curve: named(t, "BERT")}}
	for _, d := range []Strategy{greedy{}, idle{}} {
		if _, err := Run(jobs, 1, SynergyServer(), static("bad", false, d), 1); err == nil {
			t.Errorf("%T runs", d)
		}
	}
	jobs[0].GPUs = 9
	if _, err := Run(jobs, 1, SynergyServer(), Rivals()[0], 1); err == nil {
		t.Error("a job of nine GPUs runs on eight")
	}
}

// BenchmarkTrace is the trace of 60 jobs on four servers, each second of which the daemon steps.
func BenchmarkTrace(b *testing.B) {
	trace, err := tables.Trace()
	if err != nil {
		b.Fatal(err)
	}
	s := TraceSetup()
	jobs := s.Build(trace, curves(b), 1, 1)
	m := Daemon(s.EpochS)
	for b.Loop() {
		if _, err := Run(jobs, s.Servers, s.Server, m, 1); err != nil {
			b.Fatal(err)
		}
	}
}
