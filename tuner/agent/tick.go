package agent

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/state"
)

// tick takes one road: read, decide, act, publish.
func (l *Agent) tick(ctx context.Context) {
	l.ticks++
	l.handOver() // whatever is read
	if l.ticks%l.shed.Every() != 0 && !l.asked && !l.control.TookMemory() {
		l.o.alive()
		return
	}
	l.asked = false
	host, err := l.o.ReadHost()
	if err != nil {
		l.setProbe("host", false, err.Error())
		l.publish() // the agent lives, and says what it lacks
		l.o.alive()
		return
	}
	l.setProbe("host", true, "")
	l.host = host
	for _, key := range l.keys() {
		t := l.containers[key]
		l.refresh(ctx, t)
		l.settle(t)
	}
	l.noteErrors(time.Now())
	l.restorePending()
	l.undoAgain()
	l.keepBudget()
	in := l.input(ctx)
	if l.o.Recorder != nil {
		_ = l.o.Recorder.Write("tick", in) // the recorder counts what it drops
	}
	d := l.control.Step(in)
	l.results = nil
	l.act(d)
	l.keep(d.Records)
	l.remember()
	if l.o.Recorder != nil && (len(d.Apply)+len(d.Rollback)+len(d.Records) > 0) {
		_ = l.o.Recorder.Write("decision", d)
	}
	l.publish()
	l.o.alive()
}

func (o Options) alive() {
	if o.Alive != nil {
		o.Alive()
	}
}

// shedding reads less often while trimtab nears its budget, and more again once it uses
// less than a third of it.
func (l *Agent) shedding() {
	if l.settings.BudgetCPU <= 0 || l.spent.use == 0 {
		return
	}
	if l.shed.Next(l.spent.own, l.settings.BudgetCPU) {
		l.o.Log.Warn("trimtab's own CPU use decides how often it reads", "ticks", l.shed.Every(), "used", l.spent.own, "budget", l.settings.BudgetCPU)
	}
}

// input gathers a tick for the core.
func (l *Agent) input(ctx context.Context) control.Input {
	in := control.Input{UnixNs: time.Now().UnixNano(), Host: l.host, Results: l.results}
	switch {
	case l.o.Disabled != nil && l.o.Disabled():
		in.Frozen = "disabled on this host"
	case l.o.Holds.Paused():
		in.Frozen = "paused"
	}
	samples := make(map[string]*probes.Sample, len(l.containers))
	in.Containers, in.Samples = make([]control.Container, 0, len(l.containers)), make([]probes.Sample, 0, len(l.containers))
	for _, p := range l.o.Probes {
		l.readSays(p.Name(), p.Read(ctx, samples))
	}
	for _, key := range l.keys() {
		t := l.containers[key]
		if e := l.engines[t.c.ID.Engine]; !e.recovered || t.now == nil {
			continue // nothing is decided about what is not settled
		}
		c := t.c
		c.Labels = nil // what they ask for is in the enrolment; they may be long, and hold tokens
		in.Containers = append(in.Containers, control.Container{
			Container: c, Enrolment: t.enrolment, Watched: t.watched, Now: t.now, Original: t.standing.Original,
			Yielded: l.o.Holds.Yielded(key), Held: l.o.Holds.Held(key), Pending: t.standing.Pending, Preflight: t.whyNotReady(), Busy: t.busy,
			GPUVisibility: t.visibilities, Elastic: l.elastic(t), Start: t.start,
		})
		if s := samples[key]; s != nil {
			t.noteSetting(s.Cgroup)
			s.Container = key
			in.Samples = append(in.Samples, *s)
		}
	}
	return in
}

// retryPendingEvery is how often what is pending is looked at; the actuator spaces its tries.
const retryPendingEvery = 10 * time.Second

