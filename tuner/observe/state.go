package observe

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// keepReadings bounds what is remembered of one container: five minutes of it.
const keepReadings = 300

const second = int64(1e9)

// State is what is known of one container from its samples: windows, series of rates, of
// use and of memory. It is used from one goroutine.
type State struct {
	Uses   []Use        // one a tick
	Memory []MemoryTick // likewise
	Work   Work         // relative witnesses of progress
	Rates  Series       // of the counted source
	// Latest is the reading of the latest closed window; Windows counts them.
	Latest  Reading
	Windows uint64
	// PeakCPUs is the most CPUs that it wanted in a reading, since PeakNs; 0: none came yet.
	PeakCPUs float64
	PeakNs   int64
	// LaunchedNs is the latest use of a device, by anybody of the container.
	LaunchedNs int64
	Paused     bool // its engine said so since the latest sample; the caller sets it

	differ    DeltaTracker
	window    Builder // until enough ticks are in
	long      Builder // since the latest change of resources, for the cost
	perStep   PerStep // confirmed ticks per step, by source
	pattern   patternSeen
	changedNs int64
	root      int32 // TGID of the rank that trained last
	wokeNs    int64 // end of the latest slice in which that one did not sleep as if it were stopped
}

// News is what one sample brought.
type News struct {
	Closed *Reading    // of a window that it filled
	Rate   *RateSample // a new reading of the rate
}

// Add takes in a sample. stolen is the share of the machine's CPU time that its hypervisor
// usually takes: what is taken beyond that by more than MaxSteal is no evidence. fixed: ticks per step
// are not to be learned now, since a rate is being compared in today's unit.
func (s *State) Add(k *policies.Constants, sample probes.Sample, host probes.Host, watched bool, stolen float64, fixed bool) (news News) {
	s.LaunchedNs = max(s.LaunchedNs, sample.CUDA.LatestNs())
	slice := s.differ.Next(sample, host)
	if slice == nil || slice.EndNs <= slice.StartNs {
		return News{}
	}
	excessSteal := slice.StealShare > stolen+k.MaxSteal
	s.addMemory(slice)
	if !watched {
		s.addUse(k, slice, Reading{})
		return news
	}
	now := Read(k, slice, s.perStep)
	s.noteStop(k, slice, now.Root)
	s.addUse(k, slice, now)
	settled := cmp.Or(s.Latest.Rate.Source, s.Rates.Source) // the latest window may have too few steps to tell
	news.Rate = s.Rates.add(k, slice, s.perStep, settled, stolen+k.MaxSteal)
	if s.Rates.paused {
		s.long.Cut()
	}
	if slice.HasKernel {
		s.Work.add(slice, s.Uses[len(s.Uses)-1], excessSteal, s.Rates.Source)
	}
	long := s.long.Add(slice)
	if excessSteal {
		s.long.Cut()
	}
	w := s.window.Add(slice)
	if w.Seconds() < k.WindowSeconds {
		return news
	}
	r := Read(k, w, s.perStep)
	if r.Rate.Ticks < k.MinTicks && w.Seconds() < longest(k, r, s.Windows == 0) {
		return news
	}
	s.window.Cut()
	r = withLongCost(k, r, long, s.perStep)
	if long.Seconds() > k.CostSeconds {
		s.long.Cut()
	}
	s.learnPattern(r, fixed)
	s.Rates.confirm(r)
	r.Rate.Steps = s.Rates.Confirmed && r.Rate.Source == s.Rates.Source
	s.Latest = r
	s.Windows++
	news.Closed = &s.Latest
	return news
}

// noteStop notes whether somebody stopped the job in a slice: no window holds both. One in sigwait sleeps as a stopped one does: where nothing
// is counted, and no signal was at work, that is no stop while others work, and who still does once loaders must have run out of work is the job.
func (s *State) noteStop(k *policies.Constants, slice *Window, root int32) {
	counted, latest := Counted(s.Rates.Source), cmp.Or(s.Latest.Root, s.root, root)
	signalled := slices.ContainsFunc(slice.Threads, func(t Thread) bool { return t.TGID == s.root && t.Stopped })
	if !slice.halted(s.root) {
		s.wokeNs = slice.EndNs
	}
	switch asleep := slice.EndNs - s.wokeNs; {
	case s.Latest.Sure(), asleep == 0 && !slice.halted(latest):
		s.root = latest
	case !counted && !signalled && float64(asleep) > k.WindowMaxSeconds*1e9:
		s.root = cmp.Or(root, s.root)
	}
	slice.Stopped, s.Paused = s.Paused || slice.halted(s.root) && (counted || signalled || root == 0 || root == s.root), false
	if slice.Stopped != s.Stopped() {
		s.window.Cut()
		s.long.Cut()
	}
}

