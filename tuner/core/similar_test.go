package core

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/policies/similarity"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/fingerprint"
	"github.com/trimtab/trimtab/tuner/view"
	"github.com/trimtab/trimtab/tuner/window"
)

func bySimilarity() policies.Policy {
	return similarity.New(similarity.Defaults(), knee.New(knee.Defaults()))
}

// slowJob is a job of half a second a step, starved to a step in some two seconds.
func slowJob(n *node, name string, quota float64) *simJob {
	j := n.addJob(name, quota, tune())
	j.trainerCPU, j.loaderCPU, j.device = 0.16, 0.40, 0.32
	return j
}

// learned is a book that a free job of the kind has filled.
func learned(t *testing.T, seconds int) *fingerprint.Book {
	t.Helper()
	n := newNode(4)
	slowJob(n, "before", 0)
	c := New(Defaults(), bySimilarity(), "t")
	run(c, n, seconds, nil)
	if c.Book().Len() != 1 {
		t.Fatalf("%d jobs known after %d s, want one: %+v", c.Book().Len(), seconds, c.Book().All())
	}
	return c.Book()
}

// applied runs a starved newcomer and returns the tick of its first plan, the plan,
// and all records.
func applied(t *testing.T, book *fingerprint.Book, edit func(*simJob), seconds int) (at int, first policies.Change, c *Core, records []view.Record) {
	t.Helper()
	n := newNode(4)
	j := slowJob(n, "after", 0.3)
	if edit != nil {
		edit(j)
	}
	c = New(Defaults(), bySimilarity(), "t")
	if book != nil {
		c.Remember(book)
	}
	at = -1
	records = run(c, n, seconds, func(i int, d Decision) {
		if len(d.Apply) > 0 && at < 0 {
			at, first = i, d.Apply[0].Changes[0]
		}
	})
	return at, first, c, records
}

func TestKnownJobIsGivenItsPlaceEarlier(t *testing.T) {
	book := learned(t, 60)
	without, _, _, _ := applied(t, nil, nil, 90)
	with, ch, c, records := applied(t, book, nil, 90)
	if with < 0 || without < 0 || with >= without {
		t.Fatalf("first plan at tick %d with the store, %d without: want it earlier", with, without)
	}
	ideal := 0.56 / 0.48
	if to, _ := ch.To.CPUs(); to < ideal || to > 1.1*ideal {
		t.Errorf("first allocation %s for a knee of %.2f", ch.To, ideal)
	}
	if !strings.Contains(ch.Reason, "from 1 similar job, nearest before") {
		t.Errorf("reason %q", ch.Reason)
	}
	if got := outcomes(records); len(got) == 0 || got[0] != view.OutcomeKept {
		t.Errorf("outcomes %v, want the first kept", got)
	}
	if k := c.Book().All()[0]; c.Book().Len() != 1 || k.Jobs != 2 || k.Learned.Right != 1 {
		t.Errorf("%d known, %+v: want one entry of two jobs, right once", c.Book().Len(), k)
	}
	var s view.Snapshot
	c.Show(&s)
	if v := s.Containers[0].Similar; v == nil || v.Name == "" || len(v.Taken) == 0 {
		t.Errorf("shown: %+v", v)
	}
	t.Logf("first plan after %d s with the store, %d s without", with, without)
}

// TestKnownJobIsPlacedBeforeItsFirstWindow: its first steps are enough to place it, also
// where its own first window is still open.
func TestKnownJobIsPlacedBeforeItsFirstWindow(t *testing.T) {
	n := newNode(4)
	j := slowJob(n, "after", 0.3)
	c := New(Defaults(), bySimilarity(), "t")
	c.Remember(learned(t, 60))
	placed, given := false, false
	run(c, n, 30, func(_ int, d Decision) {
		given = given || len(d.Apply) > 0
		if j := c.jobs[j.c.Key()]; c.earlyFor(j) && !given {
			placed, j.reading, j.windows = true, window.Reading{}, 0
		}
	})
	if !placed || !given {
		t.Errorf("placed %v, given its first allocation %v", placed, given)
	}
}

