package control

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/verdict"
)

// bursts is a program that rests, computes some CPU seconds on all its threads at once, and rests again,
// many times a second: what its quota does to it shows in the periods of 0.1 s, and not in the mean of a second.
type bursts struct {
	work, rest float64 // CPU s of one burst; s between two
	left, idle float64 // of the present ones
	done       float64 // bursts in the latest second
}

// addBursts adds one whose bursts run on so many threads.
func (n *node) addBursts(name string, quota float64, threads int, work, rest float64) *simJob {
	j := n.addProgram(name, quota, float64(threads), 0)
	j.bursts = &bursts{work: work, rest: rest, idle: rest}
	return j
}

// mean is its mean use of the CPUs where a burst has so many.
func (b *bursts) mean(cpus float64) float64 { return b.work / (b.work/cpus + b.rest) }

// advance makes one second of counters, period by period, as CFS deals a quota. Who gets less than its quota
// from others computes as much slower.
func (b *bursts) advance(j *simJob, n *node, cpus float64) float64 {
	const step, period = 0.001, 0.1
	threads, quota := float64(len(j.threads)), j.quota()
	used, out, queued, stopped := 0.0, 0.0, 0.0, 0
	speed := threads
	if cpus < j.demand()-1e-6 {
		speed = b.work / (b.work/cpus - b.rest)
	}
	b.done = 0
	for range 10 {
		budget, throttled := math.Inf(1), false
		if quota > 0 {
			budget = quota * period
		}
		for range int(period / step) {
			switch {
			case b.idle > 0:
				b.idle -= step
			case budget <= 1e-9:
				throttled, out = true, out+step*threads
			default:
				ran := min(speed*step, b.left, budget)
				queued += ran * (threads/speed - 1)
				budget, b.left, used = budget-ran, b.left-ran, used+ran
			}
			if b.idle <= 0 && b.left <= 1e-9 {
				b.done++
				b.left, b.idle = b.work*math.Exp(0.1*n.rng.NormFloat64()), b.rest*math.Exp(0.1*n.rng.NormFloat64())
			}
		}
		if throttled {
			stopped++
		}
	}
	if j.cgroup.Throttling == nil {
		j.cgroup.Throttling = []probes.Throttling{{}}
	}
	t := append([]probes.Throttling(nil), j.cgroup.Throttling...)
	t[0].QuotaUs, t[0].PeriodUs = int64(quota*quotaPeriod), quotaPeriod
	t[0].Periods, t[0].Throttled = t[0].Periods+10, t[0].Throttled+uint64(stopped)
	j.cgroup.Throttling, j.cgroup.CPUUsageNs = t, j.cgroup.CPUUsageNs+uint64(used*1e9)
	j.cgroup.CPU.SomeUs += uint64(1e6 * (out + queued) / threads)
	for i := range j.threads {
		th := &j.threads[i]
		th.AtNs = n.nowNs
		th.Ns[probes.StateRun] += uint64(used / threads * 1e9)
		th.Ns[probes.StateThrottled] += uint64(out / threads * 1e9)
		th.Ns[probes.StateQueued] += uint64(queued / threads * 1e9)
		th.Ns[probes.StateFutex] += uint64(max(0, 1-(used+out+queued)/threads) * 1e9)
	}
	j.lastCPUsUsed = used
	return used
}

// follow runs a job for some minutes, and returns the writes of its quota, and the bursts a second after the
// first minute.
func (j *simJob) follow(c *Controller, n *node, seconds int) (writes int, rate float64) {
	run(c, n, seconds, func(i int, d Decision) {
		if i == 60 {
			rate = 0
		}
		rate += j.bursts.done
		for _, o := range d.Apply {
			if slices.ContainsFunc(o.Changes, func(ch policies.Change) bool { return ch.Knob == runtime.KnobCPUQuota }) {
				writes++
			}
		}
	})
	return writes, rate / float64(seconds-60)
}

