package observe

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe/period"
)

// exchange is a container that sends what it receives.
func exchange(w *Window) *Window {
	w.Network = Network{Ns: 1e9, RxBytes: 50e6, TxBytes: 50e6}
	return w
}

// TestCollectiveIsFollowedThroughItsThreads: with gloo the trainer waits for a
// runner, it for a thread that polls the sockets, and that for the wire.
func TestCollectiveIsFollowedThroughItsThreads(t *testing.T) {
	const runner, loop = 102, 103
	w := exchange(oneSecond(
		thread(trainer, trainer, 1, times{probes.StateRun: 400 * ms}, wait(runner, probes.StateFutex, 600*ms, 10)),
		thread(runner, trainer, 1, times{probes.StateRun: 30 * ms}, wait(loop, probes.StateFutex, 550*ms, 40), wait(trainer, probes.StateFutex, 420*ms, 10)),
		thread(loop, trainer, 1, times{probes.StateRun: 20 * ms, probes.StatePoll: 980 * ms}, wait(0, probes.StatePoll, 980*ms, 400)),
	))
	r := Read(policies.DefaultConstants(), w, nil)
	if got := r.Breakdown.Share(policies.PartCommunication); got < 0.5 {
		t.Errorf("communication %.2f of the 0.6 waited: %v", got, r.Breakdown)
	}
	if r.Loaders != 0 {
		t.Errorf("%d loaders: runners of collectives were taken for loader threads", r.Loaders)
	}
}

func TestReaderOfDataIsNoRankOfAJob(t *testing.T) {
	for _, tt := range []struct {
		name string
		net  Network
		part policies.Part
	}{
		{"receives", Network{Ns: 1e9, RxBytes: 100e6, TxBytes: 2e6}, policies.PartInputRemote},
		{"exchanges", Network{Ns: 1e9, RxBytes: 100e6, TxBytes: 90e6}, policies.PartCommunication},
		{"nobody knows", Network{}, policies.PartInputRemote},
	} {
		w := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 400 * ms, probes.StateInet: 600 * ms}, wait(0, probes.StateInet, 600*ms, 100)))
		w.Network = tt.net
		if got := Read(policies.DefaultConstants(), w, nil).Breakdown.Share(tt.part); got < 0.59 {
			t.Errorf("%s: %.2f charged to %s", tt.name, got, tt.part)
		}
	}
}

// TestCheckpointIsNoInput: the trainer waits for a disk that only writes.
func TestCheckpointIsNoInput(t *testing.T) {
	w := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 400 * ms, probes.StateBlockIO: 600 * ms}))
	w.Block = probes.Block{Writes: 100, WriteBytes: 1e9, WriteNs: 6e8}
	if got := Read(policies.DefaultConstants(), w, nil).Breakdown.Input(); got > 0.01 {
		t.Errorf("input %.2f", got)
	}
}

func onDevice(w *Window, sync, spin uint64) *Window {
	w.Processes = []Process{{TGID: trainer, Launches: 1000, LaunchNs: 1e9, Threads: []CallThread{{TID: trainer, Syncs: 10, SyncNs: sync, SyncRunNs: spin, FromNs: 1e7, LastNs: 1e7 + 9e8}}}}
	return w
}

// TestSpinningIsWaiting: a synchronisation that spins is the device's time, whatever
// the CPU says, and no work of the trainer.
func TestSpinningIsWaiting(t *testing.T) {
	spin := Read(policies.DefaultConstants(), onDevice(oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 950 * ms})), 700*ms, 700*ms), nil)
	sleep := Read(policies.DefaultConstants(), onDevice(oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 250 * ms}, wait(0, probes.StateFutex, 700*ms, 10))), 700*ms, 0), nil)
	for name, r := range map[string]Reading{"spins": spin, "sleeps": sleep} {
		if got := r.Breakdown.Share(policies.PartDevice); math.Abs(got-0.7) > 0.01 {
			t.Errorf("%s: device %.2f, want 0.70: %v", name, got, r.Breakdown)
		}
		if math.Abs(r.Cost.TrainerCPU*r.Rate.PerSecond-0.25) > 0.01 {
			t.Errorf("%s: C_t %.4f at %.2f/s, want 0.25 CPUs", name, r.Cost.TrainerCPU, r.Rate.PerSecond)
		}
	}
	if spin.Cost.Spin <= 0 || sleep.Cost.Spin != 0 {
		t.Errorf("S %.4f and %.4f", spin.Cost.Spin, sleep.Cost.Spin)
	}
}

