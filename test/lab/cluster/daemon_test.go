package cluster

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/trimtab/trimtab/probes"
)

// TestDaemonLendsMemory that it read to be missing: M5's set is 187.5 GB, its limit 62.5. It reads
// again from the second minute on, is lent, and has its files in the third.
func TestDaemonLendsMemory(t *testing.T) {
	m5 := named(t, "M5 (audio)")
	done, err := Run([]Job{{ID: 0, GPUs: 1, WorkS: 1000, Curve: m5}}, 1, SynergyServer(), Daemon(60), 1)
	if err != nil {
		t.Fatal(err)
	}
	without, with := m5.Most(62.5), m5.Most(187.5)
	soonest, latest := 60+(1000-60*without)/with, 140+(1000-140)/with
	if got := done[0].FinishS; got < soonest || got > latest {
		t.Errorf("ends at %.1f s, want %.1f to %.1f: its rate is %.2f without a loan of memory, %.2f with it", got, soonest, latest, without, with)
	}
}

// TestDaemonGivesBack: two AlexNets share a server. What the first was lent while the second was not
// there is called in when it comes, so that the second is no slower than on its share.
func TestDaemonGivesBack(t *testing.T) {
	alex := named(t, "AlexNet")
	jobs := []Job{{ID: 0, GPUs: 4, WorkS: 300, Curve: alex}, {ID: 1, GPUs: 4, SubmitS: 60, WorkS: 60, Curve: alex}}
	done, err := Run(jobs, 1, SynergyServer(), Daemon(60), 1)
	if err != nil {
		t.Fatal(err)
	}
	if took := done[1].FinishS - done[1].StartS; took > 60*(1+1e-6) {
		t.Errorf("the second takes %.2f s, its share makes it 60", took)
	}
	if got, alone := done[0].FinishS, 300/alex.At(6, 62.5); got > 300 || got < alone {
		t.Errorf("the first ends at %.1f s: want less than its share's 300, and more than %.1f with all CPUs", got, alone)
	}
}

// TestCountersAddUp: the states of each thread fill its time, threads ran for as long as their
// cgroup counts, and no counter falls.
func TestCountersAddUp(t *testing.T) {
	all := curves(t)
	var jobs []*Running
	for i, gpus := range []int{1, 2, 3, 2} {
		jobs = append(jobs, &Running{Job: &Job{ID: i, GPUs: gpus, WorkS: 1e6, Curve: &all[(5*i)%len(all)]}})
	}
	d := Daemon(60).New(rand.New(rand.NewPCG(1, 2))).(*daemon)
	before := make([]probes.Sample, len(jobs))
	for now, i := 0.0, 0; i < 200; i++ {
		next := d.Divide(now, SynergyServer(), jobs)
		for k, c := range d.jobs {
			s := c.sample()
			var ran uint64
			for n, th := range s.Kernel.Threads {
				var sum uint64
				for state, ns := range th.Ns {
					if sum += ns; i > 0 && ns < before[k].Kernel.Threads[n].Ns[state] {
						t.Fatalf("second %d: job %d, thread %d: state %d falls", i, k, n, state)
					}
				}
				ran += th.Ns[probes.StateRun]
				if sum != uint64(th.AtNs-th.SinceNs) {
					t.Fatalf("second %d: job %d, thread %d: %d ns of %d", i, k, n, sum, th.AtNs-th.SinceNs)
				}
			}
			if used := float64(s.Cgroup.CPUUsageNs); math.Abs(float64(ran)-used) > 1e-6*used+1e4 {
				t.Fatalf("second %d: job %d: threads ran for %d ns, the cgroup for %.0f", i, k, ran, used)
			}
			if i > 0 && (s.Kernel.Ticks[0].Count < before[k].Kernel.Ticks[0].Count || s.Cgroup.RefaultFile < before[k].Cgroup.RefaultFile) {
				t.Fatalf("second %d: job %d: steps or refaults fall", i, k)
			}
			before[k] = s
		}
		if now += 0.7; next > 0 { // jobs come and go between ticks too
			now = min(now, next)
		}
	}
}