// longest is how long a window may wait for its steps. Where hardly any is seen, a container
// that wants CPUs most of the time is told by shares of time within seconds; of one that sleeps
// a third of the longest tells as much. The first one tells a class by shares too once it holds a whole step.
func longest(k *policies.Constants, r Reading, first bool) float64 {
	switch few := r.Rate.Ticks < needTicks; {
	case first && r.Sure(), (first || few) && r.Aggregated && r.Cost.Device < 1-k.Dominant:
		return 2 * k.WindowSeconds
	case !few:
		return k.WindowMaxSeconds
	}
	return k.WindowMaxSeconds / 3
}

// withLongCost takes the cost from the whole stretch at the present resources:
// within a few seconds loaders may make more batches than the trainer takes, as
// prefetched ones fill or drain, and a step would seem dearer or cheaper than it is.
func withLongCost(k *policies.Constants, r Reading, long *Window, known PerStep) Reading {
	if long == nil || long.EndNs-long.StartNs <= r.Window.EndNs-r.Window.StartNs {
		return r
	}
	if l := Read(k, long, known); l.CostOK && l.Rate.Source == r.Rate.Source {
		r.Cost, r.CostOK = l.Cost, true
	}
	return r
}

// ResourcesChanged says that other resources stand from now on: no window holds both.
func (s *State) ResourcesChanged(nowNs int64) {
	s.changedNs = nowNs
	s.window.Cut()
	s.long.Cut()
	s.Rates.cut(nowNs)
}

// ChangedNs is when resources last changed.
func (s *State) ChangedNs() int64 { return s.changedNs }

// patternSeen counts windows in a row whose calls showed the same ticks per step.
type patternSeen struct {
	source  string
	perStep int
	windows int
}

// agreeing is how many windows must say the same before it is believed.
const agreeing = 3

// learnPattern adopts ticks per step once windows agree on it.
func (s *State) learnPattern(r Reading, fixed bool) {
	if r.PerStep == 0 || max(1, s.perStep[r.Tick]) == r.PerStep {
		s.pattern = patternSeen{}
		return
	}
	if s.pattern.source != r.Tick || s.pattern.perStep != r.PerStep {
		s.pattern = patternSeen{source: r.Tick, perStep: r.PerStep}
	}
	if s.pattern.windows++; s.pattern.windows < agreeing || fixed {
		return
	}
	known := PerStep{}
	maps.Copy(known, s.perStep)
	known[r.Tick] = r.PerStep
	s.perStep, s.pattern = known, patternSeen{}
	s.window.Cut()
	s.Rates.cut(s.changedNs)
}

// Forget drops how many ticks of the job that ended made a step: another's may take others.
func (s *State) Forget() { s.perStep, s.pattern = nil, patternSeen{} }

// keep drops the oldest. Whoever holds an older slice of them sees no change: append copies
// them to new room now and then.
func keep[T any](all []T) []T { return all[max(0, len(all)-keepReadings):] }

// last are the latest n, or all.
func last[T any](all []T, n int) []T { return all[max(0, len(all)-n):] }

// since are the items that end after an instant; ends tells when one does.
func since[T any](all []T, fromNs int64, ends func(T) int64) []T {
	return all[sort.Search(len(all), func(i int) bool { return ends(all[i]) > fromNs }):]
}

