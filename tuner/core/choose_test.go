package core

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
	"github.com/trimtab/trimtab/tuner/trial"
)

// names are those of the containers that changes touch, in order.
func names(changes []policies.Change) (out []string) {
	for _, ch := range changes {
		out = append(out, ch.Name)
	}
	return out
}

func quotaTo(j *simJob, cpus, gain float64) policies.Change {
	return policies.Change{Key: j.c.Key(), Name: j.c.Name, Knob: runtime.KnobCPUQuota, From: j.c.Now[runtime.KnobCPUQuota],
		To: runtime.QuotaFromCPUs(cpus, quotaPeriod), Gain: gain, RateAfter: 1}
}

// TestWhoMayNotDoesNotKeepOthersWaiting: a want that the guard refuses, or that was not
// seen for long enough beside the others, is left out, whatever it would gain.
func TestWhoMayNotDoesNotKeepOthersWaiting(t *testing.T) {
	every := func(n int, ns int64, end int64) (out []trial.Obs) {
		for i := range int64(n) {
			out = append(out, trial.Obs{StartNs: end - (int64(n)-i)*ns, EndNs: end - (int64(n)-i-1)*ns, Rate: 5})
		}
		return out
	}
	for name, tc := range map[string]struct {
		wants [3]float64 // CPUs for a, b, c, of which a gains most and c least
		obs   [3][2]int  // how many readings, of how many seconds each
		want  []string
	}{
		"all may":                       {[3]float64{0.5, 0.4, 0.4}, [3][2]int{{9, 1}, {9, 1}, {9, 1}}, []string{"a", "b", "c"}},
		"the first takes too much":      {[3]float64{3, 0.4, 0.4}, [3][2]int{{9, 1}, {9, 1}, {9, 1}}, []string{"b", "c"}},
		"the second takes too much":     {[3]float64{0.5, 3, 0.4}, [3][2]int{{9, 1}, {9, 1}, {9, 1}}, []string{"a", "c"}},
		"the second was just begun":     {[3]float64{0.5, 0.4, 0.4}, [3][2]int{{5, 14}, {20, 1}, {5, 14}}, []string{"a", "c"}},
		"the others were not seen then": {[3]float64{0.5, 0.4, 0.4}, [3][2]int{{20, 1}, {5, 14}, {5, 14}}, []string{"a"}},
	} {
		n := newNode(4)
		n.weighted = true
		var jobs []*simJob
		for _, k := range []string{"a", "b", "c"} {
			jobs = append(jobs, n.sized(k, 3, 10, 0.3))
		}
		spin := n.addSpinner("neighbour", 4)
		spin.c.Enrolment.CPU.Min = 2.7
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		for range 6 {
			c.Step(n.tick())
		}
		var asked []policies.Change
		for i, j := range jobs {
			asked = append(asked, quotaTo(j, tc.wants[i], float64(3-i)))
			c.jobs[j.c.Key()].obs = every(tc.obs[i][0], int64(tc.obs[i][1])*second, c.now())
		}
		slices.Reverse(asked)
		got := c.choose(asked, c.claims())
		if !slices.Equal(names(got), tc.want) {
			t.Errorf("%s: %v, want %v", name, names(got), tc.want)
		}
		for _, j := range jobs {
			if left := !slices.Contains(tc.want, j.c.Name); left && c.jobs[j.c.Key()].whyNot == "" {
				t.Errorf("%s: not said of %s why", name, j.c.Name)
			}
		}
	}
}

