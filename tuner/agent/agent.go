// Package agent is the daemon's heartbeat: it gathers what engines and probes
// tell, hands it to the core as plain data, and carries out what the core
// decides. It decides nothing itself.
//
// One goroutine owns all state (Run's). Writing to containers, and history, go
// through two workers with bounded queues, so that a slow engine or disk never
// delays a sample. Other goroutines come in through do.
package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/account"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/budget"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/place"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// Probe is a source of readings and whom it reads.
type Probe struct {
	probes.Probe
	All bool // all containers; else the watched ones
}

// Settings are what a reload of the config may replace while the agent runs.
type Settings struct {
	Core  control.Config
	Rules enrolment.Rules
	// EnrolHost derives what enrolment knows of the node from its CPUs and memory bytes.
	EnrolHost    func(cpus float64, memoryBytes uint64) enrolment.Host
	BudgetCPU    float64 // CPUs that trimtab itself may use
	BudgetMemory uint64  // bytes of resident memory likewise
	BudgetMaps   uint64  // bytes of kernel memory in BPF maps
	BudgetJob    float64 // share of one CPU that the probes may cost the threads of each container
	LoadedAt     time.Time
	// RepairGPUAccess: lost access to GPUs is repaired also for named containers that are only observed.
	RepairGPUAccess bool
	// GPUSignal: containers whose label asks are signalled when their GPUs change.
	GPUSignal bool
}

// History keeps records.
type History interface {
	// Check comes first, and may take a minute where a daemon was killed. Until it is through,
	// Append and Query answer history.ErrUnchecked.
	Check(ctx context.Context) error
	Append(records ...state.Record) error
	Query(ctx context.Context, f history.Filter) ([]state.Record, error)
}

// Accounts keep what devices and CPUs were held for. They are called after History.Check.
type Accounts interface {
	AddAccounts(hours ...account.Hour) error
	// Accounts calls each for what is stored of an instant and after, oldest first.
	Accounts(ctx context.Context, sinceNs int64, each func(account.Hour)) error
}

// Receivers are told what is recorded; Offer never blocks.
type Receivers interface {
	Offer(records []state.Record)
	Receivers() []state.Receiver // how each fares
}

// Recorder takes what was read and decided; it never blocks.
type Recorder interface {
	Write(kind string, v any) error
}

// Holds keeps what people froze: containers held since a restore, knobs that
// somebody else wrote, and a pause of everything. All survive a restart.
type Holds interface {
	// These never wait for the disk. What AddYield and Prune change is in force at once.
	Yielded(key string) []runtime.Knob
	AddYield(key string, knob runtime.Knob)
	Prune(alive func(key string) bool) // forgets containers that ended
	Held(key string) bool
	Paused() bool
	// These return when it is on disk. Save is for what AddYield and Prune changed.
	SetHeld(held bool, keys ...string) error
	SetPaused(paused bool) error
	Save() error
}

// Options are the agent's parts.
type Options struct {
	Engines  []runtime.Engine
	Probes   []Probe
	Missing  []state.Part // probes that could not be had at all
	ReadHost func() (probes.Host, error)
	// Policies are asked in their order.
	Policies control.Policies
	Actuator *actuator.Actuator
	Manuals  *enrolment.Manuals
	Holds    Holds
	History  History         // nil: none
	Series   *series.Store   // what somebody else makes of the snapshots, for the API; nil: none
	Accounts Accounts        // nil: none
	Store    *profiles.Store // known jobs to begin with; nil: none
	Known    Known           // nil: what is learned is not kept
	// Identify says what a container that starts is known by; nil: nothing is known before it steps.
	Identify  func(c runtime.Container) *profiles.Start
	Recorder  Recorder  // nil: none
	Receivers Receivers // nil: none
	// Preflight says why a container that holds a GPU may not be written to; "" if it may (law: GPU access).
	Preflight func(ctx context.Context, c runtime.Container) string
	// Above is what bounds the control groups above a container; nil: nothing does.
	Above      func(c runtime.Container) enrolment.AncestorLimit
	GPU        GPUAccess            // nil: lost access is noticed around writes only, and not counted
	GPUMemory  GPUMemory            // nil only if GPU is
	Visibility *actuator.Visibility // nil: no GPU is hidden
	Disabled   func() bool          // the file that stops every write
	Settings   Settings
	Tick       time.Duration
	Version    string
	Handover   bool // the daemon before handed over: what it left stands
	Notify     func(status string)
	Alive      func() // called once a tick, for the watchdog
	// Others is the CPU time that connections of anybody's took; nil: it counts as the daemon's own.
	Others func() time.Duration
	Log    *slog.Logger
}

