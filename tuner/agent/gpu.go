package agent

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

// guardEvery is how often what is hidden is compared with what is allowed, and with
// who may still be changed.
const guardEvery = 2 * time.Second

// guard looks after what is hidden: it restores what an earlier daemon left, what
// nobody asks for any more, and what somebody else has allowed again.
func (l *Agent) guard(ctx context.Context) {
	pending := map[string]string{} // why, by container
	if !l.o.Handover {
		for key := range l.o.Visibility.Hiding() {
			pending[key] = "left by an earlier run of trimtab"
		}
	}
	said := map[string]string{} // what kept it pending, told once
	swept := map[string]*sweeping{}
	ticker := time.NewTicker(guardEvery)
	defer ticker.Stop()
	for {
		hiding := l.o.Visibility.Hiding()
		shown := func(key, _ string) bool { _, hidden := hiding[key]; return !hidden } // by hand meanwhile
		maps.DeleteFunc(pending, shown)
		maps.DeleteFunc(said, shown)
		for key, minors := range hiding {
			l.lookAfter(ctx, key, minors, pending, said)
		}
		swept = l.sweepVisibility(ctx, swept)
		l.seeAll(ctx)
		if !l.carryOut(ctx, ticker.C) {
			return
		}
	}
}

// lookAfter shows what is hidden from one container where it may not stay. Nobody reads what is
// seen before that and writes it again after.
func (l *Agent) lookAfter(ctx context.Context, key string, minors []int, pending, said map[string]string) {
	l.o.Visibility.Lock()
	defer l.o.Visibility.Unlock()
	why := pending[key]
	if why == "" && l.o.Visibility.Unsettled(key) { // also after a handover
		why = "a change of it was cut off"
	}
	if why == "" {
		why = l.whyShow(ctx, key)
	}
	if yielded := l.o.Visibility.Yielded(ctx, key); why == "" && len(yielded) > 0 {
		why = fmt.Sprintf("somebody else allowed %s again, so all that trimtab hid (%s) is shown", runtime.GPUNames(yielded...), runtime.GPUNames(minors...))
		l.yieldVisibility(ctx, key, why)
	}
	if why == "" {
		return
	}
	pending[key] = why
	if _, err := l.restoreVisibility(ctx, key, why, said); err == nil {
		delete(pending, key)
	}
}

// whyShow says why what is hidden from a container is to be shown again; "" if it stays.
func (l *Agent) whyShow(ctx context.Context, key string) (why string) {
	_ = l.do(ctx, func() {
		t, running := l.containers[key], l.listing()
		switch {
		case t == nil && running != nil && !running(key):
			why = "it ended"
		case t == nil || t.enrolment.Mode == "":
		case t.enrolment.Mode != policies.ModeTune:
			why = "no longer enrolled: " + t.enrolment.WhyNot
		}
	})
	return why
}

func (l *Agent) yieldVisibility(ctx context.Context, key, why string) {
	l.o.Holds.AddYield(key, runtime.KnobGPU)
	_ = l.save() // which logs
	l.reply(ctx, func() {
		l.edge.foreign++
		if t := l.containers[key]; t != nil {
			l.keep([]state.Record{{UnixNs: time.Now().UnixNano(), Kind: state.RecordYield, Key: key, Name: t.c.Name, Text: why}})
		}
	})
}

// restoreVisibility undoes all that was hidden from one container. said has, by container, what keeps
// it pending, told once.
func (l *Agent) restoreVisibility(ctx context.Context, key, why string, said map[string]string) (did bool, err error) {
	name := l.o.Visibility.Containers()[key].Name // it may not be listed yet
	did, notes, err := l.o.Visibility.Restore(ctx, key)
	if err != nil && said[key] == err.Error() {
		return did, err
	}
	if delete(said, key); err != nil {
		said[key] = err.Error()
	}
	if did {
		notes = append(notes, l.signal(ctx, key)...)
	}
	l.reply(ctx, func() { l.visibilityRestored(key, name, did, notes, err, why) })
	return did, err
}

