package account

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/state"
)

const (
	// maxGapNs is the longest time between two readings that is counted: readings are thinned
	// to every fourth tick, of at most 10 s.
	maxGapNs = int64(60e9)
	// maxWindowNs is how long what a container held waits for its window to close, which is five
	// steps or a minute; beyond it what it was for is not known.
	maxWindowNs = int64(120e9)
	// covered is the share of what waits that the closed windows must cover to tell of all of
	// it: instants of ticks and of readings differ by some milliseconds.
	covered = 0.9
	// maxTeams bounds the teams that are counted apart, since labels are hostile input.
	maxTeams = 100
	// maxUnsaved bounds the rows that wait for a disk which does not serve.
	maxUnsaved = 5 * MaxRows
)

// Book counts between two readings after the other. It is used from one goroutine.
type Book struct {
	meters   map[string]*meter
	recalled map[string][]proof // proved under the daemon before, by container
	peaks    map[string]Peak    // told under the daemon before, by container
	unsaved  map[int64]*page    // by the hour's start
	teams    map[string]*team
	observed int64
	step     uint64
	nowNs    int64 // the wall clock of the latest snapshot
}

// team is what is counted of a team, and which causes trials of it were about: their series begin
// at 0 then, before there is anything to count.
type team struct {
	Sums
	tried [NumCauses]bool
}

// page is an hour that is not on disk yet.
type page struct {
	observed int64
	rows     map[string]*Row // their sums are nanoseconds
}

// NewBook returns an empty one.
func NewBook() *Book {
	return &Book{meters: map[string]*meter{}, recalled: map[string][]proof{}, peaks: map[string]Peak{}, unsaved: map[int64]*page{}, teams: map[string]*team{}}
}

// meter follows one container, or the processes of the host.
type meter struct {
	c       state.Container // the latest
	seen    uint64          // step
	parts   [policies.NumParts]int64
	devices map[string]deviceTime // by UUID
	idleDue int64                 // told to have been idle after it had been counted as use, ns of devices
	waiting waiting
	proofs  []proof // oldest first
	old     int     // how many of them are of an earlier daemon
	latest  string  // the plan of the latest trial that was looked at
	trial   *trialTime
}

// deviceTime is the totals of a holder on a device, ns.
type deviceTime struct{ held, idle int64 }

// waiting is what was held since the latest window closed, ns of devices and CPUs.
type waiting struct {
	wall, gpuBusy, gpuIdle, cpuBusy, cpuIdle, cpuUntold, lent, given int64 // cpuBusy: used, or queued for
}

// holding is one holder on one device, as it is published.
type holding struct {
	device string
	deviceTime
}

// Step counts from the snapshot before to this one, elapsed ns of the monotonic clock apart;
// the wall clock of s says to which hour that belongs. What is no interval, or too long a one,
// is not counted. Nobody else may read s yet: peaks of an earlier daemon are put in.
func (b *Book) Step(s *state.Snapshot, elapsedNs int64) {
	b.step++
	b.nowNs = s.UnixNs
	b.withPeaks(s)
	if elapsedNs < 0 || elapsedNs > maxGapNs {
		elapsedNs = 0
	}
	hour := floor(s.UnixNs, nsInHour)
	b.observed += elapsedNs
	b.page(hour).observed += elapsedNs
	containers, holdings := subjects(s)
	for i := range containers {
		c := &containers[i]
		m := b.meters[c.Key]
		if m != nil && i >= len(s.Containers) {
			m.name(c)
		}
		if m == nil {
			m = &meter{devices: map[string]deviceTime{}, proofs: b.recalled[c.Key], old: len(b.recalled[c.Key])}
			delete(b.recalled, c.Key)
			b.meters[c.Key] = m
			m.begin(c, holdings[c.Key])
		} else if elapsedNs == 0 {
			b.count(hour, m, m.close(nil))
			m.begin(c, holdings[c.Key])
		} else {
			b.count(hour, m, m.step(c, holdings[c.Key], elapsedNs, s.Node.CPUs))
		}
		if m.trial != nil {
			b.team(c).tried[m.trial.cause] = true
		}
		m.seen = b.step
	}
	if len(b.meters) > len(containers) {
		b.end(hour)
	}
	if b.step == recallSteps {
		clear(b.recalled) // who has not come back has ended
	}
	b.bound()
}

