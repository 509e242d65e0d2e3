package containerd

import (
	"context"
	"net"
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

func (records) ListStream(_ *containers.ListContainersRequest, stream containers.Containers_ListStreamServer) error {
	for _, id := range []string{"runs", "ended", "silent"} {
		if err := stream.Send(&containers.ListContainerMessage{Container: &containers.Container{ID: id}}); err != nil {
			return err
		}
	}
	return nil
}

// TestListDespiteHungShims: where containerd waits for shims longer than a listing may take, its records
// name the containers, and each is asked for by itself.
func TestListDespiteHungShims(t *testing.T) {
	for hangs, want := range map[bool][]string{false: {"default/runs", "default/silent"}, true: {"default/runs", "default/ended", "default/silent"}} {
		socket := filepath.Join(t.TempDir(), "sock")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		namespaces.RegisterNamespacesServer(server, one{})
		tasks.RegisterTasksServer(server, shims{hang: hangs})
		containers.RegisterContainersServer(server, records{})
		done := make(chan error, 1)
		go func() { done <- server.Serve(listener) }()
		conn, err := dial(socket)
		if err != nil {
			t.Fatal(err)
		}
		patience := time.Minute // of one that answers, on a machine that is slow
		if hangs {
			patience = time.Second
		}
		s := &session{engine: &Engine{opts: Options{CallTimeout: patience}}, conn: conn}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		keys, err := s.List(ctx)
		cancel()
		if err != nil || !slices.Equal(keys, want) {
			t.Errorf("hangs %v: %q, %v; want %q", hangs, keys, err, want)
		}
		conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
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