// TestOneChangeOfAWeight: what a policy wants of a weight gives way to the deal.
func TestOneChangeOfAWeight(t *testing.T) {
	n := newNode(4)
	n.weighted = true
	for i, size := range []float64{3.9, 3.9, 0.1, 0.1} {
		n.sized(fmt.Sprint("job", i), size, 10, 0)
	}
	small := n.sized("small", 1.3, 10, 0)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	seen := false
	run(c, n, 60, func(i int, d Decision) {
		if seen || len(d.Apply) == 0 || !c.deal.Move {
			return
		}
		seen = true
		asked := []policies.Change{
			{Key: small.c.Key(), Name: "small", Knob: runtime.KnobCPUWeight, From: "1024", To: "4096", RateAfter: 1},
			{Key: small.c.Key(), Name: "small", Knob: runtime.KnobCPUQuota, To: "1", RateAfter: 1},
		}
		knobs := map[string]int{}
		all := c.withDeal(asked, c.claims())
		for _, ch := range all {
			knobs[ch.Key+string(ch.Knob)]++
			if ch.Knob == runtime.KnobCPUWeight && (ch.To == "4096" || !c.dealt(ch)) {
				t.Errorf("%+v is not the deal's", ch)
			}
		}
		for k, times := range knobs {
			if times > 1 {
				t.Errorf("%s is named %d times: %+v", k, times, all)
			}
		}
		if knobs[small.c.Key()+string(runtime.KnobCPUQuota)] != 1 || len(all) < 3 || c.dealt(asked[0]) {
			t.Errorf("%+v", all)
		}
	})
	if !seen {
		t.Fatalf("no deal: %+v", c.deal)
	}
}

// TestAnAbandonedPlanGoesBackWhole: a foreign write to any knob of a container ends its
// trial, and nothing of the plan stays, of that container neither.
func TestAnAbandonedPlanGoesBackWhole(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"a", "b"}} {
		n := newNode(4)
		n.weighted = true
		for _, name := range names {
			n.sized(name, 1.2, 10, 0.4)
		}
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		var results []Result
		ended := false
		for range 20 {
			in := n.tick()
			in.Results = results
			if len(results) > 0 && !ended {
				ended = true
				in.Results = append(in.Results, Result{Kind: ResultEnded, Key: n.jobs[0].c.Key(), Text: "memory was set by somebody else"})
			}
			results = n.apply(c.Step(in))
		}
		for _, j := range n.jobs {
			if j.c.Now[runtime.KnobCPUQuota] != "40000 100000" || !ended || len(c.trials) != 0 {
				t.Errorf("%d containers: %s has a quota of %s without a judge", len(names), j.c.Name, j.c.Now[runtime.KnobCPUQuota])
			}
		}
	}
}

// TestOneThatIsRefusedHoldsUpNobody: where a plan of several cannot be carried out, or
// earns nothing, each is tried by itself.
func TestOneThatIsRefusedHoldsUpNobody(t *testing.T) {
	for name, answer := range map[string]func(a string) Result{
		"it is named":                 func(a string) Result { return Result{Refused: true, Key: a} },
		"it failed, and is named":     func(a string) Result { return Result{Key: a} },
		"refused, and none was named": func(string) Result { return Result{Refused: true} },
	} {
		n := newNode(4)
		n.weighted = true
		a, b, x := n.sized("a", 1.2, 10, 0.4), n.sized("b", 0.9, 12, 0.3), n.sized("x", 0.9, 9, 0.35)
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		var results []Result
		refused := 0
		for range 120 {
			in := n.tick()
			in.Results = results
			d := c.Step(in)
			results = nil
			var done Decision
			done.Rollback = d.Rollback
			for _, o := range d.Apply {
				if !slices.ContainsFunc(o.Changes, func(ch policies.Change) bool { return ch.Key == a.c.Key() }) {
					done.Apply = append(done.Apply, o)
					continue
				}
				r := answer(a.c.Key())
				r.Kind, r.Plan, r.Text = ResultApply, o.Plan, "the runtime says no"
				results = append(results, r)
				refused++
			}
			results = append(results, n.apply(done)...)
		}
		for _, j := range []*simJob{b, x} {
			if q, _ := j.c.Now[runtime.KnobCPUQuota].CPUs(); q < j.knee() || c.jobs[j.c.Key()].alone {
				t.Errorf("%s: %s has %.2f CPUs of %.2f: %s", name, j.c.Name, q, j.knee(), c.jobs[j.c.Key()].whyNot)
			}
		}
		if refused == 0 || !c.jobs[a.c.Key()].alone {
			t.Errorf("%s: refused %d times", name, refused)
		}
	}
}

