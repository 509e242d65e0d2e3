package device

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/runtime"
)

// A MIG instance is used by its GPU's node and by two capabilities, the GPU instance's and the
// compute instance's: nodes /dev/nvidia-caps/nvidia-capM, of a major number of their own, which
// are opened to be read. M is told for each instance that there is, below gpuN of the GPU's minor
// number ("MIG User Guide", Device Nodes and Capabilities):
//
//	/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access	DeviceFileMinor: 12
//	/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access	DeviceFileMinor: 13
const (
	capsDriver = "nvidia-caps"
	capsFolder = "driver/nvidia/capabilities"
)

// instanceMinors are the minor numbers of the capabilities of all MIG instances, sorted. None
// where there is no MIG. An instance that ends meanwhile has none.
func instanceMinors(procRoot string) (minors []int) {
	for _, pattern := range []string{"gpu*/mig/gi*/access", "gpu*/mig/gi*/ci*/access"} {
		paths, err := filepath.Glob(filepath.Join(procRoot, capsFolder, pattern))
		if err != nil {
			return nil // of the pattern alone
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(data)) {
				text, ok := strings.CutPrefix(line, "DeviceFileMinor:")
				if minor, err := strconv.ParseUint(strings.TrimSpace(text), 10, 20); ok && err == nil {
					minors = append(minors, int(minor))
				}
			}
		}
	}
	slices.Sort(minors)
	return slices.Compact(minors)
}

// neededCapabilities are those that a container may open now. On v1 its list names them; on v2 its
// programs are asked for each that there is.
func neededCapabilities(procRoot string, c runtime.Container, majors map[string]int) (needs []runtime.DeviceRule, err error) {
	major, ok := majors[capsDriver]
	if !ok {
		return nil, nil
	}
	if dir, isV1 := c.Cgroup.V1["devices"]; isV1 {
		rules, err := readRules(dir)
		for _, r := range rules {
			if r.Kind == "c" && r.Major == major && strings.Contains(r.Access, "r") {
				needs = append(needs, runtime.DeviceRule{Kind: "c", Major: major, Minor: r.Minor, Access: "r"})
			}
		}
		return needs, err
	}
	minors := instanceMinors(procRoot)
	if len(minors) == 0 {
		return nil, nil
	}
	programs, err := newProgramCache().of(c.Cgroup.Unified)
	if err != nil {
		return nil, fmt.Errorf("which MIG instances it may use cannot be read: %w", err)
	}
	return openable(programs, major, minors)
}

func openable(programs []program, major int, minors []int) (needs []runtime.DeviceRule, err error) {
	for _, minor := range minors {
		passed, err := pass(programs, runtime.DeviceRule{Kind: "c", Major: major, Minor: minor, Access: "r"})
		if err != nil {
			return nil, err
		}
		needs = append(needs, passed...)
	}
	return needs, nil
}
