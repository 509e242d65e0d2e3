package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	event "github.com/containerd/containerd/api/events"
	containers "github.com/containerd/containerd/api/services/containers/v1"
	events "github.com/containerd/containerd/api/services/events/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	task "github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

// topics are the events after which a container is looked at again. Execs, images
// and snapshots stay in containerd.
//
//trimtab:table an array of names, only read
var topics = [...]string{"/tasks/start", "/tasks/exit", "/tasks/paused", "/tasks/resumed", "/tasks/delete", topicUpdate}

// topicUpdate is sent when a container's record changes: labels, or, by nerdctl, resources.
const topicUpdate = "/containers/update"

// tasksFolder is where containerd's state has a folder for each task, by namespace and ID: its
// plugin's name (since 1.2, and in 2.x).
const tasksFolder = "io.containerd.runtime.v2.task"

// source is the engine as engine.Follow sees it.
type source struct{ engine *Engine }

// session is one connection; its keys are "NAMESPACE/ID".
type session struct {
	engine  *Engine
	conn    *grpc.ClientConn
	notices chan engine.Notice
	failed  chan error
}

// Open subscribes. The server sends no header before the first event, so a listing
// of namespaces tells whether it answers.
func (s source) Open(ctx context.Context) (engine.Session, error) {
	conn, err := dial(s.engine.opts.Address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	out := &session{engine: s.engine, conn: conn, notices: make(chan engine.Notice), failed: make(chan error, 1)}
	ping, cancel := context.WithTimeout(ctx, s.engine.opts.CallTimeout)
	defer cancel()
	if _, err := s.engine.listNamespaces(ping, conn); err != nil {
		return nil, classify(err)
	}
	var filters []string
	for _, topic := range topics {
		filters = append(filters, fmt.Sprintf("topic==%q", topic))
	}
	stream, err := events.NewEventsClient(conn).Subscribe(ctx, &events.SubscribeRequest{Filters: filters})
	if err != nil {
		return nil, classify(err)
	}
	go out.receive(ctx, stream)
	return out, nil
}

// receive ends with ctx, which ends the stream.
func (s *session) receive(ctx context.Context, stream grpc.ServerStreamingClient[types.Envelope]) {
	for {
		envelope, err := stream.Recv()
		if err != nil {
			s.failed <- err
			return
		}
		id := containerOf(envelope)
		if id == "" || !s.engine.opts.follows(envelope.GetNamespace()) {
			continue
		}
		select {
		case s.notices <- engine.Notice{Key: envelope.GetNamespace() + "/" + id, Updated: envelope.GetTopic() == topicUpdate}:
		case <-ctx.Done():
			return
		}
	}
}

// containerOf names the container that an event is about; "": none, one that cannot be read, or one
// of the container's execs, whose exit says nothing of it.
func containerOf(envelope *types.Envelope) string {
	message, err := envelope.GetEvent().UnmarshalNew()
	if err != nil {
		return ""
	}
	switch m := message.(type) {
	case *event.TaskStart:
		return m.GetContainerID()
	case *event.TaskExit:
		if m.GetID() == m.GetContainerID() {
			return m.GetContainerID()
		}
	case *event.TaskPaused:
		return m.GetContainerID()
	case *event.TaskResumed:
		return m.GetContainerID()
	case *event.TaskDelete:
		return m.GetContainerID()
	case *event.ContainerUpdate:
		return m.GetID()
	}
	return ""
}

func (s *session) Notices() <-chan engine.Notice { return s.notices }

func (s *session) Failed() <-chan error { return s.failed }

func (s *session) List(ctx context.Context) (keys []string, err error) {
	followed, err := s.engine.listNamespaces(ctx, s.conn)
	if err != nil {
		return nil, classify(err)
	}
	quick, cancel := context.WithTimeout(ctx, s.engine.opts.CallTimeout/2)
	defer cancel()
	for _, namespace := range followed {
		some, err := s.listTasks(quick, namespace)
		if status.Code(err) == codes.DeadlineExceeded {
			some, err = s.listRecords(ctx, namespace)
		}
		if err != nil {
			return nil, classify(err)
		}
		keys = append(keys, some...)
	}
	return keys, nil
}

// listTasks names the containers that may run. containerd asks one shim after the other, and gives each
// that hangs two seconds.
func (s *session) listTasks(ctx context.Context, namespace string) (keys []string, err error) {
	answer, err := tasks.NewTasksClient(s.conn).List(within(ctx, namespace), &tasks.ListTasksRequest{})
	for _, t := range answer.GetTasks() {
		if _, runs := stateOf(t.GetStatus()); runs || t.GetStatus() == task.Status_UNKNOWN {
			keys = append(keys, namespace+"/"+t.GetID())
		}
	}
	return keys, err
}

// listRecords names all containers, also those that do not run, as Inspect will find. It asks no
// shim, and takes one record at a time: all of them may exceed what one message holds. Where one
// alone does, containerd ends the stream there: folders name the rest, and Inspect says which it is.
func (s *session) listRecords(ctx context.Context, namespace string) (keys []string, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream where it is left early
	defer cancel()
	stream, err := containers.NewContainersClient(s.conn).ListStream(within(ctx, namespace), &containers.ListContainersRequest{})
	for err == nil {
		var m *containers.ListContainerMessage
		if m, err = stream.Recv(); err == nil {
			keys = append(keys, namespace+"/"+m.GetContainer().GetID())
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return keys, nil
	case status.Code(err) == codes.ResourceExhausted:
		return s.engine.bundles(namespace, err)
	}
	return nil, err
}

// bundles names the containers that may run by their tasks' folders in containerd's state, which is
// beside its socket, or below (Docker's). All or none: who is left out is taken for gone.
func (e *Engine) bundles(namespace string, why error) (keys []string, err error) {
	beside := filepath.Dir(e.opts.Address)
	found := false
	for _, state := range []string{beside, filepath.Join(beside, "daemon")} {
		list, err := os.ReadDir(filepath.Join(state, tasksFolder, namespace))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("a record exceeds a message (%w), and so do folders not name the containers: %w", why, err)
		}
		found = found || err == nil
		for _, entry := range list {
			if isID(entry.Name()) { // not ".ID", which is on its way out
				keys = append(keys, namespace+"/"+entry.Name())
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("a record exceeds a message (%w), and no folder %s names the containers", why, filepath.Join(beside, tasksFolder, namespace))
	}
	return keys, nil
}

func (s *session) Inspect(ctx context.Context, key string) (runtime.Container, error) {
	namespace, id, _ := strings.Cut(key, "/")
	ctx = within(ctx, namespace)
	got, err := tasks.NewTasksClient(s.conn).Get(ctx, &tasks.GetRequest{ContainerID: id})
	if err != nil {
		return runtime.Container{}, about(id, err)
	}
	state, runs := stateOf(got.GetProcess().GetStatus())
	if got.GetProcess().GetStatus() == task.Status_UNKNOWN { // containerd's word for a shim that misses its time
		return runtime.Container{}, fmt.Errorf("container %s: %w: its shim does not answer containerd", id, engine.ErrUnplaced)
	}
	if !runs || got.GetProcess().GetPid() == 0 {
		return runtime.Container{}, fmt.Errorf("container %s does not run: %w", id, runtime.ErrGone)
	}
	record, err := s.record(ctx, id)
	if err != nil {
		return runtime.Container{}, err
	}
	g := grantsOf(record.GetContainer())
	c := describe(namespace, record.GetContainer(), g)
	c.State, c.InitPID = state, int(got.GetProcess().GetPid())
	c.Start = g.start()
	// Without a digest a container is known by the rest: its image may be gone, or have no name here.
	if image, err := images.NewImagesClient(s.conn).Get(ctx, &images.GetImageRequest{Name: c.Image}); err == nil {
		c.Start.ImageDigest = image.GetImage().GetTarget().GetDigest()
	}
	return s.engine.host.Place(c, g.cgroupsPath())
}

// record reads what containerd keeps of a container. One that is longer than any that is read, or whose spec has
// more values, is that container's trouble: several are decoded at the same time.
func (s *session) record(ctx context.Context, id string) (*containers.GetContainerResponse, error) {
	record, err := containers.NewContainersClient(s.conn).Get(ctx, &containers.GetContainerRequest{ID: id}, grpc.MaxCallRecvMsgSize(maxRecordBytes))
	switch {
	case status.Code(err) == codes.ResourceExhausted:
		return nil, fmt.Errorf("container %s: %w: its record is longer than %d bytes: %w", id, engine.ErrNotBelieved, maxRecordBytes, err)
	case err != nil:
		return nil, about(id, err)
	}
	if n := new(engine.Values).Count(record.GetContainer().GetSpec().GetValue()); n > engine.MaxValues {
		return nil, fmt.Errorf("container %s: %w: its spec has %d values, more than %d", id, engine.ErrNotBelieved, n, engine.MaxValues)
	}
	return record, nil
}

// about classifies an answer about one container. A shim that does not answer is
// that container's trouble, not containerd's.
func about(id string, err error) error {
	switch class := classify(err); {
	case errors.Is(class, runtime.ErrRefused) && status.Code(err) == codes.Unknown:
		return fmt.Errorf("container %s: %w: %w", id, engine.ErrUnplaced, err)
	default:
		return class
	}
}

// stateOf reads a task's status; runs is false before its start and after its end.
func stateOf(s task.Status) (state runtime.State, runs bool) {
	switch s {
	case task.Status_RUNNING:
		return runtime.StateRunning, true
	case task.Status_PAUSED, task.Status_PAUSING:
		return runtime.StatePaused, true
	}
	return "", false
}

// describe reads a container's record, of which g is the spec.
func describe(namespace string, record *containers.Container, g grants) runtime.Container {
	c := runtime.Container{
		ID:    runtime.ID{Engine: EngineName, Container: record.GetID()},
		Name:  record.GetID(),
		Image: record.GetImage(),
		// kubelet's cgroups are told by their path too, where another namespace is configured.
		Kubernetes: namespace == kubernetesNamespace,
	}
	c.Labels, c.LabelsDropped = engine.BoundLabels(record.GetLabels())
	if name := c.Labels[engine.LabelNerdctlName]; name != "" {
		c.Name = name
	}
	c.GPUs, c.GPUVia = g.gpus(runtimeOf(record))
	return c
}
