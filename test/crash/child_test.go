package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	probecgroup "github.com/trimtab/trimtab/probes/cgroup"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/device"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/agent"
	"github.com/trimtab/trimtab/tuner/originals"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// orders tell a child what to live and when to die. The same orders give the same
// life, up to what the machine does in the Delay.
type orders struct {
	State      string
	Containers []runtime.Container
	Seed       uint64
	Hides      bool // GPUs of the last container
	Recover    bool // do what a daemon does at its start, rather than act
	Point      int  // die at this fault point,
	Delay      time.Duration
	// Delay: and so long after it, which may be in the middle of a write.
	Containerd string // its socket; "": where it usually is
	QuotaOnly  bool   // of the knobs
}

const ordersEnv = "TRIMTAB_KILLS_ORDERS"

// traceFD is where a child says which fault point it has reached.
const traceFD = 3

func TestMain(m *testing.M) {
	if text := os.Getenv(ordersEnv); text != "" {
		var o orders
		err := json.Unmarshal([]byte(text), &o)
		if err == nil {
			err = o.live()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fault counts points, says which, and dies at the one that was ordered.
func (o orders) fault() func(string) {
	trace := os.NewFile(traceFD, "trace")
	passed := 0
	die := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	return func(point string) {
		fmt.Fprintln(trace, point)
		if passed++; passed != o.Point {
			return
		}
		if o.Delay == 0 {
			die()
			select {} // the signal is on its way
		}
		time.AfterFunc(o.Delay, die)
	}
}

// hands are the daemon's: what acts, made as it makes them.
type hands struct {
	engine       *docker.Engine
	actuator     *actuator.Actuator
	visibilities *device.Visibility
}

func newHands(state, containerd string, fault func(string)) (hands, error) {
	if fault == nil {
		fault = func(string) {}
	}
	log := slog.New(slog.DiscardHandler)
	engine, err := docker.New(docker.Options{Logger: log, ContainerdAddress: containerd})
	if err != nil {
		return hands{}, err
	}
	store, err := statefile.Open(state)
	if err != nil {
		return hands{}, err
	}
	visibilities := device.NewVisibility(device.Options{Fault: fault,
		Records: faultyRecords{statefile.OpenEach[device.Hidden](store, "gpu-hidden"), fault}})
	return hands{engine, actuator.New(actuator.Options{
		Engines: map[string]actuator.Engine{docker.EngineName: engine},
		Store:   originals.New(originals.Options{Dir: filepath.Join(state, "originals"), Fault: fault}),
		Preflight: func(ctx context.Context, c runtime.Container) (bool, string) {
			r := device.Preflight(ctx, visibilities.Left(c), device.Options{})
			return r.Green, r.String()
		},
		CheckGPU: func(ctx context.Context, c runtime.Container) error {
			if c = visibilities.Left(c); len(c.GPUs) == 0 {
				return nil
			}
			if access, err := device.CheckAccess(ctx, c); access == device.AccessRefused {
				return err
			}
			return nil
		},
		Memory: memoryUse, Logger: log, Fault: fault,
	}), visibilities}, nil
}

func memoryUse(ctx context.Context, c runtime.Container) (actuator.MemoryUse, error) {
	p := probecgroup.New()
	samples := map[string]*probes.Sample{}
	if err := errors.Join(p.Watch(agent.Target(c)), p.Read(ctx, samples)); err != nil {
		return actuator.MemoryUse{}, err
	}
	s := samples[c.Key()]
	if s == nil || s.Cgroup == nil {
		return actuator.MemoryUse{}, errors.New("its memory use cannot be read")
	}
	return actuator.MemoryUse{Anon: s.Cgroup.Anon, Shmem: s.Cgroup.Shmem, Usage: s.Cgroup.MemoryBytes}, nil
}

// faultyRecords has fault points around its durable writes.
type faultyRecords struct {
	*statefile.Each[device.Hidden]
	fault func(string)
}

func (r faultyRecords) Save(key string, h device.Hidden) error {
	r.fault("record.before")
	defer r.fault("record.after")
	return r.Each.Save(key, h)
}

func (r faultyRecords) Remove(key string) error {
	r.fault("record.before")
	defer r.fault("record.after")
	return r.Each.Remove(key)
}

// recovery is what the daemon does at its start, and `restore --offline` without it.
func (h hands) recovery(ctx context.Context, cs []runtime.Container) error {
	results, err := h.actuator.Recover(ctx, actuator.Recovery{Running: cs, Synced: []string{docker.EngineName}})
	for _, r := range results {
		if r.Err != nil || r.Outcome != actuator.Restored {
			err = errors.Join(err, fmt.Errorf("container %s: %s: %+v: %w", r.Name, r.Outcome, r.Knobs, r.Err))
		}
	}
	return errors.Join(err, h.visibilities.RestoreAll(ctx, func(string, string, bool, []string, error) {}))
}

// live acts at random until it is killed.
func (o orders) live() error {
	h, err := newHands(o.State, o.Containerd, o.fault())
	if err != nil {
		return err
	}
	ctx := context.Background()
	if o.Recover {
		return h.recovery(ctx, o.Containers)
	}
	l := life{hands: h, cs: o.Containers, quotaOnly: o.QuotaOnly, random: rand.New(rand.NewPCG(o.Seed, 1))}
	for range 300 {
		switch n := l.random.IntN(10); {
		case n < 5:
			l.plan(ctx)
		case n < 6 && len(l.plans) > 0:
			last := len(l.plans) - 1
			l.actuator.Rollback(ctx, l.plans[last])
			l.plans = l.plans[:last]
		case n < 7:
			l.actuator.Restore(ctx, l.cs[l.random.IntN(len(l.cs))], "opt-out")
		case o.Hides:
			hidden := [][]int{{}, {0}, {1}, {0, 1}}[l.random.IntN(4)]
			if _, err := l.visibilities.Hide(ctx, l.cs[len(l.cs)-1], runtime.GPUView{Hidden: hidden}); err != nil {
				return err
			}
		}
	}
	return errors.New("it was to be killed long before")
}

type life struct {
	hands
	cs        []runtime.Container
	quotaOnly bool
	random    *rand.Rand
	plans     [][]actuator.Item
}

// plan changes some knobs of some containers. One that is refused (it asks for what
// stands, say) is a part of life.
func (l *life) plan(ctx context.Context) {
	var items []actuator.Item
	for i, c := range l.cs {
		if l.random.IntN(len(l.cs)) > 0 && i != l.random.IntN(len(l.cs)) {
			continue
		}
		now, err := l.engine.Read(ctx, c)
		if err != nil {
			continue
		}
		var changes []policies.Change
		values := l.values()
		if l.quotaOnly { // in the period that stands, as a policy's
			quotaUs, _, _ := runtime.ParseQuota(values[runtime.KnobCPUQuota]) // of a plan without one nothing is made
			if _, periodUs, err := runtime.ParseQuota(now[runtime.KnobCPUQuota]); err == nil && quotaUs > 0 {
				values[runtime.KnobCPUQuota] = runtime.Quota(quotaUs, periodUs)
			}
		}
		for _, knob := range values.Sorted() {
			stands, there := now[knob]
			_, limited := stands.Int()
			limits := knob == runtime.KnobMemoryLimit || knob == runtime.KnobMemorySwap
			to := values[knob]
			if !there || limits && !limited || stands == to {
				continue
			}
			changes = append(changes, policies.Change{Key: c.Key(), Name: c.Name, Knob: knob, From: stands, To: to})
		}
		if len(changes) > 0 {
			items = append(items, actuator.Item{Container: c, Changes: changes,
				Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"cpu", "cpuset", "memory"}, BestEffort: true}})
		}
	}
	if r := l.actuator.Apply(ctx, actuator.Order{Items: items}); r.Applied && len(items) > 0 {
		l.plans = append(l.plans, items)
	}
}

// values are some knobs; memory and swap rise together.
func (l *life) values() runtime.Values {
	out := runtime.Values{}
	perhaps := func(one int, knob runtime.Knob, least, span, unit int64) (n int64, chosen bool) {
		if l.random.IntN(one) > 0 {
			return 0, false
		}
		n = (least + l.random.Int64N(span)) * unit
		out[knob] = runtime.IntValue(n)
		return n, true
	}
	const mib = 1 << 20
	if quota, ok := perhaps(2, runtime.KnobCPUQuota, 20, 150, 1000); ok {
		out[runtime.KnobCPUQuota] = runtime.Quota(quota, 100_000)
	}
	if l.quotaOnly {
		return out
	}
	perhaps(2, runtime.KnobCPUWeight, 100, 4000, 1)
	perhaps(4, runtime.KnobCpuset, 0, int64(goruntime.NumCPU()), 1)
	if limit, ok := perhaps(3, runtime.KnobMemoryLimit, 192, 300, mib); ok {
		out[runtime.KnobMemorySwap] = runtime.IntValue(limit + l.random.Int64N(300)*mib)
	}
	return out
}
