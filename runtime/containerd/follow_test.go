package containerd

import (
	"encoding/json"
	"testing"

	event "github.com/containerd/containerd/api/events"
	containers "github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/types"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/trimtab/trimtab/runtime"
)

func TestGPUs(t *testing.T) {
	node := func(minor int64) specs.LinuxDevice {
		return specs.LinuxDevice{Type: "c", Major: 195, Minor: minor}
	}
	rule := func(allow bool, major int64, minor *int64) specs.LinuxDeviceCgroup {
		return specs.LinuxDeviceCgroup{Allow: allow, Type: "c", Major: &major, Minor: minor, Access: "rwm"}
	}
	hook := func(path string, args ...string) *specs.Hooks {
		return &specs.Hooks{CreateRuntime: []specs.Hook{{Path: path, Args: args}}}
	}
	env := func(entries ...string) *specs.Process { return &specs.Process{Env: entries} }
	linux := func(devices []specs.LinuxDevice, rules ...specs.LinuxDeviceCgroup) *specs.Linux {
		return &specs.Linux{Devices: devices, Resources: &specs.LinuxResources{Devices: rules}}
	}
	cases := []struct {
		name    string
		spec    specs.Spec
		runtime string
		program string // that runc's shim was told
		gpus    []string
		via     string
	}{
		{name: "none"},
		{name: "all but ours refused", spec: specs.Spec{Linux: linux(nil, rule(false, 195, nil), rule(true, 1, nil))}},
		{name: "CDI annotation", spec: specs.Spec{Annotations: map[string]string{
			"cdi.k8s.io/x": "nvidia.com/gpu=1, nvidia.com/gpu=0:1,intel.com/x=1", "other": "nvidia.com/gpu=7"}}, gpus: []string{"0:1", "1"}, via: "cdi"},
		{name: "CDI's hook and devices", spec: specs.Spec{Process: env("NVIDIA_VISIBLE_DEVICES=void"), Hooks: hook("/usr/bin/nvidia-cdi-hook"),
			Linux: linux([]specs.LinuxDevice{node(2), node(255)})}, gpus: []string{"2"}, via: "cdi"},
		{name: "ctr --gpus", spec: specs.Spec{Hooks: hook("/usr/bin/containerd", "containerd", "oci-hook", "--", "/usr/bin/nvidia-container-cli", "configure", "--device=0,GPU-5")},
			gpus: []string{"0", "GPU-5"}, via: "legacy-hook"},
		//lint:ignore SA1019 as containerd 1.6 writes it
		{name: "ctr --gpus of 1.6", spec: specs.Spec{Hooks: &specs.Hooks{Prestart: []specs.Hook{{Args: []string{"nvidia-container-cli", "--device=all"}}}}},
			gpus: []string{"all"}, via: "legacy-hook"},
		{name: "nvidia runtime", spec: specs.Spec{Process: env("NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_VISIBLE_DEVICES=0,nvidia.com/gpu=1")},
			runtime: "io.containerd.nvidia.v2", gpus: []string{"0", "1"}, via: "legacy-hook"},
		{name: "nvidia runtime, by CDI's names", spec: specs.Spec{Process: env("NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0, nvidia.com/gpu=1")},
			runtime: "io.containerd.nvidia.v2", gpus: []string{"0", "1"}, via: "cdi"},
		{name: "nvidia runtime as runc's program", spec: specs.Spec{Process: env("NVIDIA_VISIBLE_DEVICES=0")},
			runtime: "io.containerd.runc.v2", program: "/usr/bin/nvidia-container-runtime", gpus: []string{"0"}, via: "legacy-hook"},
		{name: "another program", spec: specs.Spec{Process: env("NVIDIA_VISIBLE_DEVICES=0")}, runtime: "io.containerd.runc.v2", program: "/usr/bin/crun"},
		{name: "its hook", spec: specs.Spec{Process: env("NVIDIA_VISIBLE_DEVICES=all"), Hooks: hook("/usr/bin/nvidia-container-runtime-hook", "nvidia-container-runtime-hook", "prestart")},
			gpus: []string{"all"}, via: "legacy-hook"},
		{name: "the image's environment alone grants nothing", spec: specs.Spec{Process: env("NVIDIA_VISIBLE_DEVICES=all")}},
		{name: "nodes", spec: specs.Spec{Linux: linux([]specs.LinuxDevice{node(0), node(3), node(255), {Type: "c", Major: 10, Minor: 1}})}, gpus: []string{"0", "3"}, via: "devices"},
		{name: "rule for all", spec: specs.Spec{Linux: linux(nil, rule(false, 195, nil), rule(true, 195, nil))}, gpus: []string{"all"}, via: "devices"},
		{name: "rules for some", spec: specs.Spec{Linux: linux(nil, rule(true, 195, new(int64(1))), rule(true, 195, new(int64(255))))}, gpus: []string{"1"}, via: "devices"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			data, err := json.Marshal(tc.spec)
			if err != nil {
				t.Fatal(err)
			}
			record := &containers.Container{Spec: &anypb.Any{Value: data}, Runtime: &containers.Container_Runtime{Name: tc.runtime,
				Options: &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: message(t, &runcoptions.Options{BinaryName: tc.program, Root: "/run/nvidia"})}}}
			gpus, via := grantsOf(record).gpus(runtimeOf(record))
			if diff := cmp.Diff(tc.gpus, gpus); diff != "" || via != tc.via {
				t.Errorf("via %q, want %q (-want +got):\n%s", via, tc.via, diff)
			}
		})
	}
	if gpus, via := grantsOf(&containers.Container{Spec: &anypb.Any{Value: []byte("{")}}).gpus(""); gpus != nil || via != "" {
		t.Errorf("a spec that cannot be read grants %v via %q", gpus, via)
	}
}

