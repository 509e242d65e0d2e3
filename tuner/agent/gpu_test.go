package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/state"
)

// visibilityWorld is what is hidden from containers, outside of any daemon.
type visibilityWorld struct {
	mu      sync.Mutex
	hidden  map[string][]int
	policy  map[string][]int // of hidden: no person asked
	yielded map[string][]int
	cutOff  map[string]bool
	signals []syscall.Signal
	sweeps  map[string]int   // by name; done at the third
	names   map[int][]string // of GPUs, as Sweep was told
	err     error            // what Hide and Restore answer
	tries   int              // of Restore
	atLast  func()           // RestoreAll is called
	held    *sync.Mutex      // by whoever changes what is seen while a daemon runs
	unheld  int              // changes without it
}

func newVisibilityWorld() *visibilityWorld {
	return &visibilityWorld{hidden: map[string][]int{}, policy: map[string][]int{}, yielded: map[string][]int{}, cutOff: map[string]bool{}}
}

func (w *visibilityWorld) See(_ context.Context, c runtime.Container, known runtime.GPUView) (out []runtime.GPUVisibility, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for minor := range 3 { // the third was never granted
		hidden := slices.Contains(w.hidden[c.Key()], minor)
		out = append(out, runtime.GPUVisibility{Minor: minor, UUID: known.UUIDs[minor], Granted: minor < 2, Visible: minor < 2 && !hidden, Hidden: hidden,
			ByPolicy: slices.Contains(w.policy[c.Key()], minor)})
	}
	return out, nil
}

func (w *visibilityWorld) Hide(_ context.Context, c runtime.Container, known runtime.GPUView) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteHeld()
	if w.err == nil {
		w.hidden[c.Key()], w.policy[c.Key()] = slices.Clone(known.Hidden), slices.Clone(known.ByPolicy)
	}
	return nil, w.err
}

func (w *visibilityWorld) noteHeld() {
	if w.held != nil && w.held.TryLock() {
		w.held.Unlock()
		w.unheld++
	}
}

func (w *visibilityWorld) Restore(_ context.Context, key string) (bool, []string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteHeld()
	return w.restore(key)
}

func (w *visibilityWorld) restore(key string) (bool, []string, error) {
	w.tries++
	if w.err != nil {
		return false, nil, w.err
	}
	did := len(w.hidden[key]) > 0
	delete(w.hidden, key)
	delete(w.policy, key)
	delete(w.yielded, key)
	delete(w.cutOff, key)
	return did, nil, nil
}

func (w *visibilityWorld) RestoreAll(_ context.Context, each func(key, name string, did bool, notes []string, err error)) error {
	if w.atLast != nil {
		w.atLast()
	}
	var all error
	for key := range w.Hiding() {
		did, notes, err := w.restore(key)
		each(key, "", did, notes, err)
		all = errors.Join(all, err)
	}
	return all
}

func (w *visibilityWorld) Yielded(_ context.Context, key string) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.yielded[key]
}

func (w *visibilityWorld) Unsettled(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cutOff[key]
}

func (w *visibilityWorld) Sweep(_ context.Context, c runtime.Container, known runtime.GPUView) (bool, []string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sweeps == nil {
		w.sweeps = map[string]int{}
	}
	w.sweeps[c.Name]++
	w.names = known.Names
	if c.Name == "waits" {
		return false, []string{"a file waits"}, nil
	}
	if w.sweeps[c.Name] < 3 {
		return false, nil, nil
	}
	return true, []string{"a file was removed"}, nil
}

func (w *visibilityWorld) Hiding() map[string][]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.hidden)
}

func (w *visibilityWorld) Containers() map[string]runtime.Container {
	out := map[string]runtime.Container{}
	for key := range w.Hiding() {
		out[key] = runtime.Container{Name: "job"}
	}
	return out
}

func (w *visibilityWorld) Signal(_ runtime.Container, s syscall.Signal) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signals = append(w.signals, s)
	return nil
}

func (w *visibilityWorld) of(c runtime.Container) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hidden[c.Key()]
}

func (w *visibilityWorld) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func withVisibility(w *visibilityWorld, more func(*Options)) func(*Options) {
	return func(o *Options) {
		o.Visibility = &actuator.Visibility{GPUVisibilities: w}
		w.held = &o.Visibility.Mutex
		if more != nil {
			more(o)
		}
	}
}

