// Package policies holds the plain types between measuring and acting: verdicts
// and responses in, a plan out. One package for each policy stands below it. A
// policy is a pure function of what it is given: no clock, no files, no state
// but its arguments. It proposes; floors, ceilings, cool-downs and trials are
// the guard's, so that no policy can skip them.
package policies

import "github.com/trimtab/trimtab/runtime"

// Mode is how far trimtab may go with a container.
type Mode string

// Off is absolute; Observe decides and records "would have"; Tune acts.
const (
	ModeOff     Mode = "off"
	ModeObserve Mode = "observe"
	ModeTune    Mode = "tune"
)

// Range bounds a knob; zero means unbounded on that side.
type Range struct {
	Min float64 `json:"min,omitempty"`
	Max float64 `json:"max,omitempty"`
}

// Enrolment is what trimtab may do with a container, after labels, config and
// `trimtab enable` have been settled.
type Enrolment struct {
	Mode       Mode     `json:"mode"`
	Door       string   `json:"door,omitempty"`       // "label", "config: rule 2", "enable", "default"
	Knobs      []string `json:"knobs,omitempty"`      // families allowed: cpu, cpuset, memory, io, gpu
	KnobsFrom  string   `json:"knobsFrom,omitempty"`  // who named the families: "label trimtab.knobs", "config: rule 2", …
	CPU        Range    `json:"cpu,omitzero"`         // CPUs
	Memory     Range    `json:"memory,omitzero"`      // bytes
	Importance int      `json:"importance,omitempty"` // 1..10, 5 by default
	BestEffort bool     `json:"bestEffort,omitempty"`
	Job        string   `json:"job,omitempty"`
	Team       string   `json:"team,omitempty"`
	// Problems are malformed or forbidden labels and clamped values, each naming what is allowed.
	Problems []string `json:"problems,omitempty"`
	// WhyNot says why Mode is not tune, for people: "no label", "host mode: observe", …
	WhyNot string `json:"whyNot,omitempty"`
}

// Allows reports whether a knob's family may be changed.
func (e Enrolment) Allows(k runtime.Knob) bool {
	for _, f := range e.Knobs {
		if f == k.Family() {
			return true
		}
	}
	return false
}

// Job is one container as a policy sees it.
type Job struct {
	Key       string         `json:"key"`
	Name      string         `json:"name"`
	Enrolment Enrolment      `json:"enrolment"`
	Now       runtime.Values `json:"now"`      // what stands
	Original  runtime.Values `json:"original"` // before trimtab's first change; equals Now if there was none
	Verdict   Verdict        `json:"verdict"`
	Breakdown Breakdown      `json:"breakdown"`
	Rate      Rate           `json:"rate"`
	Cost      Cost           `json:"cost"`
	CostOK    bool           `json:"costOK"` // enough steady ticks to plan on
	UsedCPUs  float64        `json:"usedCPUs"`
	// Correction multiplies predicted rates, learned from trials; 1 at first.
	Correction float64 `json:"correction"`
	// Settled: long enough at its present resources for a take to be considered.
	Settled bool `json:"settled"`
	// Entitlement in CPUs: the larger of its floor and its weighted fair share.
	Entitlement float64 `json:"entitlement"`
	// Obtainable is the CPUs that it could have beside the work that others do now,
	// whatever its quota: what others leave idle, and its weighted part of what they take beyond theirs.
	Obtainable float64 `json:"obtainable,omitempty"`
	// Peak is the CPUs that it needs in its busiest windows, where that is clearly more than
	// its Cost says, which is a mean; else 0. Needs is what it needs by each of the windows
	// that tell what it does now: of whole turns, or since it changed.
	Peak  float64   `json:"peak,omitempty"`
	Needs []float64 `json:"needs,omitempty"`
	// CPU is its rate by CPUs, as far as it is known. How much the job counts beside others
	// is its Enrolment's Importance.
	CPU Curve `json:"cpu,omitzero"`
	// Memory is its rate by the memory that it may use, and Paging what it was made from.
	Memory Curve  `json:"memory,omitzero"`
	Paging Paging `json:"paging,omitzero"`
	// GPUs really used: devices on which it lately ran kernels.
	GPUs float64 `json:"gpus,omitempty"`

	MemoryUse MemoryUse `json:"memoryUse,omitzero"`
	Disk      Disk      `json:"disk,omitzero"`
	// Urgent: its memory reaches its limit before it would be decided on again. Other work
	// on it may be open, so that only what protects it may be proposed.
	Urgent bool `json:"urgent,omitempty"`
	// ThrottledShare of the periods of its quota in which it ran out, 0..1.
	ThrottledShare float64 `json:"throttledShare,omitempty"`
	// NearCPUs are those near its devices, as a CPU list; "" where that is not known, or
	// where the host has one memory node.
	NearCPUs string `json:"nearCPUs,omitempty"`
	// Similar is what known jobs like it were found to need; nil: none is like it.
	Similar *Similar `json:"similar,omitempty"`
	// Early: its own measurement is not good yet, and Similar speaks for it meanwhile. Only
	// an EarlyPolicy is shown such jobs.
	Early bool `json:"early,omitempty"`
	// Steady: neither its rate nor its CPU use shows a trend over the latest readings.
	Steady bool `json:"steady"`
	// Tried are the changes of it that were judged, latest first.
	Tried []Tried `json:"tried,omitempty"`
	// Devices are the GPUs that it was granted, in the order of their nodes; nil: not known.
	Devices []Device `json:"devices,omitempty"`
	// Elastic: it is told when its devices change, by the signal that it asked for and the
	// host allows, so that it can form anew without those that it lost.
	Elastic bool `json:"elastic,omitempty"`
}

