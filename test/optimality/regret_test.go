package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/rivals"
	"github.com/trimtab/trimtab/test/workload"
)

func TestMixesAreWhatTheyAreCalled(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range mixes() {
		for _, j := range m.jobs {
			if asleep := slices.Contains(j.args, "blocking"); j.gpus > 0 && asleep == (m.name == "spinning") {
				t.Errorf("mix %s: job %s waits for its device asleep: %v", m.name, j.name, asleep)
			}
		}
		if n := len(m.jobs); n < 4 || n > 8 || seen[m.name] || m.phases < 1 || m.phases > 2 {
			t.Errorf("%s: %d jobs, %d phases", m.name, n, m.phases)
		}
		seen[m.name] = true
		names := map[string]bool{}
		for _, j := range m.jobs {
			if names[j.name] {
				t.Errorf("%s: two jobs are called %s", m.name, j.name)
			}
			names[j.name] = true
		}
	}
	if len(seen) < 6 {
		t.Errorf("%d mixes, want six at least", len(seen))
	}
	for _, name := range append(rivals.Names(), nameStatic, nameBest) {
		if kindOf(name) == kindTrimtab {
			t.Errorf("%s is taken for a policy", name)
		}
	}
}

// node of three jobs on two CPUs under the one-jump model, shared as the kernel does:
// quotas first, then by weight.
func model(a alloc, need []float64) (rates, used []float64) {
	weights, caps := make([]float64, len(need)), make([]float64, len(need))
	for i := range need {
		w, _ := a[i][runtime.KnobCPUWeight].Int()
		weights[i], caps[i] = float64(w), need[i]
		if q, ok := a[i][runtime.KnobCPUQuota].CPUs(); ok {
			caps[i] = min(caps[i], q)
		}
	}
	used = make([]float64, len(need))
	left := 2.0
	for range 20 {
		var sum float64
		for i := range need {
			if used[i] < caps[i]-1e-9 {
				sum += weights[i]
			}
		}
		if sum == 0 || left < 1e-9 {
			break
		}
		part := left
		for i := range need {
			if used[i] < caps[i]-1e-9 {
				give := min(part*weights[i]/sum, caps[i]-used[i])
				used[i] += give
				left -= give
			}
		}
	}
	for i := range need {
		rates = append(rates, used[i]/need[i])
	}
	return rates, used
}

const looksAtMost = 12

func TestSearchFindsTheBest(t *testing.T) {
	m := mix{phases: 1, jobs: []job{{name: "a"}, {name: "b"}, {name: "c"}}}
	owner := alloc{}
	for range m.jobs {
		owner = append(owner, runtime.Values{runtime.KnobCPUQuota: runtime.QuotaFromCPUs(0.66, runtime.DefaultPeriodUs), runtime.KnobCPUWeight: "1024", runtime.KnobCpuset: "0-1"})
	}
	for _, tc := range []struct {
		need []float64
		want float64
	}{{[]float64{1.5, 0.2, 0.2}, 3}, {[]float64{0.5, 0.5, 0.5}, 3}, {[]float64{1.8, 0.6, 0.3}, 1 + 1 + 1.1/1.8}} {
		looks := 0
		best, n, err := search(m, looksAtMost, starts(m, owner, nil), func(c *candidate) error {
			looks++
			rates, used := model(c.alloc, tc.need)
			sum, _ := sumMin(m, rates)
			c.sum, c.normalised, c.cpus, c.fair, c.looks = sum, rates, used, true, c.looks+1
			return nil
		})
		if err != nil || n != looks || n > looksAtMost+finalists {
			t.Errorf("%d looks, said %d, %v", looks, n, err)
		}
		if best.sum < tc.want-0.02 {
			t.Errorf("needs %v: found %.3f (%s), the best is %.3f", tc.need, best.sum, best.name, tc.want)
		}
	}
}

func TestSearchLeavesUnfairAllocationsOut(t *testing.T) {
	m := mix{phases: 1, jobs: []job{{name: "a"}, {name: "b"}}}
	owner := alloc{{runtime.KnobCPUQuota: "100000 100000", runtime.KnobCPUWeight: "1024"}, {runtime.KnobCPUQuota: "100000 100000", runtime.KnobCPUWeight: "1024"}}
	best, _, err := search(m, looksAtMost, starts(m, owner, nil), func(c *candidate) error {
		_, limited := c.alloc[0][runtime.KnobCPUQuota].CPUs()
		c.sum, c.fair, c.normalised, c.cpus = 1, limited, []float64{0.5, 0.5}, []float64{1, 1}
		if !limited {
			c.sum = 2
		}
		return nil
	})
	if err != nil || !best.fair || best.sum != 1 {
		t.Errorf("%+v, %v", best, err)
	}
}

