package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/history"
	"github.com/trimtab/trimtab/tuner/state"
)

// wants is a policy that asks, once it has been shown a job, for one device to be hidden
// until it is told to have it shown.
type wants struct{ show func() bool }

func (wants) Name() string { return "wants" }

func (p wants) Propose(_ policies.Node, jobs []policies.Job) (out policies.Proposal) {
	for _, j := range jobs {
		out.GPUVisibility = append(out.GPUVisibility, policies.GPUVisibility{Policy: "wants", Key: j.Key, Device: "GPU-b", Hide: !p.show(), Reason: "the test wants it"})
	}
	return out
}

// elastic starts a daemon over a job with two GPUs that is told of its devices by a signal.
func (n *node) elastic(w *visibilityWorld, more func(*Options)) (*daemon, runtime.Container) {
	labels := labelled("trimtab.knobs", "gpu", "trimtab.gpu.signal", "USR1")
	c := n.gpuJob("job", labels)
	return n.start(withVisibility(w, func(o *Options) {
		read := o.ReadHost
		o.ReadHost = func() (probes.Host, error) {
			h, err := read()
			h.Devices = []probes.Device{
				{Index: 0, Minor: 0, UUID: "GPU-a", AtNs: h.AtNs, Processes: []probes.DeviceProcess{{PID: 4711, Container: c.Key()}}},
				{Index: 1, Minor: 1, UUID: "GPU-b", AtNs: h.AtNs}}
			return h, err
		}
		o.Policies, o.Settings.GPUSignal = asking(wants{func() bool { return false }}), true
		if more != nil {
			more(o)
		}
	})), c
}

func (w *visibilityWorld) byPolicy(c runtime.Container) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policy[c.Key()]
}

// waitHidden waits for the policy's hide.
func (d *daemon) waitHidden(w *visibilityWorld, c runtime.Container) {
	d.n.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Second) {
		if slices.Equal(w.byPolicy(c), []int{1}) {
			return
		}
	}
	d.n.t.Fatalf("never hidden: %+v\n%s", d.Snapshot().Containers, d.n.log)
}

func (n *node) records(good func(state.Record) bool) (out []state.Record) {
	all, _ := n.history.Query(context.Background(), history.Filter{})
	for _, r := range all {
		if good(r) {
			out = append(out, r)
		}
	}
	return out
}

// TestPolicyHidesAndShows: an order goes the road of `trimtab gpu hide`, its signal, record
// and metric included, is proved, and goes back when the policy asks.
func TestPolicyHidesAndShows(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w, show := newVisibilityWorld(), false
		d, c := n.elastic(w, func(o *Options) { o.Policies = asking(wants{func() bool { return show }}) })
		d.waitHidden(w, c)
		d.until("job", "a kept hide", isKept)
		if v := d.Snapshot().Containers[0]; v.Now[runtime.KnobGPU] != "GPU-a" || v.Original[runtime.KnobGPU] != "GPU-a,GPU-b" || !slices.Contains(v.Changed, runtime.KnobGPU) {
			t.Errorf("shown %v, originally %v, changed %v", v.Now, v.Original, v.Changed)
		}
		all, err := d.GPUs(t.Context())
		if err != nil || !all[1].Hidden || !all[1].Policy {
			t.Errorf("%+v, %v", all, err)
		}
		if err := d.do(t.Context(), func() { show = true }); err != nil {
			t.Fatal(err)
		}
		d.until("job", "shown again", func(v state.Container) bool { return v.Now[runtime.KnobGPU] == "GPU-a,GPU-b" })
		told := n.records(func(r state.Record) bool { return r.Kind == state.RecordGPUView })
		if len(told) != 2 || told[0].Policy != "wants" || !strings.Contains(told[0].Text, "hidden: nvidia1 by policy wants: the test wants it") || !strings.Contains(told[1].Text, "shown: nvidia1") {
			t.Errorf("records %+v", told)
		}
		if !slices.Equal(w.signals, []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR1}) {
			t.Errorf("signals %v", w.signals)
		}
		made := slices.DeleteFunc(slices.Clone(d.Snapshot().Totals.Changes), func(v state.Count) bool { return v.Knob != runtime.KnobGPU || v.Result != "applied" })
		if len(made) != 1 || made[0].Value != 2 {
			t.Errorf("counted %+v", d.Snapshot().Totals.Changes)
		}
		d.stop(false)
	})
}