// restorePending tries again what could not be restored, if anything is pending.
func (l *Agent) restorePending() {
	if l.retrying || time.Since(l.retriedAt) < retryPendingEvery {
		return
	}
	l.retriedAt = time.Now()
	pending := l.o.Actuator.HasPending()
	running := map[runtime.ID]runtime.Container{}
	for _, t := range l.containers {
		running[t.c.ID] = t.c
		pending = pending || t.standing.Pending != "" && !t.busy
	}
	if !pending {
		return
	}
	lookup := func(id runtime.ID) (runtime.Container, bool) {
		c, ok := running[id]
		return c, ok
	}
	l.retrying = true
	l.mustDo("", func(ctx context.Context) {
		results, err := l.o.Actuator.RestorePending(ctx, lookup)
		l.reply(ctx, func() {
			l.retrying = false
			if err != nil {
				l.o.Log.Error("pending restores", "error", err)
			}
			l.restored(l.news(results), "pending since an earlier restore")
		})
	})
}

// news drops restores that are as pending as when that was last told: a try
// every few seconds would fill the history.
func (l *Agent) news(results []actuator.RestoreResult) (out []actuator.RestoreResult) {
	for _, r := range results {
		if t := l.containers[r.Key]; t != nil {
			t.stale = true
		}
		switch r.Outcome {
		case actuator.Pending, actuator.Failed, actuator.Unavailable:
			if l.pendingSaid[r.Key] == r.Outcome {
				continue
			}
			l.pendingSaid[r.Key] = r.Outcome
		default:
			delete(l.pendingSaid, r.Key)
		}
		out = append(out, r)
	}
	return out
}

// failuresToTell is how many ticks in a row a probe must fail before it is said
// to: a container that ended within a tick is no failure.
const failuresToTell = 3

func (l *Agent) readSays(probe string, err error) {
	if err == nil {
		l.failures[probe] = 0
		l.setProbe(probe, true, "")
		return
	}
	l.failures[probe]++
	if l.failures[probe] >= failuresToTell {
		l.setProbe(probe, false, err.Error())
	}
}

// spending is the daemon's own use at one instant.
type spending struct {
	at  time.Time
	cpu float64 // seconds since start
	use float64 // CPUs, mean of the last stretch
	// own is use without what others had it do: reports, of which one of a week takes as much CPU as reading
	// 1,000 containers for a minute, and connections. Nothing of that is saved where it reads less often.
	own, others float64 // CPUs, and seconds since start
	// Asking the kernel what each map holds takes as long as reading ten containers.
	probes   []probes.Cost // in the agent's order of probes
	resident uint64
}

// next takes in the seconds used since the start, in all and for others.
func (s *spending) next(now time.Time, cpu, others float64) {
	if length := now.Sub(s.at).Seconds(); !s.at.IsZero() && length > 0 {
		s.use = (cpu - s.cpu) / length
		s.own = max(0, s.use-(others-s.others)/length)
	}
	s.at, s.cpu, s.others = now, cpu, others
}

// measureSelf renews the daemon's own use every ten seconds.
func (l *Agent) measureSelf() {
	if time.Since(l.spent.at) < 10*time.Second {
		return
	}
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return
	}
	cpu := seconds(ru.Utime) + seconds(ru.Stime)
	l.spent.probes, l.spent.resident = l.spent.probes[:0], residentBytes()
	for _, p := range l.o.Probes {
		cost := p.Cost()
		cpu += float64(cost.ChildNs) / 1e9
		l.spent.probes = append(l.spent.probes, cost)
	}
	others := time.Duration(l.accounts.reportNs.Load())
	if l.o.Others != nil {
		others += l.o.Others()
	}
	l.spent.next(time.Now(), cpu, others.Seconds())
	l.shedding()
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// writers are what keeps what was read and decided, and how it fares; no verdict rests on it. A
// part is there before it loses anything: a counter that begins with its first loss shows no increase.
func (l *Agent) writers() (out []state.Part) {
	add := func(name string, lost uint64, err error) {
		if l.probeState[name] == nil {
			l.probeState[name] = &state.Part{Name: name, OK: true, Since: l.started.UnixNano()}
		}
		why := ""
		if err != nil {
			why = err.Error()
		}
		l.setProbe(name, err == nil, why)
		p := *l.probeState[name]
		p.LostEvents = lost
		out = append(out, p)
	}
	if l.o.History != nil {
		add("history", l.dropped, nil)
	}
	if r, ok := l.o.Recorder.(interface {
		Dropped() uint64
		Err() error
	}); ok {
		add("flight recorder", r.Dropped(), r.Err())
	}
	return out
}

