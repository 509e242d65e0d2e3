// Package docker follows the containers of a Docker engine and sets their knobs.
//
// Values are read from control group files. They are written through containerd,
// in the namespace that Docker keeps its containers in: that door sets and clears
// every knob, and what it wrote ends with the container. Where containerd's
// socket cannot be reached, Docker's own update API is used, which sets less and
// cannot take back all of it.
//
// The trap: runc keeps a copy of the values and replaces parts of it on each
// update, so an update carries every field this package manages, foreign ones at
// the value that stands in the kernel. It does not create, stop or exec.
package docker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
)

// EngineName is Docker's name in runtime.ID.
const EngineName = "docker"

// Options configures an Engine; the zero value is a Docker host with its defaults.
type Options struct {
	// Host is Docker's address; "": "unix:///var/run/docker.sock".
	Host string
	// ContainerdAddress is the path of the socket of the containerd that runs Docker's
	// containers; "": the first of the usual two that knows the container.
	ContainerdAddress string
	// ContainerdNamespace is dockerd's --containerd-namespace; "": "moby".
	ContainerdNamespace string
	// Logger takes changes of state, never one line for each container; nil: none.
	Logger *slog.Logger
	// ProcRoot and CgroupRoot are "/proc" and "/sys/fs/cgroup" if empty.
	ProcRoot, CgroupRoot string
	// CallTimeout bounds each call to Docker or containerd; 0: 10 s. runc may take
	// seconds on a machine that is short of CPU.
	CallTimeout time.Duration
	// RelistEvery is the time between listings that find what an event stream lost,
	// and notice an engine that hangs; 0: 30 s.
	RelistEvery time.Duration
}

// usualContainerdSockets: of a containerd with a service of its own, then of one
// that dockerd started.
//
//trimtab:table an array of paths, only read
var usualContainerdSockets = [...]string{"/run/containerd/containerd.sock", "/run/docker/containerd/containerd.sock"}

