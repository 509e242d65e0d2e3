package verdict

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe"
)

// member is a thread of process 7 that ran, was out of quota and stood in the queue for so many ms of
// a window of a second, of which so many behind its own.
func member(tid int32, comm string, run, throttled, queued, sibling uint64) observe.Thread {
	t := observe.Thread{TID: tid, TGID: 7, Comm: comm, WallNs: 1e9, SiblingNs: sibling * 1e6}
	t.Ns[probes.StateRun], t.Ns[probes.StateThrottled], t.Ns[probes.StateQueued] = run*1e6, throttled*1e6, queued*1e6
	return t
}

// teamReading is of a rank whose process is 7 and whose first thread is the trainer.
func teamReading(fact probes.Process, threads ...observe.Thread) *observe.Reading {
	return &observe.Reading{Root: 7, Trainer: threads[0], Window: &observe.Window{EndNs: 1e9, Threads: threads, Facts: []probes.Process{{TGID: 3}, fact}}}
}

// TestTeam: threads that compute as the trainer does, and no others, of a process with OpenMP.
func TestTeam(t *testing.T) {
	openMP := probes.Process{TGID: 7, OpenMP: true}
	four := []observe.Thread{member(7, "python", 200, 500, 100, 100), member(8, "python", 200, 600, 0, 0), member(9, "python", 200, 200, 400, 200), member(10, "python", 200, 500, 100, 0)}
	whole := policies.Team{Threads: 4, Wanted: 3.2, Unrun: 2100. / 3200, Behind: 300. / 3200}
	other := member(11, "python", 200, 600, 0, 0)
	other.TGID = 8
	for name, tt := range map[string]struct {
		r    *observe.Reading
		want policies.Team
	}{
		"four":                     {teamReading(openMP, four...), whole},
		"no OpenMP":                {teamReading(probes.Process{TGID: 7}, four...), policies.Team{}},
		"nothing read":             {&observe.Reading{}, policies.Team{}},
		"alone":                    {teamReading(openMP, four[0]), policies.Team{}},
		"hardly at work":           {teamReading(openMP, member(7, "python", 20, 20, 0, 0), member(8, "python", 20, 20, 0, 0)), policies.Team{}},
		"PyTorch's on half a CPU":  {teamReading(openMP, member(7, "python", 200, 800, 0, 0), member(8, "python", 50, 170, 0, 0), member(9, "python", 50, 170, 0, 0)), policies.Team{Threads: 3, Wanted: 1.44, Unrun: 1.14 / 1.44}},
		"a pool with its own name": {teamReading(openMP, append(four[:4:4], member(11, "pool-1", 200, 600, 0, 0))...), whole},
		"a thread that idles":      {teamReading(openMP, append(four[:4:4], member(11, "python", 10, 0, 0, 0))...), whole},
		"another process":          {teamReading(openMP, append(four[:4:4], other)...), whole},
		"threads that make batches for a trainer": {teamReading(openMP, member(7, "python", 100, 100, 0, 0), member(8, "python", 400, 500, 0, 0)), policies.Team{}},
	} {
		if diff := cmp.Diff(tt.want, TeamOf(tt.r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := SharedBytes(teamReading(probes.Process{TGID: 7, SharedBytes: 64 << 20}, four...)); got != 64<<20 {
		t.Errorf("/dev/shm has %v bytes", got)
	}
	if got := NetworkMount(teamReading(probes.Process{TGID: 7, NetworkMount: "/data"}, four...)) + NetworkMount(&observe.Reading{}); got != "/data" {
		t.Errorf("the network mount is %q", got)
	}
	if got := SharedBytes(&observe.Reading{}); got != 0 {
		t.Errorf("nothing read: %v bytes", got)
	}
}

// TestTeamIsSound: whatever threads did, shares are shares.
func TestTeamIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Uint64Range(0, 2000)
		threads := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) observe.Thread {
			return member(7, "x", ms.Draw(t, "run"), ms.Draw(t, "throttled"), ms.Draw(t, "queued"), ms.Draw(t, "sibling"))
		}), 1, 8).Draw(t, "threads")
		got := TeamOf(teamReading(probes.Process{TGID: 7, OpenMP: true}, threads...))
		if got.Threads == 1 || got.Threads > len(threads) || !(got.Wanted >= 0) || math.IsInf(got.Wanted, 0) || !(got.Unrun >= 0) || !(got.Behind >= 0) || got.Unrun+got.Behind > 1+1e-9 {
			t.Fatalf("%+v", got)
		}
	})
}
