package observe

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

const ms = uint64(1e6)

// thread makes one second of a thread; what its times leave of the second is an
// idle wait on a futex.
func thread(tid, tgid, ppid int32, times map[probes.State]uint64, edges ...probes.Edge) Thread {
	t := Thread{TID: tid, TGID: tgid, PPID: ppid, StartNs: uint64(tid), Comm: "python3", WallNs: 1e9}
	left := uint64(1e9)
	for s, ns := range times {
		t.Ns[s] = ns
		t.Count[s] = 10
		left -= ns
	}
	t.Ns[probes.StateFutex] += left
	t.Edges = edges
	sortEdges(t.Edges)
	return t
}

func wait(waker int32, s probes.State, ns, count uint64) probes.Edge {
	return probes.Edge{Waker: waker, State: s, Ns: ns, Count: count}
}

func oneSecond(threads ...Thread) *Window {
	w := &Window{StartNs: 0, EndNs: 1e9, HasKernel: true, HostCPUs: 4, Threads: threads}
	sortThreads(w.Threads)
	return w
}

const (
	trainer = 100
	helper  = 101
	loaderA = 200
	loaderB = 201
)

// times abbreviates.
type times = map[probes.State]uint64

func dataLoaderJob(loader times) *Window {
	return oneSecond(
		thread(1, 1, 0, nil), // the container's shell
		thread(trainer, trainer, 1, times{probes.StateRun: 200 * ms, probes.StateTimer: 300 * ms, probes.StateUnix: 400 * ms},
			wait(loaderA, probes.StateUnix, 200*ms, 5), wait(loaderB, probes.StateUnix, 200*ms, 5), wait(0, probes.StateTimer, 300*ms, 10)),
		thread(loaderA, loaderA, trainer, loader, wait(trainer, probes.StatePipe, 100*ms, 5)),
		thread(loaderB, loaderB, trainer, loader, wait(trainer, probes.StatePipe, 100*ms, 5)),
	)
}

func TestRolesOfADataLoaderJob(t *testing.T) {
	ranks := Ranks(policies.DefaultConstants(), dataLoaderJob(times{probes.StateRun: 500 * ms}))
	if len(ranks) != 1 {
		t.Fatalf("%d ranks, want one", len(ranks))
	}
	r := ranks[0]
	got := map[int32]Role{}
	for i, role := range r.Roles {
		got[dataLoaderJob(nil).Threads[i].TID] = role
	}
	want := map[int32]Role{trainer: RoleTrainer, loaderA: RoleLoader, loaderB: RoleLoader}
	if diff := cmp.Diff(want, got); diff != "" || r.Loaders != 2 || r.Root != trainer {
		t.Errorf("rank %+v\n%s", r, diff)
	}
}

// TestWaitIsChargedToWhatLoadersDid: the same wait of the trainer reads
// differently, by what kept the loaders.
func TestWaitIsChargedToWhatLoadersDid(t *testing.T) {
	for _, tt := range []struct {
		name   string
		loader times
		part   policies.Part
	}{
		{"out of quota", times{probes.StateRun: 100 * ms, probes.StateThrottled: 700 * ms}, policies.PartInputThrottled},
		{"behind others", times{probes.StateRun: 100 * ms, probes.StateQueued: 700 * ms}, policies.PartInputContended},
		{"on the disk", times{probes.StateRun: 100 * ms, probes.StateBlockIO: 700 * ms}, policies.PartInputStorage},
		{"in a file", times{probes.StateRun: 100 * ms, probes.StateFile: 700 * ms}, policies.PartInputStorage},
		{"on the network", times{probes.StateRun: 100 * ms, probes.StateInet: 700 * ms}, policies.PartInputRemote},
		{"on a network filesystem", times{probes.StateRun: 100 * ms, probes.StateNetFile: 700 * ms}, policies.PartInputRemote},
		{"decoding", times{probes.StateRun: 800 * ms}, policies.PartInputWorkers},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := Read(policies.DefaultConstants(), dataLoaderJob(tt.loader), nil).Breakdown
			most := policies.PartInputThrottled
			for p := policies.PartInputThrottled; p <= policies.PartInputOther; p++ {
				if b.Ns[p] > b.Ns[most] {
					most = p
				}
			}
			if most != tt.part {
				t.Errorf("charged to %s: %v", most, b)
			}
			if got := b.Input(); math.Abs(got-0.4) > 1e-6 {
				t.Errorf("input %.3f, want the 0.4 s that the trainer waited for loaders", got)
			}
		})
	}
}

