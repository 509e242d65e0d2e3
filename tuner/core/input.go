// Package core is the middle of trimtab: a deterministic state machine from
// samples to plans. Each tick it is given plain data and answers with what to
// apply and what to tell. It cannot reach a clock, a file or a network, so a
// recording of its inputs replays to the same plans, bit for bit.
package core

import (
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/idle"
	"github.com/trimtab/trimtab/tuner/verdict"
	"github.com/trimtab/trimtab/tuner/view"
)

// Config bounds what the core may do; see tuner/config for the meaning of each.
type Config struct {
	Thresholds verdict.Thresholds `json:"thresholds"`

	ReserveCPUs float64 `json:"reserveCPUs"` // never given
	// ReserveMemory in bytes and ReserveMemoryShare of the host's memory are never given.
	ReserveMemory      float64 `json:"reserveMemory,omitempty"`
	ReserveMemoryShare float64 `json:"reserveMemoryShare,omitempty"`
	Ramp               int     `json:"ramp"` // containers that may be tuned at once; 0: all

	MinWindowNs int64 `json:"minWindow"` // a window is at least so long
	MaxWindowNs int64 `json:"maxWindow"` // and is closed after so long without enough ticks
	SettleNs    int64 `json:"settle"`    // after a change that gives
	// SettleTakeNs after one that takes: prefetched batches hide it (DESIGN.md: 6 s measured).
	SettleTakeNs int64 `json:"settleTake"`
	CoolDownNs   int64 `json:"coolDown"` // between plans for one container
	// TakeAfterNs is how long a container must have been unchanged before some is taken back.
	TakeAfterNs int64 `json:"takeAfter"`
	// TrialMaxNs ends a trial that found no answer, TakeMaxNs one of a plan that takes,
	// which needs about 300 windows (tuner/trial): both are inconclusive then.
	TrialMaxNs int64 `json:"trialMax"`
	TakeMaxNs  int64 `json:"takeMax"`
	// Agree is how many windows in a row must name the same class and cause.
	Agree int `json:"agree"`
	// Before is how many rate observations a plan needs before it may start.
	Before int `json:"before"`
	// ChangesPerMinute bounds the node's changes.
	ChangesPerMinute int `json:"changesPerMinute"`
	// NeighbourMargin is the share of what it was entitled to and used that a neighbour may lose.
	NeighbourMargin float64 `json:"neighbourMargin"`
	// Objective is what the allocation of the node is to make large; "": the sum.
	Objective policies.Objective `json:"objective,omitempty"`
	// Idle says when a holder of a device counts as idle.
	Idle idle.Config `json:"idle"`
}

// second in nanoseconds; the core has no clock, only numbers.
const second = int64(1e9)

// Defaults returns the configuration to start from.
func Defaults() Config {
	return Config{
		Thresholds: verdict.Defaults(), ReserveCPUs: 0, ReserveMemoryShare: 0.1,
		MinWindowNs: 3 * second / 2, MaxWindowNs: 60 * second, SettleNs: 2 * second, SettleTakeNs: 8 * second,
		CoolDownNs: 20 * second, TakeAfterNs: 60 * second, TrialMaxNs: 90 * second, TakeMaxNs: 400 * second,
		Objective: policies.ObjectiveSum, Agree: 2, Before: 3, ChangesPerMinute: 30, NeighbourMargin: 0.03, Idle: idle.Defaults(),
	}
}

// Input is everything that came in since the last tick.
type Input struct {
	UnixNs     int64           `json:"unix"`              // wall clock, for records alone
	Host       probes.Host     `json:"host"`              // its AtNs is the tick's time
	Containers []Container     `json:"containers"`        // all running ones, sorted by key
	Samples    []probes.Sample `json:"samples"`           // sorted by container
	Results    []Result        `json:"results,omitempty"` // of plans and rollbacks of earlier ticks
	// Frozen: `trimtab pause` or the file /etc/trimtab/disabled; nothing new is proposed.
	Frozen string `json:"frozen,omitempty"`
}

// Container is one container with what the edge knows of it.
type Container struct {
	runtime.Container
	// Fixed is what FixedJSON made of the embedded container; nil: AppendJSON makes it.
	Fixed     []byte             `json:"-"`
	Enrolment policies.Enrolment `json:"enrolment"`
	Watched   bool               `json:"watched"`
	Now       runtime.Values     `json:"now"`                // what stands
	Original  runtime.Values     `json:"original,omitempty"` // knobs that trimtab changed: what stood before
	Yielded   []runtime.Knob     `json:"yielded,omitempty"`
	Held      bool               `json:"held,omitempty"`
	Owed      string             `json:"owed,omitempty"`
	Preflight string             `json:"preflight,omitempty"` // why not green; "" is green or no GPU
	Busy      bool               `json:"busy,omitempty"`      // a write or a restore is on its way
	// Pinned says why its CPU set must be left alone: its threads pin themselves, and this
	// kernel would forget that. LowReaches: see policies.MemoryUse.
	Pinned     string `json:"pinned,omitempty"`
	LowReaches bool   `json:"lowReaches,omitempty"`
	// Sights are the GPUs that it was granted, by the number of their nodes; nil: none, or
	// not known. Elastic: see policies.Job.
	Sights  []Sight `json:"sights,omitempty"`
	Elastic bool    `json:"elastic,omitempty"`
}

// Sight is one GPU that a container was granted, as it has it now.
type Sight struct {
	Minor   int            `json:"minor"`          // N of /dev/nvidiaN
	UUID    string         `json:"uuid,omitempty"` // "" where NVML does not tell
	Visible bool           `json:"visible,omitempty"`
	Hidden  policies.Hider `json:"hidden,omitempty"`
}

// ResultKind says what a result answers.
type ResultKind string

// Kinds of result. Ended: a restore, hold or foreign write ended whatever the
// container had open.
const (
	ResultApply    ResultKind = "apply"
	ResultRollback ResultKind = "rollback"
	ResultEnded    ResultKind = "ended"
)

// Result tells how an order, or something else that touched a container, went.
type Result struct {
	Kind ResultKind `json:"kind"`
	Plan string     `json:"plan,omitempty"`
	Key  string     `json:"key,omitempty"` // Ended: the container; Apply: the one that it failed on, where that is known
	OK   bool       `json:"ok"`
	// Refused: the runtime or a law said no, and will again.
	Refused bool   `json:"refused,omitempty"`
	Text    string `json:"text,omitempty"` // why not
}

// Order is a plan for the actuator.
type Order struct {
	Plan    string            `json:"plan"`
	Policy  string            `json:"policy"`
	Changes []policies.Change `json:"changes"`
	DryRun  bool              `json:"dryRun,omitempty"` // observe mode: the same path without the last call
	Why     string            `json:"why,omitempty"`    // of a rollback that no trial asked for
}

func (o Order) touches(key string) bool {
	return slices.ContainsFunc(o.Changes, func(ch policies.Change) bool { return ch.Key == key })
}

// Decision is what a tick decided.
type Decision struct {
	Apply    []Order       `json:"apply,omitempty"`
	Rollback []Order       `json:"rollback,omitempty"`
	Records  []view.Record `json:"records,omitempty"`
}

// takesBack reports whether something of a container goes back with this decision.
func (d *Decision) takesBack(key string) bool {
	return slices.ContainsFunc(d.Rollback, func(o Order) bool { return o.touches(key) })
}
