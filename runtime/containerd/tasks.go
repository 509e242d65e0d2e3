// Package containerd follows the containers of a containerd and sets the resources
// of its tasks: of its own containers, in any namespace, by Engine; of Docker's, in
// the namespace "moby", by Tasks, which runtime/docker writes through.
//
// The services are called by their generated clients alone: containerd's full
// client would triple what this package links, and adds nothing to these calls.
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
	"github.com/trimtab/trimtab/runtime/engine"
)

const (
	// namespaceHeader and resourcesType are containerd's wire names
	// (pkg/namespaces/grpc.go, client/client.go).
	namespaceHeader = "containerd-namespace"
	resourcesType   = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"
	// maxAnswerBytes is containerd's own bound of a message (defaults.DefaultMaxRecvMsgSize).
	maxAnswerBytes = 16 << 20
	// maxRecordBytes bounds one container's. Its spec has arguments and environment, of which the kernel takes 6 MiB at
	// the most.
	maxRecordBytes = 8 << 20
)

// Tasks are those of one namespace of one containerd. Each call has a connection
// of its own: writes are rare, and an idle connection would have to be watched
// over restarts of containerd. It is safe for concurrent use.
type Tasks struct {
	Address   string        // path of the socket
	Namespace string        // "moby" for Docker's
	Timeout   time.Duration // of each call
	Host      engine.Host   // what stands is read from it while a task is updated
}

// call connects, and calls with the namespace and a deadline set. All errors have
// their class.
func (t Tasks) call(ctx context.Context, use func(context.Context, tasks.TasksClient) error) error {
	return call(ctx, t.Address, t.Namespace, t.Timeout, func(ctx context.Context, conn *grpc.ClientConn) error {
		return use(ctx, tasks.NewTasksClient(conn))
	})
}

func call(ctx context.Context, address, namespace string, timeout time.Duration, use func(context.Context, *grpc.ClientConn) error) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(within(ctx, namespace), timeout)
	defer cancel()
	if err := use(ctx, conn); err != nil {
		return fmt.Errorf("containerd at %s: %w", address, classify(err))
	}
	return nil
}

// dial makes a connection, which connects at its first call; without a socket it fails at once.
func dial(address string) (*grpc.ClientConn, error) {
	if _, err := os.Stat(address); err != nil {
		return nil, fmt.Errorf("containerd's socket: %w: %w", err, runtime.ErrUnavailable)
	}
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)))
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w: %w", address, err, runtime.ErrUnavailable)
	}
	return conn, nil
}

// within sets the namespace of calls; "" leaves it open.
func within(ctx context.Context, namespace string) context.Context {
	if namespace == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, namespaceHeader, namespace)
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

// Apply sends the complete set of values: stands is what is in the kernel, set what is to change.
// A limit that somebody else sets meanwhile, and that is not inFlight, is set again. Errors as Update's.
func (t Tasks) Apply(ctx context.Context, c runtime.Container, stands, set runtime.Values, inFlight []runtime.Values) error {
	return keepMeanwhile(ctx, t.Host, c, stands, set, inFlight, func(ctx context.Context, stands, set runtime.Values) error {
		return t.apply(ctx, c, stands, set)
	})
}

func (t Tasks) apply(ctx context.Context, c runtime.Container, stands, set runtime.Values) error {
	all := engine.Merge(stands, set)
	if err := engine.CheckTogether(c, all, set); err != nil {
		return err
	}
	err := lowered(ctx, c, LinuxResources(c.Cgroup, stands, all), stands[runtime.KnobMemoryLimit], func(r *specs.LinuxResources) error { return t.Update(ctx, c.ID.Container, r) })
	if err != nil {
		return fmt.Errorf("container %q: %s: %w", c.Name, engine.KnobNames(set), err)
	}
	return nil
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

// LinuxResources expresses a complete set of values as one OCI update. What is
// nil or absent stays unchanged in the kernel. stands decides only whether a
// lower memory limit needs its check.
//
// On v2, knobs that OCI has no exact field for are Unified keys: weights, because
// runtimes convert shares in different ways, and swap.max, because OCI's field
// counts memory and swap together and has no value for "some swap, any memory".
// The memory limit stays in its field: only that is checked against usage.
func LinuxResources(cg runtime.Cgroup, stands, all runtime.Values) *specs.LinuxResources {
	r := &specs.LinuxResources{CPU: cpuResources(all)}
	if limit, ok := bytesOf(all, runtime.KnobMemoryLimit); ok {
		r.Memory = &specs.LinuxMemory{Limit: &limit}
		if all[runtime.KnobMemoryLimit].Below(stands[runtime.KnobMemoryLimit]) {
			r.Memory.CheckBeforeUpdate = new(true)
		}
	}
	if cg.Mode == runtime.CgroupV2 {
		if r.Memory != nil {
			r.Memory.Swap = new(together(*r.Memory.Limit, all))
		}
		r.Unified = unified(all)
		return r
	}
	if shares, ok := all[runtime.KnobCPUWeight].Int(); ok {
		r.CPU.Shares = new(uint64(shares))
	}
	if swap, ok := bytesOf(all, runtime.KnobMemorySwap); ok && r.Memory != nil {
		r.Memory.Swap = &swap
	}
	return r
}

// together is OCI's swap field, memory and swap in one: runc keeps the owner's sum from
// when the container was made, and since 1.2 refuses a limit above it. What Unified says
// of swap is written after it.
func together(limit int64, all runtime.Values) int64 {
	swap, ok := bytesOf(all, runtime.KnobMemorySwap)
	if limit < 0 || !ok || swap < 0 {
		return -1
	}
	return limit + swap
}

// cpuResources has the fields that v1 and v2 share; quota and period as a pair.
func cpuResources(all runtime.Values) *specs.LinuxCPU {
	cpu := &specs.LinuxCPU{Cpus: string(all[runtime.KnobCpuset])}
	if quotaUs, periodUs, err := runtime.ParseQuota(all[runtime.KnobCPUQuota]); err == nil {
		cpu.Quota, cpu.Period = &quotaUs, new(uint64(periodUs))
	}
	return cpu
}

func unified(all runtime.Values) map[string]string {
	out := make(map[string]string)
	for knob, key := range map[runtime.Knob]string{runtime.KnobCPUWeight: "cpu.weight", runtime.KnobMemorySwap: "memory.swap.max"} {
		if value, ok := all[knob]; ok {
			out[key] = string(value)
		}
	}
	return out
}

// bytesOf reads a memory value; "max" is OCI's -1.
func bytesOf(all runtime.Values, knob runtime.Knob) (n int64, ok bool) {
	if all[knob] == runtime.ValueMax {
		return -1, true
	}
	return all[knob].Int()
}