// TestAFailedPlanOfSeveralBlamesNobody, before each has failed by itself.
func TestAFailedPlanOfSeveralBlamesNobody(t *testing.T) {
	n := newNode(4)
	n.weighted = true
	n.sized("a", 1.2, 10, 0.4)
	n.sized("b", 0.9, 12, 0.3)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	var sizes []int
	run(c, n, 90, func(i int, d Decision) {
		for _, o := range d.Apply {
			if sizes = append(sizes, len(o.Changes)); len(sizes) == 1 {
				c.fail(c.trials[o.Plan])
				for _, j := range c.jobs {
					if !j.alone || len(j.failed) != 0 {
						t.Errorf("%s: alone %v, failed %v", j.c.Name, j.alone, j.failed)
					}
				}
				delete(c.trials, o.Plan)
				for _, j := range n.jobs {
					j.c.Now, j.c.Original = j.c.Now.Clone(), nil
					j.c.Now[runtime.KnobCPUQuota] = runtime.QuotaFromCPUs(map[string]float64{"a": 0.4, "b": 0.3}[j.c.Name], quotaPeriod)
				}
			}
		}
	})
	if !slices.Equal(sizes, []int{2, 1, 1}) {
		t.Errorf("plans of %v changes, want one of both and then one of each", sizes)
	}
	for _, j := range n.jobs {
		if q, _ := j.c.Now[runtime.KnobCPUQuota].CPUs(); q < j.knee() {
			t.Errorf("%s has %.2f CPUs of %.2f", j.c.Name, q, j.knee())
		}
	}
}

// TestADonorProvesItself: a plan that takes is final once none of those it takes from
// seems to fall below its due.
func TestADonorProvesItself(t *testing.T) {
	for _, tc := range []struct {
		after        float64
		windows      int
		lost, proved bool
	}{{1.05, 12, false, true}, {1.0, 12, false, true}, {0.9, 12, false, false}, {1.05, 3, false, false}, {0.5, 12, true, false}} {
		c := New(Defaults(), knee.New(knee.Defaults()), "t")
		series := func(n int, from int64, rate float64) (out []trial.Obs) {
			for i := range int64(n) {
				noisy := rate * (1 + 0.12*math.Sin(float64(3*i)))
				out = append(out, trial.Obs{StartNs: from + i*second, EndNs: from + (i+1)*second, Rate: noisy})
			}
			return out
		}
		j := &job{source: "steps", correction: 1, obs: series(tc.windows, 200*second, 10*tc.after)}
		j.c.Name = "donor"
		c.jobs["donor"] = j
		tr := &openTrial{appliedNs: 190 * second, sides: []*side{{key: "donor", source: "steps", before: series(20, 100*second, 10), rate: 10, take: true, due: 1, worth: 1}}}
		lost, proved := c.donors(tr)
		if (lost != "") != tc.lost || proved != tc.proved {
			t.Errorf("%+v: lost %q, proved %v; %+v", tc, lost, proved, tr.sides[0].result)
		}
	}
}