func labelled(more ...string) map[string]string {
	out := tuned()
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

func one(t *testing.T, results []state.ActionResult, err error) state.ActionResult {
	t.Helper()
	if err != nil || len(results) != 1 {
		t.Fatalf("%v, %v", results, err)
	}
	return results[0]
}

func TestHideAndShowGPU(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newVisibilityWorld()
		c := n.gpuJob("job", labelled("trimtab.gpu.signal", "USR1"))
		d := n.start(withVisibility(w, func(o *Options) { o.Settings.GPUSignal = true }))
		time.Sleep(3 * time.Second)
		ctx := t.Context()
		results, err := d.HideGPU(ctx, state.GPURequest{Name: "job", Devices: []string{"/dev/nvidia1"}})
		if r := one(t, results, err); !r.OK || r.Text != "hidden: nvidia1" || !slices.Equal(w.of(c), []int{1}) {
			t.Errorf("%+v, %v", r, w.of(c))
		}
		all, err := d.GPUs(ctx)
		if err != nil || len(all) != 3 || !all[1].Hidden || all[1].Visible || !all[0].Visible || all[2].Granted {
			t.Errorf("%+v, %v", all, err)
		}
		results, err = d.HideGPU(ctx, state.GPURequest{Name: "job", Devices: []string{"1"}})
		if r := one(t, results, err); !r.OK || r.Text != "nothing to do" {
			t.Errorf("%+v", r)
		}
		for device, want := range map[string]string{"2": "never granted", "x": "not known", "MIG-1": "slice"} {
			results, err = d.HideGPU(ctx, state.GPURequest{Name: "job", Devices: []string{device}})
			if r := one(t, results, err); r.OK || !strings.Contains(r.Text, want) {
				t.Errorf("%s: %+v", device, r)
			}
		}
		results, err = d.HideGPU(ctx, state.GPURequest{Name: "job", All: true})
		if r := one(t, results, err); !r.OK || r.Text != "hidden: nvidia0" {
			t.Errorf("%+v", r)
		}
		results, err = d.ShowGPU(ctx, state.GPURequest{Name: "job", All: true})
		if r := one(t, results, err); !r.OK || len(w.of(c)) > 0 {
			t.Errorf("%+v, %v", r, w.of(c))
		}
		if fmt.Sprint(w.signals) != "[user defined signal 1 user defined signal 1 user defined signal 1]" {
			t.Errorf("signals %v", w.signals)
		}
		if _, err = d.HideGPU(ctx, state.GPURequest{Name: "job", Devices: []string{"1"}}); err != nil {
			t.Fatal(err)
		}
		results, err = d.Restore(ctx, "job")
		if r := one(t, results, err); len(w.of(c)) > 0 || len(w.signals) != 5 {
			t.Errorf("%+v, %v, %d signals after a restore, want one more for it", r, w.of(c), len(w.signals))
		}
		d.stop(false)
		if !n.history.has(state.RecordGPUView) {
			t.Error("history does not tell of it")
		}
	})
}

// TestSweepVisibility: a container from which nothing is hidden is looked at until nothing
// is left of an earlier time, and no longer.
func TestSweepVisibility(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newVisibilityWorld()
		n.job("without")
		n.gpuJob("off", map[string]string{"trimtab.mode": "off"})
		n.gpuJob("job", observed())
		n.gpuJob("waits", observed())
		d := n.start(withVisibility(w, func(o *Options) {
			read := o.ReadHost
			o.ReadHost = func() (probes.Host, error) {
				h, err := read()
				h.Devices = []probes.Device{{Index: 0, Minor: 3, UUID: "GPU-a"}, {Index: 0, Minor: 3, UUID: "MIG-a", Parent: "GPU-a"}}
				return h, err
			}
		}))
		time.Sleep(2 * time.Minute)
		d.stop(false)
		if diff := cmp.Diff(map[int][]string{3: {"0", "GPU-a", "MIG-a"}}, w.names); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
		if w.sweeps["job"] != 3 || len(w.sweeps) != 2 {
			t.Errorf("looked at %v", w.sweeps)
		}
		// What waits is looked at in longer and longer pauses, and told of once.
		if got := w.sweeps["waits"]; got < 4 || got > 8 {
			t.Errorf("looked %d times in two minutes at what waits", got)
		}
		if got := n.history.count("a file waits"); got != 1 {
			t.Errorf("told %d times of what waits", got)
		}
		if !n.history.has(state.RecordRestore) {
			t.Error("history does not tell of it")
		}
	})
}