// TestPolicysHideComesBack: with all that ends what a policy may do, and, while it is not
// proved, over a handover; proved it stands there, and is still known to be the policy's.
func TestPolicysHideComesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		kept bool // wait until it is proved
		act  func(d *daemon, n *node, w *visibilityWorld) *daemon
		back bool
	}{
		"stop":     {act: func(d *daemon, _ *node, _ *visibilityWorld) *daemon { d.stop(false); return nil }, back: true},
		"handover": {act: func(d *daemon, _ *node, _ *visibilityWorld) *daemon { d.stop(true); return nil }, back: true},
		"handover of a proved one": {kept: true, act: func(d *daemon, n *node, w *visibilityWorld) *daemon {
			d.stop(true)
			return n.start(withVisibility(w, func(o *Options) { o.Handover = true }))
		}},
		"opt-out": {kept: true, act: func(d *daemon, n *node, _ *visibilityWorld) *daemon {
			_, _ = d.Disable(n.t.Context(), state.EnableRequest{Name: "job"})
			return d
		}, back: true},
		"restore": {act: func(d *daemon, n *node, _ *visibilityWorld) *daemon {
			_, _ = d.Restore(n.t.Context(), "job")
			return d
		}, back: true},
		"the knob is no longer allowed": {kept: true, act: func(d *daemon, n *node, _ *visibilityWorld) *daemon {
			_ = d.do(n.t.Context(), func() {
				t := d.containers[d.keys()[0]]
				t.c.Labels["trimtab.knobs"], t.settledFor = "cpu", nil
			})
			return d
		}, back: true},
		"while it cannot be done at first": {kept: true, act: func(d *daemon, n *node, w *visibilityWorld) *daemon {
			w.fail(errors.New("systemd does not answer"))
			_ = d.do(n.t.Context(), func() {
				t := d.containers[d.keys()[0]]
				t.c.Labels["trimtab.knobs"], t.settledFor = "cpu", nil
			})
			time.Sleep(20 * time.Second)
			w.fail(nil)
			if told := n.records(func(r state.Record) bool { return strings.Contains(r.Text, "systemd does not answer") }); len(told) != 1 {
				n.t.Errorf("told %+v", told)
			}
			return d
		}, back: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				w := newVisibilityWorld()
				d, c := n.elastic(w, nil)
				d.waitHidden(w, c)
				if tc.kept {
					d.until("job", "a kept hide", isKept)
				}
				d = tc.act(d, n, w)
				time.Sleep(10 * time.Second)
				if back := len(w.of(c)) == 0; back != tc.back || !back && !slices.Equal(w.byPolicy(c), []int{1}) {
					t.Errorf("hidden %v, of it by a policy %v\n%s", w.of(c), w.byPolicy(c), n.log)
				}
				if d != nil {
					d.end()
				}
			})
		})
	}
}

// TestPeoplesWordOnGPUsStands: what a person hid or showed no policy touches, and what a
// policy hid from that container comes back.
func TestPeoplesWordOnGPUsStands(t *testing.T) {
	for name, tc := range map[string]struct {
		hide bool
		want []int
	}{"shows what a policy hid": {false, nil}, "hides what a policy hid": {true, []int{1}}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				w := newVisibilityWorld()
				d, c := n.elastic(w, nil)
				d.waitHidden(w, c)
				ask := d.ShowGPU
				if tc.hide {
					ask = d.HideGPU
				}
				results, err := ask(t.Context(), state.GPURequest{Name: "job", Devices: []string{"GPU-b"}})
				if r := one(t, results, err); !r.OK {
					t.Errorf("%+v", r)
				}
				time.Sleep(3 * time.Minute)
				if !slices.Equal(w.of(c), tc.want) || len(w.byPolicy(c)) > 0 || !slices.Contains(n.holds.Yielded(c.Key()), runtime.KnobGPU) {
					t.Errorf("hidden %v, of it by a policy %v, yielded %v", w.of(c), w.byPolicy(c), n.holds.Yielded(c.Key()))
				}
				d.end()
			})
		})
	}
}

