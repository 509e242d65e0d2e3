package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	namespaces "github.com/containerd/containerd/api/services/namespaces/v1"
	"google.golang.org/grpc"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/cgroup"
	"github.com/trimtab/trimtab/runtime/engine"
)

const (
	// EngineName is containerd's name in runtime.ID.
	EngineName = "containerd"
	// DefaultAddress is where containerd's service listens.
	DefaultAddress = "/run/containerd/containerd.sock"
	// DockerNamespace is where Docker keeps its containers.
	DockerNamespace = "moby"
	// kubernetesNamespace is where kubelet's containers are (CRI plugin).
	kubernetesNamespace = "k8s.io"
)

// Options configures an Engine; the zero value follows all namespaces of the
// host's containerd.
type Options struct {
	// Address is the path of the socket, with or without "unix://"; "": DefaultAddress.
	Address string
	// Namespaces are those to follow; none: all there are, also ones made later.
	Namespaces []string
	// Except are namespaces that belong to another engine, such as DockerNamespace.
	Except []string
	// Logger takes changes of state, never one line for each container; nil: none.
	Logger *slog.Logger
	// CallTimeout bounds each call; 0: 10 s. runc may take seconds on a machine that
	// is short of CPU.
	CallTimeout time.Duration
	// RelistEvery is the time between listings that find what an event stream lost,
	// and notice a containerd that hangs; 0: 30 s.
	RelistEvery time.Duration
}

func (o Options) withDefaults() Options {
	o.Address = cmp.Or(strings.TrimPrefix(o.Address, "unix://"), DefaultAddress)
	o.CallTimeout = cmp.Or(o.CallTimeout, 10*time.Second)
	o.RelistEvery = cmp.Or(o.RelistEvery, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).With("component", "runtime/containerd")
	return o
}

// follows reports whether a namespace's containers are this engine's.
func (o Options) follows(namespace string) bool {
	return isID(namespace) && !slices.Contains(o.Except, namespace) && (len(o.Namespaces) == 0 || slices.Contains(o.Namespaces, namespace))
}

// maxIDBytes is containerd's own bound (pkg/identifiers).
const maxIDBytes = 76

// isID tells IDs of containers, and names of namespaces: both are letters and digits, in groups with one
// of "._-" between each two. An ID goes into names of files and of control groups.
func isID(id string) bool {
	if id == "" || len(id) > maxIDBytes {
		return false
	}
	begun := false // a group, of which a separator needs one before it and one behind
	for _, r := range id {
		switch separates := strings.ContainsRune("._-", r); {
		case separates && !begun, !separates && !isAlphanumeric(r):
			return false
		default:
			begun = !separates
		}
	}
	return begun
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// isKey tells a session's keys.
func isKey(key string) bool {
	namespace, id, _ := strings.Cut(key, "/")
	return isID(namespace) && isID(id)
}

// Engine is a containerd by itself: nerdctl's containers, ctr's, and others'. All
// methods are safe for concurrent use; Run may be called once at a time.
type Engine struct {
	opts   Options
	host   engine.Host
	writer engine.Writer
}

var _ runtime.Engine = (*Engine)(nil)

// New makes an Engine. It does not call containerd: one that is absent is Run's to
// wait for.
func New(opts Options) (*Engine, error) {
	opts = opts.withDefaults()
	host, err := engine.NewHost()
	if err != nil {
		return nil, err
	}
	return &Engine{opts: opts, host: host}, nil
}

// Close is for symmetry with engines that keep connections; Run must have returned.
func (e *Engine) Close() error { return nil }

// Name implements runtime.Engine.
func (e *Engine) Name() string { return EngineName }

// Run implements runtime.Engine.
func (e *Engine) Run(ctx context.Context, sink func(runtime.Event)) error {
	return engine.Follow(ctx, source{e}, engine.Options{
		Engine: EngineName, Title: "containerd", Address: e.opts.Address,
		Hint:   `start it with "systemctl start containerd", or correct its address`,
		Logger: e.opts.Logger, CallTimeout: e.opts.CallTimeout, RelistEvery: e.opts.RelistEvery, Host: e.host, IsKey: isKey,
	}, sink)
}

// Read implements runtime.Engine.
func (e *Engine) Read(ctx context.Context, c runtime.Container) (runtime.Values, error) {
	return e.host.Read(ctx, c)
}

// Apply implements runtime.Engine. Kubernetes' containers are refused: kubelet
// owns what stands there. After ErrUnavailable the write may still have happened.
func (e *Engine) Apply(ctx context.Context, c runtime.Container, set runtime.Values, inFlight ...runtime.Values) error {
	return e.writer.Apply(ctx, e.host, c, set, func(ctx context.Context, stands, want runtime.Values) error {
		t, err := e.tasksOf(ctx, c)
		if err != nil {
			return fmt.Errorf("container %q: %w", c.Name, err)
		}
		if c.Kubernetes || t.Namespace == kubernetesNamespace || cgroup.IsKubernetes(c.Cgroup) {
			return fmt.Errorf("container %q: Kubernetes' containers are only observed: %w", c.Name, runtime.ErrRefused)
		}
		return t.Apply(ctx, c, stands, want, inFlight)
	})
}

// WritePath implements runtime.Engine: "containerd/NAMESPACE".
func (e *Engine) WritePath(ctx context.Context, c runtime.Container) string {
	t, err := e.tasksOf(ctx, c)
	if err != nil {
		return EngineName
	}
	return EngineName + "/" + t.Namespace
}

// tasksOf finds the namespace that runs c, by its ID and its init process.
func (e *Engine) tasksOf(ctx context.Context, c runtime.Container) (Tasks, error) {
	all, err := e.namespaces(ctx)
	if err != nil {
		return Tasks{}, err
	}
	for _, namespace := range all {
		t := Tasks{Address: e.opts.Address, Namespace: namespace, Timeout: e.opts.CallTimeout, Host: e.host}
		pid, err := t.InitPID(ctx, c.ID.Container)
		if err == nil && pid == c.InitPID {
			return t, nil
		}
		if err != nil && !errors.Is(err, runtime.ErrGone) {
			return Tasks{}, err
		}
	}
	return Tasks{}, fmt.Errorf("containerd at %s runs it in none of its namespaces: %w", e.opts.Address, runtime.ErrGone)
}

// namespaces lists those that this engine follows.
func (e *Engine) namespaces(ctx context.Context) (out []string, err error) {
	err = call(ctx, e.opts.Address, "", e.opts.CallTimeout, func(ctx context.Context, conn *grpc.ClientConn) error {
		out, err = e.listNamespaces(ctx, conn)
		return err
	})
	return out, err
}

func (e *Engine) listNamespaces(ctx context.Context, conn grpc.ClientConnInterface) (out []string, err error) {
	answer, err := namespaces.NewNamespacesClient(conn).List(ctx, &namespaces.ListNamespacesRequest{})
	if err != nil {
		return nil, err
	}
	for _, n := range answer.GetNamespaces() {
		if e.opts.follows(n.GetName()) {
			out = append(out, n.GetName())
		}
	}
	return out, nil
}
