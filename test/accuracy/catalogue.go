package main

import (
	"strings"

	"github.com/trimtab/trimtab/policies"
)

// Label is a class and its cause as one word: "input/throttled", "balanced".
type Label string

// labelOf names a verdict.
func labelOf(v policies.Verdict) Label {
	if v.Cause == "" {
		return Label(v.Class)
	}
	return Label(string(v.Class) + "/" + string(v.Cause))
}

// Class is the part before the slash.
func (l Label) Class() policies.Class {
	class, _, _ := strings.Cut(string(l), "/")
	return policies.Class(class)
}

// HasCause reports whether the label names a cause.
func (l Label) HasCause() bool { return strings.Contains(string(l), "/") }

// Truth is what bounds a container during a phase, by construction.
type Truth struct {
	Is Label `json:"is"`
	// Also holds labels that are as true by construction; each job that has any says why.
	Also []Label `json:"also,omitempty"`
}

func (t Truth) right(l Label) bool {
	if l == t.Is {
		return true
	}
	for _, also := range t.Also {
		if l == also {
			return true
		}
	}
	return false
}

func (t Truth) rightClass(l Label) bool {
	if l.Class() == t.Is.Class() {
		return true
	}
	for _, also := range t.Also {
		if l.Class() == also.Class() {
			return true
		}
	}
	return false
}

func is(l Label, also ...Label) Truth { return Truth{Is: l, Also: also} }

// Family is jobs of one structure. Whole families are set aside: no threshold is
// set or changed by looking at them.
type Family struct {
	Name    string
	HeldOut bool
	Why     string // what sets it apart; for a held-out one, why it was chosen
	Jobs    []Job
}

// Virtual jobs compute on virtual GPUs.
func (j Job) Virtual() bool { return j.Devices > 0 }

// Job is one run: its containers, and phases one after another.
type Job struct {
	Name string
	Why  string // why the truth is the truth
	// Devices is how many virtual GPUs the job has; 0: it is a real job, without any.
	Devices int
	// Hopper: the devices tell the activity of their SMs.
	Hopper bool
	Parts  []Part
	Phases []Phase
	// WhyNever says why the job is never alone, or never beside a neighbour.
	WhyNever string
	// Knee is the CPUs beyond which more bring no speed, on the machine of the recordings: by
	// construction, with what it spins in waits, or measured by quotas. 0: it is not judged.
	Knee float64
	// KneeOrLess: Knee is the least that was tried, and was enough.
	KneeOrLess bool
	// Steps to wait for before the daemon starts: 5 if 0, none if negative.
	Steps int64
	// Network gives the containers one of their own, on which they reach each other by
	// part name; without it they have loopback alone.
	Network bool
}

// Part is one container of a job.
type Part struct {
	Name   string // "" for a job's only one
	Script string
	Args   []string
	Docker []string
	// IngressMbit shapes what reaches it, at the host's end of its interface; 0: not.
	IngressMbit int
	// DiskMBps and DiskReads bound what the container reads from the disk that its files
	// lie on, in MB and in reads a second; 0: not.
	DiskMBps, DiskReads int
	// Unwatched parts (a data server) are not judged, nor are they labelled.
	Unwatched bool
}

// Neighbour is a second job on the machine.
type Neighbour string

// The neighbours. quiet takes only CPU that nobody else wants (the lowest weight
// there is), so the truth stays what it was; busy wants every CPU twice over at the
// same weight, so what needs CPU is contended by construction.
const (
	nobody Neighbour = ""
	quiet  Neighbour = "quiet"
	busy   Neighbour = "busy"
)

// Phase is a stretch with one truth for each container.
type Phase struct {
	Name    string
	Seconds float64
	Truth   Truth
	// Of holds the truth of parts that differ.
	Of map[string]Truth
	// CPUs is a quota set when the phase begins; 0 leaves it, negative takes it away.
	CPUs float64
	// MemoryMiB is a memory limit set when the phase begins; 0 leaves it.
	MemoryMiB int
	Neighbour Neighbour
	// Device sets keys of the virtual GPUs when the phase begins.
	Device []string
	// AtS is when the job itself changes, in seconds after its first step; the phase
	// begins then. 0: it begins when the runner says so.
	AtS float64
	// SettleS replaces the settling time of windows at the phase's begin.
	SettleS float64
}

// truth of one part.
func (p Phase) truth(part string) Truth {
	if t, ok := p.Of[part]; ok {
		return t
	}
	return p.Truth
}

// alone is the usual course: alone for a while, then beside a quiet neighbour.
func alone(l Label, also ...Label) []Phase { return aloneFor(12, l, also...) }

// aloneFor is the usual course of jobs that take longer to show what they are.
func aloneFor(seconds float64, l Label, also ...Label) []Phase {
	return thenBeside(Phase{Name: "alone", Seconds: seconds, Truth: is(l, also...)})
}

// soon is the course of jobs that reach their limit some 20 s after the first look.
func soon(l Label) []Phase {
	out := aloneFor(9, l)
	out[1].Seconds = 6
	return out
}

// thenBeside adds what the last phase was, beside a quiet neighbour.
func thenBeside(phases ...Phase) []Phase {
	last := phases[len(phases)-1]
	return append(phases, Phase{Name: "beside", Seconds: 9, Truth: last.Truth, Of: last.Of, Neighbour: quiet})
}

// starved is alone under a quota.
func starved(cpus float64, l Label, also ...Label) []Phase {
	out := alone(l, also...)
	out[0].CPUs = cpus
	return out
}

// besideBusy has a busy neighbour from the beginning.
func besideBusy(l Label, also ...Label) []Phase {
	return []Phase{{Name: "beside busy", Seconds: 16, Truth: is(l, also...), Neighbour: busy}}
}

// makesIt is why a job that is short of CPU for a neighbour is never alone.
const makesIt = "the neighbour is what makes it true"

func one(script string, args ...string) []Part { return []Part{{Script: script, Args: args}} }

func limited(docker []string, script string, args ...string) []Part {
	return []Part{{Script: script, Args: args, Docker: docker}}
}

// slowDisk and fewReads are one container that reads from a slow disk.
func slowDisk(mbps int, script string, args ...string) []Part {
	return []Part{{Script: script, Args: args, DiskMBps: mbps}}
}

func fewReads(perSecond int, script string, args ...string) []Part {
	return []Part{{Script: script, Args: args, DiskReads: perSecond}}
}

// families is the whole catalogue.
func families() []Family {
	return append(realFamilies(), virtualFamilies()...)
}

// find returns a job and its family.
func find(name string) (Job, Family, bool) {
	for _, f := range families() {
		for _, j := range f.Jobs {
			if j.Name == name {
				return j, f, true
			}
		}
	}
	return Job{}, Family{}, false
}
