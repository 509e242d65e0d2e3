package agent

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/place"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// Place ranks this host's devices for jobs that are to start, and holds those of one that is
// asked for so. It changes no container.
func (l *Agent) Place(ctx context.Context, req state.PlaceRequest) (out state.Placement, err error) {
	now := time.Now()
	if err := l.unread(); err != nil {
		return out, err
	}
	var h place.Host
	var known []profiles.Known
	var answered error
	wanted := place.Wanted(req.Jobs, l.identify)
	err = l.do(ctx, func() {
		h, known = l.placeHost(now), l.control.Profiles().Find(wanted)
		if !req.Hold {
			return // a list of jobs takes its time, and the loop does not wait for it
		}
		out, answered = place.Answer(ctx, h, known, l.identify, req)
		for i := range out.Jobs {
			if j := &out.Jobs[i]; len(j.Chosen) > 0 {
				j.HeldUntilUnix = l.placed.Take(j.Chosen, cmp.Or(j.Job.Name, j.Job.Image), now).UnixNano()
			}
		}
	})
	if err == nil && !req.Hold {
		out, answered = place.Answer(ctx, h, known, l.identify, req)
	}
	out.UnixNs = now.UnixNano()
	return out, cmp.Or(err, answered)
}

// unread says why nothing is known of the host's devices now; nil if it is.
func (l *Agent) unread() error {
	s := l.snapshot.Load()
	if s == nil {
		return &api.Error{Status: http.StatusServiceUnavailable, Text: "the daemon is starting", Hint: "ask again in a moment"}
	}
	for _, p := range s.Daemon.Probes {
		if p.Name == "host" && !p.OK {
			return &api.Error{Status: http.StatusServiceUnavailable, Text: "the host cannot be read: " + p.Lost, Hint: "`trimtab doctor` looks for what is missing"}
		}
	}
	return nil
}

// identify is what a container that is to start would be known by.
func (l *Agent) identify(image string, args []string) identity.Identity {
	if l.o.Identify == nil {
		return identity.Identity{}
	}
	s := l.o.Identify(runtime.Container{Image: image, Start: &runtime.Start{Command: args}})
	if s == nil {
		return identity.Identity{}
	}
	return s.Identity
}

// placeHost is what there is to choose from, and who has it.
func (l *Agent) placeHost(now time.Time) place.Host {
	s := l.Snapshot()
	h := place.Host{Devices: l.placeDevices(s), CPUs: s.Node.WholeCPUs(), MemoryBytes: s.Node.Memory, Holds: map[string]*state.Hold{}}
	for _, d := range h.Devices {
		h.Holds[d.UUID] = l.placed.Of(d.UUID, now)
	}
	for _, c := range l.all() {
		if len(c.GPUs) > 0 {
			h.Grants = append(h.Grants, grantOf(c))
		}
	}
	return h
}

func grantOf(c runtime.Container) place.Grant {
	return place.Grant{Name: c.Name, GPUs: c.GPUs, ByNode: c.GPUVia == "devices"}
}

func (l *Agent) placeDevices(s *state.Snapshot) []place.Device {
	minors := map[string]int{}
	for _, d := range l.host.Devices {
		minors[d.UUID] = d.Minor
	}
	return place.Devices(s.Devices, minors)
}

// placeStarted ends the holds of the devices that a container which starts was given.
func (l *Agent) placeStarted(c runtime.Container) {
	if len(c.GPUs) > 0 {
		l.placed.Started(grantOf(c), l.placeDevices(l.Snapshot()))
	}
}

// showPlaced shows which devices are held for jobs that are about to start.
func (l *Agent) showPlaced(s *state.Snapshot) {
	l.placed.Keep(l.placeDevices(s))
	for i := range s.Devices {
		s.Devices[i].Hold = l.placed.Of(s.Devices[i].UUID, time.Now())
	}
}