// TestTrainerIsWhoWaitsForTheDevice: in a C++ program the busiest thread may load.
func TestTrainerIsWhoWaitsForTheDevice(t *testing.T) {
	w := onDevice(oneSecond(
		thread(trainer, trainer, 1, times{probes.StateRun: 30 * ms}, wait(0, probes.StateFutex, 800*ms, 10)),
		thread(helper, trainer, 1, times{probes.StateRun: 900 * ms}),
	), 800*ms, 0)
	if got := Read(policies.DefaultConstants(), w, nil).Trainer.TID; got != trainer {
		t.Errorf("trainer is thread %d", got)
	}
}

// steps makes marks of n steps: each of so many synchronisations with launches
// before them, the last with the optimizer's as well.
func steps(n, micro int, launches, optimizer uint64) []probes.Mark {
	var out []probes.Mark
	var total uint64
	for i := range n * micro {
		total += launches
		if i%micro == micro-1 {
			total += optimizer
		}
		out = append(out, probes.Mark{AtNs: int64(i+1) * 1e7, Kind: probes.MarkSync, TID: trainer, Launches: total})
	}
	return out
}

func TestPattern(t *testing.T) {
	for _, tt := range []struct {
		name  string
		marks []probes.Mark
		want  int // marks in a step
	}{
		{"one synchronisation a step", steps(20, 1, 100, 40), 1},
		{"four micro-batches a step", steps(20, 4, 100, 40), 4},
		{"seven", steps(20, 7, 100, 40), 7},
		{"too few", steps(2, 4, 100, 40), 0},
		{"nothing computed", steps(20, 1, 0, 0), 0},
	} {
		if got := period.Find(tt.marks); got.Marks != tt.want {
			t.Errorf("%s: %d marks in a step, want %d", tt.name, got.Marks, tt.want)
		}
	}
}

func TestNoPatternInNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var marks []probes.Mark
		var total uint64
		for i := range 200 {
			total += rapid.Uint64Range(1, 1000).Draw(t, "launches")
			marks = append(marks, probes.Mark{AtNs: int64(i), Kind: probes.MarkSync, Launches: total})
		}
		if got := period.Find(marks); got.Marks != 0 && got.Marks < 20 {
			t.Fatalf("a period of %d in noise", got.Marks)
		}
	})
}

// TestPatternSurvivesOddSteps: a logged value or a checkpoint now and then.
func TestPatternSurvivesOddSteps(t *testing.T) {
	marks := steps(60, 3, 100, 40)
	for i := 90; i < len(marks); i++ {
		marks[i].Launches += 7 // one odd step in the middle
	}
	if got := period.Find(marks); got.Marks != 3 {
		t.Errorf("%d marks in a step, want 3", got.Marks)
	}
}

func TestConfirmedPatternMakesSteps(t *testing.T) {
	w := onDevice(oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 200 * ms}, wait(0, probes.StateFutex, 700*ms, 10))), 700*ms, 0)
	w.Processes[0].Threads[0] = CallThread{TID: trainer, Syncs: 40, SyncNs: 700 * ms, FromNs: 1e7, LastNs: 1e7 + 1e9}
	w.Processes[0].Marks = steps(10, 4, 100, 40)
	first := Read(policies.DefaultConstants(), w, nil)
	if first.PerStep != 4 || first.Rate.Steps || first.Rate.Source != SourceSyncs {
		t.Fatalf("%d ticks per step, %+v", first.PerStep, first.Rate)
	}
	got := Read(policies.DefaultConstants(), w, PerStep{SourceSyncs: 4}).Rate
	if !got.Steps || math.Abs(got.PerSecond-first.Rate.PerSecond/4) > 1e-9 || got.Source == SourceSyncs {
		t.Errorf("%+v", got)
	}
}

