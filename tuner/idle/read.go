package idle

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/probes"
)

// readProcesses notes which processes launched or copied something since they were
// last sampled.
func (t *Tracker) readProcesses(samples []probes.Sample) {
	for _, s := range samples {
		if s.CUDA == nil {
			continue
		}
		for _, c := range s.CUDA.Processes {
			t.processes[c.TGID] = t.readProcess(c)
		}
	}
	maps.DeleteFunc(t.processes, func(_ int32, p process) bool { return t.nowNs-p.seenNs > forgetProcessNs })
}

func (t *Tracker) readProcess(c probes.CUDAProcess) process {
	before := t.processes[c.TGID]
	now := process{launched: c.Launches + c.Graphs, countedNs: c.LaunchNs, seenNs: t.nowNs}
	for _, n := range c.Copies {
		now.launched += n
	}
	if now.launched < before.launched || now.countedNs < before.countedNs { // another process of this number
		before = process{}
	}
	now.usedNs, now.toldNs = before.usedNs, before.toldNs
	if now.launched > before.launched {
		now.usedNs = t.nowNs
		if c.LastNs > before.toldNs && c.LastNs < t.nowNs {
			now.usedNs = c.LastNs
		}
	}
	if now.countedNs > before.countedNs && !c.Thinned {
		now.toldNs = t.nowNs
	}
	return now
}

// reading is one new reading of one device.
type reading struct {
	dev    probes.Device
	told   bool  // whether something ran since the reading before is known
	busyNs int64 // latest instant at which something did; 0: nothing, if told
	shared bool  // more than one holder, or one that draws
}

// readDevices takes in what is new of each device, sorted by UUID; slices stand for
// their GPU.
func (t *Tracker) readDevices(devices []probes.Device) []reading {
	var out []reading
	for _, d := range devices {
		s := t.devices[d.UUID]
		if d.UUID == "" || d.Lost != "" || d.AtNs <= s.readNs || hasSlices(devices, d.UUID) {
			continue
		}
		r := reading{dev: d, shared: isShared(d)}
		for _, u := range d.Duty {
			if u.AtNs <= s.sampleNs { // the ring of samples was read before
				continue
			}
			r.told = true
			if u.Share != 0 { // what is no number is no zero
				r.busyNs = max(r.busyNs, min(u.AtNs, d.AtNs))
			}
		}
		for _, u := range d.Duty {
			s.sampleNs = max(s.sampleNs, u.AtNs)
		}
		if d.SMActive != nil {
			r.told = true
			if *d.SMActive != 0 {
				r.busyNs = d.AtNs
			}
		}
		s.readNs, s.busyNs = d.AtNs, max(s.busyNs, r.busyNs)
		t.devices[d.UUID] = s
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b reading) int { return cmp.Compare(a.dev.UUID, b.dev.UUID) })
	return out
}

func hasSlices(devices []probes.Device, uuid string) bool {
	return slices.ContainsFunc(devices, func(d probes.Device) bool { return d.Parent == uuid && uuid != "" })
}

// isShared: what the device did cannot be charged to one holder.
func isShared(d probes.Device) bool {
	if len(d.Processes) == 0 {
		return false
	}
	first := d.Processes[0]
	return slices.ContainsFunc(d.Processes, func(p probes.DeviceProcess) bool { return p.Graphics || p.Container != first.Container })
}

// byHolder groups the processes that compute. Those that draw are no holders: a
// desktop holds its GPU by right.
func byHolder(d probes.Device) map[string][]probes.DeviceProcess {
	out := map[string][]probes.DeviceProcess{}
	for _, p := range d.Processes {
		if !p.Graphics {
			out[p.Container] = append(out[p.Container], p)
		}
	}
	return out
}

// processDevices tells on which devices each process lives.
func processDevices(devices []probes.Device) map[int32][]string {
	out := map[int32][]string{}
	for _, d := range devices {
		for _, p := range d.Processes {
			if !hasSlices(devices, d.UUID) && !slices.Contains(out[p.PID], d.UUID) {
				out[p.PID] = append(out[p.PID], d.UUID)
			}
		}
	}
	return out
}
