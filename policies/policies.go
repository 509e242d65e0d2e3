// Package policies holds the plain types between measuring and acting: verdicts
// and responses in, a plan out. One package for each policy stands below it. A
// policy is a pure function of what it is given: no clock, no files, no state
// but its arguments. It proposes; floors, ceilings, cool-downs and trials are
// the guard's, so that no policy can skip them.
package policies

import (
	"math"
	"slices"

	"github.com/trimtab/trimtab/runtime"
)

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
	EnrolledBy string   `json:"door,omitempty"`       // "label", "config: rule 2", "enable", "default"
	Knobs      []string `json:"knobs,omitempty"`      // families allowed: cpu, cpuset, memory, gpu
	KnobsFrom  string   `json:"knobsFrom,omitempty"`  // who named the families: "label trimtab.knobs", "config: rule 2", …
	CPU        Range    `json:"cpu,omitzero"`         // CPUs
	Memory     Range    `json:"memory,omitzero"`      // bytes
	Importance int      `json:"importance,omitempty"` // 1..10, 5 by default
	BestEffort bool     `json:"bestEffort,omitempty"`
	Loans      LoanMode `json:"loans,omitempty"`
	Job        string   `json:"job,omitempty"`
	Team       string   `json:"team,omitempty"`
	Group      string   `json:"group,omitempty"`     // the control group above it with the least quota
	GroupCPUs  float64  `json:"groupCPUs,omitempty"` // that quota, CPUs
	// Problems are malformed or forbidden labels and clamped values, each naming what is allowed.
	Problems []string `json:"problems,omitempty"`
	// WhyNot says why Mode is not tune, for people: "no label", "host mode: observe", …
	WhyNot string `json:"whyNot,omitempty"`
}

// Allows reports whether a knob's family may be changed.
func (e Enrolment) Allows(k runtime.Knob) bool {
	return slices.Contains(e.Knobs, k.Family())
}

// LoanMode says what a container may be lent: CPU and memory above its owner's limits that
// nobody else uses.
type LoanMode string

// LoansFree lends at once; LoansProven lends if a trial proves that it helps; LoansOff never
// lends. "" is free.
const (
	LoansFree   LoanMode = "free"
	LoansProven LoanMode = "proven"
	LoansOff    LoanMode = "off"
)

// LoanModes lists them, from the one that allows the most.
func LoanModes() []LoanMode { return []LoanMode{LoansFree, LoansProven, LoansOff} }

// Job is one container as a policy sees it. Policies see all of a node's; those of which
// nothing may be proposed now are among them, for what they use and have a right to.
type Job struct {
	Key       string         `json:"key"`
	Name      string         `json:"name"`
	Enrolment Enrolment      `json:"enrolment"`
	Now       runtime.Values `json:"now"`      // what stands
	Original  runtime.Values `json:"original"` // before trimtab's first change; equals Now if there was none
	// May: something may be proposed of it now. Urgent: its memory reaches its limit before it
	// would be decided on again, so that only what protects it may be.
	May    bool `json:"may,omitempty"`
	Urgent bool `json:"urgent,omitempty"`

	Verdict   Verdict   `json:"verdict"` // agreed on by enough windows; else the zero one
	Breakdown Breakdown `json:"breakdown"`
	Rate      Rate      `json:"rate"`
	Cost      Cost      `json:"cost"`
	CostOK    bool      `json:"costOK"` // measured well enough to plan on

	CPU CPUUse `json:"cpu"`
	// Curve is its rate by CPUs as learned; Correction multiplies predicted rates, 1 at first.
	Curve      Curve   `json:"curve,omitzero"`
	Correction float64 `json:"correction"`

	Memory MemoryUse `json:"memoryUse,omitzero"`
	// ByMemory is its rate by the memory that it may use, and Paging what it was made from.
	ByMemory Curve  `json:"memory,omitzero"`
	Paging   Paging `json:"paging,omitzero"`

	// GPUs are the devices on which it lately ran kernels. Devices are those that it was
	// granted, in the order of their nodes; nil: not known. Elastic: it is told when they change.
	GPUs    float64  `json:"gpus,omitempty"`
	Devices []Device `json:"devices,omitempty"`
	Elastic bool     `json:"elastic,omitempty"`
}

