// Package ctrd runs a containerd of one's own, in a directory, and makes containers by
// its API from OCI specs: no image, no registry, and the host's containerd is not asked.
// Containers run on while it is down. Outside of the directory are its shims' sockets,
// in /run/containerd/s, for as long as they run.
package ctrd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	namespaces "github.com/containerd/containerd/api/services/namespaces/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Programs are what is needed, in the directory that Options names or in PATH.
func Programs() []string { return []string{"containerd", "containerd-shim-runc-v2", "runc"} }

// Options says where it runs.
type Options struct {
	// Dir takes sockets, records and logs. Short: a socket's path has 108 bytes at most.
	Dir string
	// Bin is searched for Programs before PATH; "": only PATH.
	Bin string
}

// Daemon is a containerd; its methods but Start and Stop are safe for concurrent use.
type Daemon struct {
	*Process
	o    Options
	conn *grpc.ClientConn
}

// New prepares one without starting it.
func New(o Options) (*Daemon, error) {
	d := &Daemon{Process: NewProcess(filepath.Join(o.Dir, "log")), o: o}
	for _, name := range Programs() {
		if _, err := Find(d.o.Bin, name); err != nil {
			return nil, fmt.Errorf("no %s (Debian: containerd, runc): %w", name, err)
		}
	}
	// Plugins that reach beyond the directory are off.
	// One that is started again kills containers whose shim does not answer for 5 s: beside much other work that is no sign of a dead one.
	config := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [%q, %q, %q]\n[grpc]\naddress = %q\n[timeouts]\n%q = %q\n",
		o.Dir+"/root", o.Dir+"/state", "io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri", d.Address(),
		"io.containerd.timeout.shim.load", startLimit)
	return d, os.WriteFile(d.path("config.toml"), []byte(config), 0o600)
}

// Address is the path of its socket: in its state, as containerd has it where nobody says otherwise.
func (d *Daemon) Address() string { return d.path("state/sock") }

func (d *Daemon) path(name string) string { return filepath.Join(d.o.Dir, name) }

