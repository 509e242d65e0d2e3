package verdict

import (
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/observe"
)

const (
	// teamLeast and teamMost bound what a member wants of the CPUs, as factors of what the trainer
	// wants: a team works while the trainer does. One that wants more makes batches. PyTorch's eight on half
	// a CPU want 0.22 of what the main thread does, which works between their loops as well [measured].
	teamLeast, teamMost = 0.1, 2
	// teamActive is the least share of the time in which the trainer wants a CPU.
	teamActive = 0.1
)

// TeamOf finds the team of a rank's trainer: threads of its process that bear its name, as those of
// OpenMP do since they set none, and want CPUs as it does.
func TeamOf(r *observe.Reading) (t policies.Team) {
	f, ok := facts(r)
	if !ok || !f.OpenMP {
		return t
	}
	wants := func(t *observe.Thread) float64 {
		return float64(t.Ns[probes.StateRun] + t.Ns[probes.StateThrottled] + t.Ns[probes.StateQueued])
	}
	trainer, wall := wants(&r.Trainer), float64(r.Window.EndNs-r.Window.StartNs)
	var unrun, behind, all float64
	for i := range r.Window.Threads {
		m := &r.Window.Threads[i]
		want := wants(m)
		if m.TGID != r.Root || m.Comm != r.Trainer.Comm || want < teamLeast*trainer || want > teamMost*trainer {
			continue
		}
		own := float64(min(m.SiblingNs, m.Ns[probes.StateQueued]))
		t.Threads++
		all += want
		unrun += float64(m.Ns[probes.StateThrottled]) + own
		behind += max(0, float64(m.Ns[probes.StateQueued])-own-float64(m.AloneNs))
	}
	if t.Threads < 2 || !(trainer >= teamActive*wall && all > 0 && wall > 0) {
		return policies.Team{}
	}
	t.Wanted, t.Unrun, t.Behind = all/wall, unrun/all, behind/all
	return t
}

// SharedBytes is the size of the /dev/shm of a rank's training process; 0: not known.
func SharedBytes(r *observe.Reading) float64 {
	f, _ := facts(r)
	return float64(f.SharedBytes)
}

// NetworkMount is where a rank's training process sees its only network mount; "": not known.
func NetworkMount(r *observe.Reading) string {
	f, _ := facts(r)
	return f.NetworkMount
}

// facts are what is known of a rank's training process.
func facts(r *observe.Reading) (f probes.Process, ok bool) {
	if r.Window == nil {
		return f, false
	}
	i := slices.IndexFunc(r.Window.Facts, func(f probes.Process) bool { return f.TGID == r.Root })
	if i < 0 {
		return f, false
	}
	return r.Window.Facts[i], true
}