// showAll is the part of a restore by hand that a container's GPUs have.
func (l *Agent) showAll(ctx context.Context, c runtime.Container) (text string, err error) {
	if l.o.Visibility == nil {
		return "", nil
	}
	l.o.Visibility.Lock() // an order that was half way would write what it read before this
	defer l.o.Visibility.Unlock()
	switch did, err := l.restoreVisibility(ctx, c.Key(), "restored by hand", map[string]string{}); {
	case err != nil:
		return "; hidden GPUs are not shown again yet: " + err.Error(), err
	case did:
		return "; hidden GPUs are shown again", nil
	}
	return "", nil
}

func (l *Agent) visibilityRestored(key, name string, did bool, notes []string, err error, why string) {
	r := state.Record{UnixNs: time.Now().UnixNano(), Kind: state.RecordRestore, Key: key, Name: name}
	if t := l.containers[key]; t != nil {
		r.Name, t.checkedAt = t.c.Name, time.Time{}
	}
	switch {
	case err != nil:
		r.Kind, r.Text = state.RecordPending, "hidden GPUs are not shown again yet: "+err.Error()
	case did:
		r.Text = "hidden GPUs are shown again (" + why + ")" + noted(notes)
	case len(notes) > 0:
		r.Text = "GPUs" + noted(notes)
	default:
		return
	}
	l.keep([]state.Record{r})
}

func noted(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	return "; " + strings.Join(notes, "; ")
}

// GPUs tells how each container that holds a GPU has each device.
func (l *Agent) GPUs(ctx context.Context) ([]state.GPUVisibility, error) {
	var cs []runtime.Container
	var devices actuator.GPUs
	if err := l.do(ctx, func() {
		devices = l.host.Devices
		for _, c := range l.all() {
			if len(c.GPUs) > 0 {
				cs = append(cs, c)
			}
		}
	}); err != nil {
		return nil, err
	}
	out := []state.GPUVisibility{}
	if l.o.Visibility == nil {
		return out, nil
	}
	for _, c := range cs {
		visibilities, err := l.o.Visibility.See(ctx, c, runtime.GPUView{UUIDs: devices.UUIDs()})
		if err != nil {
			out = append(out, state.GPUVisibility{Key: c.Key(), Name: c.Name, Lost: err.Error()})
		}
		for _, s := range visibilities {
			out = append(out, state.GPUVisibility{Key: c.Key(), Name: c.Name, Device: runtime.GPUNames(s.Minor), Index: devices.Index(s.Minor), UUID: s.UUID,
				Granted: s.Granted, Visible: s.Visible, Hidden: s.Hidden, Policy: s.ByPolicy, Users: devices.Users(c.Key(), s.Minor)})
		}
	}
	return out, nil
}

// HideGPU hides devices from a container until they are shown, it ends, or trimtab stops.
func (l *Agent) HideGPU(ctx context.Context, req state.GPURequest) ([]state.ActionResult, error) {
	return l.changeVisibility(ctx, req, true)
}

// ShowGPU shows devices that HideGPU hid.
func (l *Agent) ShowGPU(ctx context.Context, req state.GPURequest) ([]state.ActionResult, error) {
	return l.changeVisibility(ctx, req, false)
}