func TestKneeAloneNeverActsEarly(t *testing.T) {
	book := learned(t, 60)
	n := newNode(4)
	slowJob(n, "after", 0.3)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	c.Remember(book)
	without, _, _, _ := applied(t, nil, nil, 90)
	run(c, n, without, func(i int, d Decision) {
		if len(d.Apply) > 0 {
			t.Errorf("tick %d: %+v", i, d.Apply)
		}
	})
}

// TestPoisonedStoreIsTakenBack: an entry that promises what does not come costs one
// trial, and is not believed again.
func TestPoisonedStoreIsTakenBack(t *testing.T) {
	book := learned(t, 60)
	n := newNode(4)
	j := slowJob(n, "after", 0.3)
	c := New(Defaults(), bySimilarity(), "t")
	c.Remember(book)
	plans := 0
	run(c, n, 200, func(_ int, d Decision) {
		switch { // what it is given, dearer loaders eat
		case len(d.Apply) > 0:
			plans++
			j.loaderCPU = 4
		case len(d.Rollback) > 0:
			j.loaderCPU = 0.4
		}
	})
	if j.c.Now[runtime.KnobCPUQuota] != "30000 100000" {
		t.Errorf("quota %s stands, want the original", j.c.Now[runtime.KnobCPUQuota])
	}
	if k := book.All()[0]; plans == 0 || k.Learned.Wrong != 1 {
		t.Errorf("%d plans, entry %+v: want it wrong once", plans, k.Learned)
	}
}

// TestAnotherJobIsNotTakenForIt: what differs in what decides the knee is placed by
// its own measurement.
func TestAnotherJobIsNotTakenForIt(t *testing.T) {
	book := learned(t, 60)
	for name, edit := range map[string]func(*simJob){
		"dearer loaders": func(j *simJob) { j.loaderCPU = 0.9 },
		"another source": func(j *simJob) { j.ticks.Source = "graph launches" },
	} {
		without, _, _, _ := applied(t, nil, edit, 90)
		with, ch, _, _ := applied(t, book, edit, 90)
		if with != without || strings.Contains(ch.Reason, "similar") {
			t.Errorf("%s: first plan at %d with the store, %d without: %q", name, with, without, ch.Reason)
		}
	}
}

// TestLabelsAndNamesAreNoPart: neither makes a job another one.
func TestLabelsAndNamesAreNoPart(t *testing.T) {
	book := learned(t, 60)
	_, ch, _, _ := applied(t, book, func(j *simJob) {
		j.c.Labels = map[string]string{"trimtab.job": "before", "trimtab.team": "x"}
		j.c.Enrolment.Team, j.c.Enrolment.Job = "x", "before"
	}, 90)
	if !strings.Contains(ch.Reason, "similar") {
		t.Errorf("reason %q", ch.Reason)
	}
	n := newNode(4)
	j := slowJob(n, "before", 0.3) // the known job's name, and other work
	j.loaderCPU, j.device = 1.2, 0.1
	c := New(Defaults(), bySimilarity(), "t")
	c.Remember(learned(t, 60))
	run(c, n, 60, func(_ int, d Decision) {
		for _, o := range d.Apply {
			if strings.Contains(o.Changes[0].Reason, "similar") {
				t.Errorf("a name alone moved %+v", o.Changes[0])
			}
		}
	})
}