func TestReached(t *testing.T) {
	rolling := [][]float64{{1}, {2}, {3}, {2}}
	first := func(rates []float64) float64 { return rates[0] }
	if got := reached(rolling, first, 3); got != (rollWindow + 2*rollStep).Seconds() {
		t.Errorf("%.1f s", got)
	}
	if got := reached(rolling, first, 4); got >= 0 {
		t.Errorf("%.1f s for what never came", got)
	}
	if m := medianReached([]float64{3, -1, 5}); m != 5 {
		t.Errorf("median %.1f", m)
	}
	if m := medianReached([]float64{3, -1, -1}); m >= 0 {
		t.Errorf("median %.1f of what mostly never came", m)
	}
}

func TestEntitled(t *testing.T) {
	m := mix{jobs: []job{{name: "a"}, {name: "s", stranger: true}}}
	static := stretch{Rates: []float64{10, 100}, CPUs: []float64{0.5, 1.5}}
	got := entitled(m, []float64{9, 50}, []float64{0.4, share(m)}, static)
	if got[0] != 0.9 || math.Abs(got[1]-1) > 1e-9 {
		t.Errorf("%v: a stranger's due is its share, not what it had of others'", got)
	}
}

// TestJudge holds goals against made-up runs: steady at the best, worse than a rival,
// and a starved job that gains.
func TestJudge(t *testing.T) {
	m := mix{name: "x", phases: 1, jobs: []job{{name: "h", starved: true}, {name: "l"}}}
	s := &session{mix: m, alone: []float64{30, 25}, o: options{policies: []string{defaultPolicy, "free"}}}
	add := func(policy string, repeat int, h, l float64, late int) {
		r := run{Policy: policy, Repeat: repeat, Steady: stretch{Rates: []float64{h, l}, CPUs: []float64{1, 0.1}}, lastEnd: []float64{h, l}}
		r.Whole = r.Steady
		for i := range 40 {
			rate := 10.0
			if i >= late {
				rate = h
			}
			r.rolling = append(r.rolling, []float64{rate, l})
		}
		s.runs = append(s.runs, r)
	}
	for i := 1; i <= 3; i++ {
		d := 0.05 * float64(i)
		add(nameStatic, i, 10, 25, 0)
		add(nameBest, i, 29+d, 25, 0)
		add(defaultPolicy, i, 28.5+d, 25, 8)
		add("free", i, 30+d, 25, 0)
	}
	rep := s.judge()
	if rep.Limit != nameBest {
		t.Errorf("the limit is %q", rep.Limit)
	}
	want := map[int]string{0: "met", 1: "MISS", 2: "met", 3: "MISS", 4: "met"}
	if len(rep.Goals) != len(want) {
		t.Fatalf("%+v", rep.Goals)
	}
	for i, w := range want {
		if rep.Goals[i].Result != w {
			t.Errorf("%s: %s (%s), want %s", rep.Goals[i].What, rep.Goals[i].Result, rep.Goals[i].Why, w)
		}
	}
	if l := rep.Lines[2]; l.Policy != defaultPolicy || math.Abs(l.After-6) > 1e-9 || math.Abs(l.Starved-2.86) > 0.01 || l.Within != 10 {
		t.Errorf("%+v", l)
	}
}

// Where something is to be gained over a rival, the default policy has to gain; where
// the search found less than equal shares have, those are the limit.
func TestJudgeOfWhatIsToGain(t *testing.T) {
	m := mix{name: "x", phases: 1, jobs: []job{{name: "h"}, {name: "l"}}}
	for name, tc := range map[string]struct {
		equal, best, knee, free float64 // rates of h
		limit, gain             string  // the result of the goal on gain; "": there is none
	}{
		"gained":                {10, 30, 29.5, 24, nameBest, "met"},
		"nothing gained":        {10, 30, 24, 24.5, nameBest, "MISS"},
		"nothing is to gain":    {10, 30, 29.5, 29.8, nameBest, ""},
		"the search found less": {30, 25, 29.5, 29.8, nameStatic, ""},
	} {
		s := &session{mix: m, alone: []float64{30, 25}, o: options{policies: []string{defaultPolicy, "free"}}}
		for i := 1; i <= 3; i++ {
			d := 0.05 * float64(i)
			for policy, rate := range map[string]float64{nameStatic: tc.equal, nameBest: tc.best, defaultPolicy: tc.knee, "free": tc.free} {
				r := run{Policy: policy, Repeat: i, Steady: stretch{Rates: []float64{rate + d, 25}, CPUs: []float64{1, 0.1}}, lastEnd: []float64{rate, 25}}
				r.Whole = r.Steady
				s.runs = append(s.runs, r)
			}
		}
		rep := s.judge()
		got := ""
		for _, g := range rep.Goals {
			if strings.Contains(g.What, "better than free") {
				got = g.Result
			}
		}
		if rep.Limit != tc.limit || got != tc.gain {
			t.Errorf("%s: limit %q, goal on gain %q: %+v", name, rep.Limit, got, rep.Goals)
		}
	}
}