// TestAPlanIsProvedByTheObjective: what is taken above a job's due is lost to the sum
// where more is lost than won, and to max-min where the worst off is worse off than
// anybody was before.
func TestAPlanIsProvedByTheObjective(t *testing.T) {
	for _, tc := range []struct {
		name        string
		objective   policies.Objective
		rates       [2]float64 // normalised, before: of the one that gains, and of the one that gives
		importances [2]int     // 0: the usual, 5
		ratios      [2]float64 // after over before
		lost        string
	}{
		{"more won than lost", policies.ObjectiveSum, [2]float64{0.5, 0.9}, [2]int{}, [2]float64{1.6, 0.9}, ""},
		{"more lost than won", policies.ObjectiveSum, [2]float64{0.2, 0.9}, [2]int{}, [2]float64{1.1, 0.9}, "together they lost"},
		{"the same, and who won matters more", policies.ObjectiveSum, [2]float64{0.2, 0.9}, [2]int{10, 1}, [2]float64{1.5, 0.9}, ""},
		{"the usual importance is 5", policies.ObjectiveSum, [2]float64{0.5, 0.5}, [2]int{5, 0}, [2]float64{1.2, 0.7}, "together they lost"},
		{"the worst off won, the sum lost", policies.ObjectiveMaxMin, [2]float64{0.2, 0.9}, [2]int{}, [2]float64{1.1, 0.9}, ""},
		{"the donor is the worst off now", policies.ObjectiveMaxMin, [2]float64{0.5, 0.55}, [2]int{}, [2]float64{1.6, 0.8}, "gives fell from 10 to 8 steps/s"},
		{"but it matters less", policies.ObjectiveMaxMin, [2]float64{0.5, 0.55}, [2]int{5, 2}, [2]float64{1.6, 0.8}, ""},
		{"by no more than noise", policies.ObjectiveMaxMin, [2]float64{0.5, 0.505}, [2]int{}, [2]float64{1.6, 0.98}, ""},
		{"its curve is not known", policies.ObjectiveMaxMin, [2]float64{0.5, 0}, [2]int{}, [2]float64{1.6, 0.8}, ""},
	} {
		cfg := Defaults()
		cfg.Objective = tc.objective
		c := New(cfg, knee.New(knee.Defaults()), "t")
		tr := &openTrial{appliedNs: 190 * second, earned: true}
		for i, name := range []string{"gains", "gives"} {
			series := func(n int, from int64, rate float64) (out []trial.Obs) {
				for k := range int64(n) {
					out = append(out, trial.Obs{StartNs: from + k*second, EndNs: from + (k+1)*second, Rate: rate})
				}
				return out
			}
			j := &job{key: name, source: "steps", correction: 1, obs: series(20, 200*second, 10*tc.ratios[i])}
			j.c.Name, j.c.Enrolment.Importance = name, tc.importances[i]
			c.jobs[name] = j
			c.deal.Grants = append(c.deal.Grants, arbiter.Grant{Key: name, RateNow: tc.rates[i]})
			due := 0.5 // by right it had half of it
			tr.sides = append(tr.sides, &side{key: name, source: "steps", before: series(20, 100*second, 10), rate: 10, take: i == 1, due: due, worth: c.worth(j), level: c.level(j)})
		}
		lost, proved := c.donors(tr)
		if !strings.HasPrefix(lost, tc.lost) || (lost == "") != (tc.lost == "") || proved != (lost == "") {
			t.Errorf("%s: lost %q, proved %v", tc.name, lost, proved)
		}
	}
}

// TestADealTeachesTheModelNothing: what response curves predict has no part of the CPU
// model's correction in it.
func TestADealTeachesTheModelNothing(t *testing.T) {
	_, c, lowered, raised, _ := dealt(t)
	for _, j := range []*simJob{lowered, raised} {
		if got := c.jobs[j.c.Key()]; got.correction != 1 || len(got.trials) == 0 {
			t.Errorf("%s: corrected by %v after %s", j.c.Name, got.correction, fmt.Sprint(got.trials))
		}
	}
}

// TestPlansShareOneMargin: what a neighbour may lose of its right is not lost again by
// each plan.
func TestPlansShareOneMargin(t *testing.T) {
	n := newNode(5)
	n.weighted = true
	for i, x := range [][3]float64{{0.35, 7.25, 0.3}, {1.86, 6.31, 1}, {1.5, 11.8, 0}, {0.89, 5.49, 0.6}, {1.36, 7.16, 0}} {
		n.sized(fmt.Sprint("job", i), x[0], x[1], x[2])
	}
	n.addSpinner("noise", 0.888)
	c := New(Defaults(), knee.New(knee.Defaults()), "t")
	plans := 0
	run(c, n, 200, func(i int, d Decision) { plans += len(d.Apply) })
	j := c.jobs[n.jobs[1].c.Key()]
	if due := min(j.entitled, n.jobs[1].demand()); plans == 0 || j.used() < 0.965*due {
		t.Errorf("%.3f CPUs of the %.3f it is entitled to and needs, after %d plans", j.used(), due, plans)
	}
}