// TestQueueBehindWhom: a thread that could run stood behind other work, behind a thread of
// its own container that nobody hindered, or behind nobody on a CPU that took its time.
func TestQueueBehindWhom(t *testing.T) {
	for _, tt := range []struct {
		name           string
		sibling, alone uint64
		idle           float64                   // CPUs of the 4; its own are 0.4
		want           map[policies.Part]float64 // seconds of the trainer
	}{
		{"others", 0, 0, 3.6, map[policies.Part]float64{policies.PartContended: 0.1, policies.PartCompute: 0.2}},
		{"siblings, and nobody else is there", 80 * ms, 0, 3.6, map[policies.Part]float64{policies.PartContended: 0.02, policies.PartCompute: 0.28}},
		{"siblings, and others use half of the rest", 80 * ms, 0, 1.8, map[policies.Part]float64{policies.PartContended: 0.06, policies.PartCompute: 0.24}},
		{"siblings, and others use all the rest", 80 * ms, 0, 0, map[policies.Part]float64{policies.PartContended: 0.1, policies.PartCompute: 0.2}},
		{"nobody", 0, 90 * ms, 3.6, map[policies.Part]float64{policies.PartContended: 0.01, policies.PartCompute: 0.2, policies.PartOther: 0.09}},
		{"more than it queued", 500 * ms, 500 * ms, 3.6, map[policies.Part]float64{policies.PartContended: 0, policies.PartCompute: 0.2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := dataLoaderJob(times{probes.StateRun: 100 * ms})
			w.HostIdle = tt.idle
			th := &w.Threads[w.find(trainer)]
			*th = thread(trainer, trainer, 1, times{probes.StateRun: 200 * ms, probes.StateTimer: 700 * ms, probes.StateQueued: 100 * ms}, wait(0, probes.StateTimer, 700*ms, 10))
			th.SiblingNs, th.AloneNs = tt.sibling, tt.alone
			b := Read(policies.DefaultConstants(), w, nil).Breakdown
			for part, seconds := range tt.want {
				if got := float64(b.Ns[part]) / 1e9; math.Abs(got-seconds) > 1e-6 {
					t.Errorf("%s %.3f s, want %.3f: %v", part, got, seconds, b)
				}
			}
		})
	}
}

// TestRelayThreadPassesTheChargeOn: with pinned memory the trainer waits on a
// futex of a thread of its own, which waits for loaders.
func TestRelayThreadPassesTheChargeOn(t *testing.T) {
	w := oneSecond(
		thread(trainer, trainer, 1, times{probes.StateRun: 300 * ms}, wait(helper, probes.StateFutex, 600*ms, 10)),
		thread(helper, trainer, 1, times{probes.StateRun: 5 * ms, probes.StatePipe: 900 * ms}, wait(loaderA, probes.StatePipe, 900*ms, 10)),
		thread(loaderA, loaderA, trainer, times{probes.StateRun: 200 * ms, probes.StateThrottled: 700 * ms}, wait(trainer, probes.StatePipe, 50*ms, 10)),
	)
	b := Read(policies.DefaultConstants(), w, nil).Breakdown
	if b.Share(policies.PartInputThrottled) < 0.4 || b.Input() < 0.6 {
		t.Errorf("%v", b)
	}
}

// TestOpenMPTeamIsNotALoader: threads that meet the trainer dozens of times a
// step compute for it.
func TestOpenMPTeamIsNotALoader(t *testing.T) {
	w := oneSecond(
		thread(trainer, trainer, 1, times{probes.StateRun: 600 * ms}, wait(helper, probes.StateFutex, 400*ms, 900)),
		thread(helper, trainer, 1, times{probes.StateRun: 500 * ms}, wait(trainer, probes.StateFutex, 500*ms, 900)),
	)
	w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 20, FromNs: 1, LastNs: 1e9}}
	r := Read(policies.DefaultConstants(), w, nil)
	if r.Loaders != 0 || r.Breakdown.Input() > 0 || r.Breakdown.Share(policies.PartCompute) < 0.9 {
		t.Errorf("%d loaders, %v", r.Loaders, r.Breakdown)
	}
}

