// Package control is the middle of trimtab: a deterministic state machine from samples to
// plans. Each tick takes the same road: observe what was read, say what bounds each job, ask
// the policies, allocate what the node has, hold each plan within the laws, and open trials or
// judge them. It cannot reach a clock, a file or a network, so a recording of its inputs
// replays to the same plans, bit for bit.
package control

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/idle"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// second in nanoseconds; there is no clock here, only numbers.
const second = int64(1e9)

// Config bounds what may be done; see tuner/config for the meaning of each.
type Config struct {
	Constants policies.Constants `json:"constants"`

	ReserveCPUs     float64 `json:"reserveCPUs"`               // kept idle when CPU is lent
	ReserveCPUShare float64 `json:"reserveCPUShare,omitempty"` // and of the host's
	// LeftCPUShare is the share of the host's CPUs that of the reserve is kept from who crowds them, idle or not: where
	// such a program has all, some kernels run nothing else for seconds [measured, 6.18: PostgreSQL, 79 s at worst].
	LeftCPUShare float64 `json:"leftCPUShare,omitempty"`
	// ReserveMemory in bytes and ReserveMemoryShare of the host's memory are never given.
	ReserveMemory      float64 `json:"reserveMemory"`
	ReserveMemoryShare float64 `json:"reserveMemoryShare"`
	MaxTuned           int     `json:"ramp"` // containers that may be tuned at once; 0: all
	// ChangesPerMinute bounds the node's changes by trials.
	ChangesPerMinute int `json:"changesPerMinute"`
	// Objective is what the allocation of the node is to make large; "": the sum.
	Objective policies.Objective `json:"objective"`
	// Idle says when a holder of a device counts as idle.
	Idle idle.Config `json:"idle"`
}

// Defaults returns the configuration to start from.
func Defaults() Config {
	return Config{Constants: *policies.DefaultConstants(), ReserveMemoryShare: 0.1, ChangesPerMinute: 30,
		Objective: policies.ObjectiveSum, Idle: idle.Defaults()}
}

// Input is everything that came in since the last tick.
type Input struct {
	UnixNs     int64           `json:"unix"`              // wall clock: dates records, and known jobs, of which the oldest go first
	Host       probes.Host     `json:"host"`              // its AtNs is the tick's time
	Containers []Container     `json:"containers"`        // all running ones, sorted by key
	Samples    []probes.Sample `json:"samples"`           // sorted by container
	Results    []Result        `json:"results,omitempty"` // of plans and reverts of earlier ticks
	// Frozen: `trimtab pause` or the file /etc/trimtab/disabled; nothing new is proposed.
	Frozen string `json:"frozen,omitempty"`
}

// Container is one container with what the edge knows of it.
type Container struct {
	runtime.Container
	Enrolment policies.Enrolment `json:"enrolment"`
	Watched   bool               `json:"watched"`
	Now       runtime.Values     `json:"now"`                // what stands
	Original  runtime.Values     `json:"original,omitempty"` // knobs that trimtab changed: what stood before
	Yielded   []runtime.Knob     `json:"yielded,omitempty"`
	Held      bool               `json:"held,omitempty"`
	Pending   string             `json:"owed,omitempty"`
	Preflight string             `json:"preflight,omitempty"` // why not green; "" is green or no GPU
	Busy      bool               `json:"busy,omitempty"`      // a write or a restore is on its way
	// GPUVisibility are the GPUs that it was granted, by the number of their nodes; nil: none, or
	// not known. Elastic: see policies.Job.
	GPUVisibility []GPUVisibility `json:"sights,omitempty"`
	Elastic       bool            `json:"elastic,omitempty"`
	// Start is what it was known by when it started; nil: not told.
	Start *profiles.Start `json:"start,omitempty"`
}

// GPUVisibility is one GPU that a container was granted, as it has it now.
type GPUVisibility struct {
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
	Kind    policies.Kind     `json:"kind,omitempty"`
	Changes []policies.Change `json:"changes"`
	DryRun  bool              `json:"dryRun,omitempty"` // observe mode: the same path without the last call
	Why     string            `json:"why,omitempty"`    // of a revert that no trial asked for
}

// IsVisibility reports whether an order changes what a container sees of its GPUs.
func (o Order) IsVisibility() bool { return len(o.Changes) > 0 && o.Changes[0].Knob == runtime.KnobGPU }

func (o Order) touches(key string) bool {
	return slices.ContainsFunc(o.Changes, func(ch policies.Change) bool { return ch.Key == key })
}

// Decision is what a tick decided.
type Decision struct {
	Apply    []Order        `json:"apply,omitempty"`
	Rollback []Order        `json:"rollback,omitempty"` // to be undone
	Records  []state.Record `json:"records,omitempty"`
}

// reverts reports whether something of a container goes back with this decision.
func (d *Decision) reverts(key string) bool {
	return slices.ContainsFunc(d.Rollback, func(o Order) bool { return o.touches(key) })
}

// Tick is one recorded tick: what came in, and what was decided.
type Tick struct {
	Input    Input
	Decision Decision
}

// Replay steps a controller through recorded inputs, encoded as JSON.
func (c *Controller) Replay(raw json.RawMessage) (Tick, error) {
	var t Tick
	if err := json.Unmarshal(raw, &t.Input); err != nil {
		return t, fmt.Errorf("tick: %w", err)
	}
	t.Decision = c.Step(t.Input)
	return t, nil
}