// TestOrdersForGPUsMeetWhatCameBetween: an order whose container was frozen, or whose device
// came into use, before its turn is refused, and the core is told.
func TestOrdersForGPUsMeetWhatCameBetween(t *testing.T) {
	order := func(c runtime.Container, take bool) control.Order {
		ch := policies.Change{Key: c.Key(), Name: c.Name, Knob: runtime.KnobGPU, From: "GPU-a,GPU-b", To: "GPU-a", Take: take}
		if !take {
			ch.From, ch.To = ch.To, ch.From
		}
		return control.Order{Plan: "p", Policy: "wants", Changes: []policies.Change{ch}}
	}
	for name, tc := range map[string]struct {
		prep func(d *daemon, w *visibilityWorld, c runtime.Container) visibilityOrder
		why  string
	}{
		"paused": {func(d *daemon, _ *visibilityWorld, c runtime.Container) visibilityOrder {
			_ = d.n.holds.SetPaused(true)
			return visibilityOrder{Order: order(c, true)}
		}, "paused"},
		"a person's": {func(d *daemon, _ *visibilityWorld, c runtime.Container) visibilityOrder {
			d.n.holds.AddYield(c.Key(), runtime.KnobGPU)
			return visibilityOrder{Order: order(c, true)}
		}, "a person decided"},
		"in use": {func(_ *daemon, _ *visibilityWorld, c runtime.Container) visibilityOrder {
			o := order(c, true)
			o.Changes[0].To = "GPU-b"
			return visibilityOrder{Order: o}
		}, "in use"},
		"the last": {func(_ *daemon, _ *visibilityWorld, c runtime.Container) visibilityOrder {
			o := order(c, true)
			o.Changes[0].To = ""
			return visibilityOrder{Order: o}
		}, "no device any more"},
		"a show goes back, and was taken up": {func(_ *daemon, _ *visibilityWorld, c runtime.Container) visibilityOrder {
			o := order(c, false)
			o.Changes[0].From, o.Changes[0].To = "GPU-b", "GPU-a,GPU-b"
			return visibilityOrder{Order: o, undo: true}
		}, "in use"},
		"nothing moves": {func(_ *daemon, _ *visibilityWorld, c runtime.Container) visibilityOrder {
			return visibilityOrder{Order: order(c, false)}
		}, "changed in the meantime"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				w := newVisibilityWorld()
				d, c := n.elastic(w, func(o *Options) { o.Policies = asking(wants{func() bool { return true }}) })
				time.Sleep(5 * time.Second)
				d.visibilities <- tc.prep(d, w, c)
				time.Sleep(5 * time.Second)
				if refused := n.records(func(r state.Record) bool { return r.Kind == state.RecordRefused && strings.Contains(r.Text, tc.why) }); len(refused) != 1 || len(w.of(c)) > 0 {
					t.Errorf("refused %+v, hidden %v\n%s", refused, w.of(c), n.log)
				}
				d.end()
			})
		})
	}
}

// TestEndedContainersLeaveNothingToUndo: what was told of a way back goes with its container.
func TestEndedContainersLeaveNothingToUndo(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newVisibilityWorld()
		c := n.gpuJob("job", tuned())
		d := n.start(withVisibility(w, nil))
		time.Sleep(3 * time.Second)
		w.fail(errors.New("systemd does not answer"))
		o := control.Order{Plan: "p", Changes: []policies.Change{{Key: c.Key(), Knob: runtime.KnobGPU, From: "GPU-0,GPU-1", To: "GPU-0", Take: true}}}
		left := func() (undoing int) {
			if err := d.do(t.Context(), func() { undoing = len(d.undoing) }); err != nil {
				t.Fatal(err)
			}
			return undoing
		}
		if err := d.do(t.Context(), func() { d.undoing[o.Plan] = &wayBack{order: o, said: "systemd does not answer"} }); err != nil {
			t.Fatal(err)
		}
		n.engine.Remove(c.ID.Container)
		time.Sleep(10 * time.Second)
		if undoing := left(); undoing > 0 {
			t.Errorf("%d to undo", undoing)
		}
		d.end()
	})
}