func TestJobsOwnCountIsTheBestSource(t *testing.T) {
	w := dataLoaderJob(times{probes.StateRun: 300 * ms})
	w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 12, FromNs: 1, LastNs: 1e9},
		{Source: "log", TGID: 1, Count: 6, FromNs: 1, LastNs: 1e9, Steps: true}}
	r := Read(policies.DefaultConstants(), w, nil)
	if r.Rate.Source != "log" || !r.Rate.Steps || r.Root != trainer {
		t.Errorf("rank %d, %+v", r.Root, r.Rate)
	}
}

// TestSilentCount: no lesser source serves while a job's own count is silent for no longer
// than it is at times; one that stopped is not waited for.
func TestSilentCount(t *testing.T) {
	for name, tc := range map[string]struct {
		silentS, everyS float64
		want            string
	}{
		"as always":                {15, 0, ""},
		"longer than 20 s":         {25, 1, "torch.backward"},
		"it reports each 45 s":     {60, 45, ""},
		"it missed two of its own": {95, 45, "torch.backward"},
	} {
		w := dataLoaderJob(times{probes.StateRun: 300 * ms})
		last := w.EndNs - int64(tc.silentS*1e9)
		w.Ticks = []Tick{{Source: "log", TGID: 1, FromNs: last, LastNs: last, Steps: true, EveryNs: int64(tc.everyS * 1e9)},
			{Source: "torch.backward", TGID: trainer, Count: 12, FromNs: 1, LastNs: 1e9}}
		if got := Read(policies.DefaultConstants(), w, nil).Rate.Source; got != tc.want {
			t.Errorf("%s: counted by %q, want %q", name, got, tc.want)
		}
	}
}

// TestSilentCountBesideOthers: a log that is silent does not hide datagrams that come, nor one rank's
// silence another's count.
func TestSilentCountBesideOthers(t *testing.T) {
	silent := Tick{Source: probes.SourceLog, TGID: 1, FromNs: 1e8, LastNs: 1e8, Steps: true, EveryNs: 200e9}
	for name, tc := range map[string]struct {
		ticks []Tick
		want  string
	}{
		"a log beside datagrams": {[]Tick{silent, {Source: probes.SourceDatagram, TGID: trainer, Count: 8, FromNs: 1, LastNs: 1e9, Steps: true}}, probes.SourceDatagram},
		"the log alone":          {[]Tick{silent}, ""},
	} {
		w := dataLoaderJob(times{probes.StateRun: 300 * ms})
		w.Ticks = append(tc.ticks, Tick{Source: "torch.backward", TGID: trainer, Count: 12, FromNs: 1, LastNs: 1e9})
		if got := Read(policies.DefaultConstants(), w, nil).Rate.Source; got != tc.want {
			t.Errorf("%s: counted by %q, want %q", name, got, tc.want)
		}
	}
}

// TestSlowRankKeepsTheOthersWaiting: a collective's kernel keeps the device busy
// until the last rank has come, so what the others wait in it is not compute.
func TestSlowRankKeepsTheOthersWaiting(t *testing.T) {
	w := oneSecond(
		thread(100, 100, 1, times{probes.StateRun: 200 * ms}, wait(0, probes.StateFutex, 800*ms, 10)),
		thread(300, 300, 1, times{probes.StateRun: 700 * ms}, wait(0, probes.StateFutex, 300*ms, 10)),
	)
	for _, p := range []struct {
		id   int32
		sync uint64
	}{{100, 800 * ms}, {300, 300 * ms}} {
		w.Processes = append(w.Processes, Process{TGID: p.id, Launches: 100, LaunchNs: 1e9, Calls: 10, Bytes: 1e6, Ranks: 2,
			Threads: []CallThread{{TID: p.id, Syncs: 10, SyncNs: p.sync, FromNs: 1, LastNs: 9e8}}})
	}
	r := Read(policies.DefaultConstants(), w, nil)
	if r.Root != 100 || math.Abs(r.Breakdown.Share(policies.PartCommunication)-0.5) > 0.02 {
		t.Errorf("rank %d: %v", r.Root, r.Breakdown)
	}
	if len(r.Peers) != 2 || r.Peers[1].Own < 0.65 {
		t.Errorf("peers %+v", r.Peers)
	}
}