// CPUUse is what a container did with the CPUs, in CPUs and shares of time.
type CPUUse struct {
	Used float64 `json:"used"` // mean of the latest readings
	// Throttled: its quota stopped it in two readings in a row. Lost is the share of the time
	// in which it wanted a CPU that the quota kept from it, the smaller of these two.
	Throttled bool    `json:"throttled,omitempty"`
	Lost      float64 `json:"lost,omitempty"`
	// Crowds: more threads of it want a CPU than the host has, at all times. Where it had all CPUs, some kernels
	// would run nothing else.
	Crowds bool `json:"crowds,omitempty"`
	// Unseen: loans are to be proven, and what it gets done shows in no reading: its use must tell.
	Unseen bool `json:"unseen,omitempty"`
	// Enough is the quota that would have been enough while nothing held it back; 0: not known.
	Enough float64 `json:"enough,omitempty"`
	// LoanBrings: the counted rate proves that its loan is of no use (-1), or does not (1); 0: not judged yet.
	LoanBrings int `json:"loanBrings,omitempty"`
	// Shrank is the quota, CPUs, from which its loan settled, where it uses less since then though
	// nothing holds it back; 0: it does not. Programs that read their quota start fewer threads.
	Shrank float64 `json:"shrank,omitempty"`
	// Bursts is the largest quota, CPUs, that of late stopped it though its mean use was below; 0: none.
	Bursts float64 `json:"bursts,omitempty"`
	// Known is the quota, CPUs, that turned out to be enough when its loan settled; 0: none.
	Known float64 `json:"known,omitempty"`
	// HasSettled: its loan shrank once to what was enough then.
	HasSettled bool `json:"hasSettled,omitempty"`
	// Last is the quota, CPUs, that its last LastRuns runs turned out to need, from its start until it is
	// given or known better; 0: not known.
	Last     float64 `json:"last,omitempty"`
	LastRuns int     `json:"lastRuns,omitempty"`
	// LoanDoubt: it rose so little with the loan that it is to be measured without.
	LoanDoubt bool `json:"loanDoubt,omitempty"`
	// Waiting is the share of time in which some task of it waited for a CPU, and not for its
	// own quota, above what it waited before anybody was lent something.
	Waiting float64 `json:"waiting,omitempty"`
	// Obtainable is what it could have beside the work that others do now, whatever its quota.
	Obtainable  float64 `json:"obtainable,omitempty"`
	Entitlement float64 `json:"entitlement"` // the larger of its floor and its weighted fair share
	// Parent is the control group below which its weight counts.
	Parent string `json:"parent,omitempty"`
}

// Node is what there is to give.
type Node struct {
	CPUs      float64 `json:"cpus"`               // online
	Reserve   float64 `json:"reserve"`            // kept idle
	Left      float64 `json:"left,omitempty"`     // of the reserve, kept from who crowds the CPUs whether it is idle or not
	Idle      float64 `json:"idle,omitempty"`     // CPUs that nobody used in the latest two readings, the fewer
	OtherCPUs float64 `json:"otherCPUs"`          // used by containers that are not enrolled
	HostCPUs  float64 `json:"hostCPUs,omitempty"` // used by processes outside of all containers
	MaxWeight float64 `json:"maxWeight"`          // the kernel's ceiling of KnobCPUWeight here

	Memory        float64 `json:"memory,omitempty"`        // bytes
	ReserveMemory float64 `json:"reserveMemory,omitempty"` // never given
	// MemoryFree is what is available now, less the reserve and what raised limits may still
	// take; below 0 the host is short.
	MemoryFree float64   `json:"memoryFree,omitempty"`
	Objective  Objective `json:"objective,omitempty"`
}

// WholeCPUs is what containers may be asked to run on: programs that read their quota reckon in
// whole CPUs, so of the reserve whole ones are kept.
func (n Node) WholeCPUs() float64 { return n.CPUs - math.Floor(n.Reserve) }

// MostCPUs is the largest quota that a container may be lent: what is not idle is not lent, so it
// need not keep all of the reserve. A program that reads its quota crowds no CPUs: it has them whole.
func (n Node) MostCPUs(e Enrolment, crowds bool) float64 {
	most := n.WholeCPUs()
	if crowds {
		most = min(most, n.CPUs-min(n.Reserve, n.Left))
	}
	if e.CPU.Max > 0 {
		most = min(most, e.CPU.Max)
	}
	return most
}

// DefaultWeight is the weight of a container whose owner set none.
func (n Node) DefaultWeight() float64 {
	if n.MaxWeight > 0 && n.MaxWeight <= 10000 {
		return 100 // v2
	}
	return 1024 // v1's shares
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
	// Criterion says what judges the change; "" is progress.
	Criterion Criterion `json:"witness,omitempty"`
}

// Criterion is what tells whether a change may stay.
type Criterion string

// CriterionNoHarm keeps a change unless harm is seen: for one that protects, or takes what
// nothing misses, whose worth no rate shows.
const CriterionNoHarm Criterion = "harm"

// Kind is what a plan is, and so what it needs.
type Kind string

// A trial takes from somebody, or may: it is judged. A loan gives what nobody uses, and a
// return gives back what was lent: neither is.
const (
	KindTrial  Kind = ""
	KindLoan   Kind = "loan"
	KindReturn Kind = "return"
)

// Plan is one consistent set of changes, applied and judged as a unit.
type Plan struct {
	Policy  string   `json:"policy"`
	Kind    Kind     `json:"kind,omitempty"`
	Changes []Change `json:"changes"`
}

// Advice is a proposal of a policy that trimtab cannot carry out itself. What follows from the
// readings alone, whatever the policy, is advised by tuner/advice.
type Advice struct {
	Key  string `json:"key"`
	Text string `json:"text"`
}

// Proposal is what a policy answers.
type Proposal struct {
	// Plans are independent of each other. A loan asks for the most that is of use: what it
	// is given is divided among all that ask.
	Plans  []Plan   `json:"plans,omitempty"`
	Advice []Advice `json:"advice,omitempty"`
	// GPUVisibility are the wishes to hide and show devices; of a container at most one at a time is carried out, and
	// none beside a plan of it.
	GPUVisibility []GPUVisibility `json:"sights,omitempty"`
}

// Policy turns what is known of a node's jobs into plans. Propose must be a pure,
// deterministic function; jobs come sorted by key, and are not to be kept beyond the call.
type Policy interface {
	Name() string
	Propose(node Node, jobs []Job) Proposal
}
