package rivals

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/cgroup"
	"github.com/trimtab/trimtab/probes/host"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/agent"
)

// Options say what a rival is let loose on.
type Options struct {
	Prefix string // of the names of the containers that it sees
	// Rates returns the latest steps per second by container name; nil: none.
	Rates func() map[string]float64
	// Told takes a line for each change that was made.
	Told io.Writer
}

// Drive runs a rival against this host's Docker until the context ends. It restores
// nothing: whoever started it does.
func Drive(ctx context.Context, r Rival, o Options) error {
	fleet, err := Follow(ctx, o.Prefix)
	if err != nil {
		return err
	}
	d := &driver{o: o, fleet: fleet, probe: cgroup.New(), host: host.New("/proc"), before: map[string]probes.Cgroup{}}
	err = d.loop(ctx, r)
	return errors.Join(err, d.probe.Close(), fleet.Close())
}

type driver struct {
	o     Options
	fleet *Fleet
	probe *cgroup.Probe
	host  *host.Probe

	before   map[string]probes.Cgroup
	hostWas  probes.Host
	hostUsed float64
}

func (d *driver) loop(ctx context.Context, r Rival) error {
	if _, err := d.look(ctx); err != nil { // the first reading of what is counted from then on
		return err
	}
	tick := time.NewTicker(r.Every())
	defer tick.Stop()
	start := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		all, err := d.look(ctx)
		if err != nil {
			return err
		}
		node := Node{CPUs: float64(d.hostWas.CPUs), UsedCPUs: d.hostUsed}
		if err := d.apply(ctx, all, r.Decide(time.Since(start), node, all)); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// look reads all containers and the node.
func (d *driver) look(ctx context.Context) ([]Seen, error) {
	known := d.fleet.Containers()
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if err := d.probe.Watch(agent.Target(known[key])); err != nil {
			return nil, fmt.Errorf("container %q: %w", known[key].Name, err)
		}
	}
	samples := map[string]*probes.Sample{}
	if err := d.probe.Read(ctx, samples); err != nil {
		return nil, err
	}
	if err := d.lookAtHost(); err != nil {
		return nil, err
	}
	var rates map[string]float64
	if d.o.Rates != nil {
		rates = d.o.Rates()
	}
	var out []Seen
	for _, key := range slices.Sorted(maps.Keys(known)) {
		c, s := known[key], samples[key]
		if s == nil || s.Cgroup == nil {
			continue
		}
		now, err := d.fleet.Engine.Read(ctx, c)
		if errors.Is(err, runtime.ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, d.seen(c, *s.Cgroup, now, rates[c.Name]))
	}
	return out, nil
}

func (d *driver) seen(c runtime.Container, g probes.Cgroup, now runtime.Values, rate float64) Seen {
	key := c.Key()
	s := Seen{Key: key, Name: c.Name, Labels: c.Labels, Tuned: c.Labels["trimtab.mode"] == "tune", Now: now,
		WorkingSet: float64(g.MemoryBytes) - float64(min(g.InactiveFile, g.MemoryBytes)), OOMKills: g.OOMKills, Rate: rate}
	if was, ok := d.before[key]; ok && g.AtNs > was.AtNs {
		s.UsedCPUs = float64(g.CPUUsageNs-was.CPUUsageNs) / float64(g.AtNs-was.AtNs)
		s.Throttled = throttled(g) > throttled(was)
	}
	d.before[key] = g
	return s
}

func throttled(g probes.Cgroup) uint64 {
	if len(g.Throttling) == 0 {
		return 0
	}
	return g.Throttling[0].Throttled
}

func (d *driver) lookAtHost() error {
	h, err := d.host.Read()
	if err != nil {
		return err
	}
	if was := d.hostWas; was.AtNs > 0 && h.AtNs > was.AtNs {
		d.hostUsed = float64(h.BusyNs-was.BusyNs) / float64(h.AtNs-was.AtNs)
	}
	d.hostWas = h
	return nil
}

// apply sets what differs from what stands, and tells each knob that changed.
func (d *driver) apply(ctx context.Context, all []Seen, wanted map[string]runtime.Values) error {
	known := d.fleet.Containers()
	for _, s := range all {
		set := runtime.Values{}
		for k, v := range wanted[s.Key] {
			if stands, has := s.Now[k]; has && !k.Same(v, stands) {
				set[k] = v
			}
		}
		if len(set) == 0 {
			continue
		}
		err := d.fleet.Engine.Apply(ctx, known[s.Key], set)
		if errors.Is(err, runtime.ErrRefused) || errors.Is(err, runtime.ErrGone) {
			fmt.Fprintf(d.o.Told, "refused %s %v\n", s.Name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("container %q: %w", s.Name, err)
		}
		for _, k := range set.Sorted() {
			fmt.Fprintf(d.o.Told, "change %s %s %s -> %s\n", s.Name, k, s.Now[k], set[k])
		}
	}
	return nil
}
