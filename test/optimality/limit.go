package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trimtab/trimtab/test/rivals"
)

// variants are all that is run each time, policies and rivals with both allocations.
// Shares by devices are equal shares where no job holds several.
func (o options) variants(m mix) []string {
	out := []string{nameStatic, nameBest}
	for _, name := range o.policies {
		if name != "proportional" || m.holdsSeveral() {
			out = append(out, name)
		}
	}
	return out
}

// holdsSeveral reports whether some job holds more than one device.
func (m mix) holdsSeveral() bool {
	for _, j := range m.jobs {
		if j.gpus > 1 {
			return true
		}
	}
	return false
}

// length of a phase of a live run. What decides at once needs no time to; what moves one
// step after the other takes longer than the default policy; what jumps from what it
// knows, or grows by a fifth each second, takes less.
func (o options) length(name string) float64 {
	switch {
	case kindOf(name) == kindRival && rivals.Steady(name):
		return o.measure + 1
	case name == "climb":
		return o.slow
	case name == "burst":
		return max(0.65*o.seconds, o.measure+2)
	}
	return o.seconds
}

// takes says how long a mix will take.
func (o options) takes(m mix) time.Duration {
	phases := float64(m.phases)
	solo := 4 * (o.look + m.settle)
	search := (float64(o.looks/m.phases) + finalists) * phases * (o.look + m.settle + 0.3)
	still := phases * (o.still + m.settle + 0.8)
	var rounds float64
	for _, name := range o.variants(m) {
		live := phases*o.length(name) + m.settle + 4
		switch {
		case kindOf(name) == kindAlloc:
			rounds += float64(o.repeats) * still
		case name == defaultPolicy:
			rounds += float64(o.repeats) * live
		default:
			rounds += live + float64(o.repeats-1)*still
		}
	}
	return seconds(25 + solo + search + rounds)
}

// measureAlone gives each kind of job the machine, without limits: jobs that are started
// alike share a measurement.
func (s *session) measureAlone(ctx context.Context) error {
	wide := starts(s.mix, s.bed.owner, nil)
	if err := s.bed.set(ctx, wide[len(wide)-1].alloc); err != nil {
		return err
	}
	s.alone, s.needs = make([]float64, len(s.mix.jobs)), make([]float64, len(s.mix.jobs))
	first := map[string]int{}
	for i, j := range s.mix.jobs {
		kind := fmt.Sprint(j.script, " ", strings.Join(j.args, " "))
		if k, known := first[kind]; known {
			s.alone[i], s.needs[i] = s.alone[k], s.needs[k]
			continue
		}
		first[kind] = i
		err := s.bed.alone(ctx, i, func() error {
			if err := s.bed.sleep(ctx, seconds(s.mix.settle)); err != nil {
				return err
			}
			for longer := range 4 { // on a busy machine two lines may be seconds apart
				got, err := s.bed.watch(ctx, seconds(s.o.look*float64(1+longer)))
				if err != nil {
					return err
				}
				if got.Rates[i] > 0 {
					s.alone[i], s.needs[i] = got.Rates[i], got.CPUs[i]
					return nil
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if s.alone[i] <= 0 {
			return fmt.Errorf("container %q made no step alone", s.bed.jobs[i].Name)
		}
	}
	s.say("alone, steps/s: %s", s.perJob(s.alone, "%.1f"))
	s.say("alone, CPUs:    %s", s.perJob(s.needs, "%.2f"))
	return s.bed.reset(ctx)
}

func (s *session) perJob(xs []float64, format string) (text string) {
	for i, j := range s.mix.jobs {
		text += fmt.Sprintf("%s "+format+"  ", j.name, xs[i])
	}
	return text
}

// findBest searches; what it finds is measured again beside the policies.
func (s *session) findBest(ctx context.Context) error {
	var static *stretch
	eval := func(c *candidate) error {
		got, err := s.evaluate(ctx, c.alloc)
		if err != nil {
			return err
		}
		if static == nil { // equal shares are looked at first
			static = &got
		}
		c.normalised, c.cpus = normal(got.Rates, s.alone), got.CPUs
		sum, least := sumMin(s.mix, c.normalised)
		c.sum = (c.sum*float64(c.looks) + sum) / float64(c.looks+1)
		c.looks++
		c.fair = true
		for _, e := range entitled(s.mix, got.Rates, got.CPUs, *static) {
			c.fair = c.fair && e >= unfair
		}
		s.say("  tried %-50s sum %.2f, least %.2f%s", c.name, sum, least, map[bool]string{false: ", not fair"}[c.fair])
		return nil
	}
	best, looks, err := search(s.mix, s.o.looks/s.mix.phases, starts(s.mix, s.bed.owner, s.needs), eval)
	s.best, s.looks = best, looks
	s.say("best static allocation of %d looks: %s", looks, best.name)
	return errors.Join(err, s.bed.reset(ctx))
}

// evaluate measures a static allocation for a moment in each phase.
func (s *session) evaluate(ctx context.Context, a alloc) (stretch, error) {
	if err := s.bed.set(ctx, a); err != nil {
		return stretch{}, err
	}
	var rates, used [][]float64
	for phase := range s.mix.phases {
		if err := s.bed.phase(ctx, phase); err != nil {
			return stretch{}, err
		}
		if err := s.bed.sleep(ctx, seconds(s.mix.settle)); err != nil {
			return stretch{}, err
		}
		got, err := s.bed.watch(ctx, seconds(s.o.look))
		if err != nil {
			return stretch{}, err
		}
		rates, used = append(rates, got.Rates), append(used, got.CPUs)
	}
	return stretch{Rates: average(rates), CPUs: average(used)}, s.bed.phase(ctx, 0)
}