// end lets go of who is not there any more.
func (b *Book) end(hour int64) {
	for _, key := range slices.Sorted(maps.Keys(b.meters)) {
		if m := b.meters[key]; m.seen != b.step {
			b.count(hour, m, m.close(nil))
			delete(b.meters, key)
		}
	}
}

// subjects are who may hold something: containers, and whoever else holds a device.
func subjects(s *state.Snapshot) ([]state.Container, map[string][]holding) {
	containers := slices.Clip(s.Containers) // never written to: others read it
	if len(s.Devices) == 0 {
		return containers, nil
	}
	known := make(map[string]bool, len(containers))
	for i := range containers {
		known[containers[i].Key] = true
	}
	holdings := map[string][]holding{}
	for _, d := range s.Devices {
		for _, h := range d.Holders {
			key, name := h.Key, h.Name
			if key == "" {
				key, name = hostKey, hostKey
			}
			if !known[key] {
				known[key] = true
				containers = append(containers, state.Container{Key: key, Name: name, Enrolment: policies.Enrolment{Team: h.Team}})
			}
			holdings[key] = append(holdings[key], holding{d.UUID, deviceTime{ns(h.HeldSeconds), ns(h.IdleSeconds)}})
		}
	}
	return containers, holdings
}

func ns(seconds float64) int64 {
	if !(seconds >= 0 && seconds < math.MaxInt64/1e9) {
		return 0
	}
	return int64(math.Round(seconds * 1e9))
}

// times is a part of a time.
func times(ns int64, share float64) int64 {
	if !(share > 0) || math.IsInf(share, 0) {
		return 0
	}
	return int64(math.Round(float64(ns) * share))
}

// begin takes what is published as where counting starts.
func (m *meter) begin(c *state.Container, on []holding) {
	m.c, m.parts = *c, c.PartNs
	for _, h := range on {
		m.devices[h.device] = h.deviceTime
	}
	m.learn(c)
}

// step counts one interval, and returns what can be told by now.
func (m *meter) step(c *state.Container, on []holding, dt int64, hostCPUs float64) Sums {
	gpuBusy, gpuIdle := m.deviceTimes(on)
	cpu := cpuTimes(c, dt, hostCPUs)
	w := &m.waiting
	w.wall += dt
	w.gpuBusy += gpuBusy
	w.gpuIdle += gpuIdle
	w.cpuBusy += cpu.busy + cpu.queued
	w.cpuIdle += cpu.idle
	w.cpuUntold += cpu.untold
	w.lent += cpu.lent
	w.given += cpu.given
	var out Sums
	m.tried(c, &out, gpuBusy, cpu.busy)
	m.learn(c)
	m.saved(c, &out, gpuBusy, cpu.busy)
	closed := m.windows(c)
	m.c = *c
	if closed != nil || w.wall >= maxWindowNs {
		sums := m.close(closed)
		out.add(&sums)
	}
	return out
}

// name gives a container that only a device names what was known of it before: it has ended, and a device's reading
// tells of it later than its engine. What waits for a window is still for what its verdict says.
func (m *meter) name(c *state.Container) {
	c.Name, c.Image = cmp.Or(c.Name, m.c.Name), m.c.Image
	c.Enrolment.Team = cmp.Or(c.Enrolment.Team, m.c.Enrolment.Team)
	c.Verdict, c.PartNs = m.c.Verdict, m.c.PartNs
}

// deviceTimes is what it held of devices since the reading before, by the published totals. What
// is told to have been idle later than it was counted is taken from what comes.
func (m *meter) deviceTimes(on []holding) (busy, idle int64) {
	var held int64
	for _, h := range on {
		before := m.devices[h.device]
		m.devices[h.device] = h.deviceTime
		if h.held < before.held || h.idle < before.idle {
			continue // the totals of a device that was gone for long begin anew
		}
		held += h.held - before.held
		m.idleDue += h.idle - before.idle
	}
	idle = min(held, m.idleDue)
	m.idleDue -= idle
	return held - idle, idle
}