// TestSlowRankWhileCollectivesAreNotCounted: a budget that does not pay for counting them
// leaves what was counted before, and the kernel's word on who came late.
func TestSlowRankWhileCollectivesAreNotCounted(t *testing.T) {
	rank := func(id int32, run, wait uint64) Thread {
		return thread(id, id, 1, times{probes.StateRun: run, probes.StateDevice: wait})
	}
	calls := func(before uint64, missing ...string) *probes.NCCL {
		n := &probes.NCCL{Missing: missing} // the window ends at 1 s
		for _, id := range []int32{100, 300} {
			p := probes.NCCLProcess{TGID: id}
			p.Calls[0], p.LastNs = before, int64(before)*1e7
			n.Processes = append(n.Processes, p)
		}
		return n
	}
	for name, c := range map[string]struct {
		now  *probes.NCCL
		want float64
	}{
		"not counted any more": {calls(40, "collectives: over the budget"), 0.5},
		"counted, and none":    {calls(40), 0},
		"never called":         {calls(0, "collectives: over the budget"), 0},
		"counted in turns":     {calls(40, "collectives: counted 40 % of the time, over the budget"), 0},
	} {
		w := oneSecond(rank(100, 200*ms, 800*ms), rank(300, 700*ms, 300*ms))
		w.Processes = addCollectives(nil, c.now, c.now, w.EndNs)
		r := Read(policies.DefaultConstants(), w, nil)
		if got := r.Breakdown.Share(policies.PartCommunication); r.Ranks != 2 || math.Abs(got-c.want) > 0.02 {
			t.Errorf("%s: %d ranks, %.2f of the time in communication, want %.2f", name, r.Ranks, got, c.want)
		}
	}
}

func TestWireThatIsFullIsNoCompute(t *testing.T) {
	w := onDevice(oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 100 * ms}, wait(0, probes.StateFutex, 900*ms, 10))), 900*ms, 0)
	w.Processes[0].Calls, w.Processes[0].Bytes = 10, 80e6
	w.Network = Network{Ns: 1e9, RxBytes: 80e6, TxBytes: 80e6, Links: []LinkUse{{Name: "eth0", Bytes: 80e6, MaxBps: 100e6}}}
	if got := Read(policies.DefaultConstants(), w, nil).Breakdown.Share(policies.PartCommunication); math.Abs(got-0.8) > 0.02 {
		t.Errorf("communication %.2f, want the link's 0.80", got)
	}
}

func TestDevicesOfAContainer(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	device := func(at int64, duty ...float64) probes.Device {
		d := probes.Device{UUID: "GPU-1", AtNs: at, ClockMHz: f(900), MaxClockMHz: f(1800), Slowdown: []string{"thermal"},
			Processes: []probes.DeviceProcess{{PID: 7, Container: "job", SM: f(0.4)}, {PID: 8, Container: "other", SM: f(0.5)}, {PID: 9}}}
		for i, v := range duty {
			d.Duty = append(d.Duty, probes.DutySample{AtNs: at - int64(i), Share: v})
		}
		return d
	}
	var b sampled
	sample := func(at int64) probes.Sample { return probes.Sample{Container: "job", Kernel: &probes.Kernel{}} }
	b.Add(sample(0), probes.Host{AtNs: 1e9, Devices: []probes.Device{device(1e9)}})
	b.Add(sample(1), probes.Host{AtNs: 2e9, Devices: []probes.Device{device(2e9, 1, 0.5)}})
	w := b.Add(sample(2), probes.Host{AtNs: 3e9, Devices: []probes.Device{device(2e9, 0)}}) // no newer reading, but one more sample
	if len(w.Devices) != 1 {
		t.Fatalf("%+v", w.Devices)
	}
	d := w.Devices[0]
	if d.Samples != 3 || math.Abs(d.Duty-0.5) > 1e-9 || d.Readings != 1 || d.Slowed != 1 || d.SlowedClock != 0.5 || d.Others != 0.5 || len(d.Holders) != 2 {
		t.Errorf("%+v", d)
	}
	if w := b.diff(sample(0), probes.Sample{Container: "stranger"}, probes.Host{}, probes.Host{Devices: []probes.Device{device(1)}}); len(w.Devices) != 0 {
		t.Errorf("a container without a process on the device holds it: %+v", w.Devices)
	}
}

