package docker

import (
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/trimtab/trimtab/runtime/engine"
)

// maxGPUs bounds what a request may name: hosts have up to 16, MIG makes 7 of each.
const maxGPUs = 128

// gpusOf returns the devices that a container was granted, as they were asked
// for, and the way. In order of what decides: requests, the nvidia runtime's
// environment, plain devices.
func gpusOf(config *container.Config, host *container.HostConfig) (gpus []string, via string) {
	for _, request := range host.DeviceRequests {
		if found, way := requestGPUs(request); len(found) > 0 {
			gpus, via = append(gpus, found...), way
		}
	}
	if len(gpus) == 0 && strings.Contains(host.Runtime, "nvidia") {
		gpus, via = engine.VisibleGPUs(config.Env)
	}
	if len(gpus) == 0 {
		gpus, via = plainGPUs(host), "devices"
	}
	if len(gpus) == 0 {
		return nil, ""
	}
	return gpus[:min(len(gpus), maxGPUs)], via
}

// requestGPUs reads one of Docker's device requests (--gpus, --device with CDI).
func requestGPUs(r container.DeviceRequest) (gpus []string, via string) {
	if r.Driver == "cdi" {
		for _, id := range r.DeviceIDs {
			if device, ok := strings.CutPrefix(id, engine.CDIKind); ok {
				gpus = append(gpus, device)
			}
		}
		return gpus, "cdi"
	}
	asksGPU := slices.ContainsFunc(r.Capabilities, func(all []string) bool { return slices.Contains(all, "gpu") })
	switch {
	case r.Driver != "nvidia" && !(r.Driver == "" && asksGPU):
		return nil, ""
	case len(r.DeviceIDs) > 0:
		return slices.Clone(r.DeviceIDs), "device-requests"
	case r.Count < 0:
		return []string{"all"}, "device-requests"
	}
	for i := range min(r.Count, maxGPUs) { // Docker takes the first so many
		gpus = append(gpus, strconv.Itoa(i))
	}
	return gpus, "device-requests"
}

// plainGPUs finds /dev/nvidiaN among the devices, and rules that open NVIDIA's
// major number to nodes that the container makes itself.
func plainGPUs(host *container.HostConfig) (gpus []string) {
	for _, device := range host.Devices {
		index, ok := strings.CutPrefix(device.PathOnHost, "/dev/nvidia")
		if _, err := strconv.ParseUint(index, 10, 16); ok && err == nil {
			gpus = append(gpus, index)
		}
	}
	for _, rule := range host.DeviceCgroupRules {
		if len(gpus) == 0 && strings.HasPrefix(rule, "c 195:") {
			gpus = []string{"all"}
		}
	}
	return gpus
}