// Use is one reading of a container's use of the CPUs.
type Use struct {
	StartNs, EndNs int64
	CPUs           float64
	// Lost is the share of the time in which it wanted a CPU that its own quota kept from it.
	Lost      float64
	Throttled bool    // its quota stopped it in this reading
	Quota     float64 // CPUs; 0: none
	// Waiting is the share of time in which some task of it waited for a CPU, less what its
	// own quota explains; HasPSI: it could be read. Queued is how many CPUs its threads waited for,
	// Tasks how many wanted one, in the mean; 0: not read.
	Waiting, Queued, Tasks float64
	HasPSI                 bool
	// Wanted is the CPUs that it wanted. Held: its quota, other work or a stop held it back, or may
	// have, as its quota changed in it or was not read: it wanted as much at least.
	Wanted  float64
	Held    bool
	Stopped bool // somebody stopped the job in it: what it used then says nothing of it
}

func (s *State) addUse(k *policies.Constants, w *Window, r Reading) {
	useRead := w.HasCgroup && !w.Cgroup.Unread
	if !w.HasKernel && !useRead { // nothing was read: that is not to use nothing
		return
	}
	u := Use{StartNs: w.StartNs, EndNs: w.EndNs, CPUs: w.UsedCPUs(), HasPSI: w.HasCgroup && w.Cgroup.HasPSI, Quota: w.Cgroup.QuotaCPUs, Stopped: w.Stopped}
	periods := w.Cgroup.ThrottledShare
	u.Lost = min(lost(k, w, r), periods) // threads that a burst stops together are stopped for no more
	u.Throttled = w.HasCgroup && periods >= k.Notable && u.Lost >= k.Notable
	// PSI counts a task that is out of quota as one that waits.
	u.Waiting = max(0, w.Cgroup.CPUSome-periods)
	if wall := float64(w.EndNs - w.StartNs); w.HasKernel {
		run, out, queued, _ := wants(w)
		u.Tasks, u.Queued = (run+out+queued)/wall, queued/wall
	} else {
		u.Queued = u.CPUs * u.Waiting / (1 - min(u.Waiting, 0.99))
	}
	if r.Sure() { // of a thread that is known to train its own wait counts: a helper's costs it nothing
		u.Waiting = min(u.Waiting, r.Breakdown.Share(policies.PartContended)+r.Breakdown.Share(policies.PartInputContended))
	}
	before := u.Quota
	for _, b := range last(s.Uses, 1) {
		before = b.Quota
	}
	u.Wanted, u.Held = u.CPUs, u.Stopped || u.Throttled || u.Waiting >= k.Dominant || u.Quota != before || !useRead
	if u.Throttled { // it may want its CPUs in bursts: a quota that stops it is too little, whatever it used
		u.Wanted = max(u.CPUs, min(u.Quota, before))
	}
	s.Uses = keep(append(s.Uses, u))
	s.PeakCPUs, s.PeakNs = max(s.PeakCPUs, u.Wanted+u.Queued), cmp.Or(s.PeakNs, u.StartNs)
}

// lost is the share of wanted time that a container's own quota kept from it. Where a
// framework's ticks tell which thread trains, its wait is what counts: loaders that are
// stopped while their queue is full cost nothing. Else all threads count alike.
func lost(k *policies.Constants, w *Window, r Reading) float64 {
	if !w.HasKernel {
		if w.Cgroup.QuotaCPUs > 0 && w.UsedCPUs() >= k.Full*w.Cgroup.QuotaCPUs {
			return w.Cgroup.ThrottledShare
		}
		return 0
	}
	if r.Sure() {
		return r.Breakdown.Share(policies.PartThrottled) + r.Breakdown.Share(policies.PartInputThrottled)
	}
	var wanted, out float64
	for _, t := range w.Threads {
		out += float64(t.Ns[probes.StateThrottled])
		wanted += float64(t.Ns[probes.StateRun] + t.Ns[probes.StateThrottled] + t.Ns[probes.StateQueued])
	}
	return out / max(wanted, 1)
}

// Sure reports whether a framework, CUDA, NCCL or the job itself tells which process trains.
func (r Reading) Sure() bool { return Counted(r.Tick) && r.Rate.Ticks >= needTicks }

// Counted reports whether a source is a count that one of these keeps, and no kind of wait.
func Counted(source string) bool {
	return !slices.Contains([]string{"", SourceDevice, SourceTimer, SourcePeers, SourceHandOffs}, source)
}

// usedTicks is how many readings a container's use of late is the mean of.
const usedTicks = 5