// TestSharedDevices: what a MIG slice does is its holder's, and neither its GPU's nor another slice's;
// the duty of a device that processes share, in turns or by MPS, is of all of them together.
func TestSharedDevices(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	busy := []probes.DutySample{{AtNs: 1, Share: 1}, {AtNs: 2, Share: 1}, {AtNs: 3, Share: 1}}
	on := func(pid int32, key string) []probes.DeviceProcess {
		return []probes.DeviceProcess{{PID: pid, Container: key}}
	}
	var b sampled
	w := b.diff(probes.Sample{Container: "job"}, probes.Sample{Container: "job"}, probes.Host{}, probes.Host{AtNs: 9, Devices: []probes.Device{
		{UUID: "GPU-0", AtNs: 9, Sharing: "mig", Duty: busy, SMActive: f(1), DRAMActive: f(1)},
		{UUID: "MIG-a", Parent: "GPU-0", AtNs: 9, Sharing: "mig", SMActive: f(0.1), DRAMActive: f(0.2), Processes: on(7, "job")},
		{UUID: "MIG-b", Parent: "GPU-0", AtNs: 9, Sharing: "mig", SMActive: f(0.9), DRAMActive: f(0.9), Processes: on(8, "other")},
		{UUID: "GPU-1", AtNs: 9, Sharing: "time-slicing", Duty: busy, Processes: append(on(7, "job"), on(8, "other")...)},
		{UUID: "GPU-2", AtNs: 9, Sharing: "mps", Duty: busy, Processes: append(on(7, "job"), probes.DeviceProcess{PID: 1, SM: f(0.9), Server: true})},
	}})
	want := []Device{
		{UUID: "MIG-a", Activities: 1, SM: 0.1, DRAM: 0.2, Readings: 1, PIDs: []int32{7}},
		{UUID: "GPU-1", Samples: 3, Duty: 1, Readings: 1, PIDs: []int32{7}, Holders: []string{"other"}},
		{UUID: "GPU-2", Samples: 3, Duty: 1, Readings: 1, PIDs: []int32{7}}, // the server is nobody
	}
	if diff := cmp.Diff(want, w.Devices); diff != "" {
		t.Error(diff)
	}
}

// calls gives a process launches and, where it exchanges, collectives.
func calls(w *Window, tgid int32, launches, collectives, sync uint64) {
	w.Processes = append(w.Processes, Process{TGID: tgid, Launches: launches, LaunchNs: 1e9, Calls: collectives,
		Threads: []CallThread{{TID: tgid, Syncs: 10, SyncNs: sync, FromNs: 1, LastNs: 9e8}}})
}

