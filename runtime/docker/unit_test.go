package docker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"

	"github.com/trimtab/trimtab/runtime"
)

var (
	onV2     = runtime.Container{Name: "c", Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: "testdata/v2"}}
	onV2held = runtime.Container{Name: "c", Cgroup: runtime.Cgroup{Mode: runtime.CgroupV2, Unified: "testdata/held"}}
	onV1     = runtime.Container{Name: "c", Cgroup: runtime.Cgroup{Mode: runtime.CgroupV1}}
)

func TestAPIResources(t *testing.T) {
	const mib = 1 << 20
	stands := runtime.Values{
		runtime.KnobCPUWeight: "1024", runtime.KnobCPUQuota: "max 100000", runtime.KnobCpuset: "0-1",
		runtime.KnobMemoryLimit: "67108864", runtime.KnobMemorySwap: "134217728",
	}
	cases := []struct {
		name    string
		c       runtime.Container
		stored  container.Resources
		set     runtime.Values
		want    container.Resources
		refused string // part of the reason
	}{
		{name: "quota family", c: onV1, set: quota("50000 200000"), want: container.Resources{CPUQuota: 50000, CPUPeriod: 200000}},
		{name: "lifted in the quota family", c: onV1, set: quota("max 100000"), want: container.Resources{CPUQuota: -1}},
		{name: "nano family", c: onV1, stored: container.Resources{NanoCPUs: 1e9}, set: quota("75000 50000"), want: container.Resources{NanoCPUs: 15e8}},
		{name: "nano family rounds up", c: onV1, stored: container.Resources{NanoCPUs: 1e9}, set: quota("10000 30000"), want: container.Resources{NanoCPUs: 333340000}},
		{name: "nano family cannot be lifted", c: onV1, stored: container.Resources{NanoCPUs: 1e9}, set: quota("max 100000"), refused: "--cpus"},
		{name: "memory brings swap", c: onV1, set: runtime.Values{runtime.KnobMemoryLimit: "33554432"}, want: container.Resources{Memory: 32 * mib, MemorySwap: 128 * mib}},
		{name: "swap brings memory", c: onV1, set: runtime.Values{runtime.KnobMemorySwap: "268435456"}, want: container.Resources{Memory: 64 * mib, MemorySwap: 256 * mib}},
		{name: "swap unlimited", c: onV1, set: runtime.Values{runtime.KnobMemorySwap: "max"}, refused: "does not pass it on"},
		{name: "v2 counts swap alone", c: onV2, set: runtime.Values{runtime.KnobMemoryLimit: "33554432"}, want: container.Resources{Memory: 32 * mib, MemorySwap: 160 * mib}},
		{name: "memory unlimited", c: onV1, set: runtime.Values{runtime.KnobMemoryLimit: "max", runtime.KnobMemorySwap: "max"}, refused: "unlimited"},
		{name: "memory too small", c: onV1, set: runtime.Values{runtime.KnobMemoryLimit: "1048576"}, refused: "6 MiB"},
		{name: "memory above swap", c: onV1, set: runtime.Values{runtime.KnobMemoryLimit: "268435456"}, refused: "set both"},
		{name: "weight", c: onV1, set: runtime.Values{runtime.KnobCPUWeight: "2"}, want: container.Resources{CPUShares: 2}},
		{name: "weight 0 would mean unchanged", c: onV1, set: runtime.Values{runtime.KnobCPUWeight: "0"}, refused: "below 2"},
		{name: "weight on v2", c: onV2, set: runtime.Values{runtime.KnobCPUWeight: "100"}, refused: "convert"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, err := apiResources(tc.c, tc.stored, stands, tc.set)
			if tc.refused != "" {
				knob := string(tc.set.Sorted()[0])
				if !errors.Is(err, runtime.ErrRefused) || !strings.Contains(err.Error(), tc.refused) || !strings.Contains(err.Error(), knob) {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRoom: v2 kills what holds more than its new limit; a container that is stopped holds nothing.
func TestRoom(t *testing.T) {
	stands, set := runtime.Values{runtime.KnobMemoryLimit: "67108864"}, runtime.Values{runtime.KnobMemoryLimit: "33554432"}
	if err := (apiUpdater{}).room(onV2held, stands, set); !errors.Is(err, runtime.ErrRefused) || !strings.Contains(err.Error(), "only a kill would free") {
		t.Error(err)
	}
	if err := (apiUpdater{stopped: true}).room(onV2held, stands, set); err != nil {
		t.Error(err)
	}
}

func quota(v runtime.Value) runtime.Values { return runtime.Values{runtime.KnobCPUQuota: v} }

func TestGPUs(t *testing.T) {
	requests := func(r ...container.DeviceRequest) container.HostConfig {
		return container.HostConfig{Resources: container.Resources{DeviceRequests: r}}
	}
	devices := func(paths ...string) (h container.HostConfig) {
		for _, path := range paths {
			h.Devices = append(h.Devices, container.DeviceMapping{PathOnHost: path})
		}
		return h
	}
	gpuCapability := [][]string{{"compute", "utility"}, {"gpu"}}
	hook := container.HostConfig{Runtime: "nvidia"}
	cases := []struct {
		name string
		env  []string
		host container.HostConfig
		gpus []string
		via  string
	}{
		{name: "none"},
		{name: "--gpus all", host: requests(container.DeviceRequest{Count: -1, Capabilities: gpuCapability}), gpus: []string{"all"}, via: "device-requests"},
		{name: "--gpus 2", host: requests(container.DeviceRequest{Driver: "nvidia", Count: 2}), gpus: []string{"0", "1"}, via: "device-requests"},
		{name: "--gpus device=", host: requests(container.DeviceRequest{DeviceIDs: []string{"3", "GPU-5"}, Capabilities: gpuCapability}), gpus: []string{"3", "GPU-5"}, via: "device-requests"},
		{name: "another capability", host: requests(container.DeviceRequest{Count: 1, Capabilities: [][]string{{"tpu"}}})},
		{name: "another driver", host: requests(container.DeviceRequest{Driver: "amd", Count: 1, Capabilities: gpuCapability})},
		{name: "CDI", host: requests(container.DeviceRequest{Driver: "cdi", DeviceIDs: []string{"nvidia.com/gpu=1:0", "intel.com/x=1"}}), gpus: []string{"1:0"}, via: "cdi"},
		{name: "huge count", host: requests(container.DeviceRequest{Driver: "nvidia", Count: 1 << 30}), gpus: make([]string, maxGPUs), via: "device-requests"},
		{name: "nvidia runtime", env: []string{"NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_VISIBLE_DEVICES=0,GPU-5"}, host: hook, gpus: []string{"0", "GPU-5"}, via: "legacy-hook"},
		{name: "nvidia runtime, by CDI's names", env: []string{"NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all"}, host: hook, gpus: []string{"all"}, via: "cdi"},
		{name: "nvidia runtime without devices", env: []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"}, host: hook},
		{name: "the image's environment alone grants nothing", env: []string{"NVIDIA_VISIBLE_DEVICES=all"}},
		{name: "--device", host: devices("/dev/nvidiactl", "/dev/nvidia2", "/dev/nvidia-uvm", "/dev/fuse"), gpus: []string{"2"}, via: "devices"},
		{name: "nodes that are no GPU", host: devices("/dev/nvidiactl")},
		{name: "rule", host: container.HostConfig{Resources: container.Resources{DeviceCgroupRules: []string{"c 195:* rwm"}}}, gpus: []string{"all"}, via: "devices"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			gpus, via := gpusOf(&container.Config{Env: tc.env}, &tc.host)
			if len(gpus) != len(tc.gpus) || via != tc.via || (tc.name != "huge count" && !cmp.Equal(gpus, tc.gpus)) {
				t.Errorf("%v via %q, want %v via %q", gpus, via, tc.gpus, tc.via)
			}
		})
	}
}

// TestHungDocker: an engine that takes connections and never answers is lost after
// the time limit, and Run still ends at once.
func TestHungDocker(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })}
	go server.Serve(listener)
	defer server.Close()
	engine, err := New(Options{Host: "unix://" + socket, CallTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	ctx, cancel := context.WithCancel(t.Context())
	err = engine.Run(ctx, func(event runtime.Event) {
		if event.Kind != runtime.EventLost {
			t.Errorf("%+v", event)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
}

// TestStartOf: what a container was made of is told in one order, and volumes by their name.
func TestStartOf(t *testing.T) {
	info := container.InspectResponse{Image: "sha256:1", Config: &container.Config{Entrypoint: []string{"python"}, Cmd: []string{"train.py"}, Env: []string{"MODEL=vit"}},
		Mounts: []container.MountPoint{{Source: "/srv/data", Destination: "/data"}, {Name: "cache", Source: "/var/lib/docker/volumes/cache/_data", Destination: "/cache"}}}
	want := &runtime.Start{ImageDigest: "sha256:1", Entrypoint: []string{"python"}, Command: []string{"train.py"}, Env: []string{"MODEL=vit"},
		Mounts: []runtime.Mount{{Source: "cache", Target: "/cache"}, {Source: "/srv/data", Target: "/data"}}}
	if diff := cmp.Diff(want, startOf(info)); diff != "" {
		t.Error(diff)
	}
}