// Agent runs the daemon. Its exported methods may be called from any goroutine.
type Agent struct {
	o            Options
	control      *control.Controller
	snapshot     atomic.Pointer[state.Snapshot]
	calls        chan func()
	events       chan runtime.Event
	repairNow    chan struct{}
	work         chan func(ctx context.Context)
	forgotten    atomic.Uint64 // see BooksForgotten
	visibilities chan visibilityOrder
	records      chan []state.Record
	// unwritten: history failed last time. The recordWriter's, and after it Shutdown's.
	unwritten bool

	// Owned by Run's goroutine.
	settings    Settings
	configErr   string
	containers  map[string]*tracked
	endedTeams  map[string]string // of containers that ended, until the worker has told of them
	sorted      []string          // their keys; nil: one came or went
	engines     map[string]*engineState
	probeState  map[string]*state.Part
	host        probes.Host
	results     []control.Result
	edge        writeCounters
	started     time.Time
	spent       spending
	dropped     uint64
	retriedAt   time.Time
	retrying    bool
	pendingSaid map[string]actuator.Outcome // by container: what was last told of its pending restore
	waiting     []work                      // it has found no room with the worker, and must be done
	undoing     map[string]*wayBack         // by plan
	ticks       int
	// shed says every how many ticks trimtab reads: more than one while it is over its own budget (law: own
	// budget). Memory that was taken is looked at each tick all the same: a job that needs it back may not
	// have the time of four.
	shed       budget.Shedder
	asked      bool // people changed something: the next tick reads, so that they see it
	budget     *budget.Controller
	budgetAtNs int64
	logged     map[string]*logQuota
	failures   map[string]int // by probe, in a row
	known      remembering
	accounts   accounting
	placed     place.Holds // devices that are kept for jobs that are about to start
	errors     deviceErrors
}

// New returns an agent; Run starts it.
func New(o Options) *Agent {
	l := &Agent{
		o: o, settings: o.Settings, started: time.Now(),
		calls: make(chan func()), repairNow: make(chan struct{}, 1), events: make(chan runtime.Event, 256), work: make(chan func(context.Context), 256), visibilities: make(chan visibilityOrder, 64), records: make(chan []state.Record, 256),
		containers: map[string]*tracked{}, endedTeams: map[string]string{}, engines: map[string]*engineState{}, probeState: map[string]*state.Part{}, logged: map[string]*logQuota{}, failures: map[string]int{}, pendingSaid: map[string]actuator.Outcome{}, undoing: map[string]*wayBack{},
		edge: newWriteCounters(), budget: budget.New(), placed: place.Holds{},
	}
	l.control = control.New(o.Settings.Core, o.Policies, epoch(l.started))
	l.known.queue = make(chan Kept, 1)
	l.accounts.book, l.accounts.takenAt = account.NewBook(), l.started
	l.accounts.queue, l.accounts.reporting = make(chan []account.Hour, 1), make(chan struct{}, 1)
	if o.Store != nil {
		l.control.Remember(o.Store)
		l.known.revision = o.Store.Revision()
	}
	for _, e := range o.Engines {
		l.engines[e.Name()] = &engineState{engine: e, part: state.Part{Name: e.Name(), Since: l.started.UnixNano(), Lost: "not reached yet"}}
	}
	l.probeState["host"] = &state.Part{Name: "host", OK: true, Since: l.started.UnixNano()}
	for _, p := range o.Probes {
		l.probeState[p.Name()] = &state.Part{Name: p.Name(), OK: true, Since: l.started.UnixNano()}
	}
	return l
}

