package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/policies/lend"
	"github.com/trimtab/trimtab/policies/share"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/originals"
	"github.com/trimtab/trimtab/tuner/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memManuals, memHolds and memHistory keep in memory what the daemon keeps on disk.
type memManuals struct{ all []enrolment.Manual }

func (m *memManuals) Load() ([]enrolment.Manual, error) { return m.all, nil }
func (m *memManuals) Save(all []enrolment.Manual) error { m.all = all; return nil }

type memHolds struct {
	mu      sync.Mutex
	held    map[string]bool
	sets    int // how often it was to be stored who is held
	yielded map[string][]runtime.Knob
	paused  bool
	refused error  // of the disk: what is held is in memory alone
	disk    func() // waits as a slow disk does; nil: it is quick
	onDisk  map[string][]runtime.Knob
}

func (h *memHolds) with(f func()) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	return nil
}

func (h *memHolds) Held(key string) (held bool) {
	_ = h.with(func() { held = h.held[key] })
	return held
}

func (h *memHolds) SetHeld(held bool, keys ...string) error {
	return errors.Join(h.refused, h.with(func() {
		h.sets++
		for _, key := range keys {
			h.held[key] = held
		}
	}))
}

func (h *memHolds) Paused() (paused bool) {
	_ = h.with(func() { paused = h.paused })
	return paused
}

func (h *memHolds) SetPaused(paused bool) error { return h.with(func() { h.paused = paused }) }

func (h *memHolds) Yielded(key string) (knobs []runtime.Knob) {
	_ = h.with(func() { knobs = slices.Clone(h.yielded[key]) })
	return knobs
}

func (h *memHolds) AddYield(key string, knob runtime.Knob) {
	_ = h.with(func() { h.yielded[key] = append(h.yielded[key], knob) })
}

func (h *memHolds) Save() error {
	if h.disk != nil {
		h.disk()
	}
	return h.with(func() { h.onDisk = maps.Clone(h.yielded) })
}

func (h *memHolds) saved() (on map[string][]runtime.Knob) {
	_ = h.with(func() { on = h.onDisk })
	return on
}

func (h *memHolds) Prune(alive func(key string) bool) {
	_ = h.with(func() {
		maps.DeleteFunc(h.held, func(key string, _ bool) bool { return !alive(key) })
		maps.DeleteFunc(h.yielded, func(key string, _ []runtime.Knob) bool { return !alive(key) })
	})
}

type memHistory struct {
	mu      sync.Mutex
	records []state.Record
	err     error
	calls   int
	checked chan struct{} // nil: it is
}

func (h *memHistory) Check(ctx context.Context) error {
	if h.checked == nil {
		return nil
	}
	select {
	case <-h.checked:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *memHistory) ready() bool {
	select {
	case <-h.checked:
		return true
	default:
		return h.checked == nil
	}
}

func (h *memHistory) Append(records ...state.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls++; h.err != nil {
		return h.err
	}
	if !h.ready() {
		return history.ErrUnchecked
	}
	h.records = append(h.records, records...)
	return nil
}

func (h *memHistory) Query(context.Context, history.Filter) ([]state.Record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.records), nil
}

func (h *memHistory) has(kind state.RecordKind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.records, func(r state.Record) bool { return r.Kind == kind })
}

// count is how many records hold a text.
func (h *memHistory) count(text string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.records {
		if strings.Contains(r.Text, text) {
			n++
		}
	}
	return n
}

// wantTold looks for records of what people asked for, in order.
func (n *node) wantTold(texts ...string) {
	n.t.Helper()
	all, err := n.history.Query(context.Background(), history.Filter{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, text := range texts {
		i := slices.IndexFunc(all, func(r state.Record) bool { return r.Kind == state.RecordEnrol && strings.Contains(r.Text, text) })
		if i < 0 {
			n.t.Errorf("no record says %q", text)
			return
		}
		all = all[i+1:]
	}
}

// node is a host on which daemons come and go: what is on it outlives an agent.
type node struct {
	t       *testing.T
	engine  *runtimetest.Fake
	sim     *simProbe
	dir     string
	holds   *memHolds
	history *memHistory
	log     *bytes.Buffer
}

// bubble runs a test on a node in fake time.
func bubble(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		engine := runtimetest.NewFake()
		test(t, &node{t: t, engine: engine, sim: newSim(engine), dir: filepath.Join(dir, "originals"),
			holds: &memHolds{held: map[string]bool{}, yielded: map[string][]runtime.Knob{}}, history: &memHistory{}, log: &bytes.Buffer{}})
	})
}

// policiesAsked are those of the daemon.
func policiesAsked(k *policies.Constants) []policies.Policy {
	return []policies.Policy{lend.New(k), knee.New(k), share.New(k)}
}