// Find finds a program in the directory bin first, if that is not "", then in PATH.
func Find(bin, name string) (string, error) {
	if bin != "" {
		if path, err := exec.LookPath(filepath.Join(bin, name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// Version is the first word of `COMMAND --version` that begins with a digit, less
// what distributions add;
// "absent" or "unknown" without one.
func Version(bin, command string) string {
	path, err := Find(bin, command)
	if err != nil {
		return "absent"
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "unknown"
	}
	for word := range strings.FieldsSeq(string(out)) {
		word = strings.Trim(strings.TrimPrefix(word, "v"), ",")
		if word != "" && word[0] >= '0' && word[0] <= '9' {
			word, _, _ = strings.Cut(word, "+")
			word, _, _ = strings.Cut(word, "~")
			return word
		}
	}
	return "unknown"
}

// PathFirst is this process's environment with the directory bin first in PATH; nil,
// which means unchanged, without one.
func PathFirst(bin string) []string {
	if bin == "" {
		return nil
	}
	return append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
}

// Start starts it and waits until it answers.
func (d *Daemon) Start(ctx context.Context) error {
	path, err := Find(d.o.Bin, "containerd")
	if err != nil {
		return err
	}
	if d.conn, err = grpc.NewClient("unix://"+d.Address(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	err = d.Process.Start(ctx, PathFirst(d.o.Bin), path, []string{"--config", d.path("config.toml")}, func(ctx context.Context) error {
		ctx, done := context.WithTimeout(ctx, 5*time.Second)
		defer done()
		_, err := namespaces.NewNamespacesClient(d.conn).List(ctx, &namespaces.ListNamespacesRequest{}, grpc.WaitForReady(true))
		return err
	})
	if err != nil {
		return errors.Join(err, d.conn.Close(), d.Process.Stop())
	}
	return nil
}

// Stop ends it and waits; its containers run on.
func (d *Daemon) Stop() error { return d.end(d.Process.Stop) }

// Kill ends it with SIGKILL and waits; its containers run on.
func (d *Daemon) Kill() error { return d.end(d.Process.Kill) }

func (d *Daemon) end(process func() error) error {
	if !d.Runs() {
		return nil
	}
	return errors.Join(d.conn.Close(), process())
}

// Tasks is the task service.
func (d *Daemon) Tasks() tasks.TasksClient { return tasks.NewTasksClient(d.conn) }

// Containers is the container service.
func (d *Daemon) Containers() containers.ContainersClient {
	return containers.NewContainersClient(d.conn)
}

// RuncRoot is where runc keeps its state: a folder for each namespace.
func (d *Daemon) RuncRoot() string { return d.path("runc") }

// In is ctx for calls about a namespace.
func In(ctx context.Context, namespace string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// Container is one to be made.
type Container struct {
	Namespace, ID string
	Image         string
	Labels        map[string]string
	Spec          *specs.Spec
	// Runc are the shim's options. Where they name no Root, runc keeps its state in Dir.
	Runc *options.Options
}

// Create makes a container without a task, and its namespace if there is none.
func (d *Daemon) Create(ctx context.Context, c Container) error {
	o := &options.Options{Root: d.RuncRoot()}
	proto.Merge(o, c.Runc)
	data, err := proto.Marshal(o)
	if err != nil {
		return err
	}
	shim := &containers.Container_Runtime{Name: "io.containerd.runc.v2", Options: &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: data}}
	spec, err := json.Marshal(c.Spec)
	if err != nil {
		return err
	}
	ctx = In(ctx, c.Namespace)
	_, err = namespaces.NewNamespacesClient(d.conn).Create(ctx, &namespaces.CreateNamespaceRequest{Namespace: &namespaces.Namespace{Name: c.Namespace}})
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("namespace %q: %w", c.Namespace, err)
	}
	_, err = d.Containers().Create(ctx, &containers.CreateContainerRequest{Container: &containers.Container{
		ID: c.ID, Labels: c.Labels, Image: c.Image, Runtime: shim,
		Spec: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Spec", Value: spec},
	}})
	if err != nil {
		return fmt.Errorf("container %q: %w", c.ID, err)
	}
	return nil
}

// StartTask starts a task of a container that has none.
func (d *Daemon) StartTask(ctx context.Context, namespace string, r *tasks.CreateTaskRequest) error {
	ctx = In(ctx, namespace)
	_, err := d.Tasks().Create(ctx, r)
	if err == nil {
		_, err = d.Tasks().Start(ctx, &tasks.StartRequest{ContainerID: r.ContainerID})
	}
	if err != nil {
		return fmt.Errorf("container %q: its task: %w", r.ContainerID, err)
	}
	return nil
}

// End kills a container's task and removes it; without a task it does nothing.
func (d *Daemon) End(ctx context.Context, namespace, id string) error {
	ctx = In(ctx, namespace)
	_, _ = d.Tasks().Resume(ctx, &tasks.ResumeTaskRequest{ContainerID: id}) // a frozen process cannot die on v1
	_, errKill := d.Tasks().Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(syscall.SIGKILL), All: true})
	_, err := d.Tasks().Wait(ctx, &tasks.WaitRequest{ContainerID: id})
	if err == nil {
		_, err = d.Tasks().Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	}
	if UnlessGone(err) != nil {
		return fmt.Errorf("container %q: its task: %w", id, errors.Join(err, UnlessGone(errKill)))
	}
	return nil
}

// Remove removes a container that has no task; of one that is gone it does nothing.
func (d *Daemon) Remove(ctx context.Context, namespace, id string) error {
	_, err := d.Containers().Delete(In(ctx, namespace), &containers.DeleteContainerRequest{ID: id})
	return UnlessGone(err)
}

// UnlessGone is err, or nil where it says that there is no such thing.
func UnlessGone(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// UnmountBelow unmounts what an engine left mounted under dir.
func UnmountBelow(dir string) {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if point := strings.Fields(line)[1]; strings.HasPrefix(point, dir+"/") {
			_ = syscall.Unmount(point, syscall.MNT_DETACH) // removing the directory tells if it did not go
		}
	}
}
