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
	ticks      uint64 // of a framework, by the source that goes first
	source     int    // that one's place
	calls      uint64 // launches and collectives
	exchanges  uint64 // collectives
}

// Rank is one training process with its loaders.
type Rank struct {
	Root    int32          // TGID of the training process
	Trainer int            // index into Window.Threads
	Roles   map[int]Role   // by index; every thread of the rank
	Loaders int            // loader processes, or loader threads where there are none
	peers   map[int32]bool // processes of other ranks
}

// processes groups the window's threads, sorted by TGID.
func processes(w *Window) []*process {
	byID := map[int32]*process{}
	for i, t := range w.Threads {
		p := byID[t.TGID]
		if p == nil {
			p = &process{tgid: t.TGID, ppid: t.PPID}
			byID[t.TGID] = p
		}
		p.threads = append(p.threads, i)
		p.runNs += t.Ns[probes.StateRun]
	}
	for _, tick := range w.Ticks {
		place, _ := probes.Preference(tick.Source)
		if p := byID[tick.TGID]; p != nil && !tick.Steps && tick.Count > 0 && (p.ticks == 0 || place < p.source) { // a log's count belongs to no process
			p.ticks, p.source = tick.Count, place
		}
	}
	for _, called := range w.Processes {
		if p := byID[called.TGID]; p != nil {
			p.calls, p.exchanges = called.Launches+called.Graphs+called.Calls, called.Calls
			if called.Exchanged {
				p.calls, p.exchanges = max(p.calls, 1), 1
			}
		}
	}
	out := make([]*process, 0, len(byID))
	for _, p := range byID {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *process) int { return cmp.Compare(a.tgid, b.tgid) })
	return out
}

// Ranks finds the training processes and what each thread of theirs does. A
// process that ticks or launches is one; without any, it is the topmost one of a tree that works.
func Ranks(k *policies.Constants, w *Window) []Rank {
	procs := processes(w)
	parent := map[int32]int32{}
	for _, p := range procs {
		parent[p.tgid] = p.ppid
	}
	roots := rankRoots(k, procs, parent, w.EndNs-w.StartNs)
	var ranks []Rank
	for _, root := range roots {
		r := makeRank(k, w, root, procs, parent, roots)
		r.peers = map[int32]bool{}
		for _, p := range procs {
			isPeer := func(id int32) bool {
				return id != root.tgid && slices.ContainsFunc(roots, func(o *process) bool { return o.tgid == id })
			}
			r.peers[p.tgid] = isPeer(p.tgid) || p != root && hasAncestor(p.tgid, parent, isPeer)
		}
		ranks = append(ranks, r)
	}
	return ranks
}

// rankRoots picks the training processes.
func rankRoots(k *policies.Constants, procs []*process, parent map[int32]int32, wallNs int64) []*process {
	var ticking, active []*process
	isActive := map[int32]bool{}
	for _, p := range procs {
		if p.steps(procs, parent) {
			ticking = append(ticking, p)
		}
		isActive[p.tgid] = float64(p.runNs) >= k.ActiveShare*float64(wallNs)
	}
	if len(ticking) > 0 {
		return ticking
	}
	for _, p := range procs {
		if isActive[p.tgid] && !hasAncestor(p.tgid, parent, func(id int32) bool { return isActive[id] }) {
			active = append(active, p)
		}
	}
	return active
}

// callerShare of the largest caller's calls, or of the largest count of one source, makes a process
// one that trains: others touch the device once, to see whether it is there.
const callerShare = 0.05