// What no allocation gives a starved job is asked of no policy.
func TestJudgeOfStarvedJobs(t *testing.T) {
	m := mix{name: "x", phases: 1, jobs: []job{{name: "h", starved: true}, {name: "l"}}}
	for _, tc := range []struct {
		best, knee float64 // rates of h; equal shares give it 10
		want       string
	}{{30, 29, "met"}, {30, 14, "MISS"}, {15, 14, "no goal"}, {15, 29, "met"}} {
		s := &session{mix: m, alone: []float64{30, 25}, o: options{policies: []string{defaultPolicy}}}
		for policy, rate := range map[string]float64{nameStatic: 10, nameBest: tc.best, defaultPolicy: tc.knee} {
			end := stretch{Rates: []float64{rate, 25}, CPUs: []float64{1, 0.1}}
			s.runs = append(s.runs, run{Policy: policy, Repeat: 1, Steady: end, Whole: end, lastEnd: end.Rates, rolling: [][]float64{{10, 25}, {rate, 25}}})
		}
		goals := s.judge().Goals
		i := slices.IndexFunc(goals, func(g goal) bool { return strings.Contains(g.What, "a starved job") })
		if i < 0 || goals[i].Result != tc.want {
			t.Errorf("%+v: %+v", tc, goals)
		}
	}
}

func TestTakesCountsAll(t *testing.T) {
	o := options{policies: []string{"knee", "free"}, repeats: 3, seconds: 26, measure: 10, still: 6, look: 4, looks: 6}
	if got := o.takes(mixes()[0]); got < 3*time.Minute || got > 7*time.Minute {
		t.Errorf("%s", got)
	}
}

// drawn is a trace of jobs at one step of CPU each, idle the CPUs that nobody used.
func drawn(seconds int, idle float64, jobs ...func(i int) workload.CPUState) *trace {
	t := &trace{states: make([][]workload.CPUState, len(jobs))}
	for i := range int(time.Duration(seconds) * time.Second / traceStep) {
		at := time.Duration(i) * traceStep
		t.idle = append(t.idle, time.Duration(idle*float64(at)))
		for j, of := range jobs {
			s := of(i)
			s.At = at
			t.states[j] = append(t.states[j], s)
		}
	}
	return t
}

// stoppedJob is stopped in every period from one sample on, and raised at another.
func stoppedJob(from, raised int) func(int) workload.CPUState {
	return func(i int) workload.CPUState {
		s := workload.CPUState{Quota: 0.5, Periods: int64(i), Throttled: int64(max(0, i-from)), Used: time.Duration(i) * traceStep / 2}
		if i >= raised {
			s.Quota = 1
		}
		return s
	}
}

func TestGrantsAreDueWhileCPUIsIdle(t *testing.T) {
	for _, tt := range []struct {
		name string
		idle float64
		job  func(int) workload.CPUState
		want []float64
	}{
		{"raised after two seconds", cpus(), stoppedJob(20, 40), []float64{2.9}},
		{"never raised", cpus(), stoppedJob(20, 1000), []float64{4.8}},
		{"never stopped", cpus(), stoppedJob(1000, 40), nil},
		{"nothing idle", 0.1 * cpus(), stoppedJob(20, 40), nil},
	} {
		got := drawn(6, tt.idle, tt.job).grants(0)
		if len(got) != len(tt.want) || len(got) > 0 && math.Abs(got[0]-tt.want[0]) > 0.15 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestLeastOfOwn: less CPU for as many steps is no loss; less of both is.
func TestLeastOfOwn(t *testing.T) {
	half := func(i int) workload.CPUState { return workload.CPUState{Used: time.Duration(i) * traceStep / 4} }
	rate := func(perSecond float64) func(from, to time.Duration) float64 {
		return func(from, to time.Duration) float64 { return perSecond }
	}
	for _, tt := range []struct {
		name string
		of   own
		want float64
	}{
		{"all steps", own{0.5, 10, rate(9.9)}, 0.99},
		{"fewer steps", own{0.5, 10, rate(6)}, 0.6},
		{"steps are not counted", own{0.5, 0, nil}, 0.5},
		{"its whole CPU, of dearer steps", own{0.25, 10, rate(6)}, 1},
	} {
		if got, _ := drawn(8, 0, half).least([]own{tt.of}); math.Abs(got-tt.want) > 0.01 {
			t.Errorf("%s: %.3f, want %.3f", tt.name, got, tt.want)
		}
	}
}
