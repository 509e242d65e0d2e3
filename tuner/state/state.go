// Package state holds what trimtab shows: plain types that the agent publishes as
// one immutable snapshot, and that the API, the metrics and the command line
// render. Fields are only ever added (the API is /v1, additive).
package state

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/checkpoint"
	"github.com/trimtab/trimtab/tuner/profiles"
)

// Snapshot is the daemon's whole state at one instant; immutable once published.
type Snapshot struct {
	UnixNs     int64         `json:"time"`
	Daemon     Daemon        `json:"daemon"`
	Node       policies.Node `json:"node"`
	Containers []Container   `json:"containers"` // sorted by name, then key
	Totals     Totals        `json:"totals"`
	Memory     Memory        `json:"memory"`

	Devices     []Device `json:"devices,omitempty"` // in NVML's order, slices after their GPU
	Virtual     bool     `json:"virtual,omitempty"` // trimtab's virtual GPU answers, or is what a container uses
	IdleAfterNs int64    `json:"idleAfter"`         // a holder without a kernel for longer is idle
}

// Daemon is the state of trimtab itself.
type Daemon struct {
	Version       string        `json:"version"`
	PID           int           `json:"pid"`
	StartedUnixNs int64         `json:"started"`
	Mode          policies.Mode `json:"mode"`               // the host's ceiling
	Paused        bool          `json:"paused,omitempty"`   // by `trimtab pause`
	Disabled      bool          `json:"disabled,omitempty"` // the file /etc/trimtab/disabled is there
	Policies      []string      `json:"policies"`
	Engines       []Part        `json:"engines"`
	Probes        []Part        `json:"probes"`
	Virtual       bool          `json:"virtual,omitempty"` // a virtual GPU is in use
	Receivers     []Receiver    `json:"receivers,omitempty"`

	CPUSeconds    float64 `json:"cpuSeconds"`            // user and system, since start
	RecentCPUs    float64 `json:"recentCPUs,omitempty"`  // that it used in the last ten seconds, which BudgetShare is of; 0: not measured yet
	RSSBytes      uint64  `json:"rss"`                   // resident set now
	ProbeSeconds  float64 `json:"probeSeconds"`          // in BPF programs, where accounted, since start
	ProbeRuns     uint64  `json:"probeRuns"`             // BPF program runs accounted
	ProbeMapBytes uint64  `json:"probeMapBytes"`         // kernel memory of BPF maps
	ProbeLost     uint64  `json:"probeLost"`             // events dropped and threads beyond the room, of all probes
	BudgetShare   float64 `json:"budgetShare"`           // trimtab's CPUs used over its budget; above 1: over budget
	MemoryShare   float64 `json:"memoryShare"`           // its resident memory over its budget
	MapsShare     float64 `json:"mapsShare"`             // kernel memory of BPF maps over its budget
	JobShare      float64 `json:"jobShare"`              // what probes cost the container that they cost most, over the budget of a job
	ConfigError   string  `json:"configError,omitempty"` // the last reload was refused: why
	ConfigUnixNs  int64   `json:"configTime"`            // when the config in force was loaded
}

// Part is one engine or probe and how it fares.
type Part struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Since int64  `json:"since"`          // unix ns of the last change of OK
	Lost  string `json:"lost,omitempty"` // what is lost without it, why, and the fix
	Note  string `json:"note,omitempty"` // what it finds, where that is nothing and nothing is wrong
	// LostEvents are those that it had no room for since the start; of what writes, records.
	LostEvents uint64 `json:"lostEvents,omitempty"`
}

// Receiver is one whom decisions are told, and how it fares; its Lost is why the latest could not be.
type Receiver struct {
	Part
	Sent    uint64 `json:"sent"`    // events that it took
	Failed  uint64 `json:"failed"`  // events that it refused, or did not take in many tries
	Dropped uint64 `json:"dropped"` // events that were too many: above notify's perMinute, or while many waited
	Queued  int    `json:"queued"`  // events that wait
}

