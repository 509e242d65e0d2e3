package containerd

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

// A spec is written by whoever starts a container. What is read of it is bounded, the same each time,
// and the same once it was written again; a container's key names a file.
func FuzzSpec(f *testing.F) {
	for _, spec := range []string{
		`{"process":{"args":["python","train.py"],"env":["NVIDIA_VISIBLE_DEVICES=0,1"]},"mounts":[{"type":"bind","source":"/srv","destination":"/data"},{"type":"proc","source":"proc","destination":"/proc"}]}`,
		`{"annotations":{"cdi.k8s.io/a":"nvidia.com/gpu=1, nvidia.com/gpu=0","cdi.k8s.io/b":"nvidia.com/gpu=all"},"linux":{"cgroupsPath":"system.slice:nerdctl:0a"}}`,
		`{"hooks":{"createRuntime":[{"path":"/usr/bin/x","args":["nvidia-container-cli","--device=0,1"]},{"path":"nvidia-cdi-hook"}]}}`,
		`{"linux":{"devices":[{"type":"c","major":195,"minor":-1},{"type":"c","major":195,"minor":3},{"type":"c","major":195,"minor":255}]}}`,
		`{"linux":{"resources":{"devices":[{"allow":true,"major":195,"minor":2},{"allow":true,"major":195}]}}}`,
		`{"process":{"args":"no list","env":["A=b"]},"mounts":[{}`, `null`, `[]`,
	} {
		f.Add([]byte(spec), message(f, &runcoptions.Options{BinaryName: "nvidia-container-runtime"}), "train", "nerdctl/name", "train")
	}
	f.Add([]byte(`{}`), []byte{0xff}, "../../etc", "trimtab.mode", strings.Repeat("x", 5000))
	host := engine.Host{ProcRoot: f.TempDir(), BootID: "01234567-89ab-cdef-0123-456789abcdef"}
	f.Fuzz(func(t *testing.T, spec, options []byte, id, label, value string) {
		record := &containers.Container{ID: id, Image: value, Labels: map[string]string{label: value}, Spec: &anypb.Any{Value: spec},
			Runtime: &containers.Container_Runtime{Name: "io.containerd.runc.v2", Options: &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: options}}}
		g := grantsOf(record)
		c := describe("default", record, g)
		c.Start = g.start()
		checkGPUs(t, c)
		checkStart(t, g)

		written, err := json.Marshal(specs.Spec(g))
		if err != nil {
			t.Fatalf("%q: what was read cannot be written: %v", spec, err)
		}
		record.Spec.Value = written
		again := describe("default", record, grantsOf(record))
		again.Start = grantsOf(record).start()
		if diff := cmp.Diff(c, again, cmpopts.EquateEmpty()); diff != "" || grantsOf(record).cgroupsPath() != g.cgroupsPath() {
			t.Fatalf("%q is read as another once it was written as %q: %s", spec, written, diff)
		}

		c, err = host.Place(c, g.cgroupsPath()) // there is no process: what it has is what every engine's containers are held to
		if err == nil || len(c.Name) > 255 || len(c.Image) > 4096 || slices.ContainsFunc(c.GPUs, func(gpu string) bool { return len(gpu) > 128 }) {
			t.Fatalf("it is kept as %+v, %v", c, err)
		}
		checkGPUs(t, c)
		if key := c.ID.Key(); strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/\:*?"`, r) }) || len(key) > 64 {
			t.Fatalf("%q has the key %q, which is no name of a file", id, key)
		}
	})
}

// checkGPUs: none without a way and no way without one, and no more than any host has; a plain device
// has the number of a GPU.
func checkGPUs(t *testing.T, c runtime.Container) {
	t.Helper()
	ways := []string{"cdi", "legacy-hook", "devices"}
	if len(c.GPUs) > maxGPUs || (len(c.GPUs) == 0) != (c.GPUVia == "") || c.GPUVia != "" && !slices.Contains(ways, c.GPUVia) {
		t.Fatalf("%d GPUs by %q: %q", len(c.GPUs), c.GPUVia, c.GPUs)
	}
	for _, gpu := range c.GPUs {
		if n, err := strconv.Atoi(gpu); c.GPUVia == "devices" && gpu != "all" && (err != nil || n < 0 || n >= firstControlMinor) {
			t.Fatalf("a plain device is GPU %q", gpu)
		}
	}
}

// checkStart holds what a container was made of against its spec: of its mounts those that are of the
// host's files, in order.
func checkStart(t *testing.T, g grants) {
	t.Helper()
	s := g.start()
	var args, env []string
	if g.Process != nil {
		args, env = g.Process.Args, g.Process.Env
	}
	rest := s.Mounts
	for _, m := range g.Mounts {
		if (m.Type == "bind" || m.Type == "none") && len(rest) > 0 && rest[0] == (runtime.Mount{Source: m.Source, Target: m.Destination}) {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 || !slices.Equal(s.Command, args) || !slices.Equal(s.Env, env) {
		t.Fatalf("%+v is made of %+v", s, g)
	}
}