// publish makes the next snapshot.
func (l *Agent) publish() {
	l.measureSelf()
	s := &state.Snapshot{UnixNs: time.Now().UnixNano()}
	l.control.Show(s)
	for i := range s.Containers {
		c := &s.Containers[i]
		c.ProbeShare, c.Thinned = l.budget.Spent(c.Key), l.thinned(c.Key)
	}
	l.edge.show(&s.Totals)
	s.Memory = l.showKnown()
	l.showGPULost(s)
	l.showErrors(s)
	l.showPlaced(s)
	s.Daemon = state.Daemon{
		Version: l.o.Version, PID: os.Getpid(), StartedUnixNs: l.started.UnixNano(), Mode: l.settings.Rules.Mode, Policies: l.control.PolicyNames(),
		Paused: l.o.Holds.Paused(), Disabled: l.o.Disabled != nil && l.o.Disabled(),
		CPUSeconds: l.spent.cpu, RecentCPUs: l.spent.use, RSSBytes: l.spent.resident, ConfigError: l.configErr, ConfigUnixNs: l.settings.LoadedAt.UnixNano(),
	}
	if l.settings.BudgetCPU > 0 {
		s.Daemon.BudgetShare = l.spent.use / l.settings.BudgetCPU
	}
	for _, e := range l.o.Engines {
		s.Daemon.Engines = append(s.Daemon.Engines, l.engines[e.Name()].part)
	}
	s.Daemon.Probes = append(s.Daemon.Probes, *l.probeState["host"])
	for i, p := range l.o.Probes {
		part := *l.probeState[p.Name()]
		if n, ok := p.Probe.(noter); ok {
			part.Note = n.Note()
		}
		var cost probes.Cost
		if i < len(l.spent.probes) { // else the daemon's own use could not be read yet
			cost = l.spent.probes[i]
		}
		part.LostEvents = cost.Lost
		s.Daemon.Probes = append(s.Daemon.Probes, part)
		s.Daemon.ProbeSeconds += float64(cost.KernelNs) / 1e9
		s.Daemon.ProbeRuns += cost.Runs
		s.Daemon.ProbeMapBytes += cost.MapBytes
		s.Daemon.ProbeLost += cost.Lost
		s.Daemon.RSSBytes += cost.ChildBytes
	}
	if l.settings.BudgetMemory > 0 {
		s.Daemon.MemoryShare = float64(s.Daemon.RSSBytes) / float64(l.settings.BudgetMemory)
	}
	s.Daemon.JobShare = l.dearestJob()
	if l.settings.BudgetMaps > 0 {
		s.Daemon.MapsShare = float64(s.Daemon.ProbeMapBytes) / float64(l.settings.BudgetMaps)
	}
	s.Daemon.Probes = append(append(s.Daemon.Probes, l.o.Missing...), l.writers()...)
	if n := l.shed.Every(); n > 1 {
		s.Daemon.Probes = append(s.Daemon.Probes, state.Part{Name: "budget", Since: l.spent.at.UnixNano(),
			Lost: fmt.Sprintf("readings are taken every %d ticks only: trimtab nears its own budget (overhead.cpu)", n)})
	}
	if l.o.Receivers != nil {
		s.Daemon.Receivers = l.o.Receivers.Receivers()
	}
	l.account(s)
	l.snapshot.Store(s)
	if l.o.Notify != nil {
		l.o.Notify(l.status(s))
	}
}

// noter is a probe that may find nothing to read, and say why that is all right.
type noter interface{ Note() string }

// status is one line for systemd.
func (l *Agent) status(s *state.Snapshot) string {
	watched, changed := 0, 0
	for _, c := range s.Containers {
		if c.Watched {
			watched++
		}
		if len(c.Changed) > 0 {
			changed++
		}
	}
	for _, e := range s.Daemon.Engines {
		if !e.OK {
			return fmt.Sprintf("waiting for %s: %s", e.Name, e.Lost)
		}
	}
	return fmt.Sprintf("%d containers, %d watched, %d changed", len(s.Containers), watched, changed)
}

// residentBytes is the daemon's resident set, 0 where /proc does not tell.
func residentBytes() uint64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident uint64
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}
