package place

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/tuner/state"
)

// Form is a way in which a program that starts containers is told of devices.
type Form string

// The forms. All but Compose are words of a command line, for an unquoted $(…).
const (
	DockerGPUs   Form = "docker"        // docker run --gpus, by NVIDIA's runtime; nerdctl takes the same
	DockerDevice Form = "docker-device" // docker run --device /dev/nvidiaN: no runtime of NVIDIA's is needed
	CDI          Form = "cdi"           // --device nvidia.com/gpu=UUID, of docker, nerdctl and ctr
	Ctr          Form = "ctr"           // ctr run --gpus INDEX
	Compose      Form = "compose"       // a file for docker compose
)

// cdiKind is NVIDIA's vendor and class in the Container Device Interface.
const cdiKind = "nvidia.com/gpu="

// Arguments are the chosen devices in a form. A shell splits them into words and nothing else: they
// hold no space within a word, and no character that a shell acts on in an expansion. service is
// Compose's; "": the part of one alone.
func Arguments(j state.PlacedJob, f Form, service string) (string, error) {
	var chosen []state.PlaceChoice
	for _, uuid := range j.Chosen {
		i := slices.IndexFunc(j.Choices, func(c state.PlaceChoice) bool { return c.Device == uuid })
		if i < 0 || !plainUUID(uuid) {
			return "", fmt.Errorf("device %q is not one of the choices", uuid)
		}
		chosen = append(chosen, j.Choices[i])
	}
	if len(chosen) == 0 {
		return "", nil
	}
	var words []string
	switch f {
	case Compose:
		return composeFile(j.Chosen, service)
	case DockerGPUs:
		value := "device=" + strings.Join(j.Chosen, ",")
		if len(chosen) > 1 {
			value = `"` + value + `"` // Docker reads fields of CSV: the quotes are its own, and an expansion leaves them
		}
		return "--gpus " + value + "\n", nil
	case CDI:
		for _, c := range chosen {
			words = append(words, "--device", cdiKind+c.Device)
		}
	case DockerDevice, Ctr:
		for _, c := range chosen {
			if c.Slice {
				return "", fmt.Errorf("%s is a MIG slice, which this form cannot name: use cdi, or docker's --gpus", c.Label)
			}
			if f == Ctr {
				words = append(words, "--gpus", strconv.Itoa(c.Index))
			} else {
				words = append(words, "--device", "/dev/nvidia"+strconv.Itoa(c.Minor))
			}
		}
		if f == DockerDevice {
			words = append(words, "--device", "/dev/nvidiactl", "--device", "/dev/nvidia-uvm")
		}
	default:
		return "", fmt.Errorf("form %q: allowed are docker, docker-device, cdi, ctr and compose", f)
	}
	return strings.Join(words, " ") + "\n", nil
}

// composeFile is what Compose's specification calls a service's resources.
func composeFile(uuids []string, service string) (string, error) {
	type m = map[string]any
	file := m{"deploy": m{"resources": m{"reservations": m{"devices": []m{{
		"driver": "nvidia", "device_ids": uuids, "capabilities": []string{"gpu"}}}}}}}
	if service != "" {
		file = m{"services": m{service: file}}
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		return "", fmt.Errorf("service %q: %w", service, err)
	}
	return string(text), nil
}
