package knee

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Memory's part of the parameters; see Params.
const (
	// aheadDecisions is for how many decisions' time growth is provided at once.
	aheadDecisions = 2
	// maxRaise bounds one raise, and freeShare what page cache may get of the memory that
	// is free (SIGNALS.md: DLRover's 8 GiB, tf.data's half).
	maxRaise  = 8 << 30
	freeShare = 0.5
	// leastRaise is the least relative raise of a limit into which a job grows.
	leastRaise = 0.25
	// calmSome is the share of time waiting for memory that counts as no want of it.
	calmSome = 0.01
	// minRaise is the least raise worth a write.
	minRaise = 0.02

	mib = 1 << 20
)

// protect raises the limit of a job whose memory grows into it: by what it will
// have grown by the time of the second decision from now. It does not wait for its
// rate to tell, which says nothing of it.
func (k Policy) protect(node policies.Node, j policies.Job) []policies.Change {
	m := j.MemoryUse
	if j.Verdict.Cause != policies.CauseRisk || !movable(j) || m.Growth <= 0 {
		return nil
	}
	ahead := aheadDecisions * node.DecisionSeconds
	want := policies.WithRoom(m.Held) + m.Growth*ahead
	to := k.raised(node, j, max(want, (1+leastRaise)*m.Limit), 1)
	if to < (1+minRaise)*m.Limit {
		return nil
	}
	ch := limitChange(j, to)
	ch.Witness, ch.RateAfter = policies.WitnessHarm, j.Rate.PerSecond
	ch.Reason = fmt.Sprintf("it holds %.0f MiB of its limit of %.0f MiB and grows by %.1f MiB/s; in the %.0f s of %d decisions it will hold %.0f MiB",
		m.Held/mib, m.Limit/mib, m.Growth/mib, ahead, aheadDecisions, (m.Held+m.Growth*ahead)/mib)
	return []policies.Change{ch}
}

// cache raises the limit of a job that reads again what the limit evicted: by what
// it reads again within the horizon. That may be more than its data set; what turns
// out unused is taken back.
func (k Policy) cache(node policies.Node, j policies.Job) []policies.Change {
	if cause := j.Verdict.Cause; cause != policies.CauseCache && cause != policies.CauseReclaim {
		return nil
	}
	return k.refill(node, j, j.MemoryUse.Evicted(j.Verdict, j.Breakdown))
}

// evicted does the same for a job that is bound by something else above all, and loses
// time to evicted pages as well.
func (k Policy) evicted(node policies.Node, j policies.Job) []policies.Change {
	if !j.MemoryUse.Rereads() || j.Breakdown.Share(policies.PartInputStorage) < k.p.MinGain {
		return nil
	}
	return k.refill(node, j, j.MemoryUse.Evicted(j.Verdict, j.Breakdown))
}

// dearer does the same for a job that is short of CPU, part of which reading again costs.
func (k Policy) dearer(node policies.Node, j policies.Job) []policies.Change {
	if changes := k.evicted(node, j); len(changes) > 0 {
		return changes
	}
	return k.refill(node, j, j.MemoryUse.RereadCPU(j.UsedCPUs))
}

// refill raises a limit to keep what is read again, at which so much of the time is lost.
func (k Policy) refill(node policies.Node, j policies.Job, lost float64) []policies.Change {
	m := j.MemoryUse
	if !movable(j) || j.Rate.PerSecond <= 0 || lost <= 0 {
		return nil
	}
	want := m.Limit + m.Missing()
	gain, much := lost/(1-lost), fmt.Sprintf("%.0f MiB in %d s", m.Reread*policies.HorizonSeconds/mib, policies.HorizonSeconds)
	set := j.Paging.Set
	if j.Paging.Enough && set > m.Limit { // measured beats guessed
		want, much = policies.WithRoom(set), fmt.Sprintf("%.0f MiB were enough before", set/mib)
	}
	to := k.raised(node, j, want, freeShare)
	if j.Paging.Enough && set > m.Limit {
		gain = j.Memory.Gain(m.Limit, to)
	}
	ch := limitChange(j, to)
	ch.Gain, ch.RateAfter = gain, j.Rate.PerSecond*(1+gain)
	if to < (1+minRaise)*m.Limit || ch.Gain < k.p.MinGain {
		return nil
	}
	ch.Reason = fmt.Sprintf("it reads %.1f MiB/s again that its limit of %.0f MiB evicted, %s; the host has %.0f MiB free beyond its reserve",
		m.Reread/mib, m.Limit/mib, much, max(0, node.MemoryFree)/mib)
	return []policies.Change{ch}
}

// raised bounds a raise by the owner, the host, and the share of free memory that
// this kind of memory may get. It says where a raise would end, in whole MiB.
func (k Policy) raised(node policies.Node, j policies.Job, want, share float64) float64 {
	m := j.MemoryUse
	give := min(max(0, node.MemoryFree)*share, maxRaise)
	to := min(want, m.Limit+give, node.Ceiling(j.Enrolment, m))
	return math.Floor(max(to, min(want, owners(j)))/mib) * mib
}

// owners is the limit that the owner set, the job's own whatever the host has left.
func owners(j policies.Job) float64 {
	if j.Original[runtime.KnobMemoryLimit] == runtime.ValueMax {
		return math.Inf(1)
	}
	n, _ := j.Original[runtime.KnobMemoryLimit].Int()
	return float64(n)
}

// spare takes back, of what trimtab gave, what the job does not use: everything
// charged to it stays, page cache included.
func (k Policy) spare(_ policies.Node, j policies.Job) []policies.Change {
	m := j.MemoryUse
	original, ok := j.Original[runtime.KnobMemoryLimit].Int()
	if !movable(j) || !ok || !j.Settled || !calm(m) || m.Limit <= float64(original) {
		return nil
	}
	to := math.Ceil(max(float64(original), policies.WithRoom(m.Current))/mib) * mib
	if m.Limit <= k.p.TakeAbove*to {
		return nil
	}
	ch := limitChange(j, to)
	ch.Take, ch.Witness, ch.RateAfter = true, policies.WitnessHarm, j.Rate.PerSecond
	ch.Reason = fmt.Sprintf("of its %.0f MiB it uses %.0f, page cache included; trimtab gave %.0f", m.Limit/mib, m.Current/mib, (m.Limit-float64(original))/mib)
	return []policies.Change{ch}
}

// calm: nothing is read again, nothing waits for memory, nothing grows.
func calm(m policies.MemoryUse) bool {
	return m.Calm() && m.Some < calmSome && m.Full < calmSome && m.Growth == 0
}

// movable: a memory limit stands, is read, and may be changed.
func movable(j policies.Job) bool {
	return j.MemoryUse.Read && j.MemoryUse.Limit > 0 && j.Enrolment.Allows(runtime.KnobMemoryLimit)
}

func limitChange(j policies.Job, to float64) policies.Change {
	return policies.Change{Key: j.Key, Name: j.Name, Knob: runtime.KnobMemoryLimit, From: j.Now[runtime.KnobMemoryLimit], To: runtime.IntValue(int64(to))}
}

// memoryAdvice says what would help and is not allowed, or not there.
func memoryAdvice(j policies.Job) string {
	switch j.Verdict.Cause {
	case policies.CauseCache, policies.CauseReclaim, policies.CauseRisk:
		if !j.Enrolment.Allows(runtime.KnobMemoryLimit) {
			return j.Verdict.Relief + "; trimtab may give it one where the knob memory is allowed (trimtab.knobs)"
		}
		return j.Verdict.Relief
	}
	return ""
}