// Container is one container, watched or not.
type Container struct {
	Key       string             `json:"key"`
	ID        string             `json:"id"` // the engine's container ID
	Engine    string             `json:"engine"`
	Name      string             `json:"name"`
	Image     string             `json:"image"`
	State     runtime.State      `json:"state"`
	GPUs      []string           `json:"gpus,omitempty"`
	Watched   bool               `json:"watched"`
	Enrolment policies.Enrolment `json:"enrolment"`
	// WhyNot is why nothing is being changed now, one phrase; Gate is what said so, by what
	// number held against what, where numbers decided. Their unit is the gate's own: people read WhyNot.
	WhyNot    string  `json:"whyNot,omitempty"`
	Why       string  `json:"why,omitempty"` // why nothing of it is changed, in explain's words, also where nothing said no
	Gate      string  `json:"gate,omitempty"`
	Value     float64 `json:"gateValue,omitempty"`
	Threshold float64 `json:"gateThreshold,omitempty"`
	// Tuning is where it stands with trimtab: watched, measured, lent, settled, trial, returned, yielded.
	Tuning string `json:"tuning,omitempty"`
	// Loan is the CPU that it was lent; nil: none. Work is what became of what it gets done,
	// where its steps are not counted or are by the job's own word.
	Loan *Loan `json:"loan,omitempty"`
	Work *Work `json:"work,omitempty"`

	Rate    policies.Rate `json:"rate"`
	RateWhy string        `json:"rateWhy,omitempty"` // why no rate is shown to people
	// Aggregated: no steps tell which thread trains; Cost is of all threads together, a "tick" of it a second.
	Aggregated bool               `json:"aggregated,omitempty"`
	Baseline   float64            `json:"baseline,omitempty"` // rate before the first of the changes that stand, same source
	Breakdown  policies.Breakdown `json:"breakdown"`          // latest window, slowest rank
	// Verdict is what its latest windows agree on, and seldom changes; WindowVerdict is the latest's own.
	Verdict       policies.Verdict `json:"verdict"`
	WindowVerdict policies.Verdict `json:"windowVerdict"`
	// VerdictSinceUnixNs is since when Verdict's class and cause are shown; 0: not known.
	VerdictSinceUnixNs int64         `json:"verdictSince,omitempty"`
	Cost               policies.Cost `json:"cost"`
	Knee               float64       `json:"knee,omitempty"` // predicted c*, CPUs
	// Bursts is the largest quota, CPUs, that of late stopped it though its mean use was below: it works
	// in bursts, and no knee is told. 0: none did.
	Bursts float64 `json:"bursts,omitempty"`
	// Correction multiplies the rates that the cost predicts, learned from trials; 0 or 1: none.
	Correction float64 `json:"correction,omitempty"`
	Ranks      int     `json:"ranks"`
	UsedCPUs   float64 `json:"usedCPUs"`
	QueuedCPUs float64 `json:"queuedCPUs,omitempty"` // that its threads waited for behind other work
	// PeakCPUs is the most CPUs that it wanted in one reading since PeakSinceUnixNs, when a daemon first
	// read it: what it used, or the quota that stopped it, and what it queued for; 0: it was not read.
	PeakCPUs        float64            `json:"peakCPUs,omitempty"`
	PeakSinceUnixNs int64              `json:"peakSince,omitempty"`
	MemoryUse       policies.MemoryUse `json:"memoryUse,omitzero"`
	// SharedBytes is the size of its /dev/shm, a tmpfs; 0: not known. Team is of its slowest rank.
	SharedBytes float64 `json:"shm,omitempty"`
	// NetworkMount is where it sees its only network mount; "": it has none or several, or that is not known.
	NetworkMount string `json:"networkMount,omitempty"`
	// Pauses are those in which it writes its state.
	Pauses checkpoint.Seen `json:"pauses,omitzero"`
	Team   policies.Team   `json:"team,omitzero"`
	// Staging is what its slowest rank's asynchronous copies to the device cost.
	Staging policies.Staging `json:"staging,omitzero"`
	Windows uint64           `json:"windows"` // closed since watched
	// ProbeShare is what the probes cost its threads, as a share of one CPU; Thinned says which
	// hooks take turns for it, and what else is not counted, each with why.
	ProbeShare float64                  `json:"probeShare,omitempty"`
	Thinned    []string                 `json:"thinned,omitempty"`
	PartNs     [policies.NumParts]int64 `json:"partNs"` // cumulative breakdown since watched

	Now      runtime.Values `json:"now,omitempty"`
	Original runtime.Values `json:"original,omitempty"` // equals Now where trimtab changed nothing
	Changed  []runtime.Knob `json:"changed,omitempty"`  // knobs that stand at trimtab's value
	Yielded  []runtime.Knob `json:"yielded,omitempty"`  // knobs left to a foreign writer
	// Deciders says of each knob that stands who decides on it: label over policy over default.
	Deciders  map[runtime.Knob]string `json:"deciders,omitempty"`
	Held      bool                    `json:"held,omitempty"`      // restored by hand, until resume
	Pending   string                  `json:"owed,omitempty"`      // a restore that is pending, and why
	Preflight string                  `json:"preflight,omitempty"` // why the GPU preflight is not green
	GPULost   string                  `json:"gpuLost,omitempty"`   // access to its GPU is lost now: what is known of it
	// GPUErrors are the latest that the driver reported of GPUs that it held, oldest first. They are only told.
	GPUErrors []GPUError `json:"gpuErrors,omitempty"`

	// ByCPUs and ByMemory are its rate by CPUs and by bytes, as learned; Paging is what the
	// latter was made from.
	ByCPUs   policies.Curve  `json:"byCPUs,omitzero"`
	ByMemory policies.Curve  `json:"byMemory,omitzero"`
	Paging   policies.Paging `json:"paging,omitzero"`

	Entitled   float64     `json:"entitled,omitempty"`   // CPUs it has a right to
	Obtainable float64     `json:"obtainable,omitempty"` // CPUs it could have beside the work that others do now, whatever its quota
	Allocation *Allocation `json:"allocation,omitempty"` // of the node, where it is tuned

	Gain    float64  `json:"gain,omitempty"` // measured: rate now over baseline, minus one
	HasGain bool     `json:"hasGain,omitempty"`
	Doubt   bool     `json:"doubt,omitempty"` // the job's own count says so, and what its Work tells is far from it
	Advice  []string `json:"advice,omitempty"`
	// Similar is what known jobs like it say; Devices its predicted speed on this node's other
	// devices: advice, never acted on.
	Similar *Similar `json:"similar,omitempty"`
	// LastRuns is what is known of it from earlier runs of the same job, since its start; nil: it is
	// not known what it was started as.
	LastRuns *profiles.Shown `json:"lastRuns,omitempty"`
	Devices  []DeviceSpeed   `json:"devices,omitempty"`
	Trial    *Trial          `json:"trial,omitempty"`  // open now
	Trials   []Trial         `json:"trials,omitempty"` // latest ended first, at most 10
}

