package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/runtimetest"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/state"
)

// gpuWorld is what containers may open, outside of any daemon.
type gpuWorld struct {
	mu      sync.Mutex
	stands  map[string][]runtime.DeviceRule // by container name
	repairs int
	err     error         // what Repair answers
	hang    time.Duration // how long Repair takes
	lookErr error
	busy    bool // somebody is changing what it sees
	saved   map[string][]runtime.DeviceRule
	saveErr error
}

var gpuRule = runtime.DeviceRule{Kind: "c", Major: 195, Minor: runtime.AnyDevice, Access: "rwm"}

func newGPUWorld(names ...string) *gpuWorld {
	w := &gpuWorld{stands: map[string][]runtime.DeviceRule{}}
	for _, name := range names {
		w.stands[name] = []runtime.DeviceRule{gpuRule}
	}
	return w
}

func (w *gpuWorld) Look(_ context.Context, c runtime.Container, had []runtime.DeviceRule) (stands, lost []runtime.DeviceRule, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy {
		return nil, nil, fmt.Errorf("container %q: %w", c.Name, runtime.ErrBusy)
	}
	for _, r := range had {
		if !slices.Contains(w.stands[c.Name], r) {
			lost = append(lost, r)
		}
	}
	return slices.Clone(w.stands[c.Name]), lost, w.lookErr
}

func (w *gpuWorld) Repair(ctx context.Context, c runtime.Container, had []runtime.DeviceRule) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hang > 0 {
		hang := w.hang
		w.mu.Unlock()
		select {
		case <-time.After(hang):
		case <-ctx.Done():
		}
		w.mu.Lock()
	}
	w.repairs++
	if w.err != nil {
		return "", w.err
	}
	w.stands[c.Name] = slices.Clone(had)
	return "devices.allow", nil
}

func (w *gpuWorld) Forget(string) {}

func (w *gpuWorld) Load() (map[string][]runtime.DeviceRule, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.saved), nil
}

func (w *gpuWorld) Save(all map[string][]runtime.DeviceRule) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.saveErr == nil {
		w.saved = all
	}
	return w.saveErr
}

// take takes a container's access away.
func (w *gpuWorld) take(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stands[name] = nil
}

func (w *gpuWorld) has(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.stands[name]) > 0
}

func (w *gpuWorld) tried() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.repairs
}

// gpuJob adds a container that holds a GPU.
func (n *node) gpuJob(name string, labels map[string]string) runtime.Container {
	return n.engine.Add(runtime.Container{Name: name, Labels: labels, GPUs: []string{"0"}, GPUVia: "legacy-hook"}, runtimetest.DefaultValues())
}

func tuned() map[string]string    { return map[string]string{"trimtab.mode": "tune"} }
func observed() map[string]string { return map[string]string{"trimtab.mode": "observe"} }

// withGPUs gives a daemon eyes and hands for GPUs, on a host that watches all who hold one.
func withGPUs(w *gpuWorld, more func(*Options)) func(*Options) {
	return func(o *Options) {
		o.GPU, o.GPUMemory = w, w
		o.Settings.Rules.Observe = enrolment.ObserveGPU
		if more != nil {
			more(o)
		}
	}
}

// repairs is how many repairs a daemon counts, and how many losses.
func (d *daemon) repairs(result string) (n float64) {
	for _, c := range d.Snapshot().Totals.GPURepairs {
		if c.Result == result {
			n = c.Value
		}
	}
	return n
}

func TestRepairEnrolled(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newGPUWorld("job")
		n.gpuJob("job", tuned())
		d := n.start(withGPUs(w, nil))
		time.Sleep(3 * time.Second)
		w.take("job")
		time.Sleep(5 * time.Second)
		if !w.has("job") {
			t.Fatal("not repaired within five seconds")
		}
		d.until("job", "shown as repaired", func(c state.Container) bool { return c.GPULost == "" && d.repairs("repaired") == 1 })
		if s := d.Snapshot(); s.Totals.GPUAccessLost != 1 {
			t.Errorf("lost %d times", s.Totals.GPUAccessLost)
		}
		d.stop(false)
		if !n.history.has(state.RecordGPULost) || !n.history.has(state.RecordGPURepair) {
			t.Error("history does not tell of it")
		}
	})
}

