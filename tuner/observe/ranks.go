package observe

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// Role is what a thread does in its rank.
type Role uint8

// The roles. A relay takes batches from loaders and hands them on (the thread
// that pins memory); a helper computes for the trainer (OpenMP, autograd); a
// communicator moves bytes to and from other ranks for it.
const (
	RoleOther Role = iota
	RoleTrainer
	RoleLoader
	RoleRelay
	RoleHelper
	RoleCommunicator
)

// process is one process's part of a window.
type process struct {
	tgid, ppid int32
	threads    []int // indices into Window.Threads
	runNs      uint64
	belowNs    uint64   // of all processes below it
	startedNs  uint64   // of those that it started or that hand nothing over to it, where it may be a launcher
	programNs  uint64   // of those of them that are both
	latest     *process // the latest of these
	wakes      uint64   // between its threads and those of root
	ticks      uint64   // of a framework, by the source that goes first
	source     int      // that one's place
	calls      uint64   // launches and collectives
	exchanges  uint64   // collectives
	counted    bool     // it was seen to tick or to call, if not in this window
	inMemory   bool     // and trains on what lies in memory
	works      bool     // and starts no others that do in its place
	facts      probes.Process
	told       bool     // facts are known
	root       *process // the nearest that trains, itself or above it
}

// Rank is one training process with its loaders.
type Rank struct {
	Root    int32        // TGID of the training process
	Trainer int          // index into Window.Threads
	Roles   map[int]Role // by index; every thread of the rank
	Loaders int          // loader processes, or loader threads where there are none
	family  family
}

// peer reports whether a process belongs to another rank.
func (r Rank) peer(tgid int32) bool {
	p := r.family.byTGID[tgid]
	return p != nil && p.root != nil && p.root.tgid != r.Root
}

// family is the processes of a window, sorted by TGID.
type family struct {
	all    []*process
	byTGID map[int32]*process
	own    bool   // the job counts its steps itself
	steps  uint64 // these, in the window
}

// processes groups the window's threads.
func processes(w *Window) family {
	f := family{byTGID: map[int32]*process{}}
	for i, t := range w.Threads {
		p := f.byTGID[t.TGID]
		if p == nil {
			p = &process{tgid: t.TGID, ppid: t.PPID}
			f.byTGID[t.TGID], f.all = p, append(f.all, p)
		}
		p.threads = append(p.threads, i)
		p.runNs += t.Ns[probes.StateRun]
	}
	for _, tick := range w.Ticks {
		place, _ := probes.Preference(tick.Source)
		p := f.byTGID[tick.TGID]
		if tick.Steps {
			f.own, f.steps = true, max(f.steps, tick.Count)
		}
		if p == nil || tick.Steps { // a log's count belongs to no process
			continue
		}
		p.inMemory = p.inMemory || probes.InMemory(tick.Source)
		if p.counted = true; tick.Count > 0 && (p.ticks == 0 || place < p.source) {
			p.ticks, p.source = tick.Count, place
		}
	}
	for _, called := range w.Processes {
		if p := f.byTGID[called.TGID]; p != nil {
			p.calls, p.exchanges = called.Launches+called.Graphs+called.Calls, called.Calls
			if called.Exchanged {
				p.calls, p.exchanges = max(p.calls, 1), 1
			}
			p.counted = p.counted || p.calls > 0
		}
	}
	for _, facts := range w.Facts {
		if p := f.byTGID[facts.TGID]; p != nil {
			p.facts, p.told = facts, true
		}
	}
	slices.SortFunc(f.all, func(a, b *process) int { return cmp.Compare(a.tgid, b.tgid) })
	for _, p := range f.all {
		f.above(p, func(up *process) bool { up.belowNs += p.runNs; return false })
	}
	return f
}

// above walks up the process tree, and reports whether one above is; bounded: with PIDs reused a
// window may hold a loop.
func (f family) above(p *process, is func(*process) bool) bool {
	for range 64 {
		up := f.byTGID[p.ppid]
		if up == nil || up == p {
			return false
		}
		if is(up) {
			return true
		}
		p = up
	}
	return false
}