// TestThreadThatLoadsIsNoTeam: it shares the interpreter's lock with a trainer that works a
// tenth as much, and so meets it often.
func TestThreadThatLoadsIsNoTeam(t *testing.T) {
	for _, run := range []uint64{40 * ms, 90 * ms, 120 * ms} {
		w := oneSecond(
			thread(trainer, trainer, 1, times{probes.StateRun: run}, wait(helper, probes.StateFutex, 1e9-run, 60)),
			thread(helper, trainer, 1, times{probes.StateRun: 980 * ms}, wait(trainer, probes.StateFutex, 20*ms, 60)),
		)
		for i := range w.Threads {
			w.Threads[i].Count[probes.StateRun] = 60
		}
		w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 5, FromNs: 1, LastNs: 1e9}}
		r := Read(policies.DefaultConstants(), w, nil)
		if got := r.Breakdown.Share(policies.PartInputWorkers); r.Loaders != 1 || r.Trainer.TID != trainer || got < 0.8 {
			t.Errorf("a trainer that works %d ms beside a thread of 980: thread %d, %d loaders, %v", run/ms, r.Trainer.TID, r.Loaders, r.Breakdown)
		}
	}
}

func TestRanksOfALauncher(t *testing.T) {
	rank := func(tid int32) Thread {
		return thread(tid, tid, 50, times{probes.StateRun: 500 * ms})
	}
	w := oneSecond(thread(50, 50, 1, times{probes.StateRun: 2 * ms, probes.StateTimer: 900 * ms}), rank(100), rank(300))
	if got := len(Ranks(policies.DefaultConstants(), w)); got != 2 {
		t.Errorf("%d ranks below a launcher that only polls, want 2", got)
	}
}

func TestCostAndKnee(t *testing.T) {
	w := dataLoaderJob(times{probes.StateRun: 300 * ms, probes.StateThrottled: 500 * ms})
	w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 10, FromNs: 1, LastNs: 1e9}}
	r := Read(policies.DefaultConstants(), w, nil)
	if !r.CostOK {
		t.Fatal("no cost")
	}
	c := r.Cost
	for _, x := range []struct {
		name      string
		got, want float64
	}{{"C_t", c.TrainerCPU, 0.020}, {"C_l", c.LoaderCPU, 0.060}, {"w", c.Batch, 0.060}, {"rate", r.Rate.PerSecond, 10}} {
		if math.Abs(x.got-x.want) > 1e-3*x.want {
			t.Errorf("%s = %.4f, want %.4f", x.name, x.got, x.want)
		}
	}
	// D: 300 ms of timer and the 100 ms that nothing explains, over 10 ticks.
	if math.Abs(c.Device-0.040) > 1e-3 {
		t.Errorf("D = %.4f, want 0.040", c.Device)
	}
}

// TestKneeWithoutSteps: where no steps are counted the knee is that of all threads together,
// a quotient of times, and no rate is made up.
func TestKneeWithoutSteps(t *testing.T) {
	// Four threads of one program, each stopped by its quota for three quarters of a second.
	w := &Window{EndNs: 1e9, HasKernel: true, HasCgroup: true, HostCPUs: 8, HostIdle: 7, Cgroup: Cgroup{CPUNs: 1000 * ms, QuotaCPUs: 1}}
	for tid := int32(10); tid < 14; tid++ {
		th := Thread{TID: tid, TGID: 10, PPID: 1, WallNs: 1e9}
		th.Ns[probes.StateRun], th.Ns[probes.StateThrottled] = 250*ms, 750*ms
		w.Threads = append(w.Threads, th)
	}
	r := Read(policies.DefaultConstants(), w, nil)
	if !r.Aggregated || !r.CostOK || r.Rate.PerSecond != 0 {
		t.Fatalf("aggregated %v, cost %v, rate %v", r.Aggregated, r.CostOK, r.Rate)
	}
	if got := r.Breakdown.Share(policies.PartThrottled); math.Abs(got-0.75) > 1e-6 {
		t.Errorf("out of quota for %.2f of the time, want 0.75", got)
	}
	if got := r.Cost.Knee(); math.Abs(got-4) > 1e-6 {
		t.Errorf("a knee of %.2f CPUs, want one for each thread", got)
	}
}