// steps reports whether a process shows by ticks or calls that it trains. One that
// launches below another that does, and exchanges nothing, prepares data for it.
func (p *process) steps(all []*process, parent map[int32]int32) bool {
	var most, ticks uint64
	best := p.source // a lesser source beside it is a helper's: a loader may run TensorFlow
	for _, o := range all {
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
	if !calls(p) {
		return false
	}
	return p.exchanges > 0 || !hasAncestor(p.tgid, parent, func(id int32) bool {
		return slices.ContainsFunc(all, func(o *process) bool { return o.tgid == id && (o.ticks > 0 || calls(o)) })
	})
}

// hasAncestor walks up the process tree; bounded: with PIDs reused a window may hold a loop.
func hasAncestor(id int32, parent map[int32]int32, is func(int32) bool) bool {
	for range 64 {
		up, ok := parent[id]
		if !ok || up == id {
			return false
		}
		if is(up) {
			return true
		}
		id = up
	}
	return false
}

func makeRank(k *policies.Constants, w *Window, root *process, procs []*process, parent map[int32]int32, roots []*process) Rank {
	r := Rank{Root: root.tgid, Trainer: trainerThread(w, root), Roles: map[int]Role{}}
	r.Roles[r.Trainer] = RoleTrainer
	isRoot := func(id int32) bool {
		return id != root.tgid && slices.ContainsFunc(roots, func(p *process) bool { return p.tgid == id })
	}
	for _, p := range procs {
		below := hasAncestor(p.tgid, parent, func(id int32) bool { return id == root.tgid })
		if p == root || !below || isRoot(p.tgid) || hasAncestor(p.tgid, parent, func(id int32) bool { return isRoot(id) }) {
			continue
		}
		if !handsOver(w, root, p) {
			continue
		}
		r.Loaders++
		for _, i := range p.threads {
			r.Roles[i] = RoleLoader
		}
	}
	threaded := inProcessRoles(k, w, root, &r)
	if r.Loaders == 0 {
		r.Loaders = threaded
	}
	return r
}

// trainerThread is the thread that waits for the device the longest; where none
// does, the main thread if it works a tenth as much as the busiest, or comes to run in
// each step and works a little; else the busiest thread of the process: in C++ and in
// notebooks the main thread may only wait. A trainer whose data one thread makes works
// 11 % as much as that [measured, test/workloads/threads.py].
func trainerThread(w *Window, p *process) int {
	if i := longestSync(w, p); i >= 0 {
		return i
	}
	busiest := p.threads[0]
	for _, i := range p.threads {
		if w.Threads[i].Ns[probes.StateRun] > w.Threads[busiest].Ns[probes.StateRun] {
			busiest = i
		}
	}
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

// longestSync finds the thread that was longest in blocking CUDA calls; -1: none made two.
func longestSync(w *Window, p *process) int {
	best, bestNs := -1, uint64(0)
	for _, i := range p.threads {
		b := w.calls(p.tgid).blocking(w.Threads[i].TID)
		if b.Syncs >= 2 && b.SyncNs+b.CopyNs > bestNs {
			best, bestNs = i, b.SyncNs+b.CopyNs
		}
	}
	return best
}

// handsOver reports whether data passes between a process and the rank's root,
// as wake-ups in either direction.
func handsOver(w *Window, root, p *process) bool {
	in := func(p *process, tid int32) bool {
		return slices.ContainsFunc(p.threads, func(i int) bool { return w.Threads[i].TID == tid })
	}
	wakes := func(waiter, waker *process) bool {
		for _, i := range waiter.threads {
			for _, e := range w.Threads[i].Edges {
				if in(waker, e.Waker) && e.State != probes.StateChild {
					return true
				}
			}
		}
		return false
	}
	return wakes(root, p) || wakes(p, root)
}

// helperWork times the trainer's work is no helper's: a team works while the trainer does.
const helperWork = 2

// inProcessRoles gives roles to the other threads of the root process and
// returns how many loader threads it found.
func inProcessRoles(k *policies.Constants, w *Window, root *process, r *Rank) int {
	trainer := w.Threads[r.Trainer]
	loaders, ticks := 0, max(1, float64(root.ticks))
	wakesTrainer := map[int32]uint64{}
	for _, e := range trainer.Edges {
		wakesTrainer[e.Waker] += e.Count
	}
	communicators(w, root, r)
	for _, i := range root.threads {
		t := w.Threads[i]
		if _, known := r.Roles[i]; known || wakesTrainer[t.TID] == 0 {
			continue
		}
		switch {
		case waitsFor(w, t, func(j int) bool { return r.Roles[j] == RoleLoader }) > 0:
			r.Roles[i] = RoleRelay
		case ownReads(t) >= 0.05*float64(t.WallNs):
			r.Roles[i] = RoleLoader
			loaders++
		case root.ticks > 0 && float64(wakesTrainer[t.TID])/ticks > k.HelperWakes && t.Ns[probes.StateRun] <= helperWork*trainer.Ns[probes.StateRun]:
			r.Roles[i] = RoleHelper
		case float64(t.Ns[probes.StateRun]) < 0.02*float64(t.WallNs):
			// too little work of its own for a loader: a queue's feeder, a timer thread
		default:
			r.Roles[i] = RoleLoader
			loaders++
		}
	}
	return loaders
}

// communicators finds the threads that poll sockets for their process, and those
// that wait for them: gloo has one that polls and several that run collectives.
func communicators(w *Window, root *process, r *Rank) {
	if !w.traffic().Exchanges() {
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