// TestBurstsAreLentWhatTheyNeed: a quota far above the mean of a second stops bursts. With its loan they lose
// hardly any work, after few writes, and less is lent than could be.
func TestBurstsAreLentWhatTheyNeed(t *testing.T) {
	for name, tt := range map[string]struct {
		cpus, threads     int
		quota, work, rest float64
	}{
		"a render":        {2, 2, 0.4, 0.1, 0.6},
		"of one thread":   {4, 1, 0.3, 0.08, 0.2},
		"on four threads": {4, 4, 0.5, 0.2, 0.7},
		"short, of eight": {8, 8, 1, 0.2, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(has float64, loans policies.LoanMode, seed uint64) (quota float64, writes int, rate float64) {
				n := newNode(tt.cpus)
				n.rng = rand.New(rand.NewPCG(seed, 2))
				j := n.addBursts("bursts", has, tt.threads, tt.work, tt.rest)
				j.c.Enrolment.Loans = loans
				writes, rate = j.follow(started(), n, 300)
				return j.quota(), writes, rate
			}
			_, _, own := with(tt.quota, policies.LoansOff, 0)
			_, _, best := with(float64(tt.cpus), policies.LoansOff, 0)
			var writes, rate, quota float64
			const runs = 5 // they differ by chance
			for seed := range uint64(runs) {
				q, w, r := with(tt.quota, policies.LoansFree, seed)
				quota, writes, rate = quota+q/runs, writes+float64(w)/runs, rate+r/runs
			}
			t.Logf("%.2f/s of %.2f with its own and %.2f at best, %.1f writes, %.2f CPUs at the end", rate, own, best, writes, quota)
			if own > 0.95*best {
				t.Error("its own quota costs it nothing: nothing is tested")
			}
			if rate < 0.98*best || writes > 12 || quota < tt.quota || quota > 0.8*float64(tt.cpus) {
				t.Error("too slow, written too often, or lent too much")
			}
		})
	}
}

// TestBurstsThatEnd: what does not come any more is no reason to keep what it was lent, and what comes in none
// is settled by its mean as ever.
func TestBurstsThatEnd(t *testing.T) {
	n := newNode(4)
	j := n.addBursts("ends", 0.5, 4, 0.2, 0.7)
	c := started()
	j.follow(c, n, 75)
	l := &c.containers[j.c.Key()].loan
	if v := shownAs(t, c, j); j.quota() <= 0.5 || v.Bursts != l.stopped || v.Bursts == 0 || v.Knee != 0 {
		t.Fatalf("%.2f CPUs, stopped by %.2f, a knee of %.2f", j.quota(), v.Bursts, v.Knee)
	}
	told := func(v policies.Verdict) bool {
		return slices.ContainsFunc(v.Evidence, func(e policies.Evidence) bool { return e.Name == verdict.Knee })
	}
	s := c.containers[j.c.Key()]
	if v := shownAs(t, c, j); !told(s.verdicts.Shown()) || !told(s.verdicts.Latest()) || told(v.Verdict) || told(v.WindowVerdict) {
		t.Errorf("a knee is among the evidence, or was in none: %+v, %+v", v.Verdict, s.verdicts.Shown())
	}
	left := 60*l.doubled(c.k()) + 70 // a minute of readings settles what is left
	j.bursts.work = 0.01
	j.follow(c, n, int(left))
	if v := shownAs(t, c, j); j.quota() != 0.5 || v.Bursts != 0 {
		t.Errorf("%.2f CPUs stand %.0f s after the last burst", j.quota(), left)
	}
	n = newNode(4)
	j = n.addJob("steady", 0.4, tune())
	c = started()
	run(c, n, 120, func(int, Decision) {
		if l := c.containers[j.c.Key()].loan; l.stopped != 0 {
			t.Fatalf("a steady job is told to work in bursts: %+v", l)
		}
	})
}