// TestStolenTimeIsNoCost: the clock between two switches holds what the hypervisor took;
// the cgroup's accounting does not. The step stays as long, its CPU is what was paid.
func TestStolenTimeIsNoCost(t *testing.T) {
	read := func(paid uint64) policies.Cost {
		w := dataLoaderJob(times{probes.StateRun: 300 * ms, probes.StateThrottled: 500 * ms})
		w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 10, FromNs: 1, LastNs: 1e9}}
		w.HasCgroup, w.Cgroup.CPUNs = paid > 0, paid
		return Read(policies.DefaultConstants(), w, nil).Cost
	}
	var run uint64
	for _, th := range dataLoaderJob(times{probes.StateRun: 300 * ms, probes.StateThrottled: 500 * ms}).Threads {
		run += th.Ns[probes.StateRun]
	}
	all, stolen := read(run), read(run*3/4)
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s = %.4f, want %.4f", name, got, want)
		}
	}
	near("C_t", stolen.TrainerCPU, 0.75*all.TrainerCPU)
	near("C_l", stolen.LoaderCPU, 0.75*all.LoaderCPU)
	near("C_o", stolen.OtherCPU, 0)
	near("all CPU", stolen.CPU(), float64(run*3/4)/1e9/10)
	near("C_t+D and the queue", stolen.Floor(), all.Floor())
	more := read(run * 5 / 4)
	near("C_t beside work that no thread shows", more.TrainerCPU, all.TrainerCPU)
	near("C_o beside work that no thread shows", more.OtherCPU, float64(run*5/4-run)/1e9/10)
	near("C_t without the cgroup", read(0).TrainerCPU, all.TrainerCPU)
}

// TestQueueOfTheThrottled: a trainer that was throttled queues anew; with quota enough it
// would not, so those turns are no part of the shortest step.
func TestQueueOfTheThrottled(t *testing.T) {
	read := func(queued, throttled uint64) float64 {
		w := dataLoaderJob(times{probes.StateRun: 300 * ms})
		for i := range w.Threads {
			if w.Threads[i].TID == trainer {
				w.Threads[i].Ns[probes.StateQueued] = 120 * ms
				w.Threads[i].Count[probes.StateQueued], w.Threads[i].Count[probes.StateThrottled] = queued, throttled
			}
		}
		w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 10, FromNs: 1, LastNs: 1e9}}
		return Read(policies.DefaultConstants(), w, nil).Cost.Queue
	}
	for _, c := range []struct {
		queued, throttled uint64
		want              float64
	}{{30, 0, 0.012}, {30, 10, 0.008}, {30, 30, 0}, {30, 40, 0}, {0, 0, 0.012}} {
		if got := read(c.queued, c.throttled); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%d of %d waits came of being throttled: %.4f s a step, want %.4f", c.throttled, c.queued, got, c.want)
		}
	}
}

// TestRateFromTheTicksThemselves: the window's edges must not round the rate.
func TestRateFromTheTicksThemselves(t *testing.T) {
	w := dataLoaderJob(times{probes.StateRun: 300 * ms})
	w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 3, FromNs: 1e8, LastNs: 1e8 + 9e8}}
	if got := Read(policies.DefaultConstants(), w, nil).Rate.PerSecond; math.Abs(got-3/0.9) > 1e-9 {
		t.Errorf("rate %.4f, want 3 ticks in 0.9 s", got)
	}
}