// TestWhoIsNoPeer: a process that touches the device once, or launches for the
// trainer below it, is no rank that anybody waits for.
func TestWhoIsNoPeer(t *testing.T) {
	t.Run("a helper that launched once", func(t *testing.T) {
		w := oneSecond(
			thread(100, 100, 1, times{probes.StateRun: 200 * ms}, wait(0, probes.StateFutex, 800*ms, 10)),
			thread(300, 300, 1, times{probes.StateRun: 900 * ms}),
		)
		calls(w, 100, 1000, 10, 800*ms)
		calls(w, 300, 1, 0, 0)
		if r := Read(policies.DefaultConstants(), w, nil); r.Ranks != 1 || r.Breakdown.Share(policies.PartCommunication) > 0.01 {
			t.Errorf("%d ranks, %v", r.Ranks, r.Breakdown)
		}
	})
	t.Run("loaders that decode on the device", func(t *testing.T) {
		w := dataLoaderJob(times{probes.StateRun: 700 * ms})
		calls(w, trainer, 1000, 0, 100*ms)
		calls(w, loaderA, 500, 0, 0)
		calls(w, loaderB, 500, 0, 0)
		if r := Read(policies.DefaultConstants(), w, nil); r.Ranks != 1 || r.Loaders != 2 || r.Breakdown.Input() < 0.35 {
			t.Errorf("%d ranks, %d loaders, %v", r.Ranks, r.Loaders, r.Breakdown)
		}
	})
	t.Run("a process beside it that serves data", func(t *testing.T) {
		w := oneSecond(
			thread(100, 100, 1, times{probes.StateRun: 250 * ms, probes.StateUnix: 750 * ms}, wait(300, probes.StateUnix, 750*ms, 10)),
			thread(300, 300, 1, times{probes.StateRun: 100 * ms}),
		)
		calls(w, 100, 1000, 0, 0)
		if got := Read(policies.DefaultConstants(), w, nil).Breakdown.Share(policies.PartCommunication); got > 0.01 {
			t.Errorf("communication %.2f", got)
		}
	})
}

// TestDataThatFillsTheLinkIsNoCollective: nobody sends as much as it receives by streaming.
func TestDataThatFillsTheLinkIsNoCollective(t *testing.T) {
	w := onDevice(oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 100 * ms}, wait(0, probes.StateFutex, 850*ms, 10))), 850*ms, 0)
	w.Processes[0].Calls = 10
	w.Network = Network{Ns: 1e9, RxBytes: 75e6, TxBytes: 1e6, Links: []LinkUse{{Name: "eth0", Bytes: 75e6, MaxBps: 125e6}}}
	if got := Read(policies.DefaultConstants(), w, nil).Breakdown.Share(policies.PartCommunication); got > 0.01 {
		t.Errorf("communication %.2f", got)
	}
}

// TestDownloaderInTheProcessIsInput: what a thread of the trainer's polls for may be data.
func TestDownloaderInTheProcessIsInput(t *testing.T) {
	const downloader = 105
	w := oneSecond(
		thread(trainer, trainer, 1, times{probes.StateRun: 200 * ms}, wait(downloader, probes.StateFutex, 800*ms, 10)),
		thread(downloader, trainer, 1, times{probes.StateRun: 10 * ms, probes.StatePoll: 980 * ms}, wait(0, probes.StatePoll, 980*ms, 400)),
	)
	w.Network = Network{Ns: 1e9, RxBytes: 50e6, TxBytes: 1e6}
	if b := Read(policies.DefaultConstants(), w, nil).Breakdown; b.Share(policies.PartInputRemote) < 0.7 {
		t.Errorf("%v", b)
	}
}

// TestNetworkIsReadLessOftenThanWindows: a window without a pass over the sockets
// reads its waits as the one before did.
func TestNetworkIsReadLessOftenThanWindows(t *testing.T) {
	net := func(at int64, bytes uint64) *probes.Network {
		return &probes.Network{AtNs: at, RxBytes: bytes, TxBytes: bytes}
	}
	var b sampled
	add := func(at int64, n *probes.Network) *Window {
		return b.Add(probes.Sample{Kernel: &probes.Kernel{}, Network: n}, probes.Host{AtNs: at})
	}
	add(1e9, net(1e9, 0))
	add(2e9, net(2e9, 10e6))
	b.Cut()
	w := add(3e9, nil)
	if w.Network.Ns != 0 || !w.Exchange().Exchanges() {
		t.Errorf("%+v, traffic %+v", w.Network, w.Traffic)
	}
}

