package containerd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	namespaces "github.com/containerd/containerd/api/services/namespaces/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	task "github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/trimtab/trimtab/runtime/engine"
)

// one names a containerd's namespace, shims are its tasks, of which a listing may wait for a shim that
// hangs, and records its containers'.
type (
	one struct {
		namespaces.UnimplementedNamespacesServer
	}
	shims struct {
		tasks.UnimplementedTasksServer
		hang bool
	}
	records struct {
		containers.UnimplementedContainersServer
		spec string
		long string // of all containers, the one whose record exceeds a message
	}
)

func (one) List(context.Context, *namespaces.ListNamespacesRequest) (*namespaces.ListNamespacesResponse, error) {
	return &namespaces.ListNamespacesResponse{Namespaces: []*namespaces.Namespace{{Name: "default"}}}, nil
}

func (s shims) List(ctx context.Context, _ *tasks.ListTasksRequest) (*tasks.ListTasksResponse, error) {
	if s.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &tasks.ListTasksResponse{Tasks: []*task.Process{{ID: "runs", Status: task.Status_RUNNING}, {ID: "ended", Status: task.Status_STOPPED},
		{ID: "silent", Status: task.Status_UNKNOWN}}}, nil
}

func (s shims) Get(context.Context, *tasks.GetRequest) (*tasks.GetResponse, error) {
	return &tasks.GetResponse{Process: &task.Process{Status: task.Status_RUNNING, Pid: uint32(os.Getpid())}}, nil
}

func (r records) Get(context.Context, *containers.GetContainerRequest) (*containers.GetContainerResponse, error) {
	return &containers.GetContainerResponse{Container: &containers.Container{ID: "runs", Spec: &anypb.Any{Value: []byte(r.spec)}}}, nil
}

func (r records) ListStream(_ *containers.ListContainersRequest, stream containers.Containers_ListStreamServer) error {
	for _, id := range []string{"runs", "ended", "silent"} {
		record := &containers.Container{ID: id}
		if id == r.long {
			record.Spec = &anypb.Any{Value: make([]byte, maxAnswerBytes)}
		}
		if err := stream.Send(&containers.ListContainerMessage{Container: record}); err != nil {
			return err
		}
	}
	return nil
}

// TestListDespiteHungShims: where containerd waits for shims longer than a listing may take, its records
// name the containers, and each is asked for by itself.
func TestListDespiteHungShims(t *testing.T) {
	for hangs, want := range map[bool][]string{false: {"default/runs", "default/silent"}, true: {"default/runs", "default/ended", "default/silent"}} {
		patience := time.Minute // of one that answers, on a machine that is slow
		if hangs {
			patience = time.Second
		}
		s := saying(t, shims{hang: hangs}, records{})
		s.engine.opts.CallTimeout = patience
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		keys, err := s.List(ctx)
		cancel()
		if err != nil || !slices.Equal(keys, want) {
			t.Errorf("hangs %v: %q, %v; want %q", hangs, keys, err, want)
		}
	}
}

// TestListDespiteALongRecord: a record that exceeds a message ends containerd's stream. All that may run are named
// by their tasks' folders; without these none is, lest those behind it be taken for gone.
func TestListDespiteALongRecord(t *testing.T) {
	for name, c := range map[string]struct {
		state string // beside the socket; "": elsewhere
		want  []string
	}{
		"beside its socket": {".", []string{"default/late", "default/runs"}}, "as Docker has it": {"daemon", []string{"default/late", "default/runs"}}, "elsewhere": {"", nil},
	} {
		s := saying(t, shims{hang: true}, records{long: "ended"})
		s.engine.opts.CallTimeout = time.Second
		if c.state != "" {
			for _, folder := range []string{"default/runs", "default/late", "default/.ended", "another/theirs"} {
				if err := os.MkdirAll(filepath.Join(filepath.Dir(s.engine.opts.Address), c.state, tasksFolder, folder), 0o700); err != nil {
					t.Fatal(err)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		keys, err := s.List(ctx)
		cancel()
		if !slices.Equal(keys, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %q, %v; want %q", name, keys, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), tasksFolder) {
			t.Errorf("%s: it does not say what is missing: %v", name, err)
		}
	}
}

// saying is a session with a containerd that answers so.
func saying(t *testing.T, tasksOf shims, recordsOf records) *session {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	namespaces.RegisterNamespacesServer(server, one{})
	tasks.RegisterTasksServer(server, tasksOf)
	containers.RegisterContainersServer(server, recordsOf)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &session{engine: &Engine{opts: Options{Address: socket}}, conn: conn}
}

// TestRecordsAreBounded: of a container whose record is longer than any that is read, or whose spec has more values,
// nothing is believed, and nothing is decoded. Others are read.
func TestRecordsAreBounded(t *testing.T) {
	values := func(n int, value string) string { return strings.TrimSuffix(strings.Repeat(value+",", n), ",") }
	for name, tt := range map[string]struct {
		spec string
		want error
	}{
		"many variables":     {`{"process":{"env":[` + values(50_000, `"A_SERVICE_PORT=tcp://10.0.0.1:80"`) + `]}}`, nil},
		"commas in a string": {`{"process":{"env":["HOSTS=` + values(100_000, "a") + `"]}}`, nil},
		"empty mounts":       {`{"mounts":[` + values(1_000_000, "{}") + `]}`, engine.ErrNotBelieved},
		"long":               {`{"process":{"env":["A=` + strings.Repeat("x", maxRecordBytes) + `"]}}`, engine.ErrNotBelieved},
		"longer than sent":   {`{"process":{"env":["A=` + strings.Repeat("x", maxAnswerBytes) + `"]}}`, engine.ErrNotBelieved},
	} {
		record, err := saying(t, shims{}, records{spec: tt.spec}).record(t.Context(), "runs")
		if !errors.Is(err, tt.want) || err == nil && string(record.GetContainer().GetSpec().GetValue()) != tt.spec {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if _, err := saying(t, shims{}, records{spec: "[" + values(1_000_000, "{}") + "]"}).Inspect(t.Context(), "default/runs"); !errors.Is(err, engine.ErrNotBelieved) {
		t.Errorf("looked at: %v", err)
	}
}

// TestIDsThatAreNone: what containerd gives its containers and namespaces; by an ID files and control groups are found.
func TestIDsThatAreNone(t *testing.T) {
	for id, want := range map[string]bool{
		"train": true, "train-1.2_b": true, "0A": true, strings.Repeat("a", 76): true, strings.Repeat("a", 77): false,
		"": false, ".": false, "..": false, "../etc": false, "a/b": false, "a..b": false, "-a": false, "a-": false, "a b": false, "a\n": false, "ä": false,
	} {
		if isKey("default/"+id) != want || isKey(id+"/train") != want || (Options{}).follows(id) != want {
			t.Errorf("%q: an ID: %v, a namespace: %v, %v, want %v", id, isKey("default/"+id), isKey(id+"/train"), (Options{}).follows(id), want)
		}
	}
}
