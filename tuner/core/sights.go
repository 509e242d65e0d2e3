package core

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/trial"
	"github.com/trimtab/trimtab/tuner/view"
)

// What a container sees of its GPUs is a knob like the others: it has a value that stands
// and an original, a change of it is a trial, and its way back compares before it writes.
// Three things are its own. People decide on it with `trimtab gpu`, and a container that
// one of them has decided on is left alone (it is among Yielded, and its devices say so).
// What a policy hid goes back at once, on trial or long after, at any sign that it is
// wanted. And the loop carries the orders out, by the road of `trimtab gpu`.

const (
	// sightWatchNs is how long a change of sight must do no harm. Longer than for other
	// takes: a job forms anew meanwhile, and its rate must come back first.
	sightWatchNs = 60 * second
	// sightLeast is how many observations must be seen under a hide: a job that hangs gives none.
	sightLeast = 3
	// sightObs is how many observations a job's rate under a hide is told from.
	sightObs = 10
)

// sightState is what the core keeps of a container's devices.
type sightState struct {
	usedNs map[string]int64 // by UUID: latest instant at which it may have had a process on it
	hide   *keptHide        // what was hidden from it and kept
	back   string           // the plan by which what is hidden goes back; "": none is on its way
}

// keptHide is what the job was before a hide that was kept, to be missed later.
type keptHide struct {
	before    []trial.Obs
	source    string
	appliedNs int64
	keptNs    int64
	depended  condition
}

// OfSight reports whether an order changes what a container sees of its GPUs.
func (o Order) OfSight() bool { return ofSight(o.Changes) }

func ofSight(changes []policies.Change) bool {
	return len(changes) > 0 && changes[0].Knob == runtime.KnobGPU
}

// deviceName is a device in a value of KnobGPU.
func (s Sight) deviceName() string {
	if s.UUID != "" {
		return s.UUID
	}
	return "nvidia" + strconv.Itoa(s.Minor)
}

// seen is the value of KnobGPU that some of the sights make.
func seen(sights []Sight, visible func(Sight) bool) runtime.Value {
	var names []string
	for _, s := range sights {
		if visible(s) {
			names = append(names, s.deviceName())
		}
	}
	return runtime.Value(strings.Join(names, ","))
}

// withSights adds the knob to what stands, and, where a policy hid something, to what stood.
func withSights(ct Container) Container {
	if len(ct.Sights) == 0 {
		return ct
	}
	hid := func(s Sight) bool { return s.Hidden == policies.HiddenByPolicy }
	ct.Now = ct.Now.Clone()
	if ct.Now == nil {
		ct.Now = runtime.Values{}
	}
	ct.Now[runtime.KnobGPU] = seen(ct.Sights, func(s Sight) bool { return s.Visible })
	if slices.ContainsFunc(ct.Sights, hid) {
		if ct.Original = ct.Original.Clone(); ct.Original == nil {
			ct.Original = runtime.Values{}
		}
		ct.Original[runtime.KnobGPU] = seen(ct.Sights, func(s Sight) bool { return s.Visible || hid(s) })
	}
	return ct
}

// sameResources reports whether nothing changed that decides on a job's pace. That a
// container's devices became known, or could not be read for once, is no change.
func sameResources(was, is runtime.Values) bool {
	if maps.Equal(was, is) {
		return true
	}
	for _, k := range append(runtime.Knobs(), runtime.KnobGPU) {
		before, had := was[k]
		now, has := is[k]
		if before != now || had != has {
			if k == runtime.KnobGPU && had != has {
				continue
			}
			return false
		}
	}
	return true
}