// TestRepairOnlyWhereAllowed: others are told of, and never written to.
func TestRepairOnlyWhereAllowed(t *testing.T) {
	repairAccess := func(o *Options) { o.Settings.RepairGPUAccess = true }
	for name, tc := range map[string]struct {
		labels   map[string]string
		change   func(*Options)
		prep     func(n *node, c runtime.Container)
		repaired bool
		why      string
	}{
		"observed":                         {labels: observed(), why: "repairGPUAccess: true"},
		"observed, repairGPUAccess":        {labels: observed(), change: repairAccess, repaired: true},
		"host observes":                    {labels: tuned(), change: func(o *Options) { o.Settings.Rules.Mode = policies.ModeObserve }, why: "repairGPUAccess: true"},
		"host observes, repairGPUAccess":   {labels: tuned(), change: func(o *Options) { o.Settings.Rules.Mode = policies.ModeObserve; o.Settings.RepairGPUAccess = true }, repaired: true},
		"not named, repairGPUAccess":       {change: repairAccess, why: "neither enrolled nor named"},
		"named by a rule, repairGPUAccess": {change: func(o *Options) { repairAccess(o); o.Settings.Rules.Match = []enrolment.Rule{{Name: "job"}} }, repaired: true},
		"disabled":                         {labels: tuned(), change: func(o *Options) { o.Disabled = func() bool { return true } }, why: "disabled"},
		"paused":                           {labels: tuned(), prep: func(n *node, _ runtime.Container) { _ = n.holds.SetPaused(true) }, why: "paused"},
		"held":                             {labels: tuned(), prep: func(n *node, c runtime.Container) { _ = n.holds.SetHeld(true, c.Key()) }, why: "held"},
		"enrolled, nothing special":        {labels: tuned(), repaired: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				w := newGPUWorld("job")
				c := n.gpuJob("job", tc.labels)
				if tc.prep != nil {
					tc.prep(n, c)
				}
				d := n.start(withGPUs(w, tc.change))
				time.Sleep(3 * time.Second)
				w.take("job")
				time.Sleep(20 * time.Second)
				if w.has("job") != tc.repaired || (w.tried() > 0) != tc.repaired {
					t.Errorf("repaired: %v, %d tries", w.has("job"), w.tried())
				}
				shown := d.until("job", "seen", func(state.Container) bool { return true })
				if !strings.Contains(shown.GPULost, tc.why) || (shown.GPULost == "") != tc.repaired {
					t.Errorf("shown: %q, want %q", shown.GPULost, tc.why)
				}
				left := d.repairs("left")
				if (left == 1) == tc.repaired || d.Snapshot().Totals.GPUAccessLost != 1 {
					t.Errorf("left %v, lost %d", left, d.Snapshot().Totals.GPUAccessLost)
				}
				d.end()
			})
		})
	}
}

// TestRepairOff: a container that is off is not even looked at.
func TestRepairOff(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newGPUWorld("job")
		n.gpuJob("job", map[string]string{"trimtab.mode": "off"})
		d := n.start(withGPUs(w, func(o *Options) { o.Settings.RepairGPUAccess = true }))
		time.Sleep(3 * time.Second)
		w.take("job")
		time.Sleep(20 * time.Second)
		if w.tried() > 0 || d.Snapshot().Totals.GPUAccessLost > 0 {
			t.Error("it was touched")
		}
		d.end()
	})
}

// TestRepairAfterRestart: access lost while no daemon ran is known from the disk.
func TestRepairAfterRestart(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newGPUWorld("job")
		c := n.gpuJob("job", tuned())
		d := n.start(withGPUs(w, nil))
		time.Sleep(3 * time.Second)
		d.end() // killed
		if len(w.saved[c.Key()]) != 1 {
			t.Fatalf("on disk: %v", w.saved)
		}
		w.take("job")
		d = n.start(withGPUs(w, nil))
		time.Sleep(5 * time.Second)
		if !w.has("job") {
			t.Error("not repaired")
		}
		n.engine.Remove(c.ID.Container)
		time.Sleep(10 * time.Second)
		if saved, _ := w.Load(); len(saved) != 0 {
			t.Errorf("still on disk after its end: %v", saved)
		}
		d.end()
	})
}