// Reason says in a phrase why nothing was changed: what said no, else what is found to bound it.
func (c *Container) Reason() string {
	preflight := ""
	if c.Preflight != "" {
		preflight = "preflight: " + c.Preflight
	}
	return cmp.Or(c.WhyNot, preflight, strings.TrimSuffix(c.Verdict.Why, "."), "nothing that a change would relieve was found")
}

// Loan is CPU that a container has above its owner's quota, which nobody else used.
type Loan struct {
	CPUs        float64 `json:"cpus"`              // above its own, and above what trials gave
	Own         float64 `json:"own"`               // its owner's quota
	Trial       float64 `json:"trial,omitempty"`   // above its own by trials, kept or open: no part of the loan
	Used        float64 `json:"used"`              // of it, of late
	Settled     bool    `json:"settled,omitempty"` // by its own use: to that, or to all there is
	Whole       bool    `json:"whole,omitempty"`   // all that may be lent to it: it may want more
	SinceUnixNs int64   `json:"since,omitempty"`
	Why         string  `json:"why,omitempty"`
}

// Stands is the quota that stands, CPUs: its own, what trials gave and what is lent.
func (l *Loan) Stands() float64 { return l.Own + l.Trial + l.CPUs }

// Enough reports whether a loan is what its container can use: a number to copy.
func (l *Loan) Enough() bool { return l.Settled && !l.Whole }