// Used is the mean CPU use of late.
func (s *State) Used() float64 { return s.Mean(func(u Use) float64 { return u.CPUs }) }

// Mean is that of its use of late.
func (s *State) Mean(of func(Use) float64) float64 { return meanOf(last(s.Uses, usedTicks), of) }

func meanOf(uses []Use, of func(Use) float64) (sum float64) {
	for _, u := range uses {
		sum += of(u)
	}
	return sum / float64(max(1, len(uses)))
}

// Worked is Used by the readings in which nobody stopped the job.
func (s *State) Worked() float64 {
	worked := slices.DeleteFunc(slices.Clone(s.Uses), func(u Use) bool { return u.Stopped })
	return meanOf(last(worked, usedTicks), func(u Use) float64 { return u.CPUs })
}

// Stopped reports whether somebody stopped the job in the latest reading.
func (s *State) Stopped() bool { return len(s.Uses) > 0 && s.Uses[len(s.Uses)-1].Stopped }

// UsesSince are the readings that began after an instant.
func UsesSince(uses []Use, ns int64) []Use {
	return since(uses, ns, func(u Use) int64 { return u.StartNs })
}

// Throttled reports whether its quota stopped the container in both of the latest two
// readings under its present quota, and the smaller share that it lost.
func (s *State) Throttled() (lost float64, ok bool) {
	uses := last(s.Uses, 3) // the first of them may have seen the quota change
	n := len(uses)
	if n < 2 || uses[0].Quota != uses[n-1].Quota || uses[n-2].Quota != uses[n-1].Quota || !uses[n-2].Throttled || !uses[n-1].Throttled {
		return 0, false
	}
	return min(uses[n-2].Lost, uses[n-1].Lost), true
}

// Held reports whether its quota stopped the container in the latest reading at its present
// resources, or whether there is none.
func (s *State) Held() bool {
	uses := last(UsesSince(s.Uses, s.changedNs-1), 1)
	return len(uses) == 0 || uses[0].Throttled
}

// Wants are the latest readings that tell what the container wants, whatever its quota was then:
// back to a minute of those in which nothing held it back. Where its quota stopped it in two
// readings in a row, those before that used no more than that quota tell nothing any more.
func (s *State) Wants(k *policies.Constants) []Use {
	stopped, free, out := 0.0, 0.0, make([]Use, 0, min(len(s.Uses), int(k.UnusedSeconds+2*k.SettleReadings)))
	for i := len(s.Uses) - 1; i >= 0 && free < k.UnusedSeconds+k.SettleReadings; i-- {
		u, before := s.Uses[i], s.Uses[max(0, i-1)]
		if u.Throttled && before.Throttled {
			stopped = max(stopped, min(u.Quota, before.Quota))
		}
		if !u.Held && u.CPUs <= stopped*(1+k.MinStep) {
			continue
		}
		if out = append(out, u); !u.Held {
			free++
		}
	}
	slices.Reverse(out)
	return out
}

// Free are the readings in which nothing held the container back.
func Free(uses []Use) []Use {
	return slices.DeleteFunc(slices.Clone(uses), func(u Use) bool { return u.Held })
}

// Latest are the readings back to the n-th latest in which nothing held it back.
func Latest(uses []Use, n float64) []Use {
	i := len(uses)
	for ; i > 0 && n > 0; i-- {
		if !uses[i-1].Held {
			n--
		}
	}
	return uses[i:]
}

// Enough is the quota that would have been enough in a share of so many readings, and a margin;
// 0: they do not tell. Readings in which something held it back are censored: the estimate is
// Kaplan and Meier's (J. Am. Stat. Assoc. 53, 1958).
func Enough(uses []Use, share, margin float64) float64 {
	sorted := slices.SortedStableFunc(slices.Values(uses), func(a, b Use) int { return cmp.Compare(a.Wanted, b.Wanted) })
	wantMore := 1.0
	for i, u := range sorted {
		if !u.Held {
			wantMore *= 1 - 1/float64(len(sorted)-i)
		}
		if wantMore <= 1-share+1e-9 {
			return max(u.Wanted, 1e-6) * (1 + margin) // of who wants none that is told as well
		}
	}
	return 0
}