// TestBusyTellsNothingOfAccess: while what a container sees is being changed nothing is known of its
// access: what was lost is neither called back, nor found once more.
func TestBusyTellsNothingOfAccess(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newGPUWorld("job")
		n.gpuJob("job", tuned())
		d := n.start(withGPUs(w, nil))
		time.Sleep(3 * time.Second)
		w.mu.Lock()
		w.err = errors.New("refused by the group above")
		w.mu.Unlock()
		w.take("job")
		d.until("job", "lost", func(c state.Container) bool { return strings.Contains(c.GPULost, "group above") })
		for i := range 20 {
			w.mu.Lock()
			w.busy = i%2 == 0
			w.mu.Unlock()
			time.Sleep(time.Second)
		}
		d.until("job", "lost still", func(c state.Container) bool { return strings.Contains(c.GPULost, "group above") })
		d.end()
		if log := n.log.String(); strings.Contains(log, "is back") || strings.Count(log, "GPU access lost") != 1 || strings.Contains(log, "cannot be looked at") {
			t.Errorf("\n%s", log)
		}
	})
}

// TestNeverGranted: what a container never had is not given to it, whatever it asks.
func TestNeverGranted(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newGPUWorld()
		n.gpuJob("job", tuned())
		d := n.start(withGPUs(w, nil))
		time.Sleep(3 * time.Second)
		if d.Snapshot().Totals.GPUAccessLost > 0 {
			t.Error("called lost while its runtime may still be at work")
		}
		time.Sleep(30 * time.Second)
		c := d.until("job", "told of", func(c state.Container) bool { return c.GPULost != "" })
		if w.tried() > 0 || w.has("job") || !strings.Contains(c.GPULost, "never saw it") {
			t.Errorf("%d tries; %s", w.tried(), c.GPULost)
		}
		d.end()
	})
}

// TestRepairFailsAndFlaps: failures are told once and tried with pauses; a foreign
// writer meets a bounded rate.
func TestRepairFailsAndFlaps(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newGPUWorld("job")
		n.gpuJob("job", tuned())
		d := n.start(withGPUs(w, nil))
		time.Sleep(3 * time.Second)
		w.mu.Lock()
		w.err = errors.New("refused by the group above")
		w.mu.Unlock()
		w.take("job")
		time.Sleep(30 * time.Second)
		if tries := w.tried(); tries < 4 || tries > 6 {
			t.Errorf("%d tries in 30 s", tries)
		}
		c := d.until("job", "failing", func(c state.Container) bool { return d.repairs("failed") >= 4 })
		if !strings.Contains(c.GPULost, "group above") {
			t.Errorf("%q", c.GPULost)
		}
		w.mu.Lock()
		w.err = nil
		w.mu.Unlock()
		d.until("job", "repaired at last", func(c state.Container) bool { return c.GPULost == "" })
		time.Sleep(2 * time.Minute)
		before := w.tried()
		for range 60 {
			w.take("job")
			time.Sleep(time.Second)
		}
		if tries := w.tried() - before; tries > 7 || tries < 5 {
			t.Errorf("%d repairs in a minute of a foreign writer", tries)
		}
		d.end()
		if log := n.log.String(); strings.Count(log, "again and again") != 1 || strings.Count(log, "group above") != 1 {
			t.Errorf("told more than once, or never\n%s", log)
		}
	})
}

// TestRepairHangs: one repair that hangs delays no other container, and does not outlive the daemon.
func TestRepairHangs(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newGPUWorld("hangs", "other")
		n.gpuJob("hangs", tuned())
		n.gpuJob("other", tuned())
		d := n.start(withGPUs(w, nil))
		time.Sleep(3 * time.Second)
		w.mu.Lock()
		w.hang = time.Hour
		w.mu.Unlock()
		w.take("hangs")
		time.Sleep(2 * time.Second)
		w.mu.Lock()
		w.hang = 0
		w.mu.Unlock()
		w.take("other")
		time.Sleep(3 * time.Second)
		if !w.has("other") || w.has("hangs") {
			t.Error("one waited for the other")
		}
		d.end()
		synctest.Wait()
	})
}

// TestRepairUnread: a look that fails is said once, and a full disk does not stop a repair.
func TestRepairUnread(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := newGPUWorld("job")
		w.saveErr = errors.New("disk full")
		n.gpuJob("job", tuned())
		d := n.start(withGPUs(w, nil))
		time.Sleep(3 * time.Second)
		w.take("job")
		time.Sleep(3 * time.Second)
		if !w.has("job") {
			t.Error("not repaired")
		}
		w.mu.Lock()
		w.lookErr = errors.New("no permission")
		w.mu.Unlock()
		time.Sleep(20 * time.Second)
		d.end()
		if log := n.log.String(); strings.Count(log, "disk full") != 1 || strings.Count(log, "no permission") != 1 {
			t.Errorf("told more than once, or never\n%s", log)
		}
	})
}