// Work is how much more a container gets done than before the first change of it, by
// quantities that grow with work: never a rate in steps.
type Work struct {
	Ratio float64 `json:"ratio,omitempty"` // work done over that before; 0: not told
	By    string  `json:"by,omitempty"`    // the witnesses, for people
	CPUs  float64 `json:"cpus,omitempty"`  // used over used before, where nothing else tells; 0: not told
}

// Contradicts reports whether a claimed gain is further from the work done than two quantities
// may be that each vary by spread about their means: by more than twice that, in logarithms.
func (w Work) Contradicts(gain, spread float64) bool {
	return w.Ratio > 0 && gain > -1 && math.Abs(math.Log((1+gain)/w.Ratio)) > 2*spread
}

// Allocation is a container's part in the plan of the node.
type Allocation struct {
	Need float64 `json:"need"` // CPUs beyond which more buy it nothing, at most its quota
	CPUs float64 `json:"cpus"` // that it gets, by weights and quotas
	Rate float64 `json:"rate"` // predicted, over the best it could reach; 0: not known
	Why  string  `json:"why"`
}

// Outcome is how a trial ended.
type Outcome string

// Outcomes. Kept and RolledBack are judged; Inconclusive is rolled back too; Withdrawn comes later;
// Aborted ended without evidence: the container died, a foreign write, a restore.
const (
	OutcomeOpen         Outcome = "open"
	OutcomeKept         Outcome = "kept"
	OutcomeRolledBack   Outcome = "rolled_back"
	OutcomeInconclusive Outcome = "inconclusive"
	OutcomeUnproven     Outcome = "unproven"  // inconclusive, and nobody lacks what it gives: it stands, and is asked again
	OutcomeWithdrawn    Outcome = "withdrawn" // what stood is taken back later: it is asked again, or what was taken is missed
	OutcomeAborted      Outcome = "aborted"
	OutcomeWould        Outcome = "would" // observe mode: never applied
)

// Units of a trial's rates. Of ticks that are not known to be steps, and of work done, only what
// became of them is told: relative to before.
const (
	UnitSteps    = "steps/s"
	UnitRelative = "relative"
)

// Trial is a plan being judged, or one that was.
type Trial struct {
	Plan          string            `json:"plan"` // plan ID, unique in one daemon's history
	Policy        string            `json:"policy"`
	Changes       []policies.Change `json:"changes"`
	StartedUnixNs int64             `json:"started"`
	EndedUnixNs   int64             `json:"ended,omitempty"`
	Outcome       Outcome           `json:"outcome"`
	Before        float64           `json:"before"`          // rate before
	After         float64           `json:"after,omitempty"` // rate after, settled
	Predicted     float64           `json:"predicted"`       // rate after, predicted
	Unit          string            `json:"unit,omitempty"`  // of these rates; "": it was judged by no rate of this container
	// Together is how many containers the plan touches, if several: Ratio and its bounds are
	// then the mean of those that it gives to, and the rest is this container's.
	Together int     `json:"together,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"` // after over before
	Low      float64 `json:"low,omitempty"`   // bounds of Ratio at the judge's confidence
	High     float64 `json:"high,omitempty"`
	Why      string  `json:"why,omitempty"`
}

// RecordKind says what a history record tells of.
type RecordKind string

