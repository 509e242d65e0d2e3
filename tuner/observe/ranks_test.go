package observe

import (
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// running is one second of a process with one thread.
func running(tgid, ppid int32, run uint64, edges ...probes.Edge) Thread {
	return thread(tgid, tgid, ppid, times{probes.StateRun: run}, edges...)
}

func ranked(tgid, rank int32) probes.Process {
	return probes.Process{TGID: tgid, Rank: rank, Ranked: true}
}

// TestRootsByWhatLaunchersSay: who trains, in trees as launchers make them.
func TestRootsByWhatLaunchersSay(t *testing.T) {
	answer := func(waker int32) probes.Edge { return wait(waker, probes.StatePipe, 300*ms, 20) }
	for name, c := range map[string]struct {
		threads []Thread
		facts   []probes.Process
		ticks   []Tick
		want    []int32
	}{
		"mpirun that runs to forward output": {
			[]Thread{running(50, 1, 40*ms), running(100, 50, 900*ms), running(300, 50, 900*ms)},
			[]probes.Process{{TGID: 50}, ranked(100, 0), ranked(300, 1)}, nil, []int32{100, 300}},
		"each rank below a shell, whose name it inherits": {
			[]Thread{running(50, 1, 10*ms), running(60, 50, 6*ms), running(100, 60, 900*ms), running(70, 50, 6*ms), running(300, 70, 900*ms)},
			[]probes.Process{ranked(60, 0), ranked(100, 0), ranked(70, 1), ranked(300, 1)}, nil, []int32{100, 300}},
		"loaders inherit the rank's name": {
			[]Thread{running(100, 1, 500*ms), running(200, 100, 900*ms, answer(100)), running(201, 100, 900*ms, answer(100))},
			[]probes.Process{ranked(100, 3), ranked(200, 3), ranked(201, 3)}, nil, []int32{100}},
		"a rank that hangs beside one that ticks": {
			[]Thread{running(50, 1, ms), running(100, 50, 500*ms), running(300, 50, 900*ms)},
			[]probes.Process{ranked(100, 0), ranked(300, 1)}, []Tick{{Source: "torch.backward", TGID: 100, Count: 10, FromNs: 1, LastNs: 9e8}}, []int32{100, 300}},
		"a rank that has ended": {
			[]Thread{running(50, 1, ms), running(100, 50, 500*ms), running(300, 50, 0)},
			[]probes.Process{ranked(100, 0), ranked(300, 1)}, nil, []int32{100}},
		"a pool's parent that only hands out work to those that it started": {
			[]Thread{running(50, 1, 30*ms, answer(100)), running(100, 50, 900*ms, answer(50)), running(300, 50, 900*ms, answer(50))},
			[]probes.Process{{TGID: 50}, {TGID: 100}, {TGID: 300}}, nil, []int32{100, 300}},
		"the same where all inherit one rank": {
			[]Thread{running(50, 1, 30*ms, answer(100)), running(100, 50, 900*ms, answer(50)), running(300, 50, 900*ms, answer(50))},
			[]probes.Process{ranked(50, 0), ranked(100, 0), ranked(300, 0)}, nil, []int32{100, 300}},
		"a trainer that starves beside loaders that it forked": {
			[]Thread{running(50, 1, 30*ms, answer(100), answer(300)), running(100, 50, 900*ms, answer(50)), running(300, 50, 900*ms, answer(50))},
			[]probes.Process{{TGID: 50}, {TGID: 100, Forked: true}, {TGID: 300, Forked: true}}, nil, []int32{50}},
		"a shell that waits for what it forked": {
			[]Thread{running(50, 1, 10*ms), running(100, 50, 900*ms), running(300, 50, 900*ms)},
			[]probes.Process{{TGID: 50}, {TGID: 100, Forked: true}, {TGID: 300, Forked: true}}, nil, []int32{100, 300}},
		"a trainer that works a little beside its loaders": {
			[]Thread{running(100, 1, 120*ms, answer(200)), running(200, 100, 900*ms, answer(100)), running(201, 100, 900*ms)},
			nil, nil, []int32{100}},
		"a script that reads what the program that it started prints": {
			[]Thread{running(50, 1, 120*ms), running(100, 50, 600*ms)},
			[]probes.Process{{TGID: 50}, {TGID: 100}}, nil, []int32{100}},
		"a trainer that works less than the program that decodes for it": {
			[]Thread{running(50, 1, 300*ms, answer(100)), running(100, 50, 600*ms, answer(50))},
			[]probes.Process{{TGID: 50}, {TGID: 100}}, nil, []int32{50}},
		"a launcher that outlives its ranks": {
			[]Thread{running(50, 1, 30*ms)}, []probes.Process{{TGID: 50}}, nil, []int32{50}},
	} {
		w := oneSecond(c.threads...)
		w.Facts, w.Ticks = c.facts, c.ticks
		var got []int32
		for _, r := range Ranks(policies.DefaultConstants(), w) {
			got = append(got, r.Root)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: ranks %v, want %v", name, got, c.want)
		}
	}
}

// TestProcessesBelowARank: forked ones make batches, and programs of their own that hand over in
// most steps; the others help.
func TestProcessesBelowARank(t *testing.T) {
	batch := func(n uint64) probes.Edge { return wait(200, probes.StatePipe, 300*ms, n) }
	for name, c := range map[string]struct {
		facts []probes.Process
		wakes uint64
		bytes uint64
		want  Role
	}{
		"nothing is known of it":               {nil, 2, 0, RoleLoader},
		"forked":                               {[]probes.Process{{TGID: 200, Forked: true}}, 2, 0, RoleLoader},
		"a compiler that answers now and then": {[]probes.Process{{TGID: 200}}, 2, 4000, RoleHelper},
		"a decoder that writes a frame a step": {[]probes.Process{{TGID: 200}}, 2, 10 * 4096, RoleLoader},
		"one that answers in each step":        {[]probes.Process{{TGID: 200}}, 9, 0, RoleLoader},
		"one that nobody waits for":            {[]probes.Process{{TGID: 200}}, 0, 1 << 20, RoleOther},
	} {
		var edges []probes.Edge
		if c.wakes > 0 {
			edges = append(edges, batch(c.wakes))
		}
		child := running(200, trainer, 500*ms)
		child.IOBytes = c.bytes
		w := oneSecond(running(trainer, 1, 400*ms, edges...), child)
		w.Facts, w.Ticks = c.facts, []Tick{{Source: "torch.backward", TGID: trainer, Count: 10, FromNs: 1, LastNs: 9e8}}
		r := Ranks(policies.DefaultConstants(), w)[0]
		if got := r.Roles[1]; got != c.want || (r.Loaders == 1) != (c.want == RoleLoader) {
			t.Errorf("%s: role %d with %d loaders, want %d", name, got, r.Loaders, c.want)
		}
	}
}

// TestThreadsOfAProgramWithoutSteps: nothing says that they make batches for the main one.
func TestThreadsOfAProgramWithoutSteps(t *testing.T) {
	w := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 300 * ms}, wait(helper, probes.StateFutex, 700*ms, 5)),
		thread(helper, trainer, 1, times{probes.StateRun: 900 * ms}))
	w.Facts = []probes.Process{{TGID: trainer}}
	r := Read(policies.DefaultConstants(), w, nil)
	if r.Loaders != 0 || r.Breakdown.Share(policies.PartCompute) < 0.9 {
		t.Errorf("%d loaders, %v", r.Loaders, r.Breakdown)
	}
}

