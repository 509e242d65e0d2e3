package runtimetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/trimtab/trimtab/test/runtimetest/ctrd"
)

// Containerd is a containerd of a test's own, which may be stopped and started; its
// containers run on while it is down. They are made by its API, from a directory
// with busybox in it: no image, no registry.
type Containerd struct {
	Address string

	daemon *ctrd.Daemon
	rootfs string
	cgroup string      // above all of its containers', removed at the end
	made   [][2]string // namespace and ID, to be removed at the end
}

// ContainerdSpec is a container to be made; zero fields mean nothing special.
type ContainerdSpec struct {
	Namespace   string // "": "default"
	ID          string // "": a random one
	Labels      map[string]string
	Image       string
	Command     []string // nil: sleep
	CgroupsPath string   // below the test's own cgroup; "": /NAMESPACE/ID, as nerdctl and ctr have it
	Systemd     bool     // systemd keeps the cgroup: the scope NAMESPACE-ID in system.slice, as nerdctl has it there
	Parent      string   // another name in place of NAMESPACE above it, or of system.slice
	Env         []string
	Runc        string // the program that the shim runs; "": runc
	Resources   specs.LinuxResources
	Mounts      []specs.Mount
}

// NeedContainerd prepares a containerd without starting it, or skips the test. bin
// is searched before PATH for containerd, its shim and runc; "": only PATH.
func NeedContainerd(t testing.TB, bin string) *Containerd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs containerd: and root")
	}
	root, err := busyboxRoot()
	if err != nil {
		t.Skipf("needs containerd: and a static busybox (Debian: busybox-static): %v", err)
	}
	// Not t.TempDir: sockets' paths must be short, and mounts below have to go first.
	dir, err := os.MkdirTemp("", "trimtab-containerd-")
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := ctrd.New(ctrd.Options{Dir: dir, Bin: bin})
	if err != nil {
		_ = os.RemoveAll(dir)
		skipIfAbsent(t, "containerd", err)
	}
	c := &Containerd{Address: daemon.Address(), daemon: daemon, rootfs: dir + "/rootfs", cgroup: "/" + filepath.Base(dir)}
	t.Cleanup(func() {
		c.Stop(t)
		removeCgroups(t, c.cgroup)
		ctrd.UnmountBelow(dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("containerd's directory: %v", err)
		}
	})
	for _, sub := range []string{"proc", "dev", "sys"} {
		if err := os.MkdirAll(filepath.Join(c.rootfs, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	untar := exec.Command("tar", "-x", "-C", c.rootfs)
	untar.Stdin = root
	if out, err := untar.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	return c
}

// skipIfAbsent skips where a program is not there; another error fails.
func skipIfAbsent(t testing.TB, what string, err error) {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("needs %s: %v", what, err)
	}
	t.Fatal(err)
}

// Start starts containerd and waits until it answers.
func (c *Containerd) Start(t testing.TB) {
	t.Helper()
	if err := c.daemon.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// Interrupt stops containerd; its containers run on.
func (c *Containerd) Interrupt(t testing.TB) {
	t.Helper()
	if err := c.daemon.Stop(); err != nil {
		t.Fatal(err)
	}
}

// Stop removes all containers made and stops containerd; stopped, it starts it first
// if containers are left.
func (c *Containerd) Stop(t testing.TB) {
	t.Helper()
	if !c.daemon.Runs() && len(c.made) > 0 {
		c.Start(t)
	}
	for _, at := range c.made {
		c.End(t, at[0], at[1])
		c.call(t, func(ctx context.Context) error { return c.daemon.Remove(ctx, at[0], at[1]) })
	}
	c.made = nil
	if c.daemon.Runs() {
		c.Interrupt(t)
	}
}

// RunContainer makes a container and starts its task; returns its ID.
func (c *Containerd) RunContainer(t testing.TB, s ContainerdSpec) (id string) {
	t.Helper()
	if s.Namespace == "" {
		s.Namespace = "default"
	}
	if s.ID == "" {
		s.ID = fmt.Sprintf("trimtab-test-%08x", rand.Uint32())
	}
	if s.CgroupsPath == "" {
		s.CgroupsPath = "/" + cmp.Or(s.Parent, s.Namespace) + "/" + s.ID
	}
	s.CgroupsPath = c.cgroup + s.CgroupsPath
	shim := &options.Options{BinaryName: s.Runc}
	if s.Systemd {
		s.CgroupsPath, shim.SystemdCgroup = cmp.Or(s.Parent, "system")+".slice:"+s.Namespace+":"+s.ID, true
	}
	c.made = append(c.made, [2]string{s.Namespace, s.ID})
	c.call(t, func(ctx context.Context) error {
		return c.daemon.Create(ctx, ctrd.Container{Namespace: s.Namespace, ID: s.ID, Labels: s.Labels, Image: s.Image, Runc: shim, Spec: ociSpec(s)})
	})
	c.StartTask(t, s.Namespace, s.ID)
	return s.ID
}

// RunByCtr makes a container as people do: `ctr run` with these words before the root file system, detached.
func (c *Containerd) RunByCtr(t testing.TB, words ...string) (id string) {
	t.Helper()
	if _, err := exec.LookPath("ctr"); err != nil {
		skipIfAbsent(t, "containerd's ctr", err)
	}
	id = fmt.Sprintf("trimtab-test-%08x", rand.Uint32())
	c.made = append(c.made, [2]string{"default", id})
	args := append([]string{"--address", c.Address, "run"}, words...)
	args = append(args, "--detach", "--null-io", "--cgroup", c.cgroup+"/default/"+id, "--rootfs", c.rootfs, id, "/bin/sleep", "1000000")
	if out, err := exec.Command("ctr", args...).CombinedOutput(); err != nil {
		t.Fatalf("ctr %q: %v: %s", args, err, out)
	}
	return id
}

// StartTask starts a task of a container that has none.
func (c *Containerd) StartTask(t testing.TB, namespace, id string) {
	t.Helper()
	c.call(t, func(ctx context.Context) error {
		return c.daemon.StartTask(ctx, namespace, &tasks.CreateTaskRequest{ContainerID: id,
			Rootfs: []*types.Mount{{Type: "bind", Source: c.rootfs, Options: []string{"rbind", "rw"}}}})
	})
}

// End kills a container's task and removes it; without a task it does nothing.
func (c *Containerd) End(t testing.TB, namespace, id string) {
	t.Helper()
	c.call(t, func(ctx context.Context) error { return c.daemon.End(ctx, namespace, id) })
}

// Remove removes a container that has no task.
func (c *Containerd) Remove(t testing.TB, namespace, id string) {
	t.Helper()
	c.call(t, func(ctx context.Context) error { return c.daemon.Remove(ctx, namespace, id) })
}

// Pause and Resume freeze and thaw a task.
func (c *Containerd) Pause(t testing.TB, namespace, id string) {
	t.Helper()
	c.task(t, namespace, func(ctx context.Context, client tasks.TasksClient) error {
		_, err := client.Pause(ctx, &tasks.PauseTaskRequest{ContainerID: id})
		return err
	})
}

// Resume thaws a task.
func (c *Containerd) Resume(t testing.TB, namespace, id string) {
	t.Helper()
	c.task(t, namespace, func(ctx context.Context, client tasks.TasksClient) error {
		_, err := client.Resume(ctx, &tasks.ResumeTaskRequest{ContainerID: id})
		return err
	})
}

// SetLabel changes a label of a container.
func (c *Containerd) SetLabel(t testing.TB, namespace, id, key, value string) {
	t.Helper()
	c.call(t, func(ctx context.Context) error {
		ctx, client := ctrd.In(ctx, namespace), c.daemon.Containers()
		got, err := client.Get(ctx, &containers.GetContainerRequest{ID: id})
		if err != nil {
			return err
		}
		if got.Container.Labels == nil {
			got.Container.Labels = make(map[string]string)
		}
		got.Container.Labels[key] = value
		_, err = client.Update(ctx, &containers.UpdateContainerRequest{Container: got.Container})
		return err
	})
}

// Grow makes a container's record longer than a message may be. containerd stores it, and cannot send it.
func (c *Containerd) Grow(t testing.TB, namespace, id string) {
	t.Helper()
	c.call(t, func(ctx context.Context) error {
		part := &anypb.Any{TypeUrl: "part", Value: make([]byte, 9<<20)}
		for path, grown := range map[string]*containers.Container{
			"spec": {ID: id, Spec: part}, "extensions.part": {ID: id, Extensions: map[string]*anypb.Any{"part": part}},
		} {
			_, err := c.daemon.Containers().Update(ctrd.In(ctx, namespace), &containers.UpdateContainerRequest{Container: grown, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{path}}})
			if err != nil && status.Code(err) != codes.ResourceExhausted {
				return err
			}
		}
		return nil
	})
}

// Update sets just these resources, as nerdctl's update does.
func (c *Containerd) Update(t testing.TB, namespace, id string, r specs.LinuxResources) {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	c.task(t, namespace, func(ctx context.Context, client tasks.TasksClient) error {
		_, err := client.Update(ctx, &tasks.UpdateTaskRequest{ContainerID: id,
			Resources: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources", Value: data}})
		return err
	})
}

func (c *Containerd) task(t testing.TB, namespace string, use func(context.Context, tasks.TasksClient) error) {
	t.Helper()
	c.call(t, func(ctx context.Context) error { return use(ctrd.In(ctx, namespace), c.daemon.Tasks()) })
}

func (c *Containerd) call(t testing.TB, use func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if err := use(ctx); err != nil {
		t.Fatalf("containerd: %v\n%s", err, c.daemon.Said())
	}
}

// ociSpec is the least that runs busybox, with no network but its own loopback.
func ociSpec(s ContainerdSpec) *specs.Spec {
	command := s.Command
	if command == nil {
		command = []string{"sleep", "1000000"}
	}
	r := s.Resources
	r.Devices = append([]specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}, r.Devices...)
	return &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{Args: command, Cwd: "/", Env: append([]string{"PATH=/bin"}, s.Env...)},
		Mounts: append([]specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=64k"}},
		}, s.Mounts...),
		Linux: &specs.Linux{
			CgroupsPath: s.CgroupsPath,
			Resources:   &r,
			Namespaces:  []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.NetworkNamespace}},
		},
	}
}

// removeCgroups removes what containers leave above their own control groups.
func removeCgroups(t testing.TB, path string) {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*" + path)
	for _, root := range append(roots, "/sys/fs/cgroup"+path) {
		var dirs []string
		_ = filepath.WalkDir(root, func(dir string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, dir)
			}
			return nil // what is gone needs no removal
		})
		for _, dir := range slices.Backward(dirs) {
			if err := os.Remove(dir); err != nil {
				t.Errorf("control group: %v", err)
			}
		}
	}
}