// Record kinds.
const (
	RecordChange    RecordKind = "change"    // a knob was written
	RecordLoan      RecordKind = "loan"      // something was lent, settled, or called in
	RecordWould     RecordKind = "would"     // observe mode: what would have been written
	RecordTrial     RecordKind = "trial"     // a trial ended
	RecordRollback  RecordKind = "rollback"  // a knob went back after a trial
	RecordRestore   RecordKind = "restore"   // an original went back
	RecordYield     RecordKind = "yield"     // a foreign write: the knob was left alone
	RecordPending   RecordKind = "owed"      // a restore could not be made safely
	RecordRefused   RecordKind = "refused"   // the runtime or the guard refused
	RecordEnrol     RecordKind = "enrol"     // enabled, disabled, held, resumed, paused
	RecordVerdict   RecordKind = "verdict"   // the class or cause changed, and stayed
	RecordGPULost   RecordKind = "gpu-lost"  // access to a GPU was lost, came back by itself, or could not be repaired
	RecordGPURepair RecordKind = "heal"      // lost access to a GPU was repaired
	RecordGPUView   RecordKind = "gpu-view"  // GPUs were hidden or shown
	RecordGPUError  RecordKind = "gpu-error" // the driver reported an error of a GPU
	RecordSlower    RecordKind = "slower"    // a run turned out slower than the last ones of its job
)

// Record is one line of history.
type Record struct {
	UnixNs  int64         `json:"time"`
	Kind    RecordKind    `json:"kind"`
	Key     string        `json:"key,omitempty"`
	Name    string        `json:"name,omitempty"`
	Team    string        `json:"team,omitempty"`
	Plan    string        `json:"plan,omitempty"`
	Policy  string        `json:"policy,omitempty"`
	Knob    runtime.Knob  `json:"knob,omitempty"`
	From    runtime.Value `json:"from,omitempty"`
	To      runtime.Value `json:"to,omitempty"`
	Actual  runtime.Value `json:"actual,omitempty"` // read back
	Outcome Outcome       `json:"outcome,omitempty"`
	Before  float64       `json:"before,omitempty"` // rates, see Trial
	After   float64       `json:"after,omitempty"`
	Unit    string        `json:"unit,omitempty"`
	Low     float64       `json:"low,omitempty"`
	High    float64       `json:"high,omitempty"`
	Gain    float64       `json:"gain,omitempty"` // predicted for change and would, measured for trial
	// ByProgram: of an error of a GPU, a program's own fault explains it (devices.ByProgram).
	ByProgram bool   `json:"byProgram,omitempty"`
	Text      string `json:"text"` // one sentence for people
}

// MaxRecords is the most records of history that one answer has: the newest.
const MaxRecords = 10_000

// Changed reports whether the record tells of a value that changed.
func (r Record) Changed() bool {
	switch r.Kind {
	case RecordChange, RecordLoan, RecordRollback, RecordRestore, RecordGPURepair, RecordGPUView:
		return true
	}
	return false
}

// Count is a counter with its bounded labels.
type Count struct {
	Policy string         `json:"policy,omitempty"`
	Knob   runtime.Knob   `json:"knob,omitempty"`
	Team   string         `json:"team,omitempty"`
	Class  policies.Class `json:"class,omitempty"`
	Cause  policies.Cause `json:"cause,omitempty"`
	Part   string         `json:"part,omitempty"`
	Result string         `json:"result,omitempty"`
	Value  float64        `json:"value"`
}

// Totals are counters since the daemon's start; they outlive containers.
type Totals struct {
	Plans         []Count   `json:"plans,omitempty"`        // by policy, result: applied, would, failed
	Changes       []Count   `json:"changes,omitempty"`      // by policy, knob, result: applied, refused, unavailable, yielded
	Trials        []Count   `json:"trials,omitempty"`       // by policy, result: an Outcome
	Rejections    []Count   `json:"rejections,omitempty"`   // by result: a gate
	LentSeconds   float64   `json:"lentSeconds,omitempty"`  // CPU seconds used above owners' quotas, of loans
	Restores      []Count   `json:"restores,omitempty"`     // by result: restored, yielded, pending, gone, failed
	TeamParts     []Count   `json:"teamParts,omitempty"`    // breakdown seconds by team and part
	TeamVerdicts  []Count   `json:"teamVerdicts,omitempty"` // windows by team, class, cause
	TeamGPUHeld   []Count   `json:"teamGPUHeld,omitempty"`  // seconds by team
	TeamGPUIdle   []Count   `json:"teamGPUIdle,omitempty"`  // seconds by team
	TeamUse       []TeamUse `json:"teamUse,omitempty"`      // what devices and CPUs were held for, by team and cause
	TeamLent      []Count   `json:"teamLent,omitempty"`     // the same by team
	TeamGiven     []Count   `json:"teamGiven,omitempty"`    // CPU seconds used above owners' quotas, of what trials gave, by team
	ApplySeconds  Histogram `json:"applySeconds"`           // one container's part of a plan, original to read-back
	ForeignWrites uint64    `json:"foreignWrites"`
	GPUAccessLost uint64    `json:"gpuAccessLost"`
	GPURepairs    []Count   `json:"gpuHeals,omitempty"` // by result: repaired, failed, left
	// ObservedSeconds is the time in which readings were taken.
	ObservedSeconds float64 `json:"observedSeconds,omitempty"`
}