// windows is what its windows told since the latest that closed; nil: nothing. Totals that fell begin anew.
func (m *meter) windows(c *state.Container) *policies.Breakdown {
	var b policies.Breakdown
	before := m.parts
	m.parts = c.PartNs
	for p := range b.Ns {
		if b.Ns[p] = c.PartNs[p] - before[p]; b.Ns[p] < 0 {
			return nil
		}
		b.WallNs += b.Ns[p]
	}
	if b.WallNs == 0 {
		return nil
	}
	return &b
}

// close divides what waits by the breakdown of the windows that closed; nil: none tells.
func (m *meter) close(b *policies.Breakdown) (out Sums) {
	w := m.waiting
	m.waiting = waiting{}
	told := 0.0
	if b != nil && w.wall > 0 {
		if told = float64(b.WallNs) / float64(w.wall); told >= covered {
			told = 1
		}
	}
	parts := partTimes(b, told)
	relieved := Relieved(m.c.Verdict)
	divide := func(u *Use, busy, idle int64, of [policies.NumParts]int64) {
		u[Idle][Held] += idle
		for p, t := range of {
			c := Cause(p)
			u[c][Held] += t
			busy -= t
			if c.Stalled() && slices.Contains(relieved, c) {
				u[c][Actionable] += t
			}
		}
		u[Unknown][Held] += busy
	}
	out.Observed, out.Lent, out.Given = w.wall, w.lent, w.given
	divide(&out.GPU, w.gpuBusy, w.gpuIdle, parts(w.gpuBusy, w.gpuIdle))
	divide(&out.CPU, w.cpuBusy, w.cpuIdle, parts(w.cpuBusy, 0)) // CPUs are unused in all parts alike
	out.CPU[Unknown][Held] += w.cpuUntold
	return out
}

// partTimes returns what divides time in use by the breakdown, of which told was told. A device
// without a kernel is so while its rank stalls: idle is taken from the stalled parts, and only what
// is more than they are from the others.
func partTimes(b *policies.Breakdown, told float64) func(busy, idle int64) [policies.NumParts]int64 {
	return func(busy, idle int64) (out [policies.NumParts]int64) {
		if !(told > 0) {
			return out
		}
		rest, stalled := times(busy, told), 0.0
		take := func(p policies.Part, share float64) {
			out[p] = min(rest, times(busy+idle, told*share))
			rest -= out[p]
		}
		for p := range policies.NumParts {
			if Cause(p).Stalled() {
				stalled += b.Share(p)
			} else {
				take(p, b.Share(p))
			}
		}
		if stalled <= 0 {
			return out
		}
		left := max(0, 1-float64(idle)/(stalled*float64(busy+idle)))
		for p := range policies.NumParts {
			if Cause(p).Stalled() {
				take(p, b.Share(p)*left)
			}
		}
		return out
	}
}

// count enters sums, ns, in a container's row and in its team's totals.
func (b *Book) count(hour int64, m *meter, s Sums) {
	if s == (Sums{}) {
		return
	}
	p, c := b.page(hour), &m.c
	key, name, image, team := c.Key, cut(c.Name), cut(c.Image), cut(c.Enrolment.Team)
	if p.rows[key] == nil && len(p.rows) >= MaxRows {
		key, name, image, team = othersKey, othersKey, othersKey, othersKey
	}
	row := p.rows[key]
	if row == nil {
		row = &Row{Key: key}
		p.rows[key] = row
	}
	row.Name, row.Image, row.Team = name, image, team
	if key == c.Key && c.PeakSinceUnixNs > 0 {
		row.Peak = Peak{c.PeakCPUs, c.PeakSinceUnixNs, b.nowNs}
	}
	row.add(&s)
	b.team(c).add(&s)
}

// team is that of a container.
func (b *Book) team(c *state.Container) *team {
	name := cut(c.Enrolment.Team)
	if b.teams[name] == nil && len(b.teams) >= maxTeams {
		name = othersKey
	}
	if b.teams[name] == nil {
		b.teams[name] = &team{}
	}
	return b.teams[name]
}

