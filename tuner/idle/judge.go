package idle

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// finding is what one reading says of one holder.
type finding struct {
	usedNs   int64 // it ran something then; 0: not seen to
	quiet    bool  // it is known to have run nothing else
	evidence Evidence
}

// judge weighs a reading. Launches come first: a kernel of microseconds leaves the
// device's own figure, whole percents of 167 ms, at zero. Next what the device
// says, if nobody ran on it, or nobody else can have; then the driver's shares.
func (t *Tracker) judge(r reading, h *holding, ps []probes.DeviceProcess, uses map[int32][]string) finding {
	used, counted := t.launches(r, h, ps, uses)
	if r.busyNs > 0 && !r.shared {
		used = max(used, r.busyNs)
	}
	some, zero := shares(ps)
	if some {
		used = max(used, r.dev.AtNs)
	}
	switch {
	case used > 0:
		return finding{usedNs: min(used, r.dev.AtNs)}
	case r.told && r.busyNs == 0:
		return finding{quiet: true, evidence: ByDevice}
	case zero:
		return finding{quiet: true, evidence: ByShare}
	case counted:
		return finding{quiet: true, evidence: ByLaunches}
	case r.shared:
		return finding{evidence: Shared}
	}
	return finding{evidence: Untold}
}

// launches returns the latest launch that was not weighed before, and whether
// launches of all the holder's processes were counted since it was last covered.
func (t *Tracker) launches(r reading, h *holding, ps []probes.DeviceProcess, uses map[int32][]string) (usedNs int64, counted bool) {
	counted = true
	weighed := h.weighedNs
	for _, p := range ps {
		c, ok := t.processes[p.PID]
		if !ok || c.toldNs <= h.CoveredNs {
			counted = false
		}
		if !ok || c.usedNs <= h.weighedNs {
			continue
		}
		weighed = max(weighed, c.usedNs)
		if !t.elsewhere(r, h, uses[p.PID]) {
			usedNs = max(usedNs, c.usedNs)
		}
	}
	h.weighedNs = weighed
	return usedNs, counted
}

// elsewhere: a process of several devices launched, nothing ran on this one, and
// something did on another of them, since this one was last covered or within its
// last second.
func (t *Tracker) elsewhere(r reading, h *holding, on []string) bool {
	since := min(h.CoveredNs, r.dev.AtNs-second)
	return r.told && r.busyNs == 0 && slices.ContainsFunc(on, func(uuid string) bool {
		return uuid != r.dev.UUID && t.devices[uuid].busyNs > since
	})
}

// shares reads the driver's shares of the SMs: whether one is above zero, and
// whether all were told and are zero.
func shares(ps []probes.DeviceProcess) (some, zero bool) {
	zero = true
	for _, p := range ps {
		some = some || p.SM != nil && *p.SM > 0
		zero = zero && p.SM != nil && *p.SM == 0
	}
	return some, zero
}

// advance takes a reading in for one holder of its device.
// Of a holder that is no container any more nothing is told: it keeps its name and its team.
func (t *Tracker) advance(cfg Config, r reading, owner Owner, key string, ps []probes.DeviceProcess, uses map[int32][]string) {
	at, now := place{r.dev.UUID, key}, r.dev.AtNs
	h := t.holdings[at]
	if h == nil || now-h.AtNs > cfg.BridgeNs {
		h = &holding{Holding: Holding{Device: r.dev.UUID, Key: key, SinceNs: now, AtNs: now, QuietNs: now, CoveredNs: now, FirstSight: true}}
		t.holdings[at] = h
	}
	if owner.Key != "" {
		h.Name, h.Team = owner.Name, owner.Team
	}
	h.PIDs, h.MemBytes = pids(ps), memory(r, ps)
	held, covered := now-h.AtNs, h.CoveredNs
	h.AtNs = now
	h.take(t.judge(r, h, ps, uses), cfg.BridgeNs)
	h.Idle = h.QuietForNs() > cfg.AfterNs && now-h.CoveredNs <= cfg.BridgeNs
	t.add(at, h, held, max(0, h.CoveredNs-max(covered, h.QuietNs+cfg.AfterNs)))
}

// take moves the instants up to which a holder is known to have been quiet.
func (h *holding) take(f finding, bridgeNs int64) {
	hole := h.AtNs-h.CoveredNs > bridgeNs // nothing is known of it: it was use
	switch {
	case hole && (f.quiet || f.usedNs > 0):
		h.QuietNs, h.FirstSight, h.CoveredNs = h.AtNs, f.quiet, h.AtNs
	case f.usedNs > 0:
		h.QuietNs, h.FirstSight, h.CoveredNs = max(h.QuietNs, f.usedNs), false, h.AtNs
	case f.quiet:
		h.CoveredNs = h.AtNs
	case !hole:
		return // bridged so far: what was known stands
	}
	h.Evidence = f.evidence
}

// add counts, by container and device and by team.
func (t *Tracker) add(at place, h *holding, held, idle int64) {
	sum := t.totals[at]
	if sum == nil {
		sum = &total{}
		t.totals[at] = sum
	}
	sum.heldNs, sum.idleNs, sum.atNs = sum.heldNs+held, sum.idleNs+idle, h.AtNs
	h.HeldNs, h.IdleNs = sum.heldNs, sum.idleNs
	if held == 0 {
		return
	}
	team := h.Team
	if t.teams[team] == nil && len(t.teams) >= maxTeams {
		team = othersKey
	}
	if t.teams[team] == nil {
		t.teams[team] = &TeamTotal{Team: team}
	}
	t.teams[team].HeldNs += held
	t.teams[team].IdleNs += idle
}

// forget lets go of holders that left, and of the totals of containers that ended
// and devices that are gone.
func (t *Tracker) forget(cfg Config, devices []probes.Device, known map[string]Owner) {
	there := map[string]bool{}
	for _, d := range devices {
		there[d.UUID] = true
	}
	maps.DeleteFunc(t.holdings, func(_ place, h *holding) bool { return t.nowNs-h.AtNs > cfg.BridgeNs })
	maps.DeleteFunc(t.totals, func(at place, sum *total) bool {
		_, alive := known[at.holder]
		ended := at.holder != "" && !alive
		return t.holdings[at] == nil && (ended || !there[at.device] && t.nowNs-sum.atNs > forgetNs)
	})
	maps.DeleteFunc(t.devices, func(uuid string, s deviceState) bool { return !there[uuid] && t.nowNs-s.readNs > forgetNs })
}

// Holdings returns the holders of each device's latest reading, sorted by device, then holder.
func (t *Tracker) Holdings() []Holding {
	var out []Holding
	for at, h := range t.holdings {
		if h.AtNs == t.devices[at.device].readNs {
			out = append(out, h.Holding)
		}
	}
	slices.SortFunc(out, func(a, b Holding) int { return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Key, b.Key)) })
	return out
}

// Teams returns what each team held since the start, sorted.
func (t *Tracker) Teams() []TeamTotal {
	var out []TeamTotal
	for _, team := range slices.Sorted(maps.Keys(t.teams)) {
		out = append(out, *t.teams[team])
	}
	return out
}

func pids(ps []probes.DeviceProcess) []int32 {
	var out []int32
	for _, p := range ps {
		if !slices.Contains(out, p.PID) {
			out = append(out, p.PID)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxPIDs)]
}

func memory(r reading, ps []probes.DeviceProcess) uint64 {
	var sum uint64
	for _, p := range ps {
		sum += p.MemBytes
	}
	if sum == 0 && !r.shared {
		return r.dev.MemUsed
	}
	return sum
}