// TestALargerStopIsForgotten: what a large quota once stopped is not kept by what a smaller one stops.
func TestALargerStopIsForgotten(t *testing.T) {
	n := newNode(4)
	j := n.addBursts("bursts", 0.5, 4, 0.2, 0.7)
	j.c.Enrolment.Loans = policies.LoansOff
	c := started()
	j.follow(c, n, 65)
	l := &c.containers[j.c.Key()].loan
	if l.stopped != 0.5 {
		t.Fatalf("stopped by %.2f CPUs", l.stopped)
	}
	l.stopped = 3
	j.follow(c, n, 75)
	if l.stopped != 0.5 {
		t.Errorf("%.2f CPUs are told to have stopped it of late", l.stopped)
	}
}

// TestAStopWaitsForATrial: what a quota stopped is not forgotten while a trial gives and takes.
func TestAStopWaitsForATrial(t *testing.T) {
	n := newNode(4)
	j := n.addBursts("bursts", 0.5, 4, 0.2, 0.7)
	c := started()
	j.follow(c, n, 65)
	s := c.containers[j.c.Key()]
	stopped, at := s.loan.stopped, s.loan.stoppedNs
	j.bursts.work, s.plan = 0.01, "open"
	for range 600 {
		c.Step(n.tick())
	}
	if s.loan.stopped != stopped || s.loan.stoppedNs < at+590*second {
		t.Errorf("%.2f CPUs stopped it at %d, and %.2f at %d after ten minutes of a trial", stopped, at/second, s.loan.stopped, s.loan.stoppedNs/second)
	}
}

// TestBurstsBesideOthers: a job that works in bursts keeps its loan beside ones that do not. Those settle as
// they do alone, and who has a right to CPUs gets them back within seconds, as from any borrower.
func TestBurstsBesideOthers(t *testing.T) {
	settled := func(beside bool) float64 {
		n := newNode(4)
		j := n.addJob("train", 0.4, tune())
		if beside {
			n.addBursts("bursts", 0.5, 4, 0.2, 0.7)
		}
		c := started()
		run(c, n, 180, nil)
		if l := c.containers[j.c.Key()].loan; l.stopped != 0 || l.tooLittle != 0 {
			t.Errorf("beside bursts: %v: a steady job is told of bursts: %+v", beside, l)
		}
		return j.quota()
	}
	if alone, beside := settled(false), settled(true); math.Abs(beside/alone-1) > 0.05 {
		t.Errorf("a steady job settles at %.2f CPUs alone, and at %.2f beside bursts", alone, beside)
	}
	for _, weighted := range []bool{true, false} {
		n := newNode(4)
		n.weighted = weighted
		j := n.addBursts("bursts", 1.2, 4, 0.9, 0.4) // lent enough it uses 1.4 on the mean, and 0.8 under its own quota
		other := n.addSpinner("neighbour", 0.01)
		other.c.Now[runtime.KnobCPUQuota] = "280000 100000"
		c := started()
		run(c, n, 90, nil)
		if j.quota() <= 1.2 {
			t.Fatalf("weighted %v: nothing is lent", weighted)
		}
		other.spin = 2.8
		var got []float64
		run(c, n, 60, func(int, Decision) { got = append(got, other.lastCPUsUsed) })
		for i := 5; i+5 <= len(got); i++ {
			if got[i]+got[i+1]+got[i+2]+got[i+3]+got[i+4] < 5*0.97*2.8 {
				t.Fatalf("weighted %v: in the 5 s from second %d on the neighbour has less than the 2.8 CPUs it has a right to: %.2f", weighted, i, got)
			}
		}
		other.spin = 0.01
		best := 1 / (j.bursts.work/4 + j.bursts.rest)
		if writes, rate := j.follow(c, n, 240); j.quota() <= 1.2 || rate < (1-c.k().Notable)*best || writes > 12 {
			t.Errorf("weighted %v: after its neighbour %.2f CPUs, %.2f/s of %.2f, %d writes", weighted, j.quota(), rate, best, writes)
		}
	}
}
