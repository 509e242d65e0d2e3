package uprobe

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// Gather makes a client's part of the samples. Containers with a process that it is probing in, or
// where something is missing, have one: add adds a process to its container's part, in the order of
// PIDs, or returns false where there is nothing to add; put puts the part into the sample.
func Gather[Part any](c *Client, into map[string]*probes.Sample, add func(pid int32, part *Part) bool,
	put func(s *probes.Sample, part *Part, missing []string),
) {
	parts, processes := map[string]*Part{}, maps.Collect(c.Processes())
	for _, pid := range slices.Sorted(maps.Keys(processes)) {
		part := parts[processes[pid]]
		if part == nil {
			part = new(Part)
		}
		if add(pid, part) {
			parts[processes[pid]] = part
		}
	}
	for key := range c.Watched() {
		part, missing := parts[key], c.Missing(key)
		switch {
		case part == nil && len(missing) == 0:
			continue
		case part == nil:
			part = new(Part)
		}
		if into[key] == nil {
			into[key] = &probes.Sample{Container: key}
		}
		put(into[key], part, missing)
	}
}
