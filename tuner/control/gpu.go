package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/guard"
	"github.com/trimtab/trimtab/tuner/observe"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/verdict"
)

// What a container sees of its GPUs is a knob like the others: it has a value that stands and
// an original, a change of it is a trial judged by harm, and its way back compares before it
// writes. People decide on it with `trimtab gpu`, and a container that one of them has decided
// on is left alone. What a policy hid goes back at once at any sign that it is wanted.

// visibilityState is what is kept of a container's devices.
type visibilityState struct {
	usedNs map[string]int64 // by UUID: latest instant at which it may have had a process on it
	ranNs  map[string]int64 // by UUID: latest window in which it ran kernels there
	hide   *keptHide        // what was hidden from it and kept
	policy string           // that asked last
	back   string           // the plan by which what is hidden goes back; "": none is on its way
}

// keptHide is what the job was before a hide that was kept, to be missed later.
type keptHide struct {
	plan      string
	since     int64
	before    []observe.RateSample
	reference float64
	by        progress
	on        trial.Conditions
}

// deviceName is a device in a value of KnobGPU.
func (s GPUVisibility) deviceName() string {
	return cmp.Or(s.UUID, "nvidia"+strconv.Itoa(s.Minor))
}

// seen is the value of KnobGPU that some of the GPUs make.
func seen(visibilities []GPUVisibility, visible func(GPUVisibility) bool) runtime.Value {
	var names []string
	for _, s := range visibilities {
		if visible(s) {
			names = append(names, s.deviceName())
		}
	}
	return runtime.Value(strings.Join(names, ","))
}

// withVisibility adds the knob to what stands, and, where a policy hid something, to what stood.
func withVisibility(ct Container) Container {
	if len(ct.GPUVisibility) == 0 {
		return ct
	}
	hid := func(s GPUVisibility) bool { return s.Hidden == policies.HiddenByPolicy }
	ct.Now = ct.Now.Clone()
	if ct.Now == nil {
		ct.Now = runtime.Values{}
	}
	ct.Now[runtime.KnobGPU] = seen(ct.GPUVisibility, func(s GPUVisibility) bool { return s.Visible })
	if slices.ContainsFunc(ct.GPUVisibility, hid) {
		if ct.Original = maps.Clone(ct.Original); ct.Original == nil {
			ct.Original = runtime.Values{}
		}
		ct.Original[runtime.KnobGPU] = seen(ct.GPUVisibility, func(s GPUVisibility) bool { return s.Visible || hid(s) })
	}
	return ct
}

// gpusKeptNs is how long a job that runs no kernel keeps the right that its devices give
// it: a checkpoint or an evaluation on the CPU is no change of what it is.
const gpusKeptNs = 120 * second

// usedShare is the share of a window in which a device must have worked for a container to
// be one that it uses: a context alone makes none work.
const usedShare = 0.01

// noteGPUs notes which of its devices a container used in a closed window: by the driver's
// shares of its processes, else by the device's activity; where neither is told it counts.
func (s *containerState) noteGPUs(w *observe.Window) {
	for _, d := range w.Devices {
		if d.SMReadings > 0 && d.Own < usedShare || d.SMReadings == 0 && d.Samples > 0 && d.Duty < usedShare {
			continue
		}
		if s.gpu.ranNs == nil {
			s.gpu.ranNs = map[string]int64{}
		}
		s.gpu.ranNs[d.UUID] = w.EndNs
	}
}

// gpusUsed counts the devices on which the container lately ran kernels.
func (s *containerState) gpusUsed(nowNs int64) float64 {
	if s.obs.LaunchedNs == 0 || nowNs-s.obs.LaunchedNs > gpusKeptNs {
		return 0
	}
	n := 0.0
	for _, ns := range s.gpu.ranNs {
		if nowNs-ns <= gpusKeptNs {
			n++
		}
	}
	return max(1, n)
}

// noteVisibility notes who was on which of the granted devices. What could not be told
// counts as use: a doubt hides nothing.
func (c *Controller) noteVisibility() {
	now, lastUsed := c.now(), map[string]int64{}
	for _, s := range c.all {
		if len(s.c.GPUVisibility) == 0 {
			s.gpu.usedNs = nil
			continue
		}
		used := make(map[string]int64, len(s.c.GPUVisibility))
		for _, g := range s.c.GPUVisibility {
			holders, ok := c.onDeviceNow(g.UUID)
			if _, known := lastUsed[g.UUID]; !known {
				last, before := c.onDevice[g.UUID]
				if !before || !ok || len(holders) > 0 {
					last = now
				}
				lastUsed[g.UUID] = last
			}
			last, before := s.gpu.usedNs[g.UUID]
			if !before || !ok || slices.Contains(holders, s.key) || last < s.known.sinceNs {
				last = now
			}
			used[g.UUID] = last
		}
		s.gpu.usedNs = used
	}
	c.onDevice = lastUsed
}