// Histogram is cumulative counts up to each bound, Prometheus style.
type Histogram struct {
	Bounds []float64 `json:"bounds,omitempty"` // seconds, ascending
	Counts []uint64  `json:"counts,omitempty"` // cumulative, one for each bound
	Sum    float64   `json:"sum"`
	Count  uint64    `json:"count"`
}

// EnableRequest enrols running containers from the command line. Exactly one of
// Name, Image (a glob) and Compose (a project) is set.
type EnableRequest struct {
	Name    string   `json:"name,omitempty"`
	Image   string   `json:"image,omitempty"`
	Compose string   `json:"compose,omitempty"`
	Knobs   []string `json:"knobs,omitempty"` // families; default cpu
	ForNs   int64    `json:"for,omitempty"`   // 0: until disabled
}

// ActionResult tells what an action did with one container.
type ActionResult struct {
	Key  string `json:"key"`
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"` // "restored cpu.quota 150000 100000 → 40000 100000", or why not
}

// DeviceOf shows a device as it was read; all are the node's, whose slices name their GPU.
func DeviceOf(d probes.Device, all []probes.Device) Device {
	v := Device{Index: d.Index, UUID: d.UUID, Parent: d.Parent, Name: d.Name, Virtual: d.Virtual, Lost: d.Lost, Sharing: d.Sharing,
		MemTotal: d.MemTotal, MemUsed: d.MemUsed, SMActive: d.SMActive, TensorActive: d.TensorActive, DRAMActive: d.DRAMActive,
		PowerW: d.PowerW, PowerLimitW: d.PowerLimitW, ClockMHz: d.ClockMHz, MaxClockMHz: d.MaxClockMHz, TempC: d.TempC, Slowdown: d.Slowdown,
		PCIeRxBps: d.PCIeRxBps, PCIeTxBps: d.PCIeTxBps, PCIeMaxBps: d.PCIeMaxBps, NVLinkRx: d.NVLinkRx, NVLinkTx: d.NVLinkTx, Holders: []Holder{},
		Errors: DeviceErrors{ECCUncorrected: d.Errors.ECCUncorrected, ECCCorrected: d.Errors.ECCCorrected,
			RowsRemapped: d.Errors.RowsRemapped, RowPending: d.Errors.RowPending, RowFailed: d.Errors.RowFailed}}
	v.Sliced = slices.ContainsFunc(all, func(o probes.Device) bool { return o.Parent == d.UUID && d.UUID != "" })
	if len(d.Duty) > 0 {
		var sum float64
		for _, s := range d.Duty {
			sum += s.Share
		}
		mean := sum / float64(len(d.Duty))
		v.Duty = &mean
	}
	return v
}

// Counts are the values of counters, in order; their keys have Value 0.
func Counts(m map[Count]float64) []Count {
	out := slices.Collect(maps.Keys(m))
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Knob, b.Knob), cmp.Compare(a.Team, b.Team), cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Part, b.Part), cmp.Compare(a.Result, b.Result))
	})
	for i, k := range out {
		out[i].Value = m[k]
	}
	return out
}