// TestGPUInUse: a device on which NVML lists a process of the container stays; the others go.
func TestGPUInUse(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newVisibilityWorld()
		c := n.gpuJob("job", tuned())
		d := n.start(withVisibility(w, func(o *Options) {
			read := o.ReadHost
			o.ReadHost = func() (probes.Host, error) {
				h, err := read()
				h.Devices = []probes.Device{{Index: 0, Minor: 0, UUID: "GPU-a", Processes: []probes.DeviceProcess{{PID: 4711, Container: c.Key()}}}, {Index: 1, Minor: 1, UUID: "GPU-b"}}
				return h, err
			}
		}))
		time.Sleep(3 * time.Second)
		for _, req := range []state.GPURequest{{Name: "job", Devices: []string{"GPU-a"}}, {Name: "job", All: true}, {Name: "job", Devices: []string{"1", "0"}}} {
			results, err := d.HideGPU(t.Context(), req)
			if r := one(t, results, err); r.OK || !strings.Contains(r.Text, "nvidia0 is in use: NVML lists process 4711") || len(w.of(c)) > 0 {
				t.Errorf("%+v: %+v, %v", req, r, w.of(c))
			}
		}
		results, err := d.HideGPU(t.Context(), state.GPURequest{Name: "job", Devices: []string{"GPU-b"}})
		if r := one(t, results, err); !r.OK || !slices.Equal(w.of(c), []int{1}) {
			t.Errorf("%+v, %v", r, w.of(c))
		}
		all, err := d.GPUs(t.Context())
		if err != nil || len(all) < 2 || !slices.Equal(all[0].Users, []int32{4711}) || all[1].UUID != "GPU-b" || *all[1].Index != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		d.end()
	})
}

// TestHideGPUOnlyWhereAllowed: nothing is written to others.
func TestHideGPUOnlyWhereAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		change func(*Options)
		prep   func(n *node, c runtime.Container)
		why    string
	}{
		"observed":      {labels: observed(), why: "not enrolled"},
		"not named":     {why: "not enrolled"},
		"host observes": {labels: tuned(), change: func(o *Options) { o.Settings.Rules.Mode = policies.ModeObserve }, why: "not enrolled"},
		"disabled":      {labels: tuned(), change: func(o *Options) { o.Disabled = func() bool { return true } }, why: "disabled"},
		"paused":        {labels: tuned(), prep: func(n *node, _ runtime.Container) { _ = n.holds.SetPaused(true) }, why: "paused"},
		"held":          {labels: tuned(), prep: func(n *node, c runtime.Container) { _ = n.holds.SetHeld(true, c.Key()) }, why: "held"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				w := newVisibilityWorld()
				c := n.gpuJob("job", tc.labels)
				if tc.prep != nil {
					tc.prep(n, c)
				}
				d := n.start(withVisibility(w, tc.change))
				time.Sleep(3 * time.Second)
				results, err := d.HideGPU(t.Context(), state.GPURequest{Name: "job", Devices: []string{"0"}})
				if r := one(t, results, err); r.OK || !strings.Contains(r.Text, tc.why) || len(w.of(c)) > 0 {
					t.Errorf("%+v, %v", r, w.of(c))
				}
				d.end()
			})
		})
	}
}

