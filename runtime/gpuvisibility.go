package runtime

import (
	"strconv"
	"strings"
)

// GPUNames are the names of GPUs' nodes below /dev, for people.
func GPUNames(minors ...int) string {
	names := make([]string, len(minors))
	for i, minor := range minors {
		names[i] = "nvidia" + strconv.Itoa(minor)
	}
	return strings.Join(names, ", ")
}

// GPUVisibility is one GPU as one container has it.
type GPUVisibility struct {
	Minor   int    // N of /dev/nvidiaN
	UUID    string // as NVML tells it; "" if it does not
	Granted bool   // by whoever made the container
	Visible bool   // an open passes its control group now
	Hidden  bool   // by trimtab
	// ByPolicy: no person asked for that, a policy did.
	ByPolicy bool
}

// GPUView is which GPUs a container is to see, and what is known of those of the host.
type GPUView struct {
	Hidden []int // N of /dev/nvidiaN; all others that were granted are seen
	// ByPolicy are those of Hidden that no person asked for.
	ByPolicy []int
	UUIDs    map[int]string // of the host's GPUs, by N, as far as they are known
	// Names, by N, are what an engine may call a GPU: its place on the bus, its UUID, those of its slices.
	Names map[int][]string
}
