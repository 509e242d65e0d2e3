package main

import "github.com/trimtab/trimtab/tuner/control"

// noise is what the machine did outside of all containers, from tick to tick: on
// a machine that is not quiet a job is contended that is not so by construction.
type noise struct {
	atNs    []int64
	busyNs  []uint64 // of all CPUs, since boot
	usedNs  []uint64 // by containers, since the recording began
	started map[string]uint64
	total   uint64
}

func (n *noise) add(in control.Input) {
	if n.started == nil {
		n.started = map[string]uint64{}
	}
	for _, s := range in.Samples {
		if s.Cgroup == nil {
			continue
		}
		if before, ok := n.started[s.Container]; ok && s.Cgroup.CPUUsageNs > before {
			n.total += s.Cgroup.CPUUsageNs - before
		}
		n.started[s.Container] = s.Cgroup.CPUUsageNs
	}
	n.atNs = append(n.atNs, in.Host.AtNs)
	n.busyNs = append(n.busyNs, in.Host.BusyNs)
	n.usedNs = append(n.usedNs, n.total)
}

// between is the mean number of CPUs used outside of containers, over the ticks
// within an interval.
func (n *noise) between(fromNs, toNs int64) float64 {
	first := -1
	for i, at := range n.atNs {
		if at < fromNs-int64(1e8) {
			continue
		}
		if first < 0 {
			first = i
		}
		if at < toNs || i == first {
			continue
		}
		outside := float64(n.busyNs[i]-n.busyNs[first]) - float64(n.usedNs[i]-n.usedNs[first])
		return max(0, outside/float64(at-n.atNs[first]))
	}
	return 0
}