func (b *Book) page(hour int64) *page {
	p := b.unsaved[hour]
	if p == nil {
		p = &page{rows: map[string]*Row{}}
		b.unsaved[hour] = p
	}
	return p
}

// bound drops the oldest hours while more rows wait than may.
func (b *Book) bound() {
	for rows := b.waits(); rows > maxUnsaved && len(b.unsaved) > 1; rows = b.waits() {
		delete(b.unsaved, slices.Min(slices.Collect(maps.Keys(b.unsaved))))
	}
}

func (b *Book) waits() (rows int) {
	for _, p := range b.unsaved {
		rows += len(p.rows)
	}
	return rows
}

// Take returns what was counted since it was last taken, in whole milliseconds: it is to be added
// to what is stored. What waits for a window stays.
func (b *Book) Take() (out []Hour) {
	hours := slices.Sorted(maps.Keys(b.unsaved))
	for i, start := range hours {
		p := b.unsaved[start]
		h := Hour{StartUnixNs: start, Hours: 1, Observed: p.observed / 1e6}
		p.observed %= 1e6
		for _, key := range slices.Sorted(maps.Keys(p.rows)) {
			r := p.rows[key]
			if ms, any := r.split(); any {
				h.Rows = append(h.Rows, Row{r.Key, r.Name, r.Image, r.Team, ms, r.Peak})
			}
		}
		if h.Observed > 0 || len(h.Rows) > 0 {
			out = append(out, h)
		}
		if i < len(hours)-1 {
			delete(b.unsaved, start)
		}
	}
	return out
}

// Return puts back what was taken and could not be stored.
func (b *Book) Return(hours []Hour) {
	for _, h := range hours {
		p := b.page(h.StartUnixNs)
		p.observed += h.Observed * 1e6
		for _, r := range h.Rows {
			r.each(func(ms *int64) { *ms *= 1e6 })
			if p.rows[r.Key] == nil {
				p.rows[r.Key] = &r
				continue
			}
			p.rows[r.Key].add(&r.Sums)
		}
	}
	b.bound()
}

// Close counts what waits for windows that will not close any more, at the end of the daemon.
func (b *Book) Close(unixNs int64) {
	for _, key := range slices.Sorted(maps.Keys(b.meters)) {
		b.count(floor(unixNs, nsInHour), b.meters[key], b.meters[key].close(nil))
	}
}

// Show fills in the counters of teams.
func (b *Book) Show(t *state.Totals) {
	t.ObservedSeconds, t.LentSeconds = seconds(b.observed, 1e9), 0
	for _, name := range slices.Sorted(maps.Keys(b.teams)) {
		x := b.teams[name]
		t.LentSeconds += seconds(x.Lent, 1e9)
		t.TeamLent = append(t.TeamLent, state.Count{Team: name, Value: seconds(x.Lent, 1e9)})
		t.TeamGiven = append(t.TeamGiven, state.Count{Team: name, Value: seconds(x.Given, 1e9)})
		t.TeamUse = append(t.TeamUse, teamUse(name, "gpu", &x.GPU, x.tried)...)
		t.TeamUse = append(t.TeamUse, teamUse(name, "cpu", &x.CPU, x.tried)...)
	}
}

func teamUse(team, resource string, u *Use, tried [NumCauses]bool) (out []state.TeamUse) {
	none := *u == (Use{}) // a team without GPUs has no series of them
	for c := range NumCauses {
		if x := u[c]; x != (Cell{}) || tried[c] && !none {
			shown := x.shown(1e9)
			shown.Team, shown.Resource, shown.Cause = team, resource, c.String()
			out = append(out, shown)
		}
	}
	return out
}

// shown is the terms in seconds, of which each is so many of their unit.
func (x Cell) shown(perSecond float64) state.TeamUse {
	of := func(t Term) float64 { return seconds(x[t], perSecond) }
	return state.TeamUse{Held: of(Held), Actionable: of(Actionable), Proven: of(Proven), Saved: of(Saved), Tried: of(Tried), Lost: of(Lost)}
}

func seconds(n int64, perSecond float64) float64 { return float64(n) / perSecond }