func message(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// wrapped is an event as containerd sends it: its type's name has no address before it.
func wrapped(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	return &anypb.Any{TypeUrl: string(proto.MessageName(m)), Value: message(t, m)}
}

func TestContainerOf(t *testing.T) {
	cut := wrapped(t, &event.TaskStart{ContainerID: "abcdef"})
	cut.Value = cut.Value[:4]
	for name, tc := range map[string]struct {
		event *anypb.Any
		want  string
	}{
		"start":        {wrapped(t, &event.TaskStart{ContainerID: "a", Pid: 4711}), "a"},
		"exit":         {wrapped(t, &event.TaskExit{ContainerID: "a", ID: "a", Pid: 4711}), "a"},
		"exit of exec": {wrapped(t, &event.TaskExit{ContainerID: "a", ID: "exec-1"}), ""},
		"paused":       {wrapped(t, &event.TaskPaused{ContainerID: "a"}), "a"},
		"resumed":      {wrapped(t, &event.TaskResumed{ContainerID: "a"}), "a"},
		"delete":       {wrapped(t, &event.TaskDelete{ContainerID: "a"}), "a"},
		"update":       {wrapped(t, &event.ContainerUpdate{ID: "a", Image: "image"}), "a"},
		"another":      {wrapped(t, &event.TaskOOM{ContainerID: "a"}), ""},
		"empty":        {wrapped(t, &event.TaskExit{}), ""},
		"none":         {nil, ""},
		"unknown":      {&anypb.Any{TypeUrl: "containerd.events.None"}, ""},
		"cut short":    {cut, ""},
		"no tag":       {&anypb.Any{TypeUrl: "containerd.events.TaskExit", Value: []byte{0xff}}, ""},
	} {
		if got := containerOf(&types.Envelope{Event: tc.event}); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func FuzzContainerOf(f *testing.F) {
	f.Add("containerd.events.TaskExit", message(f, &event.TaskExit{ContainerID: "a", ID: "b"}))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		containerOf(&types.Envelope{Event: &anypb.Any{TypeUrl: name, Value: data}})
	})
}

// TestStart: what a container was made of, by its spec; mounts that the runtime makes itself hold no data.
func TestStart(t *testing.T) {
	spec, err := json.Marshal(specs.Spec{Process: &specs.Process{Args: []string{"python", "train.py"}, Env: []string{"MODEL=vit"}},
		Mounts: []specs.Mount{{Type: "proc", Source: "proc", Destination: "/proc"}, {Type: "bind", Source: "/srv/data", Destination: "/data"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := &runtime.Start{Command: []string{"python", "train.py"}, Env: []string{"MODEL=vit"}, Mounts: []runtime.Mount{{Source: "/srv/data", Target: "/data"}}}
	if diff := cmp.Diff(want, grantsOf(&containers.Container{Spec: &anypb.Any{Value: spec}}).start()); diff != "" {
		t.Error(diff)
	}
	if got := grantsOf(&containers.Container{Spec: &anypb.Any{Value: []byte("{")}}).start(); got == nil || len(got.Command) > 0 {
		t.Errorf("of a spec that cannot be read: %+v", got)
	}
}
