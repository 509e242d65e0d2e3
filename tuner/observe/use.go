package observe

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
)

// Use is one reading of a container's use of the CPUs.
type Use struct {
	StartNs, EndNs int64
	CPUs           float64
	// Lost is the share of the time in which it wanted a CPU that its own quota kept from it.
	Lost      float64
	Throttled bool    // its quota stopped it in this reading
	Quota     float64 // CPUs; 0: none
	// Waiting is the share of time in which some task of it waited for a CPU, less what its
	// own quota explains; HasPSI: it could be read.
	Waiting float64
	HasPSI  bool
	// Wanted is the CPUs that it wanted. Held: its quota or other work held it back, or its quota
	// changed in it, so that it wanted as much at least.
	Wanted float64
	Held   bool
}

func (s *State) addUse(k *policies.Constants, w *Window, r Reading) {
	u := Use{StartNs: w.StartNs, EndNs: w.EndNs, CPUs: w.UsedCPUs(), HasPSI: w.HasCgroup && w.Cgroup.HasPSI, Quota: w.Cgroup.QuotaCPUs}
	periods := w.Cgroup.ThrottledShare
	u.Lost = lost(k, w, r)
	u.Throttled = w.HasCgroup && periods >= k.Notable && u.Lost >= k.Notable
	// PSI counts a task that is out of quota as one that waits.
	u.Waiting = max(0, w.Cgroup.CPUSome-periods)
	if r.Sure() { // of a thread that is known to train its own wait counts: a helper's costs it nothing
		u.Waiting = min(u.Waiting, r.Breakdown.Share(policies.PartContended)+r.Breakdown.Share(policies.PartInputContended))
	}
	before := u.Quota
	for _, b := range last(s.Uses, 1) {
		before = b.Quota
	}
	u.Wanted, u.Held = u.CPUs, u.Throttled || u.Waiting >= k.Dominant || u.Quota != before
	if u.Throttled { // it may want its CPUs in bursts: a quota that stops it is too little, whatever it used
		u.Wanted = max(u.CPUs, min(u.Quota, before))
	}
	s.Uses = keep(append(s.Uses, u))
	s.PeakCPUs, s.PeakNs = max(s.PeakCPUs, u.Wanted), cmp.Or(s.PeakNs, u.StartNs)
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
	if wanted <= 0 {
		return 0
	}
	return out / wanted
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
func (s *State) Used() float64 {
	uses, sum := last(s.Uses, usedTicks), 0.0
	for _, u := range uses {
		sum += u.CPUs
	}
	return sum / float64(max(1, len(uses)))
}

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
