// Package containerd sets the resources of tasks that a containerd runs, whoever
// made them. For now that is Docker, which keeps its containers in the namespace
// "moby"; containerd's own containers will get their runtime.Engine here, beside
// Tasks, which both write through.
//
// The task service is called by its generated client alone: containerd's full
// client would triple what this package links, and adds nothing to one call.
//
// The trap: an update is not an overlay. runc replaces parts of its own copy, so
// LinuxResources is given all values that are managed, and says all of them.
package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/trimtab/trimtab/runtime"
)

const (
	// namespaceHeader and resourcesType are containerd's wire names
	// (pkg/namespaces/grpc.go, client/client.go).
	namespaceHeader = "containerd-namespace"
	resourcesType   = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"
)

// Tasks are those of one namespace of one containerd. Each call has a connection
// of its own: writes are rare, and an idle connection would have to be watched
// over restarts of containerd. It is safe for concurrent use.
type Tasks struct {
	Address   string        // path of the socket
	Namespace string        // "moby" for Docker's
	Timeout   time.Duration // of each call
}

// call connects, and calls with the namespace and a deadline set. All errors have
// their class.
func (t Tasks) call(ctx context.Context, use func(context.Context, tasks.TasksClient) error) error {
	if _, err := os.Stat(t.Address); err != nil {
		return fmt.Errorf("containerd's socket: %w: %w", err, runtime.ErrUnavailable)
	}
	conn, err := grpc.NewClient("unix://"+t.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("containerd at %s: %w: %w", t.Address, err, runtime.ErrUnavailable)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, namespaceHeader, t.Namespace)
	if err := use(ctx, tasks.NewTasksClient(conn)); err != nil {
		return fmt.Errorf("containerd at %s: %w", t.Address, classify(err))
	}
	return nil
}

// InitPID returns the host PID of a task's init process; a task that this
// containerd does not run gives ErrGone.
func (t Tasks) InitPID(ctx context.Context, id string) (pid int, err error) {
	err = t.call(ctx, func(ctx context.Context, client tasks.TasksClient) error {
		answer, err := client.Get(ctx, &tasks.GetRequest{ContainerID: id})
		pid = int(answer.GetProcess().GetPid())
		return err
	})
	return pid, err
}

// Update sets a task's resources: ErrGone, ErrRefused, ErrUnavailable, or the
// context's error. After ErrUnavailable it may have happened.
func (t Tasks) Update(ctx context.Context, id string, r *specs.LinuxResources) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return t.call(ctx, func(ctx context.Context, client tasks.TasksClient) error {
		_, err := client.Update(ctx, &tasks.UpdateTaskRequest{
			ContainerID: id,
			Resources:   &anypb.Any{TypeUrl: resourcesType, Value: data},
		})
		return err
	})
}

// classify adds the class that a caller acts on. runc's own complaints come
// without a code of their own: what is not known otherwise is a refusal.
func classify(err error) error {
	class := runtime.ErrRefused
	switch status.Code(err) {
	case codes.Canceled:
		class = context.Canceled
	case codes.NotFound:
		class = runtime.ErrGone
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: %w: %w", err, context.DeadlineExceeded, runtime.ErrUnavailable)
	case codes.Unavailable, codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		class = runtime.ErrUnavailable
	}
	return fmt.Errorf("%w: %w", err, class)
}