// TestHungJobTeachesNothing: what stands still is no lesson, and does not spoil what
// it taught before.
func TestHungJobTeachesNothing(t *testing.T) {
	n := newNode(4)
	slowJob(n, "train", 0)
	c := New(Defaults(), bySimilarity(), "t")
	run(c, n, 60, nil)
	before := c.Book().All()
	if len(before) != 1 {
		t.Fatalf("%d known", len(before))
	}
	still := n.tick().Samples[0] // from here on no counter moves but the waiting
	for range 120 {
		in := n.tick()
		k := probes.Kernel{Ticks: still.Kernel.Ticks}
		for _, th := range still.Kernel.Threads {
			th.Ns[probes.StateFutex] += uint64(n.nowNs - th.AtNs)
			th.AtNs = n.nowNs
			k.Threads = append(k.Threads, th)
		}
		cg := *still.Cgroup
		cg.AtNs = n.nowNs
		in.Samples[0].Kernel, in.Samples[0].Cgroup = &k, &cg
		c.Step(in)
	}
	after := c.Book().All()
	if len(after) != 1 || after[0].Print != before[0].Print || after[0].Learned.Cost != before[0].Learned.Cost {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
}

// TestRestartedProcessIsPlacedAnew: another training process in the same container
// may be another job.
func TestRestartedProcessIsPlacedAnew(t *testing.T) {
	n := newNode(4)
	j := slowJob(n, "train", 0)
	c := New(Defaults(), bySimilarity(), "t")
	run(c, n, 60, nil)
	was := j.knee()
	for i := range j.threads { // other TIDs, other work
		j.threads[i].TID += 500
		j.threads[i].TGID += 500
		if j.threads[i].PPID != 1 {
			j.threads[i].PPID += 500
		}
		j.threads[i].StartNs += 500
		j.threads[i].SinceNs, j.threads[i].AtNs = n.nowNs, n.nowNs
		j.threads[i].Ns = [len(j.threads[i].Ns)]uint64{}
		j.threads[i].Edges = nil
	}
	j.ticks.TGID += 500
	j.loaderCPU, j.device = 1.2, 0.9
	run(c, n, 120, nil)
	all := c.Book().All()
	if len(all) != 2 {
		t.Fatalf("%d known, want the job before and the job after: %+v", len(all), all)
	}
	if k := all[0].Learned.Cost; k.LoaderCPU > 0.5 {
		t.Errorf("the entry of the job before was turned: %+v", k)
	}
	if got, want := kneeOf(c.jobs[j.c.Key()].curve), j.knee(); math.Abs(got/want-1) > 0.15 {
		t.Errorf("its curve has a knee of %.2f CPUs, the job before had %.2f, this one has %.2f", got, was, want)
	}
}

// TestCorrectionOutlivesTheContainer: what trials learn of predictions is taken over
// by the next container of the kind, whatever the policy.
func TestCorrectionOutlivesTheContainer(t *testing.T) {
	all := learned(t, 60).All()
	all[0].Learned.Correction = 0.8
	book, err := fingerprint.Open(all, all[0].LastUnixNs)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(4)
	slowJob(n, "after", 0.3)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	c.Remember(book)
	run(c, n, 30, nil)
	if got := c.jobs[n.jobs[0].c.Key()].correction; got == 1 {
		t.Error("the correction that was learned before is not there")
	}
	var s view.Snapshot
	c.Show(&s)
	if v := s.Containers[0].Similar; v == nil || !slices.ContainsFunc(v.Taken, func(what string) bool { return strings.Contains(what, "rate by CPUs") }) {
		t.Errorf("the curve that was learned before is not there: %+v", v)
	}
}

// TestSameBookSameDecisions: with the same known jobs the same inputs give the same
// decisions, to the byte.
func TestSameBookSameDecisions(t *testing.T) {
	all := learned(t, 60).All()
	decisions := func() string {
		book, err := fingerprint.Open(all, all[0].LastUnixNs)
		if err != nil {
			t.Fatal(err)
		}
		n := newNode(4)
		slowJob(n, "after", 0.3)
		slowJob(n, "after too", 0.4)
		c := New(Defaults(), bySimilarity(), "t")
		c.Remember(book)
		var out strings.Builder
		run(c, n, 60, func(_ int, d Decision) {
			text, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(text)
		})
		return out.String()
	}
	if a, b := decisions(), decisions(); a != b || !strings.Contains(a, "similar") {
		t.Errorf("%d and %d bytes of decisions", len(a), len(b))
	}
}