// TestThreadsThatComeAndGo: a pool of threads made anew in each step fills the table of wakers with
// such as ended. What has no room in it is laid to what the threads of the process do.
func TestThreadsThatComeAndGo(t *testing.T) {
	pool := func(waker int32, s probes.State) Thread {
		return thread(trainer, trainer, 1, times{probes.StateRun: 50 * ms}, wait(waker, s, 900*ms, 50))
	}
	starves := thread(helper, trainer, 1, times{probes.StateRun: 200 * ms, probes.StateThrottled: 800 * ms})
	for name, c := range map[string]struct {
		threads []Thread
		part    policies.Part
		least   float64
	}{
		"beyond the table's room": {[]Thread{pool(-1, probes.StateOther), starves}, policies.PartThrottled, 0.65},
		"sockets are ended by interrupts": {[]Thread{thread(trainer, trainer, 1, times{probes.StateRun: 50 * ms, probes.StateInet: 900 * ms}, wait(-1, probes.StateOther, 900*ms, 50)), starves},
			policies.PartInputRemote, 0.85},
		"ended by a timer":     {[]Thread{pool(0, probes.StateFutex), starves}, policies.PartOther, 0.9},
		"nobody else is there": {[]Thread{pool(-1, probes.StateOther)}, policies.PartOther, 0.9},
	} {
		w := oneSecond(c.threads...)
		w.Facts = []probes.Process{{TGID: trainer}}
		if r := Ranks(policies.DefaultConstants(), w); len(r) != 1 || r[0].Loaders != 0 {
			t.Fatalf("%s: ranks %+v", name, r)
		} else if b, _ := breakdown(w, r[0], work(w, r[0])); b.Share(c.part) < c.least {
			t.Errorf("%s: %v", name, b)
		}
	}
}