// TestMicroBatchesAreNoSteps: two sources that agree may both come several times in a step.
func TestMicroBatchesAreNoSteps(t *testing.T) {
	w := onDevice(oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 200 * ms}, wait(0, probes.StateFutex, 700*ms, 10))), 700*ms, 0)
	w.Processes[0].Threads[0] = CallThread{TID: trainer, Syncs: 40, SyncNs: 700 * ms, FromNs: 1e7, LastNs: 1e7 + 1e9}
	w.Processes[0].Marks = steps(10, 4, 100, 40)
	w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 40, FromNs: 1e7, LastNs: 1e7 + 1e9}}
	r := Read(policies.DefaultConstants(), w, nil)
	if r.Rate.Steps || r.Tick != "torch.backward" || r.PerStep != 4 {
		t.Errorf("%+v of %q, %d in a step", r.Rate, r.Tick, r.PerStep)
	}
}

// TestTicksThatComeBack: after a hook was off for a minute its ticks do not count over it.
func TestTicksThatComeBack(t *testing.T) {
	w := dataLoaderJob(times{probes.StateRun: 300 * ms})
	w.StartNs, w.EndNs = 60e9, 61e9
	w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 5, FromNs: 1e9, LastNs: 60.9e9}}
	if got := Read(policies.DefaultConstants(), w, nil).Rate.PerSecond; got < 4 {
		t.Errorf("rate %.3f of 5 ticks in a second", got)
	}
}

// TestWholeMultiplesConfirm: what comes a whole number of times in a tick confirms that a tick is a step. What
// comes so often that any number is near a whole one tells nothing.
func TestWholeMultiplesConfirm(t *testing.T) {
	w := &Window{EndNs: second}
	for count, want := range map[float64]int{20: 1, 60: 1, 68: -1, 668: 0, 660: 0, 1500: 0} {
		got, _ := agrees(w, []candidate{{source: SourceSyncs, count: 20, perStep: 1}, {source: SourceHandOffs, count: count}}, 0)
		if got != want {
			t.Errorf("%.1f in a tick: %d, want %d", count/20, got, want)
		}
	}
}

// TestLaunchRateIsOfTheTimeCounted: where the budget lets launches be counted for a part of the window
// they stand for the rest of it, and where for none of it, those from before do. Collectives of the
// same process do not make that forgotten.
func TestLaunchRateIsOfTheTimeCounted(t *testing.T) {
	at := func(launches, ns, graphs, calls uint64) probes.Sample {
		return probes.Sample{Container: "job", Kernel: &probes.Kernel{Threads: []probes.Thread{{TID: trainer, TGID: trainer, AtNs: 1, Ns: [probes.NumStates]uint64{}}}},
			CUDA: &probes.CUDA{Processes: []probes.CUDAProcess{{TGID: trainer, Launches: launches, LaunchNs: ns, Graphs: graphs}}},
			NCCL: &probes.NCCL{Processes: []probes.NCCLProcess{{TGID: trainer, Calls: [probes.NumCollectives]uint64{calls}}}}}
	}
	for name, tt := range map[string]struct {
		after probes.Sample
		want  float64
	}{
		"all along":           {at(30_000+20_000, 1e9+2e9, 0, 5), 10_000},
		"for a tenth":         {at(30_000+2_000, 1e9+2e8, 0, 5), 10_000},
		"graphs beside":       {at(30_000+20_000, 1e9+2e9, 100, 5), 10_050},
		"not at all":          {at(30_000, 1e9, 0, 5), 30_000},
		"counted, none came":  {at(30_000, 1e9+2e9, 0, 5), 0},
		"and graphs alone":    {at(30_000, 1e9+2e9, 100, 5), 50},
		"and none was before": {at(0, 0, 0, 5), 0},
	} {
		before := at(30_000, 1e9, 0, 0)
		if name == "and none was before" {
			before = at(0, 0, 0, 0)
		}
		var d DeltaTracker
		d.Next(before, probes.Host{AtNs: 1, CPUs: 2})
		w := d.Next(tt.after, probes.Host{AtNs: 1 + 2e9, CPUs: 2})
		if got := readRank(w, Rank{Root: trainer, Trainer: 0}, 1, nil).LaunchRate; math.Abs(got-tt.want) > 1e-6*tt.want {
			t.Errorf("%s: %.0f launches a second, want %.0f", name, got, tt.want)
		}
	}
}