// Ranks finds the training processes and what each thread of theirs does. A process that ticks or
// launches is one, and one that its launcher named a rank; without any, it is the topmost one of
// a tree that works, launchers left out.
func Ranks(k *policies.Constants, w *Window) []Rank {
	f := processes(w)
	roots := f.roots(k, w)
	for _, p := range roots {
		p.root = p
	}
	below := map[*process][]*process{}
	for _, p := range f.all {
		if p.root == nil && f.above(p, func(up *process) bool { p.root = up.root; return up.root == up }) {
			below[p.root] = append(below[p.root], p)
		}
	}
	ranks := make([]Rank, 0, len(roots))
	for _, root := range roots {
		r := Rank{Root: root.tgid, Trainer: trainerThread(w, root), Roles: map[int]Role{}, family: f}
		r.Roles[r.Trainer] = RoleTrainer
		r.processRoles(w, root, below[root])
		if threaded := inProcessRoles(k, w, root, &r); r.Loaders == 0 {
			r.Loaders = threaded
		}
		ranks = append(ranks, r)
	}
	return ranks
}

// roots picks the training processes.
func (f family) roots(k *policies.Constants, w *Window) (roots []*process) {
	for _, o := range f.all {
		f.above(o, func(up *process) bool { up.started(w, o); return false })
	}
	for _, p := range f.all {
		if p.steps(f) {
			roots = append(roots, p)
		}
		p.works = float64(p.runNs) >= k.ActiveShare*float64(w.EndNs-w.StartNs) && !p.launches()
	}
	stepping, works := slices.Clone(roots), func(p *process) bool { return p.works }
	for _, p := range f.all { // of each rank the topmost: loaders and helpers inherit its name
		same := func(o *process) bool { return o.facts.Ranked && o.facts.Rank == p.facts.Rank }
		if p.facts.Ranked && p.works && !slices.ContainsFunc(stepping, same) && !f.above(p, func(up *process) bool { return same(up) && up.works }) {
			roots = append(roots, p)
		}
	}
	if len(roots) > 0 {
		slices.SortFunc(roots, func(a, b *process) int { return cmp.Compare(a.tgid, b.tgid) })
		return roots
	}
	most := uint64(0)
	for _, p := range f.all {
		if p.works && !f.above(p, works) {
			roots, most = append(roots, p), max(most, p.runNs+p.belowNs)
		}
	}
	return slices.DeleteFunc(roots, func(p *process) bool { return float64(p.runNs+p.belowNs) < callerShare*float64(most) })
}

// launcherShare of what runs below it: a process that runs for less starts others and waits.
const launcherShare = 0.05

// started takes in a process below one that may be a launcher.
func (p *process) started(w *Window, below *process) {
	if p.counted || p.runNs >= p.belowNs || p.latest == below { // met again in a loop
		return
	}
	p.latest = below
	started, alone := below.told && !below.facts.Forked, wakesBetween(w, p, below) == 0
	if started && alone {
		p.programNs += below.runNs
	}
	if started || alone {
		p.startedNs += below.runNs
	}
}

// launches reports whether a process starts those that train: it runs for next to nothing beside
// them, or for less than programs that it started and that hand nothing over to it. What its own
// copies hand over may be batches: a trainer that starves runs for little beside its loaders.
func (p *process) launches() bool {
	return float64(p.runNs) < launcherShare*float64(p.startedNs) || p.runNs < p.programNs
}

// callerShare of the largest caller's calls, of one source's largest count, or of the busiest tree's work makes
// a process one that trains, and a thread one that computes: others touch the device once, to see that
// it is there, or serve, as Ray's dashboard does.
const callerShare = 0.05

// steps reports whether a process shows by ticks or calls that it trains. One that
// launches below another that does, and exchanges nothing, prepares data for it.
func (p *process) steps(f family) bool {
	var most, ticks uint64
	best := p.source // a lesser source beside it is a helper's: a loader may run TensorFlow
	for _, o := range f.all {
		if most = max(most, o.calls); o.ticks > 0 && o.source < best {
			best, ticks = o.source, o.ticks
		} else if o.ticks > 0 && o.source == best {
			ticks = max(ticks, o.ticks)
		}
	}
	if p.ticks > 0 && p.source == best && float64(p.ticks) >= callerShare*float64(ticks) {
		return true
	}
	calls := func(o *process) bool { return o.calls > 0 && float64(o.calls) >= callerShare*float64(most) }
	return calls(p) && (p.exchanges > 0 || !f.above(p, func(up *process) bool { return up.ticks > 0 || calls(up) }))
}

