package observe

import (
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// TestRootsBelowLaunchersThatAreNotHere: who trains in trees as the sources of Ray, DeepSpeed and
// Horovod make them. None of them ran here.
func TestRootsBelowLaunchersThatAreNotHere(t *testing.T) {
	const (
		script, gcs, dashboard, raylet, agent, idle = 50, 51, 52, 53, 54, 55 // ray.init()'s
		first, second                               = 100, 300
	)
	named := func(t Thread, comm string) Thread { t.Comm = comm; return t }
	ray := func(workers ...Thread) []Thread { // a worker's title tells what it does; its rank is set in the process itself
		return append([]Thread{running(script, 1, 3*ms), named(running(gcs, script, 14*ms), "gcs_server"), named(running(dashboard, script, 12*ms), "ray-dashboard-"),
			named(running(raylet, script, 20*ms), "raylet"), named(running(agent, raylet, 9*ms), "ray::DashboardA"), named(running(idle, raylet, ms), "ray::IDLE")}, workers...)
	}
	started := func(tgids ...int32) (out []probes.Process) {
		for _, tgid := range tgids {
			out = append(out, probes.Process{TGID: tgid, Args: uint64(tgid)})
		}
		return out
	}
	trains := func(tgid int32) Thread { return named(running(tgid, raylet, 600*ms), "ray::RayTrainWo") }
	backward := func(tgids ...int32) (out []Tick) {
		for _, tgid := range tgids {
			out = append(out, Tick{Source: "torch.backward", TGID: tgid, Count: 10, FromNs: 1, LastNs: 9e8})
		}
		return out
	}
	for name, c := range map[string]struct {
		threads []Thread
		facts   []probes.Process
		ticks   []Tick
		want    []int32
	}{
		"Ray Train": {ray(trains(first), trains(second)), started(script, gcs, dashboard, raylet, agent, idle, first, second), backward(first, second), []int32{first, second}},
		"Ray, steps not counted, beside its own services": {ray(trains(first), trains(second)), started(script, gcs, dashboard, raylet, agent, idle, first, second), nil,
			[]int32{first, second}},
		"Ray, nothing known of processes": {ray(trains(first), trains(second)), nil, nil, []int32{first, second}},
		"Ray Train beside a worker of Ray Data": {ray(trains(first), named(running(second, raylet, 900*ms), "ray::MapBatches")),
			started(script, gcs, dashboard, raylet, agent, idle, first, second), backward(first), []int32{first}},
		"deepspeed, its launch module and the ranks": {
			[]Thread{running(50, 1, ms), running(60, 50, 2*ms), running(first, 60, 600*ms), running(second, 60, 700*ms)},
			append(started(50, 60), ranked(first, 0), ranked(second, 1)), nil, []int32{first, second}},
		"deepspeed that builds an operator in a rank": {
			[]Thread{running(50, 1, ms), running(60, 50, 2*ms), running(first, 60, 20*ms), running(101, first, 5*ms), running(102, 101, 900*ms), running(second, 60, 700*ms)},
			append(started(50, 60), ranked(first, 0), ranked(101, 0), ranked(102, 0), ranked(second, 1)), backward(first, second), []int32{first, second}},
		"horovodrun, a middleman and a shell above each rank": {
			[]Thread{running(50, 1, 9*ms), running(51, 50, 0), running(60, 50, 3*ms), running(61, 60, ms), running(first, 61, 600*ms), running(70, 50, 3*ms), running(71, 70, ms), running(second, 71, 600*ms)},
			append(started(50, 51, 60, 61, 70, 71), ranked(first, 0), ranked(second, 1)), nil, []int32{first, second}},
		"horovodrun, by what the ranks call of NCCL": {
			[]Thread{running(50, 1, 9*ms), running(60, 50, 3*ms), running(first, 60, 30*ms), running(70, 50, 3*ms), running(second, 70, 30*ms)},
			nil, backward(first, second), []int32{first, second}},
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

// TestWaitsForRayData: batches come from workers that raylet started, as it did the trainer, and raylet tells of them.
func TestWaitsForRayData(t *testing.T) {
	const raylet, mapper = 53, 300
	w := oneSecond(running(raylet, 1, 20*ms), running(mapper, raylet, 900*ms), thread(trainer, trainer, raylet, times{probes.StateRun: 300 * ms, probes.StateUnix: 600 * ms}, wait(raylet, probes.StateUnix, 600*ms, 10)))
	w.Facts = []probes.Process{{TGID: raylet}, {TGID: trainer}, {TGID: mapper}}
	w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 10, FromNs: 1, LastNs: 9e8}}
	if r := Read(policies.DefaultConstants(), w, nil); r.Root != trainer || r.Ranks != 1 || r.Breakdown.Input() < 0.55 {
		t.Errorf("rank %d of %d: %v", r.Root, r.Ranks, r.Breakdown)
	}
}

// TestTheThreadThatCallsMPI: Horovod has one that spins in collectives while the trainer waits for it.
func TestTheThreadThatCallsMPI(t *testing.T) {
	w := oneSecond(thread(trainer, trainer, 1, times{probes.StateRun: 300 * ms}, wait(helper, probes.StateFutex, 600*ms, 10)),
		thread(helper, trainer, 1, times{probes.StateRun: 950 * ms}, wait(trainer, probes.StateFutex, 50*ms, 10)))
	w.Processes = []Process{{TGID: trainer, MPINs: 700 * ms, MPITimed: 1000 * ms, MPICaller: helper}}
	w.Ticks = []Tick{{Source: "torch.backward", TGID: trainer, Count: 10, FromNs: 1, LastNs: 9e8}}
	k := policies.DefaultConstants()
	if r := Ranks(k, w)[0]; r.Loaders != 0 || r.Roles[w.find(helper)] != RoleCommunicator {
		t.Errorf("%d loaders, role %d", r.Loaders, r.Roles[w.find(helper)])
	}
	if b := Read(k, w, nil).Breakdown; b.Share(policies.PartCommunication) < 0.4 || b.Input() > 0.01 {
		t.Errorf("%v", b)
	}
}

// TestTeamsOfAJobThatCountsItself: a program with OpenMP that counts its own steps, and whose functions
// nobody knows. Its team is taken for no loaders, however rarely a starving one meets its trainer.
func TestTeamsOfAJobThatCountsItself(t *testing.T) {
	for name, c := range map[string]struct {
		openMP bool
		edit   func(member *Thread)
		meets  uint64 // in two steps
		want   Role
	}{
		"a team that starves":            {true, func(*Thread) {}, 2, RoleHelper},
		"no OpenMP":                      {false, func(*Thread) {}, 2, RoleLoader},
		"no OpenMP, but it meets often":  {false, func(*Thread) {}, 60, RoleHelper},
		"it reads":                       {true, func(m *Thread) { m.IOBytes = 1 << 20 }, 2, RoleLoader},
		"it has a name of its own":       {true, func(m *Thread) { m.Comm = "loader" }, 2, RoleLoader},
		"it works thrice what that does": {true, func(m *Thread) { m.Ns[probes.StateRun], m.Ns[probes.StateThrottled] = 900*ms, 0 }, 2, RoleLoader},
	} {
		member := thread(helper, trainer, 1, times{probes.StateRun: 170 * ms, probes.StateThrottled: 800 * ms})
		c.edit(&member)
		own := times{probes.StateRun: 168 * ms, probes.StateThrottled: 700 * ms}
		if member.Ns[probes.StateThrottled] == 0 {
			own = times{probes.StateRun: 300 * ms}
		}
		w := oneSecond(thread(trainer, trainer, 1, own, wait(helper, probes.StateFutex, 72*ms, c.meets)), member)
		w.Facts = []probes.Process{{TGID: trainer, OpenMP: c.openMP}}
		w.Ticks = []Tick{{Source: "log", TGID: 1, Count: 2, FromNs: 1, LastNs: 9e8, Steps: true}}
		if r := Ranks(policies.DefaultConstants(), w)[0]; r.Roles[w.find(helper)] != c.want || (r.Loaders == 1) != (c.want == RoleLoader) {
			t.Errorf("%s: role %d with %d loaders, want %d", name, r.Roles[w.find(helper)], r.Loaders, c.want)
		}
	}
}