// changeVisibility works out the new hidden set and has it made.
func (l *Agent) changeVisibility(ctx context.Context, req state.GPURequest, hide bool) ([]state.ActionResult, error) {
	if req.All == (len(req.Devices) > 0) {
		return nil, fmt.Errorf("name devices, or all of them")
	}
	cs, err := l.pick(ctx, state.EnableRequest{Name: req.Name})
	if err != nil {
		return nil, err
	}
	c := cs[0]
	res := state.ActionResult{Key: c.Key(), Name: c.Name}
	if l.o.Visibility == nil {
		return []state.ActionResult{{Key: c.Key(), Name: c.Name, Text: "this daemon cannot hide GPUs"}}, nil
	}
	l.o.Visibility.Lock() // before it is asked whether it may be: that must hold until it is done
	defer l.o.Visibility.Unlock()
	mayNot, devices := "it ended in the meantime", actuator.GPUs(nil)
	if err := l.do(ctx, func() {
		if t := l.containers[c.Key()]; t != nil {
			mayNot, devices = l.mayNotSee(t, hide), l.host.Devices
		}
	}); err != nil {
		return nil, err
	}
	if mayNot != "" {
		res.Text = mayNot
		return []state.ActionResult{res}, nil
	}
	known := runtime.GPUView{UUIDs: devices.UUIDs()}
	seen, err := l.o.Visibility.See(ctx, c, known)
	if err != nil {
		return nil, err
	}
	minors, err := enrolment.SelectGPUs(req, devices, seen, hide)
	if err != nil {
		res.Text = err.Error()
		return []state.ActionResult{res}, nil
	}
	did, err := l.o.Visibility.Set(ctx, actuator.VisibilityChange{Container: c, Devices: devices, Seen: seen, Minors: minors, Hide: hide, By: policies.HiddenByPerson})
	if err != nil {
		res.Text = err.Error()
		return []state.ActionResult{res}, nil
	}
	res.OK, res.Text = true, "nothing to do"
	var notes []string
	if len(did.Minors) > 0 {
		res.Text = did.Text(hide)
		notes = append(did.Notes, l.signal(ctx, c.Key())...)
	}
	l.visibilityByHand(ctx, c, known, res.Text, len(did.Minors) > 0, notes)
	res.Text += noted(notes)
	return []state.ActionResult{res}, nil
}

// visibilityByHand notes that a person decided on a container's devices: the knob is that
// person's from now on, as one that somebody else wrote is (law: yield).
func (l *Agent) visibilityByHand(ctx context.Context, c runtime.Container, known runtime.GPUView, text string, moved bool, notes []string) {
	after, _ := l.o.Visibility.See(ctx, c, known)
	l.o.Holds.AddYield(c.Key(), runtime.KnobGPU)
	_ = l.save() // which logs
	l.reply(ctx, func() {
		if !moved {
			return
		}
		r := state.Record{UnixNs: time.Now().UnixNano(), Kind: state.RecordGPUView, Key: c.Key(), Name: c.Name, Text: "GPUs " + text + " by hand" + noted(notes)}
		if t := l.containers[c.Key()]; t != nil {
			t.checkedAt = time.Time{} // its preflight is another one now
			t.noteVisibility(after)
		}
		l.keep([]state.Record{r})
	})
}

// mayNotSee says why a container's view may not be changed; "" if it may.
func (l *Agent) mayNotSee(t *tracked, hide bool) string {
	switch {
	case t.c.Kubernetes:
		return "below Kubernetes' cgroups trimtab only observes"
	case len(t.c.GPUs) == 0:
		return "it holds no GPU"
	case l.o.Holds.Paused():
		return "trimtab is paused: `trimtab resume`"
	case !hide:
		return ""
	case l.o.Disabled != nil && l.o.Disabled():
		return "trimtab is disabled on this host"
	case l.o.Holds.Held(t.c.Key()):
		return "held since restore: `trimtab resume`"
	case t.enrolment.Mode != policies.ModeTune:
		return "it is not enrolled (" + t.enrolment.WhyNot + "): `trimtab enable` it first"
	}
	return ""
}

// signal tells the init process of a container that is still there, where its label asks and the config allows.
func (l *Agent) signal(ctx context.Context, key string) []string {
	var c runtime.Container
	allowed := false
	_ = l.do(ctx, func() {
		if t := l.containers[key]; t != nil {
			c, allowed = t.c, l.settings.GPUSignal
		}
	})
	name, err := enrolment.GPUSignal(c.Labels)
	switch {
	case name == "" && err == nil:
		return nil
	case !allowed:
		return []string{"it asks for a signal, which the config does not allow (gpu.signal: true)"}
	case err == nil:
		err = l.o.Visibility.Signal(c, unix.SignalNum(name))
	}
	if err != nil {
		return []string{"no signal sent: " + err.Error()}
	}
	return nil
}