// asking is one policy alone.
func asking(p policies.Policy) control.Policies {
	return func(*policies.Constants) []policies.Policy { return []policies.Policy{p} }
}

// starvedQuota is about a third of the simulated job's knee.
const starvedQuota = runtime.Value("40000 100000")

// job adds an enrolled container under a quota far below its knee.
func (n *node) job(name string) runtime.Container {
	values := runtimetest.DefaultValues()
	values[runtime.KnobCPUQuota] = starvedQuota
	return n.engine.Add(runtime.Container{Name: name, Labels: map[string]string{"trimtab.mode": "tune"}}, values)
}

func (n *node) actuator() *actuator.Actuator {
	return actuator.New(actuator.Options{Engines: map[string]actuator.Engine{n.engine.Name(): n.engine},
		Store: originals.New(originals.Options{Dir: n.dir}), Logger: slog.New(slog.DiscardHandler)})
}

// daemon is an agent that runs.
type daemon struct {
	*Agent
	n      *node
	cancel context.CancelFunc
	ended  chan error
}

func (n *node) start(change func(*Options)) *daemon {
	n.t.Helper()
	manuals, err := enrolment.OpenManuals(&memManuals{})
	if err != nil {
		n.t.Fatal(err)
	}
	o := Options{
		Engines: []runtime.Engine{n.engine}, Probes: []Probe{{Probe: n.sim}}, ReadHost: n.sim.host, Policies: policiesAsked,
		Actuator: n.actuator(), Manuals: manuals, Holds: n.holds, History: n.history, Tick: time.Second, Version: "test",
		Settings: Settings{Core: control.Defaults(), Rules: enrolment.Rules{Mode: policies.ModeTune, Observe: enrolment.ObserveLabelled, Knobs: []string{"cpu"}},
			EnrolHost: func(cpus float64, memory uint64) enrolment.Host {
				return enrolment.Host{CPUs: cpus, MemoryBytes: float64(memory)}
			}},
		Log: slog.New(slog.NewTextHandler(n.log, nil)),
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	d := &daemon{Agent: New(o), n: n, cancel: cancel, ended: make(chan error, 1)}
	go func() { d.ended <- d.Run(ctx) }()
	return d
}

// end stops the agent as a signal does, without a restore.
func (d *daemon) end() {
	d.n.t.Helper()
	d.cancel()
	if err := <-d.ended; err != nil {
		d.n.t.Fatal(err)
	}
}

// stop ends the daemon in order.
func (d *daemon) stop(handover bool) {
	d.n.t.Helper()
	d.end()
	if err := d.Shutdown(d.n.t.Context(), handover); err != nil {
		d.n.t.Fatal(err)
	}
}

// patience bounds waits, in fake time.
const patience = 5 * time.Minute

// until waits, in fake time, for a container's state.
func (d *daemon) until(name, what string, good func(state.Container) bool) state.Container {
	d.n.t.Helper()
	var last state.Container
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		for _, c := range d.Snapshot().Containers {
			if c.Name != name {
				continue
			}
			if last = c; good(c) {
				return c
			}
		}
	}
	d.n.t.Fatalf("%s: not within %s: %+v\n%s", what, patience, last, d.n.log)
	return last
}

func isChanged(c state.Container) bool { return len(c.Changed) > 0 }

func isKept(c state.Container) bool {
	return len(c.Trials) > 0 && c.Trials[0].Outcome == state.OutcomeKept
}

// isSettled: its loan has shrunk to what it can use.
func isSettled(c state.Container) bool {
	return c.Loan != nil && c.Loan.Settled && c.Loan.Stands() < simCPUs/2
}

// proven asks a proof for loans too.
func proven(o *Options) { o.Settings.Rules.Loans = policies.LoansProven }

// quota is what stands.
func (n *node) quota(c runtime.Container) runtime.Value {
	n.t.Helper()
	values, err := n.engine.Read(context.Background(), c)
	if err != nil {
		n.t.Fatal(err)
	}
	return values[runtime.KnobCPUQuota]
}

func (n *node) wantQuota(c runtime.Container, want runtime.Value, when string) {
	n.t.Helper()
	if got := n.quota(c); got != want {
		n.t.Errorf("%s: quota %q, want %q\n%s", when, got, want, n.log)
	}
}

// wantNoOriginals checks that no originals are left.
func (n *node) wantNoOriginals(when string) {
	n.t.Helper()
	left, err := os.ReadDir(n.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.t.Fatal(err)
	}
	if len(left) != 0 {
		n.t.Errorf("%s: originals left: %v", when, left)
	}
}