// TestWaitsInMPIAreCommunication: a rank that spins in MPI for two thirds of its time waits for the
// other, which works all along.
func TestWaitsInMPIAreCommunication(t *testing.T) {
	w := oneSecond(running(50, 1, ms), running(100, 50, 960*ms), running(300, 50, 960*ms))
	w.Facts = []probes.Process{ranked(100, 0), ranked(300, 1)}
	prev := &probes.MPI{Processes: []probes.MPIProcess{{TGID: 100, WaitNs: 5e9, CountedNs: 9e9}, {TGID: 300, WaitNs: 1e9, CountedNs: 9e9}}}
	// Timed in half of the second alone.
	cur := &probes.MPI{Processes: []probes.MPIProcess{{TGID: 100, WaitNs: 5e9 + 333e6, CountedNs: 9.5e9, Caller: 100}, {TGID: 300, WaitNs: 1e9 + 5e6, CountedNs: 9.5e9, Caller: 300}, {TGID: 301, WaitNs: 7e9}}}
	w.Processes = addMPI(nil, prev, cur, 1e9)
	r := Read(policies.DefaultConstants(), w, nil)
	if got := r.Breakdown.Share(policies.PartCommunication); r.Root != 100 || got < 0.62 || got > 0.68 {
		t.Errorf("rank %d: communication %.2f of its time, want two thirds of process 100's: %v", r.Root, got, r.Breakdown)
	}
	if r.Peers[1].Own < 0.95 {
		t.Errorf("the late rank's own part is %.2f", r.Peers[1].Own)
	}
	if run := float64(r.Trainer.Ns[probes.StateRun]); float64(r.spinNs) < 0.6*run || float64(r.spinNs) > 0.7*run {
		t.Errorf("%.2f of its CPU time is spinning, want two thirds", float64(r.spinNs)/run)
	}
	joined := joinProcesses(w.Processes, w.Processes)
	if got := joined[0].inMPI(100); len(joined) != 2 || got < 0.66 || got > 0.67 {
		t.Errorf("two such windows: %+v", joined)
	}
	prev = cur
	if got := joinProcesses(w.Processes, addMPI(nil, prev, cur, 1e9))[0].inMPI(100); got < 0.66 || got > 0.67 {
		t.Errorf("after a stretch that was not timed: %.3f of what was", got)
	}
	if got := addMPI(nil, prev, cur, 1e9)[0].inMPI(100); got < 0.56 || got > 0.57 {
		t.Errorf("while nothing is timed: %.3f, want that of all before", got)
	}
	if got := addMPI(nil, prev, cur, 600e9); got[0].inMPI(100) != 0 {
		t.Errorf("ten minutes after the last call: %+v", got[0])
	}
	if got := joined[0].inMPI(101); got != 0 {
		t.Errorf("of a thread that calls nothing: %.2f", got)
	}
	if got := (&Process{}).inMPI(100); got != 0 {
		t.Errorf("where nothing was timed: %.2f", got)
	}
}

// TestStartedLoadersTogether: each of eight serves one step of eight.
func TestStartedLoadersTogether(t *testing.T) {
	var edges []probes.Edge
	var threads []Thread
	w := &Window{}
	for id := int32(200); id < 208; id++ {
		edges = append(edges, wait(id, probes.StatePipe, 50*ms, 2))
		threads = append(threads, running(id, trainer, 500*ms))
		w.Facts = append(w.Facts, probes.Process{TGID: id, Args: 7})
	}
	facts := w.Facts
	w = oneSecond(append(threads, running(trainer, 1, 400*ms, edges...))...)
	w.Facts, w.Ticks = facts, []Tick{{Source: "torch.backward", TGID: trainer, Count: 16, FromNs: 1, LastNs: 9e8}}
	if got := Ranks(policies.DefaultConstants(), w)[0].Loaders; got != 8 {
		t.Errorf("%d loaders, want 8", got)
	}
	for i := range w.Facts { // each a program of its own: none hands over something in most steps
		w.Facts[i].Args = uint64(i)
	}
	if got := Ranks(policies.DefaultConstants(), w)[0].Loaders; got != 0 {
		t.Errorf("%d loaders, want none", got)
	}
}

