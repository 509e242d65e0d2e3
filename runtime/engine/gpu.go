package engine

import "strings"

// CDIKind is NVIDIA's vendor and class in the Container Device Interface.
const CDIKind = "nvidia.com/gpu="

// VisibleGPUs reads NVIDIA_VISIBLE_DEVICES as the nvidia runtime does, for a container that it
// makes: the last setting counts, as in a process's environment. via is "cdi" where all devices are
// named in CDI's way, for which the runtime gives them in that way, else "legacy-hook".
func VisibleGPUs(env []string) (gpus []string, via string) {
	for _, entry := range env {
		value, ok := strings.CutPrefix(entry, "NVIDIA_VISIBLE_DEVICES=")
		if !ok {
			continue
		}
		gpus, via = nil, ""
		if value == "" || value == "none" || value == "void" {
			continue
		}
		via = "cdi"
		for name := range strings.SplitSeq(value, ",") {
			device, isCDI := strings.CutPrefix(strings.TrimSpace(name), CDIKind)
			if !isCDI {
				via = "legacy-hook"
			}
			gpus = append(gpus, device)
		}
	}
	return gpus, via
}
