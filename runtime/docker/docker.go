// Package docker follows the containers of a Docker engine and sets their knobs.
//
// Values are read from control group files. They are written through containerd,
// in the namespace that Docker keeps its containers in: that write path sets and clears
// every knob, and what it wrote ends with the container. Where containerd's
// socket cannot be reached, Docker's own update API is used, which sets less and
// cannot take back all of it.
//
// The trap: runc keeps a copy of the values and replaces parts of it on each
// update, so an update carries every field this package manages, foreign ones at
// the value that stands in the kernel. It does not create, stop or exec.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
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
	// ImageLabels: trimtab's labels on an image count as if who starts a container had given them.
	ImageLabels bool
	// Logger takes changes of state, never one line for each container; nil: none.
	Logger *slog.Logger
	// CallTimeout bounds each call to Docker or containerd; 0: 10 s. runc may take
	// seconds on a machine that is short of CPU.
	CallTimeout time.Duration
}

// relistEvery is the time between listings that find what an event stream lost,
// and notice an engine that hangs.
const relistEvery = 30 * time.Second

// usualContainerdSockets: of a containerd with a service of its own, then of one
// that dockerd started.
//
//trimtab:table an array of paths, only read
var usualContainerdSockets = [...]string{"/run/containerd/containerd.sock", "/run/docker/containerd/containerd.sock"}

func (o Options) withDefaults() Options {
	o.Host = cmp.Or(o.Host, "unix:///var/run/docker.sock")
	o.CallTimeout = cmp.Or(o.CallTimeout, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).With("component", "runtime/docker")
	return o
}

// Engine is a Docker engine. All methods are safe for concurrent use; Run may be
// called once at a time.
type Engine struct {
	opts    Options
	client  *client.Client
	answers *answers
	host    engine.Host
	owner   owner
	writer  engine.Writer
	images  imageLabels
	// updates holds Docker's record of each container, runtime.Values by its ID, as of its latest
	// settled write, so that what `docker update` stores while trimtab writes is told from what was
	// there before.
	updates     sync.Map
	mu          sync.Mutex
	updaterNote string // why containerd cannot be reached, as last logged
}

var _ runtime.Engine = (*Engine)(nil)

// New makes an Engine. It does not call Docker: an engine that is absent is
// Run's to wait for. Close it when it is no longer used.
func New(opts Options) (*Engine, error) {
	opts = opts.withDefaults()
	host, err := engine.NewHost()
	if err != nil {
		return nil, err
	}
	e := &Engine{opts: opts, host: host}
	var dial dialer
	if path, ok := strings.CutPrefix(opts.Host, "unix://"); ok {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return e.owner.dial(ctx, "unix", path) }
	}
	e.answers = newAnswers(dial)
	// The host first: it is for the client's own transport, which this one replaces.
	e.client, err = client.New(client.WithHost(opts.Host), client.WithUserAgent("trimtab"),
		client.WithHTTPClient(&http.Client{Transport: e.answers, CheckRedirect: client.CheckRedirect}))
	if err != nil {
		return nil, fmt.Errorf("Docker host %q: %w", opts.Host, err)
	}
	return e, nil
}

// Close frees the connections to Docker; Run must have returned.
func (e *Engine) Close() error {
	e.answers.base.CloseIdleConnections()
	return e.client.Close()
}

// Name implements runtime.Engine.
func (e *Engine) Name() string { return EngineName }

// Read implements runtime.Engine.
func (e *Engine) Read(ctx context.Context, c runtime.Container) (runtime.Values, error) {
	return e.host.Read(ctx, c)
}

// Apply implements runtime.Engine. After ErrUnavailable the write may still have
// happened: read back. What somebody stores in Docker's record meanwhile (`docker update`)
// stands at the end, whichever of the two the runtime heard last.
func (e *Engine) Apply(ctx context.Context, c runtime.Container, set runtime.Values, inFlight ...runtime.Values) error {
	stood, err := e.write(ctx, c, set, inFlight)
	if stood == nil || errors.Is(err, runtime.ErrGone) {
		return err
	}
	return errors.Join(err, e.keepUpdates(ctx, c, stood, append(slices.Clip(inFlight), set)))
}

// write returns what stood before; nil where nothing was sent, or where Docker itself puts
// what its API is told in order.
func (e *Engine) write(ctx context.Context, c runtime.Container, set runtime.Values, inFlight []runtime.Values) (stood runtime.Values, err error) {
	err = e.writer.Apply(ctx, e.host, c, set, func(ctx context.Context, stands, want runtime.Values) error {
		d := e.updater(ctx, c)
		switch _, api := d.(apiUpdater); {
		case api:
			e.updates.Delete(c.ID.Container)
		case stood == nil: // not a second time, where a refused write is undone
			stood = stands.Clone()
		}
		return d.apply(ctx, c, stands, want, inFlight)
	})
	return stood, err
}

// WritePath implements runtime.Engine.
func (e *Engine) WritePath(ctx context.Context, c runtime.Container) string {
	return e.updater(ctx, c).name()
}

// updater is a way to write values. stands holds what is in the kernel, set what
// is to change; set is checked, and holds no empty cpuset.
type updater interface {
	name() string
	apply(ctx context.Context, c runtime.Container, stands, set runtime.Values, inFlight []runtime.Values) error
}