// epoch names this start in plan IDs.
func epoch(t time.Time) string { return t.UTC().Format("0102T150405") }

// Epoch is the name of this start in plan IDs; a recording needs it to replay.
func (l *Agent) Epoch() string { return epoch(l.started) }

// Run works until ctx ends, then returns nil with its workers gone. It restores
// nothing: that is Shutdown's.
func (l *Agent) Run(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	start := func(f func(context.Context)) { workers.Go(func() { f(inner) }) }
	start(l.worker)
	start(l.recordWriter)
	if l.o.Known != nil {
		start(l.profileSaver)
	}
	if l.o.GPU != nil {
		start(l.repairAccess)
	}
	if l.o.Visibility != nil {
		start(l.guard)
	}
	for _, e := range l.o.Engines {
		start(func(ctx context.Context) { l.follow(ctx, e) })
	}
	l.main(ctx)
	cancel()
	workers.Wait()
	return nil
}

// follow passes on one engine's events.
func (l *Agent) follow(ctx context.Context, e runtime.Engine) {
	err := e.Run(ctx, func(ev runtime.Event) {
		select {
		case l.events <- ev:
		case <-ctx.Done():
		}
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		l.o.Log.Error("engine stopped", "engine", e.Name(), "error", err)
	}
}

func (l *Agent) main(ctx context.Context) {
	ticker := time.NewTicker(l.o.Tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-l.events:
			l.event(ev)
		case call := <-l.calls:
			call()
		case <-ticker.C:
			l.tick(ctx)
		}
	}
}

// do runs a function in Run's goroutine and waits for it.
func (l *Agent) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case l.calls <- func() { f(); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// worker carries out what touches containers, one after another.
func (l *Agent) worker(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-l.work:
			job(ctx)
		}
	}
}

// enqueue hands work to the worker; false if it is too far behind. Run's goroutine alone sends.
func (l *Agent) enqueue(job func(ctx context.Context)) bool {
	if len(l.waiting) > 0 || len(l.work) == cap(l.work) { // nothing overtakes what must be done
		return false
	}
	l.work <- job
	return true
}

// mustDo hands work to the worker that may not be left out. Where it finds no room it waits for the next
// tick. Of what bears a name the latest alone waits, so that no engine that comes and goes fills the list.
func (l *Agent) mustDo(name string, job func(ctx context.Context)) {
	if i := slices.IndexFunc(l.waiting, func(w work) bool { return name != "" && w.name == name }); i >= 0 {
		l.waiting[i].do = job
		return
	}
	l.waiting = append(l.waiting, work{name, job})
	l.handOver()
}

// work is what waits for room with the worker.
type work struct {
	name string // "": each of it is done
	do   func(ctx context.Context)
}

