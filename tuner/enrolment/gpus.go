package enrolment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// SelectGPUs returns the minor numbers of the devices that a request names, of those that a container
// was granted: seen. devices are the host's. It fails for one that is unknown or was not granted.
func SelectGPUs(req state.GPURequest, devices []probes.Device, seen []runtime.GPUVisibility, hide bool) (minors []int, err error) {
	if req.All {
		for _, s := range seen {
			if s.Hidden != hide && (s.Hidden || s.Visible) {
				minors = append(minors, s.Minor)
			}
		}
		return minors, nil
	}
	for _, text := range req.Devices {
		minor, err := parseGPU(text, devices)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(seen, func(s runtime.GPUVisibility) bool { return s.Minor == minor })
		if i < 0 || !seen[i].Granted {
			return nil, fmt.Errorf("%s was never granted to it; `trimtab gpu ls` lists what was", runtime.GPUNames(minor))
		}
		minors = append(minors, minor)
	}
	return minors, nil
}

// parseGPU takes an index as nvidia-smi counts, where NVML tells; else N of /dev/nvidiaN.
func parseGPU(text string, devices []probes.Device) (int, error) {
	if strings.HasPrefix(text, "MIG-") {
		return 0, fmt.Errorf("%q is a slice: name its GPU; slices are not hidden one by one", text)
	}
	for _, d := range devices {
		if d.Parent == "" && (d.UUID == text || strconv.Itoa(d.Index) == text) {
			return d.Minor, nil
		}
	}
	name, isNode := strings.CutPrefix(strings.TrimPrefix(text, "/dev/"), "nvidia")
	minor, err := strconv.ParseUint(name, 10, 8)
	if err != nil || !isNode && len(devices) > 0 {
		return 0, fmt.Errorf("device %q is not known; allowed are an index, nvidiaN, /dev/nvidiaN and a UUID", text)
	}
	return int(minor), nil
}