// trainerThread is the thread that waits for the device the longest; where none does, the main thread
// if it works a tenth as much as the busiest, or comes to run in each step and works a little; else
// the busiest thread of the process: in C++ and in notebooks the main thread may only wait. A trainer
// whose data one thread makes works 11 % as much as that [measured, test/workloads/threads.py].
func trainerThread(w *Window, p *process) int {
	if i := longestSync(w, p); i >= 0 {
		return i
	}
	busiest := slices.MaxFunc(p.threads, func(i, j int) int {
		return cmp.Compare(w.Threads[i].Ns[probes.StateRun], w.Threads[j].Ns[probes.StateRun])
	})
	for _, i := range p.threads {
		t := w.Threads[i]
		least := 0.1
		if p.ticks > 0 && t.Count[probes.StateRun] >= p.ticks {
			least = 0.03
		}
		if t.TID == t.TGID && float64(t.Ns[probes.StateRun]) >= least*float64(w.Threads[busiest].Ns[probes.StateRun]) {
			return i
		}
	}
	return busiest
}

// longestSync finds the thread that was longest in blocking CUDA calls, of those that launch where
// any does: one that saves a checkpoint waits too; -1: none made two.
func longestSync(w *Window, p *process) int {
	called := w.Calls(p.tgid)
	launches := func(i int) bool { return called.CallsOf(w.Threads[i].TID).Launched > 0 }
	told := slices.ContainsFunc(p.threads, launches)
	best, bestNs := -1, uint64(0)
	for _, i := range p.threads {
		b := called.CallsOf(w.Threads[i].TID)
		if b.Syncs >= 2 && b.SyncNs+b.CopyNs > bestNs && (!told || launches(i)) {
			best, bestNs = i, b.SyncNs+b.CopyNs
		}
	}
	return best
}

// What those that run another program than their rank hand over to it in a step, at least, all
// that bear the same arguments together: data passes as wake-ups in either direction, or as bytes.
const handedBytes, handedWakes = 1 << 10, 0.8

// processRoles says what the processes below a rank's root do for it. One that was forked makes
// batches; one that runs a program of its own may as well compile, or write a log: it makes them if
// steps are seen, and something is handed over in most.
func (r *Rank) processRoles(w *Window, root *process, below []*process) {
	wakes, bytes := map[uint64]uint64{}, map[uint64]uint64{}
	for _, p := range below {
		p.wakes = wakesBetween(w, root, p)
		wakes[p.facts.Args] += p.wakes
		for _, i := range p.threads {
			bytes[p.facts.Args] += w.Threads[i].IOBytes
		}
	}
	for _, p := range below {
		ticks, role := float64(root.ticks), RoleLoader
		switch hands := float64(wakes[p.facts.Args]) >= handedWakes*ticks || float64(bytes[p.facts.Args]) >= handedBytes*ticks; {
		case p.wakes == 0:
			role = RoleOther
		case p.told && !p.facts.Forked && (!hands || !root.counted && !r.family.own):
			role = RoleHelper
		default:
			r.Loaders++
		}
		for _, i := range p.threads {
			r.Roles[i] = role
		}
	}
}

// wakesBetween counts how often threads of two processes ended each other's waits.
func wakesBetween(w *Window, a, b *process) (n uint64) {
	wakes := func(waiter, waker *process) {
		for _, i := range waiter.threads {
			for _, e := range w.Threads[i].Edges {
				if j := w.find(e.Waker); j >= 0 && w.Threads[j].TGID == waker.tgid && e.State != probes.StateChild {
					n += e.Count
				}
			}
		}
	}
	wakes(a, b)
	wakes(b, a)
	return n
}

// helperWork times the trainer's work is no helper's: a team works while the trainer does.
const helperWork = 2