// noteSights notes who was on which of the granted devices. What could not be told
// counts as use: a doubt hides nothing.
func (c *Core) noteSights() {
	now, told := c.now(), map[string]int64{}
	for _, key := range c.keys() {
		j := c.jobs[key]
		if len(j.c.Sights) == 0 {
			j.usedNs = nil
			continue
		}
		used := make(map[string]int64, len(j.c.Sights))
		for _, s := range j.c.Sights {
			holders, ok := c.onDeviceNow(s.UUID)
			if _, known := told[s.UUID]; !known {
				last, before := c.onDevice[s.UUID]
				if !before || !ok || len(holders) > 0 {
					last = now
				}
				told[s.UUID] = last
			}
			last, before := j.usedNs[s.UUID]
			if !before || !ok || slices.Contains(holders, key) {
				last = now
			}
			used[s.UUID] = last
		}
		j.usedNs = used
	}
	c.onDevice = told
}

// onDeviceNow are the containers with a process on a device or a slice of it, "" for
// processes of the host; ok is false where the reading does not tell.
func (c *Core) onDeviceNow(uuid string) (keys []string, ok bool) {
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
func (c *Core) granted(j *job) []policies.Device {
	var out []policies.Device
	for _, s := range j.c.Sights {
		if s.UUID == "" {
			continue // nobody can be asked about it
		}
		d := policies.Device{Device: s.UUID, Visible: s.Visible, Hidden: s.Hidden,
			UnusedSeconds: float64(c.now()-j.usedNs[s.UUID]) / 1e9, FreeSeconds: float64(c.now()-c.onDevice[s.UUID]) / 1e9}
		holders, _ := c.onDeviceNow(s.UUID)
		for _, key := range holders {
			if o := c.jobs[key]; o != nil && o != j {
				d.Others = append(d.Others, policies.Holder{Key: key, Name: o.c.Name, Enrolled: o.c.Enrolment.Mode == policies.ModeTune, Verdict: o.verdict})
			}
		}
		out = append(out, d)
	}
	return out
}

// withoutGPUs drops plans that would move the knob beside others: it has a road of its own.
func withoutGPUs(plans []policies.Plan) []policies.Plan {
	return slices.DeleteFunc(slices.Clone(plans), func(p policies.Plan) bool {
		return slices.ContainsFunc(p.Changes, func(ch policies.Change) bool { return ch.Knob == runtime.KnobGPU })
	})
}

// considerSight passes what a policy asks to hide or show through the guard.
func (c *Core) considerSight(in Input, s policies.Sight, d *Decision) {
	j := c.jobs[s.Key]
	if j == nil || j.urgent || c.earlyFor(j) { // its memory, and its own measurement, come first
		return
	}
	if why := c.notNow(in, j); why != "" {
		j.whyNot = why
		return
	}
	i := slices.IndexFunc(j.c.Sights, func(o Sight) bool { return o.UUID == s.Device && s.Device != "" })
	if i < 0 {
		j.whyNot = "it was not granted the device that is asked for"
		return
	}
	ch := policies.Change{Key: s.Key, Name: j.c.Name, Knob: runtime.KnobGPU, From: j.c.Now[runtime.KnobGPU],
		To:     seen(j.c.Sights, func(o Sight) bool { return o.UUID == s.Device && !s.Hide || o.UUID != s.Device && o.Visible }),
		Reason: s.Reason, Take: s.Hide, RateAfter: j.rateNow(), Witness: policies.WitnessHarm}
	c.consider(policies.Plan{Policy: c.policy.Name(), Changes: []policies.Change{ch}}, d)
}

// boundSight holds a change of sight within the laws.
func (c *Core) boundSight(j *job, ch policies.Change) (policies.Change, string) {
	if ch.To == ch.From {
		return ch, "nothing to gain"
	}
	if j.back != "" {
		return ch, "its devices are on their way back"
	}
	if slices.ContainsFunc(j.c.Sights, func(s Sight) bool { return s.Hidden == policies.HiddenByPerson }) {
		return ch, "its devices were hidden by hand"
	}
	visible := map[string]bool{}
	for _, name := range strings.Split(string(ch.To), ",") {
		visible[name] = name != ""
	}
	left := 0
	for _, s := range j.c.Sights {
		if visible[s.deviceName()] {
			left++
		}
		switch {
		case s.Visible == visible[s.deviceName()]:
		case !s.Visible && s.Hidden != policies.HiddenByPolicy:
			return ch, "it is not trimtab that keeps it from that device"
		case s.Visible:
			if why := c.mayNotHide(j, s); why != "" {
				return ch, why
			}
		}
	}
	switch {
	case left == 0:
		return ch, "it is the last device that it sees"
	case ch.Take && j.verdict.WantsDevice():
		return ch, "it is short of devices itself"
	case c.failedAlready(j, ch.Knob):
		return ch, "a like change failed; waiting until something it depended on changes"
	}
	return ch, ""
}

// mayNotHide: a device in use is never hidden (law 9), nor one of which that is not known.
func (c *Core) mayNotHide(j *job, s Sight) string {
	holders, ok := c.onDeviceNow(s.UUID)
	switch {
	case !ok:
		return "whether a device is in use cannot be told now"
	case slices.Contains(holders, j.key):
		return "a device in use is never hidden"
	case c.now()-j.usedNs[s.UUID] < c.cfg.Idle.AfterNs:
		return "the device was in use a moment ago"
	}
	return ""
}

// overruled ends trials of sight that a person, a restore, the config or somebody who wrote
// the rules came before. Their way back shows only what a policy hid.
func (c *Core) overruled(d *Decision) {
	for _, plan := range slices.Sorted(maps.Keys(c.trials)) {
		t := c.trials[plan]
		j := c.jobs[t.subject()]
		if t.appliedNs == 0 || !ofSight(t.order.Changes) || len(j.c.Sights) == 0 {
			continue
		}
		why := j.notOurs()
		if why == "" && j.c.Now[runtime.KnobGPU] != t.order.Changes[0].To {
			why = "what it sees of its GPUs was changed by somebody else"
		}
		if why != "" {
			c.abandon(t, why, d)
		}
	}
}

// judgeSight ends the trial of a hide or a show. More cannot be asked of either than that
// it does no harm: a hide gives its container nothing, and what a device that is shown is
// worth is told only when the job has taken it up.
func (c *Core) judgeSight(t *openTrial, j *job, d *Decision) {
	after := t.settled(c, j, t.appliedNs)
	t.view.After = meanRate(after)
	if r, fell := fellBy(c.cfg.NeighbourMargin, t.before, after); fell {
		t.note(r)
		c.rollback(t, view.OutcomeRolledBack, r.Why, d)
		return
	}
	if c.now()-t.appliedNs-t.frozenNs < sightWatchNs {
		return
	}
	if t.take && len(after) < sightLeast {
		c.rollback(t, view.OutcomeInconclusive, "its rate was not seen after it", d)
		return
	}
	why := "shown, and its rate did not fall"
	if t.take {
		why = "it misses nothing; it is watched as long as the device is hidden"
		j.hide = &keptHide{before: t.before, source: t.source, appliedNs: t.appliedNs, keptNs: c.now(), depended: t.dependedOn[t.subject()]}
	}
	c.end(t, view.OutcomeKept, why, d)
}

// missed says by what a container shows that it wants what is hidden from it; "" if it does not.
func (c *Core) missed(j *job) string {
	if j.agree >= c.cfg.Agree && j.verdict.WantsDevice() {
		return "it is short of devices itself: " + className(j.verdict)
	}
	return ""
}

// fellBy finds a fall of the rate that noise does not explain.
func fellBy(share float64, before, after []trial.Obs) (trial.Result, bool) {
	p := trial.DefaultParams(true)
	p.MinBefore, p.Regression = 3, share
	r := trial.Judge(p, before, after, 0)
	return r, r.Outcome == trial.Inferior && r.Ratio <= 1-share
}

// returnSights orders back what policies hid, where it is missed or may not be hidden any
// more. It does so while all is frozen too: it only gives back. What goes back with the
// enrolment, a hold or the daemon's end is the loop's.
func (c *Core) returnSights(d *Decision) {
	for _, key := range c.keys() {
		j := c.jobs[key]
		if len(j.c.Sights) == 0 {
			continue // not known now
		}
		if !slices.ContainsFunc(j.c.Sights, func(s Sight) bool { return s.Hidden == policies.HiddenByPolicy }) {
			j.hide, j.back = nil, ""
			continue
		}
		if j.back != "" || j.c.Held || j.c.Enrolment.Mode != policies.ModeTune || len(c.trialsOf(key)) > 0 ||
			slices.ContainsFunc(d.Rollback, func(o Order) bool { return o.OfSight() && o.touches(key) }) {
			continue
		}
		if why := c.whyReturn(j); why != "" {
			c.returnSight(j, why, d)
		}
	}
}

// notOurs says why nothing that a policy hid may stand; "" if it may.
func (j *job) notOurs() string {
	switch {
	case slices.Contains(j.c.Yielded, runtime.KnobGPU):
		return "its devices are a person's to decide on now"
	case !j.c.Enrolment.Allows(runtime.KnobGPU):
		return "knob gpu is no longer allowed"
	}
	return ""
}

func (c *Core) whyReturn(j *job) string {
	if why := j.notOurs(); why != "" {
		return why
	}
	if why := c.missed(j); why != "" {
		return why
	}
	if h := j.hide; h != nil && c.silent(j, h) {
		return "its rate is not seen any more"
	}
	// Under other resources, or another source of the rate, it cannot be compared.
	if h := j.hide; h != nil && h.source == j.source && j.changedNs <= h.appliedNs {
		if r, fell := fellBy(trial.DefaultParams(true).Regression, h.before, last(j.obs, sightObs)); fell {
			return r.Why
		}
	}
	return ""
}

// silent reports whether a job under a kept hide has given no observation for a minute, or
// for the time of two pauses of its own where that is longer: it hangs, ended its work, or
// forms anew without what was hidden.
func (c *Core) silent(j *job, h *keptHide) bool {
	patience := int64(sightWatchNs)
	if usual := meanRate(h.before); usual > 0 {
		patience = max(patience, int64(2*pauseSteps/usual*1e9))
	}
	newest := h.keptNs
	if n := len(j.obs); n > 0 {
		newest = max(newest, j.obs[n-1].EndNs)
	}
	return c.now()-newest > patience
}

// returnSight orders back all that policies hid from a container.
func (c *Core) returnSight(j *job, why string, d *Decision) {
	ch := policies.Change{Key: j.key, Name: j.c.Name, Knob: runtime.KnobGPU, From: j.original(runtime.KnobGPU), To: j.c.Now[runtime.KnobGPU],
		Take: true, Witness: policies.WitnessHarm}
	o := Order{Plan: c.planID(), Policy: c.policy.Name(), Changes: []policies.Change{ch}, Why: why}
	j.back = o.Plan
	if j.hide != nil {
		j.hasFailed(runtime.KnobGPU, j.hide.depended)
		j.hide = nil
	}
	j.coolDown(c)
	d.Rollback = append(d.Rollback, o)
	d.Records = append(d.Records, c.record(view.RecordTrial, j, func(rec *view.Record) {
		rec.Plan, rec.Policy, rec.Knob, rec.From, rec.To, rec.Outcome = o.Plan, o.Policy, ch.Knob, ch.From, ch.To, view.OutcomeRolledBack
		rec.Text = fmt.Sprintf("%s taken back: %s", changesText(o.Changes), why)
	}))
}

// sightsReturned: one that could not be carried out is ordered again.
func (c *Core) sightsReturned(r Result) {
	for _, key := range c.keys() {
		if j := c.jobs[key]; j.back == r.Plan {
			j.back = ""
		}
	}
}