// TestHiddenComesBack: at the end, after a crash, at an opt-out, by hand, and when
// somebody else allows it; never over a handover.
func TestHiddenComesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		act  func(d *daemon, n *node, w *visibilityWorld, c runtime.Container) *daemon
		kept bool
	}{
		"stop": {act: func(d *daemon, _ *node, _ *visibilityWorld, _ runtime.Container) *daemon { d.stop(false); return nil }},
		"crash": {act: func(d *daemon, n *node, w *visibilityWorld, _ runtime.Container) *daemon {
			d.end()
			return n.start(withVisibility(w, nil))
		}},
		"handover": {kept: true, act: func(d *daemon, n *node, w *visibilityWorld, _ runtime.Container) *daemon {
			d.stop(true)
			return n.start(withVisibility(w, func(o *Options) { o.Handover = true }))
		}},
		"handover of a change that was cut off": {act: func(d *daemon, n *node, w *visibilityWorld, c runtime.Container) *daemon {
			d.stop(true)
			w.mu.Lock()
			w.cutOff[c.Key()] = true
			w.mu.Unlock()
			return n.start(withVisibility(w, func(o *Options) { o.Handover = true }))
		}},
		"opt-out": {act: func(d *daemon, _ *node, _ *visibilityWorld, _ runtime.Container) *daemon {
			_, _ = d.Disable(context.Background(), state.EnableRequest{Name: "job"})
			return d
		}},
		"restore": {act: func(d *daemon, _ *node, _ *visibilityWorld, _ runtime.Container) *daemon {
			_, _ = d.Restore(context.Background(), "job")
			return d
		}},
		"yield": {act: func(d *daemon, _ *node, w *visibilityWorld, c runtime.Container) *daemon {
			w.mu.Lock()
			w.yielded[c.Key()] = []int{0}
			w.mu.Unlock()
			return d
		}},
		"nothing": {kept: true, act: func(d *daemon, _ *node, _ *visibilityWorld, _ runtime.Container) *daemon { return d }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				w := newVisibilityWorld()
				c := n.gpuJob("job", tuned())
				d := n.start(withVisibility(w, nil))
				time.Sleep(3 * time.Second)
				if _, err := d.HideGPU(t.Context(), state.GPURequest{Name: "job", All: true}); err != nil || len(w.of(c)) != 2 {
					t.Fatal(err, w.of(c))
				}
				d = tc.act(d, n, w, c)
				time.Sleep(10 * time.Second)
				if kept := len(w.of(c)) == 2; kept != tc.kept {
					t.Errorf("hidden: %v", w.of(c))
				}
				if d != nil {
					d.end()
				}
				if w.unheld > 0 {
					t.Errorf("%d changes without the mutex: whoever read what was seen before writes it again", w.unheld)
				}
			})
		})
	}
}

// stuckHidden is a job with a GPU hidden that cannot be shown, as a daemon finds it at its start.
func (n *node) stuckHidden() (*visibilityWorld, runtime.Container, *daemon) {
	w := newVisibilityWorld()
	c := n.gpuJob("job", tuned())
	w.hidden[c.Key()] = []int{0}
	w.fail(errors.New("systemd does not answer"))
	return w, c, n.start(withVisibility(w, nil))
}

// TestHiddenIsPending: a restore that fails is tried again.
func TestHiddenIsPending(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w, c, d := n.stuckHidden()
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		tries := w.tries
		w.mu.Unlock()
		if tries < 2 || len(w.of(c)) != 1 {
			t.Errorf("%d tries, hidden %v", tries, w.of(c))
		}
		w.fail(nil)
		time.Sleep(5 * time.Second)
		if len(w.of(c)) > 0 {
			t.Errorf("hidden: %v", w.of(c))
		}
		d.end()
		if log := n.log.String(); strings.Count(log, "systemd does not answer") != 1 {
			t.Errorf("told more than once, or never\n%s", log)
		}
	})
}

// TestShownByHandIsPendingNoMore: what is hidden after that stays hidden.
func TestShownByHandIsPendingNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w, c, d := n.stuckHidden()
		time.Sleep(3 * time.Second)
		w.fail(nil)
		if _, err := d.Restore(t.Context(), "job"); err != nil || len(w.of(c)) > 0 {
			t.Fatal(err, w.of(c))
		}
		if _, err := d.Resume(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		results, err := d.HideGPU(t.Context(), state.GPURequest{Name: "job", Devices: []string{"1"}})
		if got := one(t, results, err); !got.OK {
			t.Fatal(got)
		}
		time.Sleep(10 * time.Second)
		if hidden := w.of(c); len(hidden) != 1 {
			t.Errorf("hidden: %v, want what was asked for last", hidden)
		}
		d.end()
	})
}

// TestLimitsComeBackFirst: what is hidden may take a container's files, which may hang.
func TestLimitsComeBackFirst(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w, called := newVisibilityWorld(), false
		c := n.job("train")
		w.atLast = func() {
			called = true
			n.wantQuota(c, starvedQuota, "when GPUs are shown")
		}
		d := n.start(withVisibility(w, nil))
		d.until("train", "a change", isChanged)
		d.stop(false)
		if !called {
			t.Error("what is hidden was not restored")
		}
	})
}
