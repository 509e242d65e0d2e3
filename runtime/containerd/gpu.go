package containerd

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/engine"
)

const (
	// cdiAnnotation is the prefix of annotations that ask for devices of the Container Device Interface.
	cdiAnnotation = "cdi.k8s.io/"
	// nvidiaMajor is NVIDIA's in the kernel's list of devices; its minors from 128 on
	// (nvidiactl 255, modeset 254) are no GPUs.
	nvidiaMajor, firstControlMinor = 195, 128
	// maxGPUs bounds what is kept: hosts have up to 16, MIG makes 7 of each.
	maxGPUs = 128
)

// grants is an OCI spec: it tells which GPUs a container was given, and what it runs.
type grants specs.Spec

// grantsOf reads a container's spec; of one that is no spec throughout all that is.
func grantsOf(record *containers.Container) (g grants) {
	_ = json.Unmarshal(record.GetSpec().GetValue(), &g) // what cannot be read grants nothing
	return g
}

// start is what the container was made of; its image's digest is not in the spec.
func (g grants) start() *runtime.Start {
	s := &runtime.Start{}
	if g.Process != nil {
		s.Command, s.Env = g.Process.Args, g.Process.Env
	}
	for _, m := range g.Mounts {
		if m.Type == "bind" || m.Type == "none" {
			s.Mounts = append(s.Mounts, runtime.Mount{Source: m.Source, Target: m.Destination})
		}
	}
	return s
}

// cgroupsPath is the control group that the container's client asked for; "": none.
func (g grants) cgroupsPath() string {
	if g.Linux == nil {
		return ""
	}
	return g.Linux.CgroupsPath
}

// gpus returns the devices that a container was granted, and the way, in the
// order of what decides: CDI, the hook of `ctr --gpus`, the nvidia runtime's
// environment, plain devices. runtimeName is what makes the container.
func (g grants) gpus(runtimeName string) (gpus []string, via string) {
	hooks := g.hooks()
	if gpus = g.annotated(); len(gpus) > 0 {
		via = "cdi"
	} else if gpus = hookGPUs(hooks); len(gpus) > 0 {
		via = "legacy-hook"
	} else if gpus, via = g.environment(hooks, runtimeName); len(gpus) == 0 {
		gpus, via = g.devices(), deviceWay(hooks)
	}
	if len(gpus) > 0 {
		return gpus[:min(len(gpus), maxGPUs)], via
	}
	return nil, ""
}

// runtimeOf names what makes a container: the program, where runc's shim was told one, as by
// `nerdctl --runtime nvidia-container-runtime` or `ctr --runc-binary`.
func runtimeOf(record *containers.Container) string {
	options := record.GetRuntime().GetOptions()
	if strings.HasSuffix(options.GetTypeUrl(), "runc.v1.Options") {
		var runc runcoptions.Options
		if proto.Unmarshal(options.GetValue(), &runc) == nil && runc.GetBinaryName() != "" {
			return runc.GetBinaryName()
		}
	}
	return record.GetRuntime().GetName()
}

func (g grants) hooks() []specs.Hook {
	if g.Hooks == nil {
		return nil
	}
	//lint:ignore SA1019 containerd 1.6 and the nvidia runtime still write Prestart
	return slices.Concat(g.Hooks.Prestart, g.Hooks.CreateRuntime, g.Hooks.CreateContainer)
}

// annotated reads "cdi.k8s.io/KEY": "nvidia.com/gpu=0,nvidia.com/gpu=1".
func (g grants) annotated() (gpus []string) {
	for key, value := range g.Annotations {
		if !strings.HasPrefix(key, cdiAnnotation) {
			continue
		}
		for name := range strings.SplitSeq(value, ",") {
			if device, ok := strings.CutPrefix(strings.TrimSpace(name), engine.CDIKind); ok {
				gpus = append(gpus, device)
			}
		}
	}
	slices.Sort(gpus)
	return gpus
}

// hookGPUs reads the arguments of nvidia-container-cli, which containerd's own
// option for GPUs runs as a hook: "--device=0,1" or "--device=all".
func hookGPUs(hooks []specs.Hook) (gpus []string) {
	for _, hook := range hooks {
		if !slices.ContainsFunc(hook.Args, func(arg string) bool { return strings.HasSuffix(arg, "nvidia-container-cli") }) {
			continue
		}
		for _, arg := range hook.Args {
			if value, ok := strings.CutPrefix(arg, "--device="); ok {
				gpus = append(gpus, strings.Split(value, ",")...)
			}
		}
	}
	return gpus
}

// environment reads NVIDIA_VISIBLE_DEVICES, where something acts on it: the nvidia
// runtime, or its hook. An image may set it without being granted anything.
func (g grants) environment(hooks []specs.Hook, runtimeName string) (gpus []string, via string) {
	acts := strings.Contains(runtimeName, "nvidia") || slices.ContainsFunc(hooks, func(h specs.Hook) bool {
		return strings.Contains(h.Path, "nvidia-container-runtime-hook") || strings.Contains(h.Path, "nvidia-container-toolkit")
	})
	if !acts || g.Process == nil {
		return nil, ""
	}
	return engine.VisibleGPUs(g.Process.Env)
}

// deviceWay tells devices that CDI injected, with its hooks, from plain ones.
func deviceWay(hooks []specs.Hook) string {
	if slices.ContainsFunc(hooks, func(h specs.Hook) bool {
		return strings.Contains(h.Path, "nvidia-cdi-hook") || strings.Contains(h.Path, "nvidia-ctk")
	}) {
		return "cdi"
	}
	return "devices"
}

// devices finds nodes of NVIDIA's, and rules that open its major number to nodes
// that the container makes itself.
func (g grants) devices() (gpus []string) {
	if g.Linux == nil {
		return nil
	}
	for _, device := range g.Linux.Devices {
		if device.Type == "c" && device.Major == nvidiaMajor && device.Minor >= 0 && device.Minor < firstControlMinor {
			gpus = append(gpus, strconv.FormatInt(device.Minor, 10))
		}
	}
	if len(gpus) > 0 || g.Linux.Resources == nil {
		return gpus
	}
	for _, rule := range g.Linux.Resources.Devices {
		switch {
		case !rule.Allow || rule.Major == nil || *rule.Major != nvidiaMajor:
		case rule.Minor == nil || *rule.Minor < 0:
			return []string{"all"}
		case *rule.Minor < firstControlMinor:
			gpus = append(gpus, strconv.FormatInt(*rule.Minor, 10))
		}
	}
	return gpus
}
