package control

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/tuner/idle"
	"github.com/trimtab/trimtab/tuner/state"
)

// noteDevices follows who holds the node's devices, enrolled or not.
func (c *Controller) noteDevices(in Input) {
	c.noteVisibility()
	owners := make([]idle.Owner, 0, len(c.all))
	for _, s := range c.all {
		owners = append(owners, idle.Owner{Key: s.key, Name: s.c.Name, Team: s.c.Enrolment.Team})
	}
	c.idle.Step(c.cfg.Idle, in.Host, in.Samples, owners)
}

// showDevices fills in the devices, each with its holders, and the teams' totals.
func (c *Controller) showDevices(s *state.Snapshot) {
	s.IdleAfterNs = c.cfg.Idle.AfterNs
	for _, t := range c.idle.Teams() {
		s.Totals.TeamGPUHeld = append(s.Totals.TeamGPUHeld, state.Count{Team: t.Team, Value: float64(t.HeldNs) / 1e9})
		s.Totals.TeamGPUIdle = append(s.Totals.TeamGPUIdle, state.Count{Team: t.Team, Value: float64(t.IdleNs) / 1e9})
	}
	holdings := c.idle.Holdings()
	for _, d := range c.last.Host.Devices {
		v := state.DeviceOf(d, c.last.Host.Devices)
		for _, h := range holdings {
			if h.Device == d.UUID {
				v.Holders = append(v.Holders, c.showHolder(h))
			}
		}
		slices.SortFunc(v.Holders, func(a, b state.Holder) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
		s.Devices = append(s.Devices, v)
		s.Virtual = s.Virtual || d.Virtual
	}
	s.Virtual = s.Virtual || slices.ContainsFunc(c.last.Samples, func(x probes.Sample) bool { return x.CUDA != nil && x.CUDA.Virtual })
}

func (c *Controller) showHolder(h idle.Holding) state.Holder {
	return state.Holder{Key: h.Key, Name: h.Name, Team: h.Team, Host: h.Key == "", PIDs: h.PIDs, MemBytes: h.MemBytes,
		SinceUnixNs: c.unix(h.SinceNs), QuietUnixNs: c.unix(h.QuietNs), FirstSight: h.FirstSight, QuietSeconds: float64(h.QuietForNs()) / 1e9,
		Idle: h.Idle, Evidence: string(h.Evidence), HeldSeconds: float64(h.HeldNs) / 1e9, IdleSeconds: float64(h.IdleNs) / 1e9}
}
