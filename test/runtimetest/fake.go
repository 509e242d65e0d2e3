package runtimetest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trimtab/trimtab/runtime"
)

// Fake is an engine in memory. Its containers, values, failures and delays are
// scripted by a test, from any goroutine. It starts no goroutine, and waits only
// by timers and channels, so it may live in a synctest bubble.
type Fake struct {
	mu         sync.Mutex
	containers map[string]*fakeContainer // by engine's container ID
	lastTick   uint64
	queue      []runtime.Event // what Run has not yet told
	wake       chan struct{}
	lost       bool
	lostWhy    string

	refusal func(runtime.Container, runtime.Values) error
	delay   time.Duration
	applied []Applied
}

type fakeContainer struct {
	c       runtime.Container
	values  runtime.Values
	initial runtime.Values // what the owner made it with: back after a restart
}

// Applied is one write that a Fake took.
type Applied struct {
	Container runtime.Container
	Set       runtime.Values
}

var _ runtime.Engine = (*Fake)(nil)

// NewFake makes an engine without containers.
func NewFake() *Fake {
	return &Fake{containers: make(map[string]*fakeContainer), wake: make(chan struct{}, 1)}
}

// DefaultValues are those of a container without any limit on a hybrid host with two CPUs.
func DefaultValues() runtime.Values {
	return runtime.Values{
		runtime.KnobCPUWeight:   "1024",
		runtime.KnobCPUQuota:    "max 100000",
		runtime.KnobCpuset:      "0-1",
		runtime.KnobMemoryLimit: runtime.ValueMax,
		runtime.KnobMemorySwap:  runtime.ValueMax,
	}
}

// Add starts a container. Empty parts of c's identity are filled in; nil values
// mean DefaultValues.
func (f *Fake) Add(c runtime.Container, values runtime.Values) runtime.Container {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.ID.Container == "" {
		c.ID.Container = fmt.Sprintf("%064x", f.lastTick+1)
	}
	if c.ID.Engine == "" {
		c.ID.Engine = f.Name()
	}
	if c.ID.Boot == "" {
		c.ID.Boot = "00000000-0000-4000-8000-000000000000"
	}
	if c.Name == "" {
		c.Name = "fake-" + c.ID.Container[len(c.ID.Container)-4:]
	}
	if values == nil {
		values = DefaultValues()
	}
	f.startLocked(&c)
	f.containers[c.ID.Container] = &fakeContainer{c: c, values: values.Clone(), initial: values.Clone()}
	f.tellLocked(runtime.EventSeen, c)
	return c
}

// startLocked gives the container a new life.
func (f *Fake) startLocked(c *runtime.Container) {
	f.lastTick++
	c.ID.StartTick = f.lastTick
	c.InitPID = 1000 + int(f.lastTick)
	c.State = runtime.StateRunning
	if c.Cgroup.Mode == "" {
		c.Cgroup.Mode = runtime.CgroupHybrid
	}
	c.Cgroup.ID = 10_000 + f.lastTick
}

// Remove ends a container's life.
func (f *Fake) Remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if held, ok := f.containers[id]; ok {
		delete(f.containers, id)
		f.tellLocked(runtime.EventGone, held.c)
	}
}

// Restart ends a container's life and starts another with the owner's values.
func (f *Fake) Restart(id string) runtime.Container {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.mustLocked(id)
	f.tellLocked(runtime.EventGone, held.c)
	f.startLocked(&held.c)
	held.values = held.initial.Clone()
	f.tellLocked(runtime.EventSeen, held.c)
	return held.c
}

// Change lets a test change a running container's name, state or labels.
func (f *Fake) Change(id string, change func(*runtime.Container)) runtime.Container {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.mustLocked(id)
	held.c.Labels = maps.Clone(held.c.Labels)
	held.c.GPUs = slices.Clone(held.c.GPUs)
	change(&held.c)
	f.tellLocked(runtime.EventSeen, held.c)
	return held.c
}

// ForeignWrite sets values as somebody else would through the engine: an update event follows.
func (f *Fake) ForeignWrite(id string, set runtime.Values) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.mustLocked(id)
	maps.Copy(held.values, set)
	f.tellLocked(runtime.EventUpdate, held.c)
}

// SilentWrite sets values behind the engine's back, as systemd or a shell would.
func (f *Fake) SilentWrite(id string, set runtime.Values) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.Copy(f.mustLocked(id).values, set)
}

func (f *Fake) mustLocked(id string) *fakeContainer {
	held, ok := f.containers[id]
	if !ok {
		panic(fmt.Sprintf("runtimetest: no container %q", id))
	}
	return held
}

// Lose breaks the connection: Read goes on, Apply gives ErrUnavailable.
func (f *Fake) Lose(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.lost {
		f.lost, f.lostWhy = true, reason
		f.pushLocked(runtime.Event{Kind: runtime.EventLost, Engine: f.Name(), Reason: reason})
	}
}

// Recover fixes the connection; a listing follows.
func (f *Fake) Recover() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = false
	f.listLocked()
}

// OnApply scripts failures: an error that hook returns is Apply's, and nothing is
// written. The hook may call the Fake (for a foreign write in between); nil removes it.
func (f *Fake) OnApply(hook func(runtime.Container, runtime.Values) error) {
	f.script(func() { f.refusal = hook })
}

// SetDelay makes each Apply take so long.
func (f *Fake) SetDelay(d time.Duration) { f.script(func() { f.delay = d }) }

func (f *Fake) script(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Applied returns the writes so far, oldest first.
func (f *Fake) Applied() []Applied {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.applied)
}

// Containers returns what runs, sorted by ID.
func (f *Fake) Containers() []runtime.Container {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []runtime.Container
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		out = append(out, f.containers[id].c)
	}
	return out
}