// TestPartsSumToTheWhole holds for any threads, edges and reclaim whatever.
func TestPartsSumToTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "threads")
		w := &Window{EndNs: 1e9, HasKernel: true, HostCPUs: 2, HostIdle: rapid.Float64Range(0, 2).Draw(t, "idle"), StealShare: rapid.Float64Range(0, 1).Draw(t, "steal"),
			Block: probes.Block{ReadNs: rapid.Uint64Range(0, 4e9).Draw(t, "reads"), WriteNs: rapid.Uint64Range(0, 4e9).Draw(t, "writes")}}
		for i := range n {
			th := Thread{TID: int32(100 + i), TGID: int32(100 + rapid.IntRange(0, i).Draw(t, "tgid")), PPID: int32(99 + rapid.IntRange(0, n).Draw(t, "ppid")), StartNs: uint64(i)}
			for s := range probes.NumStates {
				th.Ns[s] = rapid.Uint64Range(0, 2e9).Draw(t, "ns")
				th.Count[s] = rapid.Uint64Range(0, 1000).Draw(t, "n")
				th.WallNs += int64(th.Ns[s])
			}
			th.SiblingNs, th.AloneNs = rapid.Uint64Range(0, 3e9).Draw(t, "sibling"), rapid.Uint64Range(0, 3e9).Draw(t, "alone")
			th.ReclaimNs = rapid.Uint64Range(0, 4e9).Draw(t, "reclaim")
			for range rapid.IntRange(0, 4).Draw(t, "edges") {
				th.Edges = append(th.Edges, probes.Edge{Waker: int32(rapid.IntRange(-1, 100+n).Draw(t, "waker")),
					State: probes.State(rapid.IntRange(0, int(probes.NumStates)-1).Draw(t, "state")), Count: 1, Ns: rapid.Uint64Range(0, 3e9).Draw(t, "edge")})
			}
			w.Threads = append(w.Threads, th)
		}
		sortThreads(w.Threads)
		r := Read(policies.DefaultConstants(), w, nil)
		var sum int64
		for p, ns := range r.Breakdown.Ns {
			if ns < 0 {
				t.Fatalf("%s is %d ns", policies.Part(p), ns)
			}
			sum += ns
		}
		if sum != r.Breakdown.WallNs {
			t.Fatalf("parts sum to %d of %d ns", sum, r.Breakdown.WallNs)
		}
	})
}

func sampleAt(ns int64, count uint64) probes.Sample {
	th := probes.Thread{TID: 5, TGID: 5, StartNs: 1, SinceNs: 0, AtNs: ns, Edges: []probes.Edge{{Waker: 7, State: probes.StatePipe, Count: count, Ns: count * 1000}}}
	th.Ns[probes.StateRun] = uint64(ns)
	th.Count[probes.StateRun] = count
	return probes.Sample{Kernel: &probes.Kernel{Threads: []probes.Thread{th}}}
}

// TestJoinedSlicesEqualOneWindow: cutting a stretch into slices loses nothing.
func TestJoinedSlicesEqualOneWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sliced, whole sampled
		at, count := int64(1e9), uint64(10)
		host := func() probes.Host { return probes.Host{AtNs: at, CPUs: 2} }
		whole.Add(sampleAt(at, count), host())
		sliced.Add(sampleAt(at, count), host())
		var got *Window
		for range rapid.IntRange(1, 6).Draw(t, "slices") {
			at += rapid.Int64Range(1e6, 2e9).Draw(t, "dt")
			count += rapid.Uint64Range(0, 50).Draw(t, "dn")
			got = sliced.Add(sampleAt(at, count), host())
		}
		want := whole.Add(sampleAt(at, count), host())
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestExitedThreadsKeepTheirTime: a loader that ends within a window counts whole.
func TestExitedThreadsKeepTheirTime(t *testing.T) {
	var b sampled
	b.Add(sampleAt(1e9, 1), probes.Host{AtNs: 1e9})
	s := sampleAt(2e9, 2)
	gone := probes.Thread{TID: 9, TGID: 9, PPID: 5, StartNs: 3, SinceNs: 11e8, AtNs: 15e8, Exited: true}
	gone.Ns[probes.StateRun] = 4e8
	s.Kernel.Threads = append(s.Kernel.Threads, gone)
	w := b.Add(s, probes.Host{AtNs: 2e9})
	if len(w.Threads) != 2 || w.Threads[1].Ns[probes.StateRun] != 4e8 || w.Threads[1].WallNs != 4e8 {
		t.Fatalf("%+v", w.Threads)
	}
	next := b.Add(sampleAt(3e9, 3), probes.Host{AtNs: 3e9})
	if n := len(next.Threads); n != 2 {
		t.Errorf("%d threads in the joined window, want the ended one still in it", n)
	}
}

// TestThreadsThatEndedAreFolded: any churn of threads keeps a window small, and
// loses no time.
func TestThreadsThatEndedAreFolded(t *testing.T) {
	var b sampled
	at := int64(1e9)
	b.Add(sampleAt(at, 1), probes.Host{AtNs: at})
	var w *Window
	var want uint64
	for tick := range 20 {
		at += 1e9
		s := sampleAt(at, 1)
		for i := range 300 {
			gone := probes.Thread{TID: int32(1000 + 300*tick + i), TGID: 5, PPID: 1, StartNs: uint64(at) + uint64(i), SinceNs: at - 5e6, AtNs: at, Exited: true, Comm: "churn"}
			gone.Ns[probes.StateRun] = 5e6
			want += 5e6
			s.Kernel.Threads = append(s.Kernel.Threads, gone)
		}
		w = b.Add(s, probes.Host{AtNs: at})
	}
	if len(w.Threads) > 2*maxEnded {
		t.Errorf("%d threads kept", len(w.Threads))
	}
	var got uint64
	for _, th := range w.Threads {
		if th.Exited {
			got += th.Ns[probes.StateRun]
		}
	}
	if got != want {
		t.Errorf("%d ns of ended threads, want %d", got, want)
	}
}