// Node is what there is to give.
type Node struct {
	CPUs      float64 `json:"cpus"`               // online
	Reserve   float64 `json:"reserve"`            // never given
	OtherCPUs float64 `json:"otherCPUs"`          // used by containers that are not enrolled
	MaxWeight float64 `json:"maxWeight"`          // the kernel's ceiling of KnobCPUWeight here
	HostCPUs  float64 `json:"hostCPUs,omitempty"` // used by processes outside of all containers

	Memory        float64 `json:"memory,omitempty"`        // bytes
	ReserveMemory float64 `json:"reserveMemory,omitempty"` // never given
	// MemoryFree is what is available now, less the reserve and what raised limits may still take.
	MemoryFree float64 `json:"memoryFree,omitempty"`
	// MaxIOWeight is the kernel's ceiling of KnobIOWeight here.
	MaxIOWeight float64 `json:"maxIOWeight,omitempty"`
	// DecisionSeconds is how long it takes at most until a container is decided on again.
	DecisionSeconds float64 `json:"decisionSeconds,omitempty"`
}

// Ceiling is the most memory that a container may be allowed: its owner's and the
// host's bound, and never more than the host has available beyond what it uses.
func (n Node) Ceiling(e Enrolment, m MemoryUse) float64 {
	ceiling := min(n.Memory-n.ReserveMemory, m.Current+max(0, n.MemoryFree))
	if e.Memory.Max > 0 {
		ceiling = min(ceiling, e.Memory.Max)
	}
	return ceiling
}

// BurstOfQuota is the part of its owner's quota that a container may save up. The kernel
// refuses a quota below the burst that stands, and an owner who lowers his by hand must not
// be refused for our sake, unless he takes more than half of it at once.
const BurstOfQuota = 0.5

// Change is one knob of one container, from a value to a value.
type Change struct {
	Key    string        `json:"key"`
	Name   string        `json:"name"`
	Knob   runtime.Knob  `json:"knob"`
	From   runtime.Value `json:"from"`
	To     runtime.Value `json:"to"`
	Reason string        `json:"reason"`
	Take   bool          `json:"take,omitempty"` // less than before: must be non-inferior
	// Gain is the predicted ratio of the container's rate after to before, minus one.
	Gain float64 `json:"gain"`
	// RateAfter is the predicted rate in the unit of the job's rate.
	RateAfter float64 `json:"rateAfter"`
	// Witness says what judges the change; "" is the rate.
	Witness Witness `json:"witness,omitempty"`
}

// Witness is what tells whether a change may stay.
type Witness string

// WitnessHarm keeps a change unless harm is seen: for one that protects, or takes
// memory that nothing misses, whose worth the rate does not show.
const WitnessHarm Witness = "harm"

// Plan is one consistent set of changes, applied and judged as a unit.
type Plan struct {
	Policy  string   `json:"policy"`
	Changes []Change `json:"changes"`
}

// Advice is a proposal that trimtab cannot carry out itself.
type Advice struct {
	Key  string `json:"key"`
	Text string `json:"text"`
}

// Proposal is what a policy answers.
type Proposal struct {
	// Plans are independent of each other: each is tried on its own.
	Plans  []Plan   `json:"plans,omitempty"`
	Advice []Advice `json:"advice,omitempty"`
	// Sights hide and show devices; of a container at most one at a time is carried out, and
	// none beside a plan of it.
	Sights []Sight `json:"sights,omitempty"`
}

// Policy turns what is known of a node's jobs into plans. Propose must be a pure,
// deterministic function; jobs come sorted by key, and are not to be kept beyond the call.
type Policy interface {
	Name() string
	Propose(node Node, jobs []Job) Proposal
}
