// Package advice tells what trimtab cannot change itself: the line that its owner would paste, and
// what that would give. Pure: a function of one snapshot.
//
// Nothing is advised without a number, its bounds and a confidence, and no value that the host
// cannot run. What no reading tells is not advised: docs/advice.md lists it with the reasons. A line
// to paste holds numbers, device UUIDs of a plain form and a container's name only where the
// engine's own rules allow it, so that nothing a container says reaches a shell or a YAML file.
package advice

import (
	"cmp"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

// What is what is advised: a stable name.
type What string

// All that is advised.
const (
	CPUQuota      What = "cpu.quota"      // the quota to set: what a loan settled to, a trial kept, or the cost tells
	CPUSpare      What = "cpu.spare"      // a smaller quota does: others may have the rest
	CPUThreads    What = "cpu.threads"    // fewer threads of OpenMP or BLAS
	MemoryLimit   What = "memory.limit"   // the limit to set: what a loan settled to
	MemoryAllow   What = "memory.allow"   // let trimtab move the memory limit
	MemoryShm     What = "memory.shm"     // a larger /dev/shm
	LoaderWorkers What = "loader.workers" // more loader workers
	LoaderPinned  What = "loader.pinned"  // batches in pinned memory
	DataLocal     What = "data.local"     // a local copy of what is read over the network
	GPUIdle       What = "gpu.idle"       // a device that is held and not used
	GPUModel      What = "gpu.model"      // another device of the host, which is free
	GPUExchange   What = "gpu.exchange"   // the device of a job that hardly needs it
	// JobCheckpoints is how often it writes its state.
	JobCheckpoints What = "job.checkpoints"
	JobSlower      What = "job.slower" // it is slower than the last runs of the same job: what differs
)

// Advice is one thing that trimtab cannot change, of one container.
type Advice struct {
	Key       string `json:"key"`       // of the container; "": processes of the host
	Container string `json:"container"` // its name
	What      What   `json:"what"`
	Text      string `json:"text"` // why, one sentence
	// Paste are the lines to paste, each for another place; none where no line would do it.
	Paste      []Line   `json:"paste,omitempty"`
	Current    Setting  `json:"current"`
	Advised    Setting  `json:"advised"`
	Gives      Gives    `json:"gives"`
	Confidence float64  `json:"confidence"` // 0..1
	Evidence   []Number `json:"evidence"`
	// SinceUnixNs is since when what it rests on holds; 0: not known.
	SinceUnixNs int64 `json:"since,omitempty"`
}

// Line is a text to paste.
type Line struct {
	For  string `json:"for"` // "docker run", "compose", "shell", "PyTorch DataLoader", "PyTorch Tensor.to", "environment"
	Text string `json:"text"`
}

// Setting is a value with its unit, or a text where it is no number.
type Setting struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"` // "CPUs", "B", "threads", "workers", "devices", "s apart"
	Text  string  `json:"text,omitempty"` // where it is no number; Value is 0 then
}

// Number is one that an advice rests on, and where it comes from.
type Number struct {
	policies.Evidence
	Source string `json:"source"`
}

// Kinds of what is given.
const (
	OfRunTime = "run time"         // to the container itself: the same work is done earlier, step by step or without
	OfRisk    = "run time at risk" // to the container itself: what it loses if it ends before it saves
	OfDevices = "device hours"     // to others: a device that nobody uses
	OfCPUs    = "CPU hours"        // that can be promised to others: a quota reserves nothing, so they gain nothing yet
)

// Gives is what an advice would give, Low ≤ Share ≤ High. The hours are those of a container that
// runs all week.
type Gives struct {
	Of    string  `json:"of"`
	Share float64 `json:"share"` // of its run time, of the time a device is held, or of the quota; 0..1
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Hours float64 `json:"hoursAWeek"`
	// Bounds of Hours.
	LowHours  float64 `json:"lowHours"`
	HighHours float64 `json:"highHours"`
}

// hoursAWeek is a week.
const hoursAWeek = 7 * 24

// gives is a share and its bounds, of so many units that are held or run all week.
func gives(of string, units, low, share, high float64) Gives {
	week := hoursAWeek * units
	return Gives{Of: of, Share: share, Low: low, High: high, Hours: share * week, LowHours: low * week, HighHours: high * week}
}

// node is what all rules see.
type node struct {
	k *policies.Constants
	s *state.Snapshot
}

// Of is all advice of a snapshot, sorted by container, then what. The snapshot is only read.
func Of(k *policies.Constants, s *state.Snapshot) []Advice {
	return of(k, s, func(string) bool { return true })
}

// OfContainer is what Of has of one container. Of the others only what it may compete with for a device
// is worked out: who looks at one job pays for one.
func OfContainer(k *policies.Constants, s *state.Snapshot, key string) []Advice {
	all := of(k, s, func(k string) bool { return k == key })
	return slices.DeleteFunc(all, func(a Advice) bool { return a.Key != key })
}

func of(k *policies.Constants, s *state.Snapshot, whole func(key string) bool) []Advice {
	n := node{k, s}
	out := []Advice{}
	competing := []func(state.Container) (Advice, bool){n.gpuModel, n.gpuExchange}
	every := append([]func(state.Container) (Advice, bool){n.cpuQuota, n.cpuSpare, n.threads, n.memoryLimit, n.memoryAllow, n.sharedMemory, n.loaderWorkers, n.loaderPinned, n.dataLocal, n.checkpoints, n.jobSlower}, competing...)
	for i := range s.Containers {
		c := &s.Containers[i]
		rules := every
		if !whole(c.Key) {
			if rules = competing; len(c.Devices) == 0 { // nothing faster is known of it
				continue
			}
		}
		for _, rule := range rules {
			if a, ok := rule(*c); ok {
				a.Key, a.Container = c.Key, c.Name
				out = append(out, a)
			}
		}
	}
	out = append(out, n.gpusIdle()...)
	out = slices.DeleteFunc(out, func(a Advice) bool { return !a.sound(k) })
	out = offeredOnce(out)
	slices.SortStableFunc(out, func(a, b Advice) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Key, b.Key), cmp.Compare(a.What, b.What))
	})
	return out
}

// sound is the last gate: whatever readings hold, an advice has finite numbers that are not
// negative, bounds in order, a confidence, and gives enough to be worth a restart.
func (a Advice) sound(k *policies.Constants) bool {
	numbers := []float64{a.Current.Value, a.Advised.Value, a.Gives.Low, a.Gives.Share, a.Gives.High, a.Gives.LowHours, a.Gives.Hours, a.Gives.HighHours, a.Confidence}
	for _, e := range a.Evidence {
		numbers = append(numbers, e.Value)
	}
	for _, v := range numbers {
		if !(v >= 0) || math.IsInf(v, 0) {
			return false
		}
	}
	g := a.Gives
	return g.Low <= g.Share && g.Share <= g.High && g.High <= 1 && g.Share >= k.Notable && a.Confidence > 0 && a.Confidence <= 1
}

// sure: a verdict is certain enough to be advised on.
func (n node) sure(c state.Container) bool {
	return c.Watched && c.Verdict.Confidence >= n.k.MinConfidence
}

// age is for how many seconds something has held; 0 where that is not known.
func (n node) age(sinceUnixNs int64) float64 {
	if sinceUnixNs <= 0 {
		return 0
	}
	return max(0, float64(n.s.UnixNs-sinceUnixNs)/1e9)
}

func number(name string, value float64, unit, source string) Number {
	return Number{policies.Evidence{Name: name, Value: value, Unit: unit}, source}
}