func (o Options) withDefaults() Options {
	setDefault(&o.Host, "unix:///var/run/docker.sock")
	setDefault(&o.ContainerdNamespace, "moby")
	setDefault(&o.ProcRoot, "/proc")
	setDefault(&o.CgroupRoot, cgroup.DefaultRoot)
	setDefault(&o.CallTimeout, 10*time.Second)
	setDefault(&o.RelistEvery, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("component", "runtime/docker")
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Engine is a Docker engine. All methods are safe for concurrent use; Run may be
// called once at a time.
type Engine struct {
	opts   Options
	client *client.Client
	bootID string

	mu       sync.Mutex
	writing  map[string]*writeLock // by container ID: one read-modify-write at a time
	doorNote string                // why containerd's door is shut, as last logged
}

var _ runtime.Engine = (*Engine)(nil)

// New makes an Engine. It does not call Docker: an engine that is absent is
// Run's to wait for. Close it when it is no longer used.
func New(opts Options) (*Engine, error) {
	opts = opts.withDefaults()
	boot, err := cgroup.BootID(opts.ProcRoot)
	if err != nil {
		return nil, err
	}
	cli, err := client.New(client.WithHost(opts.Host), client.WithUserAgent("trimtab"))
	if err != nil {
		return nil, fmt.Errorf("Docker host %q: %w", opts.Host, err)
	}
	return &Engine{opts: opts, client: cli, bootID: boot, writing: make(map[string]*writeLock)}, nil
}

// Close frees the connections to Docker; Run must have returned.
func (e *Engine) Close() error { return e.client.Close() }

// Name implements runtime.Engine.
func (e *Engine) Name() string { return EngineName }

// Read implements runtime.Engine.
func (e *Engine) Read(ctx context.Context, c runtime.Container) (runtime.Values, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := e.alive(c); err != nil {
		return nil, err
	}
	values, err := cgroup.ReadValues(c.Cgroup)
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", c.Name, err)
	}
	return values, nil
}

// alive returns ErrGone unless the container's init process is still the one of its ID.
func (e *Engine) alive(c runtime.Container) error {
	tick, err := cgroup.StartTick(e.opts.ProcRoot, c.InitPID)
	if err != nil {
		return fmt.Errorf("container %q: %w", c.Name, err)
	}
	if tick != c.ID.StartTick {
		return fmt.Errorf("container %q: process %d is another one: %w", c.Name, c.InitPID, runtime.ErrGone)
	}
	return nil
}

// Apply implements runtime.Engine. It reads what stands, and writes that with the
// changes in it; a foreign write between the two, some milliseconds, is lost.
// After ErrUnavailable the write may still have happened: read back.
func (e *Engine) Apply(ctx context.Context, c runtime.Container, set runtime.Values) error {
	unlock, err := e.lock(ctx, c.ID.Container)
	if err != nil {
		return err
	}
	defer unlock()
	stands, err := e.Read(ctx, c)
	if err != nil {
		return err
	}
	if err := check(c, stands, set); err != nil {
		return err
	}
	want, err := resolveCPUs(c, stands, set)
	if err != nil {
		return err
	}
	err = e.door(ctx, c).apply(ctx, c, stands, want)
	if err != nil && e.alive(c) != nil {
		return fmt.Errorf("container %q: it ended during the write (%w): %w", c.Name, err, runtime.ErrGone)
	}
	return err
}

// Door implements runtime.Engine.
func (e *Engine) Door(ctx context.Context, c runtime.Container) string { return e.door(ctx, c).name() }

// door is a way to write values. stands holds what is in the kernel, set what
// is to change; set is checked, and holds no empty cpuset.
type door interface {
	name() string
	apply(ctx context.Context, c runtime.Container, stands, set runtime.Values) error
}

// resolveCPUs replaces an empty cpuset, which means unset, by what that means:
// no runtime takes "" for anything but "unchanged".
func resolveCPUs(c runtime.Container, stands, set runtime.Values) (runtime.Values, error) {
	cpus, ok := set[runtime.KnobCpuset]
	if !ok || cpus != "" || stands[runtime.KnobCpuset] == "" {
		return set, nil
	}
	parent, err := cgroup.ParentCPUs(c.Cgroup)
	if err != nil {
		return nil, fmt.Errorf("container %q: %s: %w", c.Name, runtime.KnobCpuset, err)
	}
	out := set.Clone()
	out[runtime.KnobCpuset] = parent
	return out, nil
}

// check refuses what no door can express on this host.
func check(c runtime.Container, stands, set runtime.Values) error {
	for _, knob := range sortedKnobs(set) {
		if _, ok := stands[knob]; !ok {
			return refused(c, knob, "this host's %s control groups have no such knob", c.Cgroup.Mode)
		}
		if err := checkValue(knob, set[knob]); err != nil {
			return refused(c, knob, "%v", err)
		}
	}
	return nil
}

// sortedKnobs also has knobs that runtime.Knobs does not know: they are refused,
// not forgotten.
func sortedKnobs(v runtime.Values) []runtime.Knob {
	out := make([]runtime.Knob, 0, len(v))
	for knob := range v {
		out = append(out, knob)
	}
	slices.Sort(out)
	return out
}

func checkValue(knob runtime.Knob, value runtime.Value) error {
	switch knob {
	case runtime.KnobCPUQuota:
		_, _, err := runtime.ParseQuota(value)
		return err
	case runtime.KnobCpuset:
		_, err := runtime.ParseCPUList(string(value))
		return err
	}
	if value == runtime.ValueMax && knob.Family() == "memory" {
		return nil
	}
	if n, ok := value.Int(); !ok || n < 0 {
		return fmt.Errorf("%q is not a whole number", value)
	}
	return nil
}

// refused makes an ErrRefused that names container, knob and reason.
func refused(c runtime.Container, knob runtime.Knob, format string, args ...any) error {
	return fmt.Errorf("container %q: %s: %s: %w", c.Name, knob, fmt.Sprintf(format, args...), runtime.ErrRefused)
}

// writeLock serialises the writers of one container; it can be waited for with a context.
type writeLock struct {
	held    chan struct{} // holds one value while somebody has the lock
	waiters int           // including the holder; under Engine.mu
}

func (e *Engine) lock(ctx context.Context, id string) (unlock func(), err error) {
	e.mu.Lock()
	l, ok := e.writing[id]
	if !ok {
		l = &writeLock{held: make(chan struct{}, 1)}
		e.writing[id] = l
	}
	l.waiters++
	e.mu.Unlock()

	leave := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if l.waiters--; l.waiters == 0 {
			delete(e.writing, id)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