// onDeviceNow are the containers with a process on a device or a slice of it, "" for
// processes of the host; ok is false where the reading does not tell.
func (c *Controller) onDeviceNow(uuid string) (keys []string, ok bool) {
	for _, d := range c.last.Host.Devices {
		if uuid == "" || d.UUID != uuid && d.Parent != uuid {
			continue
		}
		if d.Lost != "" || c.now()-d.AtNs > c.cfg.Idle.BridgeNs {
			return nil, false
		}
		ok = ok || d.UUID == uuid
		for _, p := range d.Processes {
			keys = append(keys, p.Container)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), ok
}

// granted are a container's devices for a policy.
func (c *Controller) granted(s *containerState) []policies.Device {
	var out []policies.Device
	for _, g := range s.c.GPUVisibility {
		if g.UUID == "" {
			continue // nobody can be asked about it
		}
		d := policies.Device{Device: g.UUID, Visible: g.Visible, Hidden: g.Hidden,
			UnusedSeconds: float64(c.now()-s.gpu.usedNs[g.UUID]) / 1e9, FreeSeconds: float64(c.now()-c.onDevice[g.UUID]) / 1e9}
		holders, _ := c.onDeviceNow(g.UUID)
		for _, key := range holders {
			if o := c.containers[key]; o != nil && o != s {
				d.Others = append(d.Others, policies.Holder{Key: key, Name: o.c.Name, Enrolled: o.c.Enrolment.Mode == policies.ModeTune, Verdict: o.verdicts.Agreed(c.k().Agree)})
			}
		}
		out = append(out, d)
	}
	return out
}

// tryVisibility passes what policies ask to hide or show through the guard, one for each container.
func (c *Controller) tryVisibility(in Input, visibilities []policies.GPUVisibility, d *Decision) {
	for _, ask := range visibilities {
		s := c.containers[ask.Key]
		if s == nil || c.fixed(in, s) != "" || s.c.Busy || s.plan != "" || c.urgent(s) || d.reverts(s.key) {
			continue
		}
		i := slices.IndexFunc(s.c.GPUVisibility, func(o GPUVisibility) bool { return o.UUID == ask.Device && ask.Device != "" })
		if i < 0 {
			c.refuse([]guard.Rejection{{Container: s.key, Gate: guard.GateBounds, Text: "it was not granted that device"}})
			continue
		}
		ch := policies.Change{Key: ask.Key, Name: s.c.Name, Knob: runtime.KnobGPU, From: s.c.Now[runtime.KnobGPU],
			To: seen(s.c.GPUVisibility, func(o GPUVisibility) bool {
				return o.UUID == ask.Device && !ask.Hide || o.UUID != ask.Device && o.Visible
			}),
			Reason: ask.Reason, Take: ask.Hide, RateAfter: s.obs.Rates.Now(), Criterion: policies.CriterionNoHarm}
		if why := c.mayNotSee(s, ch); why != "" {
			c.refuse([]guard.Rejection{{Container: s.key, Gate: guard.GateBounds, Text: why}})
			continue
		}
		s.gpu.policy = ask.Policy
		plan := policies.Plan{Policy: ask.Policy, Changes: []policies.Change{ch}}
		if c.watchedOnly(plan) {
			c.wouldDo(plan, d)
			continue
		}
		c.try([]policies.Plan{plan}, d)
	}
}

// mayNotSee holds a change of visibility within the laws: a device in use is never hidden, nor one
// of which that is not known, nor the last that a container sees.
func (c *Controller) mayNotSee(s *containerState, ch policies.Change) string {
	switch {
	case ch.To == ch.From:
		return "nothing to gain"
	case s.gpu.back != "":
		return "its devices are on their way back"
	case slices.ContainsFunc(s.c.GPUVisibility, func(g GPUVisibility) bool { return g.Hidden == policies.HiddenByPerson }):
		return "its devices were hidden by hand"
	case ch.To == "":
		return "it is the last device that it sees"
	case ch.Take && s.verdicts.Agreed(c.k().Agree).WantsDevice():
		return "it is short of devices itself"
	}
	visible := strings.Split(string(ch.To), ",")
	for _, g := range s.c.GPUVisibility {
		now, then := g.Visible, slices.Contains(visible, g.deviceName())
		holders, ok := c.onDeviceNow(g.UUID)
		switch {
		case now == then:
		case !now && g.Hidden != policies.HiddenByPolicy:
			return "it is not trimtab that keeps it from that device"
		case !now:
		case !ok:
			return "whether a device is in use cannot be told now"
		case slices.Contains(holders, s.key):
			return "a device in use is never hidden"
		case c.now()-s.gpu.usedNs[g.UUID] < c.cfg.Idle.AfterNs:
			return "the device was in use a moment ago"
		}
	}
	return ""
}

// missed says by what a container shows that it wants what is hidden from it; "" if it does not.
func (c *Controller) missed(s *containerState) string {
	if v := s.verdicts.Agreed(c.k().Agree); s.verdicts.Latest().WantsDevice() && v.WantsDevice() {
		return "it is short of devices itself: " + verdict.Name(v)
	}
	return ""
}

// notOurs says why nothing that a policy hid may stand; "" if it may.
func (s *containerState) notOurs() string {
	switch {
	case slices.Contains(s.c.Yielded, runtime.KnobGPU):
		return "its devices are a person's to decide on now"
	case len(s.c.GPUVisibility) > 0 && !s.c.Enrolment.Allows(runtime.KnobGPU):
		return "knob gpu is no longer allowed"
	}
	return ""
}

// returnVisibility orders back what policies hid, where it is missed or may not be hidden any
// more. It does so while all is frozen too: it only gives back. What goes back with the
// enrolment, a hold or the daemon's end is the agent's.
func (c *Controller) returnVisibility(d *Decision) {
	for _, s := range c.all {
		if len(s.c.GPUVisibility) == 0 {
			continue // not known now
		}
		if !slices.ContainsFunc(s.c.GPUVisibility, func(g GPUVisibility) bool { return g.Hidden == policies.HiddenByPolicy }) {
			s.gpu.hide, s.gpu.back = nil, ""
			continue
		}
		if s.gpu.back != "" || s.c.Held || s.c.Enrolment.Mode != policies.ModeTune || s.plan != "" || d.reverts(s.key) {
			continue
		}
		if why := c.whyReturn(s); why != "" {
			ch := policies.Change{Key: s.key, Name: s.c.Name, Knob: runtime.KnobGPU, From: s.original(runtime.KnobGPU), To: s.c.Now[runtime.KnobGPU],
				Take: true, Criterion: policies.CriterionNoHarm}
			o := Order{Plan: c.planID(), Policy: cmp.Or(s.gpu.policy, "trimtab"), Changes: []policies.Change{ch}, Why: why}
			h := cmp.Or(s.gpu.hide, &keptHide{since: -1})
			s.gpu.hide, s.gpu.back = nil, o.Plan
			if h.since >= s.known.sinceNs { // what another job may want says nothing of that one's
				s.failures.Add(runtime.KnobGPU, true, h.on)
			}
			c.revert(o, h.plan, d)
		}
	}
}

func (c *Controller) whyReturn(s *containerState) string {
	if why := s.notOurs(); why != "" {
		return why
	}
	if why := c.missed(s); why != "" {
		return why
	}
	h := s.gpu.hide
	if s.known.sinceNs > 0 && (h == nil || h.since < s.known.sinceNs) {
		return "another job runs in it now, which may want them"
	}
	if h == nil || h.reference <= 0 {
		return ""
	}
	after := h.by.samples(s, max(h.since, c.now()-20*second))
	switch {
	case len(after) == 0 && c.silent(s, h):
		return "its rate is not seen any more"
	case len(after) == 0 || s.obs.ChangedNs() > h.since:
		return "" // under other resources it cannot be compared
	}
	if r, ok := trial.Compare(c.k(), []trial.Block{{Samples: h.before}, {With: true, Samples: over(after, h.reference)}}, c.k().TrialAlpha/4); ok && r.High < 1-c.k().TrialRegression {
		return fmt.Sprintf("its rate fell: %s", r.Spread())
	}
	return ""
}

// silent reports whether a job under a kept hide has given no reading for a minute, or for the
// time of two pauses of its own, if that is longer: it hangs, ended, or forms anew without it.
func (c *Controller) silent(s *containerState, h *keptHide) bool {
	patience := max(int64(c.k().UnusedSeconds*1e9), int64(16/max(h.reference, 1e-3)*1e9))
	return c.now()-max(h.since, h.by.seenNs(s)) > patience
}

// visibilityReturned: one that could not be carried out is ordered again.
func (c *Controller) visibilityReturned(r Result) {
	for _, s := range c.all {
		if s.gpu.back == r.Plan {
			s.gpu.back = ""
		}
	}
}