// TestTeamsOfProgramsThatTrainInMemory: a team that starves spins for what it would sleep else, and
// meets its trainer as rarely as a loader. Where no batches are made, it is a team all the same.
func TestTeamsOfProgramsThatTrainInMemory(t *testing.T) {
	for source, want := range map[string]int{"xgboost.update": 0, "lightgbm.update": 0, "caffe.update": 1, "torch.backward": 1} {
		for _, count := range []uint64{0, 2} { // a long step may end in no window
			w := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 168 * ms, probes.StateThrottled: 700 * ms}, wait(helper, probes.StateFutex, 72*ms, 2)),
				thread(helper, trainer, 1, times{probes.StateRun: 170 * ms, probes.StateThrottled: 800 * ms}))
			w.Facts = []probes.Process{{TGID: trainer}}
			w.Ticks = []Tick{{Source: source, TGID: trainer, Count: count, FromNs: 1, LastNs: 9e8}}
			if got := Ranks(policies.DefaultConstants(), w)[0].Loaders; got != want {
				t.Errorf("%s %d times: %d loaders, want %d", source, count, got, want)
			}
		}
	}
}

// TestLoadersOfAJobThatCountsItself: no framework ticks, but the job tells its steps.
func TestLoadersOfAJobThatCountsItself(t *testing.T) {
	w := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 300 * ms}, wait(helper, probes.StateFutex, 700*ms, 5)),
		thread(helper, trainer, 1, times{probes.StateRun: 900 * ms}))
	w.Facts = []probes.Process{{TGID: trainer}}
	w.Ticks = []Tick{{Source: "log", TGID: 1, Count: 5, FromNs: 1, LastNs: 9e8, Steps: true}}
	if got := Ranks(policies.DefaultConstants(), w)[0].Loaders; got != 1 {
		t.Errorf("%d loaders, want the thread", got)
	}
}

// TestThreadsThatLaunch: one that launches a good part of what the busiest does computes, whatever
// it wakes; others that wake the trainer and work make its batches.
func TestThreadsThatLaunch(t *testing.T) {
	const other = 102
	for name, c := range map[string]struct {
		launched, trainers uint64
		want               Role
	}{
		"none":                                {0, 1000, RoleLoader},
		"as many as the trainer":              {600, 400, RoleHelper},
		"some for each of many threads alike": {50, 50, RoleHelper},
		"a kernel now and then":               {10, 1000, RoleLoader},
	} {
		w := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 600 * ms}, wait(other, probes.StateFutex, 300*ms, 10)),
			thread(other, trainer, 1, times{probes.StateRun: 800 * ms}, wait(trainer, probes.StateFutex, 100*ms, 10)))
		w.Processes = []Process{{TGID: trainer, Launches: 1000, Threads: []CallThread{{TID: trainer, Launched: c.trainers}, {TID: other, Launched: c.launched}}}}
		for tid := int32(200); tid < 230; tid++ {
			w.Processes[0].Threads = append(w.Processes[0].Threads, CallThread{TID: tid, Launched: min(c.launched, 50)})
		}
		w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 10, FromNs: 1, LastNs: 9e8}}
		r := Ranks(policies.DefaultConstants(), w)[0]
		if got := r.Roles[w.find(other)]; got != c.want || w.Threads[r.Trainer].TID != trainer {
			t.Errorf("launches %s: role %v, want %v; trainer %d", name, got, c.want, w.Threads[r.Trainer].TID)
		}
	}
}

// TestTheThreadThatLaunchesTrains: one that saves a checkpoint waits for the device for longer.
func TestTheThreadThatLaunchesTrains(t *testing.T) {
	const saver = 102
	w := oneSecond(running(trainer, 1, 300*ms), thread(saver, trainer, 1, times{probes.StateRun: 100 * ms}))
	w.Processes = []Process{{TGID: trainer, Launches: 500, Threads: []CallThread{
		{TID: trainer, Launched: 500, Syncs: 10, SyncNs: 200 * ms}, {TID: saver, Syncs: 10, SyncNs: 100 * ms, CopyNs: 500 * ms},
	}}}
	if r := Ranks(policies.DefaultConstants(), w)[0]; w.Threads[r.Trainer].TID != trainer {
		t.Errorf("thread %d is the trainer", w.Threads[r.Trainer].TID)
	}
}