// inProcessRoles gives roles to the other threads of the root process and
// returns how many loader threads it found.
func inProcessRoles(k *policies.Constants, w *Window, root *process, r *Rank) int {
	trainer := w.Threads[r.Trainer]
	steps := cmp.Or(root.ticks, r.family.steps)
	loaders, ticks := 0, max(1, float64(steps))
	wakesTrainer := map[int32]uint64{}
	for _, e := range trainer.Edges {
		wakesTrainer[e.Waker] += e.Count
	}
	communicators(w, root, r)
	called := w.Calls(root.tgid)
	for _, i := range root.threads {
		t := w.Threads[i]
		if _, known := r.Roles[i]; known || wakesTrainer[t.TID] == 0 {
			continue
		}
		switch {
		case called.inMPI(t.TID) > 0:
			r.Roles[i] = RoleCommunicator // Horovod's
		case called.launcher(t.TID):
			r.Roles[i] = RoleHelper // autograd's thread launches the backward pass while the trainer sleeps
		case waitsFor(w, t, func(j int) bool { return r.Roles[j] == RoleLoader }) > 0:
			r.Roles[i] = RoleRelay
		case ownReads(t) >= 0.05*float64(t.WallNs):
			r.Roles[i] = RoleLoader
			loaders++
		case steps > 0 && float64(wakesTrainer[t.TID])/ticks > k.HelperWakes && t.Ns[probes.StateRun] <= helperWork*trainer.Ns[probes.StateRun]:
			r.Roles[i] = RoleHelper
		case float64(t.Ns[probes.StateRun]) < 0.02*float64(t.WallNs):
			// too little work of its own for a loader: a queue's feeder, a timer thread
		case root.inMemory || root.told && !root.counted && (!r.family.own || root.teamed(trainer, t, ticks)):
			r.Roles[i] = RoleHelper // nothing says that it makes batches
		default:
			r.Roles[i] = RoleLoader
			loaders++
		}
	}
	return loaders
}

// teamed reports whether a thread works beside the trainer, as OpenMP's do: they bear its name, since they set none,
// want CPUs as it does, and read nothing. A team that starves spins, and meets its trainer as rarely as a loader.
func (p *process) teamed(trainer, t Thread, ticks float64) bool {
	wants := func(t Thread) uint64 {
		return t.Ns[probes.StateRun] + t.Ns[probes.StateThrottled] + t.Ns[probes.StateQueued]
	}
	return p.facts.OpenMP && t.Comm == trainer.Comm && wants(t) <= helperWork*wants(trainer) && float64(t.IOBytes) < handedBytes*ticks
}

// communicators finds the threads that poll sockets for their process, and those
// that wait for them: gloo has one that polls and several that run collectives.
func communicators(w *Window, root *process, r *Rank) {
	if !w.Exchange().Exchanges() {
		return
	}
	for _, i := range root.threads {
		t := w.Threads[i]
		if polls := endedOutside(w, t, probes.StateInet) + endedOutside(w, t, probes.StatePoll); i != r.Trainer && polls >= 0.3*float64(t.WallNs) {
			r.Roles[i] = RoleCommunicator
		}
	}
	for _, i := range root.threads {
		t := w.Threads[i]
		waits := waitsFor(w, t, func(j int) bool { return r.Roles[j] == RoleCommunicator })
		if _, known := r.Roles[i]; !known && waits > 0 && float64(waits) >= 0.05*float64(t.WallNs) {
			r.Roles[i] = RoleCommunicator
		}
	}
}

// waitsFor is the time a thread waited for threads that is picks, ns.
func waitsFor(w *Window, t Thread, is func(index int) bool) uint64 {
	var ns uint64
	for _, e := range t.Edges {
		if i := w.find(e.Waker); i >= 0 && is(i) {
			ns += e.Ns
		}
	}
	return ns
}

// ownReads is the time a thread spent reading for itself, ns.
func ownReads(t Thread) float64 {
	return float64(t.Ns[probes.StateBlockIO] + t.Ns[probes.StateFile] + t.Ns[probes.StateNetFile] + t.Ns[probes.StateInet])
}

// find returns the index of a living or exited thread by TID, -1 if the window has none.
func (w *Window) find(tid int32) int {
	i, ok := slices.BinarySearchFunc(w.Threads, tid, func(t Thread, id int32) int { return cmp.Compare(t.TID, id) })
	if !ok {
		return -1
	}
	return i
}