// sampled builds windows from samples, as the core does.
type sampled struct {
	DeltaTracker
	Builder
}

func (b *sampled) Add(s probes.Sample, host probes.Host) *Window {
	return b.Builder.Add(b.Next(s, host))
}

// TestEnough: readings in which something held the container back say that it wants more than
// they show, and no more than that.
func TestEnough(t *testing.T) {
	type part struct {
		n    int
		cpus float64
		held bool
	}
	for name, c := range map[string]struct {
		parts       []part
		share, want float64
	}{
		"a share of all":                        {[]part{{9, 1, false}, {1, 3, false}}, 0.9, 1},
		"less than that share":                  {[]part{{8, 1, false}, {2, 3, false}}, 0.9, 3},
		"others take the CPU half of the time":  {[]part{{20, 0.2, true}, {10, 1, false}}, 0.9, 1},
		"its quota stops it once in a while":    {[]part{{19, 1, false}, {1, 1.1, true}}, 0.9, 1},
		"its quota stops it too often":          {[]part{{16, 1, false}, {4, 1.1, true}}, 0.9, 0},
		"a smaller quota once stopped it":       {[]part{{5, 0.4, true}, {4, 0.9, false}, {6, 1, false}}, 0.9, 1},
		"it was stopped at more than it used":   {[]part{{10, 1, false}, {10, 2, true}, {10, 3, false}}, 0.9, 3},
		"no share that was stopped is left out": {[]part{{99, 1, false}, {1, 1.1, true}}, 1, 0},
		"nothing but held ones":                 {[]part{{20, 1, true}}, 0.9, 0},
		"a quota stops its bursts":              {[]part{{5, 2, true}, {5, 1, false}}, 0.9, 0},
		"none":                                  {nil, 0.9, 0},
	} {
		var uses []Use
		for _, p := range c.parts {
			for range p.n {
				uses = append(uses, Use{Wanted: p.cpus, Held: p.held})
			}
		}
		if got := Enough(uses, c.share, 0.05); math.Abs(got-1.05*c.want) > 1e-9 {
			t.Errorf("%s: %.3f CPUs, want %.3f", name, got, 1.05*c.want)
		}
	}
}

// TestWants: others that take the CPU now and then leave readings in which it had what it wanted,
// under whatever quota; two that stop it say that it wants more than those which used no more.
func TestWants(t *testing.T) {
	k := policies.DefaultConstants()
	for name, c := range map[string]struct {
		readings string // f: it uses 1 of 2 CPUs; w: it waits for others; q: they stop it; o: a quota of 0.4 stops it
		want     int
	}{
		"lent, called in, and lent again": {"oofffoofff", 4}, // of the first after a change a part is of another quota
		"at rest":                         {"ffff", 4},
		"others come and go":              {"ffwwffwwff", 6},
		"its quota stops it once":         {"fffqff", 5},
		"its quota stops it":              {"fffqqff", 2},
		"it is stopped now":               {"ffffqq", 0},
		"stopped, and then waits":         {"ffqqwwf", 1},
	} {
		var s State
		for i, r := range c.readings {
			use := map[rune]Use{'f': {CPUs: 1, Quota: 2}, 'w': {CPUs: 0.2, Quota: 2, Waiting: 0.9}, 'q': {CPUs: 2, Quota: 2, Throttled: true}, 'o': {CPUs: 0.4, Quota: 0.4, Throttled: true}}[r]
			use.StartNs, use.EndNs = int64(i)*second, int64(i+1)*second
			use.Held = r != 'f' || i > 0 && s.Uses[i-1].Quota != use.Quota
			s.Uses = append(s.Uses, use)
		}
		if got := len(Free(s.Wants(k))); got != c.want {
			t.Errorf("%s: %d free readings, want %d", name, got, c.want)
		}
	}
}
