package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/originals"
)

// The laws, as they are printed.
const (
	lawLimits    = "each limit is the owner's or recorded"
	lawOriginals = "originals agree with the owner's"
	lawProcesses = "no process of a job is killed"
	lawRights    = "nobody is below 0.97 of its right for 5 s"
	lawTicks     = "the daemon ticks"
	lawLives     = "the daemon lives"
	lawRestored  = "what ended left the owner's values"
	lawClock     = "a clock that is set loses nothing"
)

// breach is one law broken, with evidence.
type breach struct {
	law, subject, evidence string
}

func (b breach) String() string { return fmt.Sprintf("%s: %s: %s", b.law, b.subject, b.evidence) }

// same reports whether two are of the same law and subject, whatever the evidence.
func (b breach) same(o breach) bool { return b.law == o.law && b.subject == o.subject }

// judgeKnob holds what stands in the kernel against the owner's value and against what
// trimtab has on disk; recorded is nil where it has nothing of this knob.
//
// An original that is not the owner's is no breach while the owner's value stands:
// somebody wrote since, trimtab has not looked yet, and its restore is compare-and-swap.
func judgeKnob(job string, knob runtime.Knob, owner, stands runtime.Value, recorded *originals.Knob) (breach, bool) {
	subject := job + " " + string(knob)
	ours := recorded != nil && recorded.Ours(knob, stands)
	switch {
	case ours && !knob.Same(recorded.Original, owner):
		return breach{lawOriginals, subject, fmt.Sprintf("%q stands by trimtab and would go back to %q; its owner set %q", stands, recorded.Original, owner)}, true
	case !ours && !knob.Same(owner, stands):
		return breach{lawLimits, subject, fmt.Sprintf("%q stands; its owner set %q; %s", stands, owner, tell(recorded))}, true
	}
	return breach{}, false
}

func tell(k *originals.Knob) string {
	if k == nil {
		return "trimtab has recorded nothing"
	}
	return fmt.Sprintf("trimtab has recorded original %q, written %q, writing %q", k.Original, k.Written, k.Writing)
}

// judgeValues is judgeKnob for all knobs of a job. A job without a file has nothing
// recorded.
func judgeValues(job string, owner, stands runtime.Values, file *originals.File) (out []breach) {
	for _, knob := range owner.Sorted() {
		now, there := stands[knob]
		if !there {
			continue // its control group is going away
		}
		var recorded *originals.Knob
		if file != nil {
			if k, ok := file.Knobs[knob]; ok {
				recorded = &k
			}
		}
		if b, broken := judgeKnob(job, knob, owner[knob], now, recorded); broken {
			out = append(out, b)
		}
	}
	return out
}

// judgeRestored is judgeValues where nothing of trimtab's may stand.
func judgeRestored(job string, owner, stands runtime.Values) (out []breach) {
	for _, knob := range owner.Sorted() {
		if now, there := stands[knob]; there && !knob.Same(owner[knob], now) {
			out = append(out, breach{lawRestored, job + " " + string(knob), fmt.Sprintf("%q stands; its owner set %q", now, owner[knob])})
		}
	}
	return out
}

// process is one process, and when it began: a PID may be used again.
type process struct {
	pid   int
	start uint64 // clock ticks since boot
}

// judgeProcesses holds that all that were there still are, and that the kernel killed none
// for its memory limit.
func judgeProcesses(job string, were, are []process, kills uint64) (out []breach) {
	var gone []int
	for _, p := range were {
		if !slices.Contains(are, p) {
			gone = append(gone, p.pid)
		}
	}
	if len(gone) > 0 {
		out = append(out, breach{lawProcesses, job, fmt.Sprintf("processes %v are gone, and no fault killed them", gone)})
	}
	if kills > 0 {
		out = append(out, breach{lawProcesses, job, fmt.Sprintf("the kernel killed %d for their memory limit", kills)})
	}
	return out
}

// persist reads again until a breach is gone, and returns those that every reading had: a
// value that is read between two legitimate writes is none. read gives what it finds now;
// pause is called between readings.
func persist(readings int, read func() []breach, pause func()) []breach {
	found := read()
	for range readings - 1 {
		if len(found) == 0 {
			break
		}
		pause()
		again := read()
		var both []breach
		for _, b := range again { // the later evidence
			if slices.ContainsFunc(found, b.same) {
				both = append(both, b)
			}
		}
		found = both
	}
	return found
}

// fresh are those that were not found before.
func fresh(found, before []breach) (out []breach) {
	for _, b := range found {
		if !slices.ContainsFunc(before, b.same) {
			out = append(out, b)
		}
	}
	return out
}

// Bounds of the law of ticks.
const (
	readyAfter = 10 * time.Second // of answering
	maxTickAge = 2 * time.Second
	// stalled: a reading of the harness that came so much too late says that the machine
	// stood still, and tells nothing of the daemon.
	stalled = 500 * time.Millisecond
)

// tickReading is one look at the daemon.
type tickReading struct {
	up   time.Duration // how long it has answered
	age  time.Duration // of its latest tick, at the least; since it last answered, where it does not
	late time.Duration // the harness's own delay, the largest of late
	// stepped is how long ago the clock was set, by which age is told.
	stepped time.Duration
	// starved is how long one thread of the daemon's waited for a CPU since that tick, the longest of them.
	starved time.Duration
}

// broken reports whether it breaks the law of ticks. It is not judged on a machine that
// stood still, nor while the latest tick may still be of the clock as it was before. A tick of
// the future is one from before the clock was set back. What a thread of the daemon's waited for a
// CPU is others' doing, and not of its age.
func (r tickReading) broken() bool {
	return r.up >= readyAfter && r.age.Abs()-r.starved > maxTickAge && r.late < stalled && r.stepped > maxTickAge
}