func (l *Agent) handOver() {
	n := min(len(l.waiting), cap(l.work)-len(l.work))
	for _, w := range l.waiting[:n] {
		l.work <- w.do
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
}

// reply brings a worker's answer back to Run's goroutine.
func (l *Agent) reply(ctx context.Context, f func()) {
	_ = l.do(ctx, f) // fails only when the agent has ended, and nobody is left to tell
}

// checkAgain is when a check of the history that failed is tried again.
const checkAgain = time.Minute

// recordWriter writes records to disk. While the history is checked they wait in the queue.
func (l *Agent) recordWriter(ctx context.Context) {
	if !l.checkHistory(ctx) {
		return // what waits is Shutdown's
	}
	l.recall(ctx)
	again := time.NewTicker(checkAgain)
	defer again.Stop()
	for {
		select {
		case records := <-l.records:
			l.write(records)
		case hours := <-l.accounts.queue:
			l.writeAccounts(ctx, hours)
		case <-again.C: // a disk that refused the check may serve by now; one that is through returns at once
			l.checkHistory(ctx)
		case <-ctx.Done():
			l.flush()
			return
		}
	}
}

// checkHistory reports whether the check came to an end before ctx did.
func (l *Agent) checkHistory(ctx context.Context) bool {
	if l.o.History == nil {
		return true
	}
	err := l.o.History.Check(ctx)
	if err != nil && ctx.Err() == nil {
		l.o.Log.Error("history is not kept", "error", err)
	}
	return err == nil || ctx.Err() == nil
}

// write appends to history. That it fails is said once: it must neither stop the
// loop nor make a shutdown that restored everything look failed.
func (l *Agent) write(records []state.Record) {
	if l.o.History == nil {
		return
	}
	err := l.o.History.Append(records...)
	if err != nil && !l.unwritten {
		l.o.Log.Error("history is not being written", "error", err)
	}
	l.unwritten = err != nil
}

// flush writes the records that are still queued.
func (l *Agent) flush() {
	for {
		select {
		case records := <-l.records:
			l.write(records)
		default:
			return
		}
	}
}

// keep sends records to history, with the team of their container, also if that has just ended, and to
// the log. A full queue drops and counts.
func (l *Agent) keep(records []state.Record) {
	if len(records) == 0 {
		return
	}
	records = slices.Clone(records) // the core's own are recorded as it made them
	for i, r := range records {
		if t := l.containers[r.Key]; t != nil {
			records[i].Team = cmp.Or(r.Team, t.enrolment.Team)
		} else {
			records[i].Team = cmp.Or(r.Team, l.endedTeams[r.Key])
		}
		l.logRecord(r)
		if r.Key != "" && l.containers[r.Key] == nil {
			delete(l.logged, r.Key) // its last word
		}
	}
	if l.o.Receivers != nil {
		l.o.Receivers.Offer(records)
	}
	select {
	case l.records <- records:
	default:
		l.dropped += uint64(len(records))
	}
}

// linesPerDay bounds the log for one container; history has them all.
const linesPerDay = 200

type logQuota struct {
	day   int64
	lines int
}

func (l *Agent) logRecord(r state.Record) {
	q := l.logged[r.Key]
	day := r.UnixNs / int64(24*time.Hour)
	if q == nil || q.day != day {
		q = &logQuota{day: day}
		l.logged[r.Key] = q
	}
	q.lines++
	switch {
	case q.lines < linesPerDay:
		l.o.Log.Info(r.Text, "event", string(r.Kind), "container", r.Name, "plan", r.Plan)
	case q.lines == linesPerDay:
		l.o.Log.Warn("no more lines today about this container; see trimtab history", "container", r.Name)
	}
}

// Snapshot returns the latest published state; never nil after the first tick.
func (l *Agent) Snapshot() *state.Snapshot {
	if s := l.snapshot.Load(); s != nil {
		return s
	}
	return &state.Snapshot{Daemon: state.Daemon{Version: l.o.Version, StartedUnixNs: l.started.UnixNano(), Mode: l.o.Settings.Rules.Mode}}
}

// Reload replaces the settings, from the next tick on.
func (l *Agent) Reload(ctx context.Context, s Settings) error {
	return l.do(ctx, func() {
		l.settings, l.configErr = s, ""
		l.control.SetConfig(s.Core)
		for _, t := range l.containers {
			t.settledFor = nil
		}
		if l.o.Recorder != nil {
			_ = l.o.Recorder.Write("config", s.Core) // the recorder counts what it drops
		}
	})
}

// RejectConfig shows why the last reload was refused; what was in force stays.
func (l *Agent) RejectConfig(ctx context.Context, why error) error {
	return l.do(ctx, func() { l.configErr = why.Error() })
}
