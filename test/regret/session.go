package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// options are the command line's.
type options struct {
	binary   string
	policies []string
	repeats  int
	seconds  float64 // of a run that adapts, for each phase
	measure  float64 // of its end, which is the steady state
	look     float64 // of one evaluation of the search
	looks    int     // that the search may take before its finals, in one phase
	speed    float64
	verbose  bool
	began    time.Time
}

// session is one mix that is measured.
type session struct {
	o     options
	mix   mix
	bed   *bed
	alone []float64 // each job's rate with the machine to itself and no limits
	best  candidate
	looks int
	runs  []run
	// learnt is where the policy that learns keeps what it knows; "": it has not run yet.
	learnt string
}

// run is one policy on one mix, once.
type run struct {
	Policy string `json:"policy"`
	Repeat int    `json:"repeat"`
	// Steady is the end of each phase, averaged; Whole is from the start to the end.
	Steady  stretch     `json:"steady"`
	Whole   stretch     `json:"whole"`
	Changes int         `json:"changes"`
	Told    string      `json:"told,omitempty"`
	rolling [][]float64 // of the last phase
	lastEnd []float64   // steady rates of the last phase alone
}

func (s *session) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1f s] %s: %s\n", time.Since(s.o.began).Seconds(), s.mix.name, fmt.Sprintf(format, args...))
}

// takes says how long a mix will take, without the start of its jobs.
func (o options) takes(m mix) time.Duration {
	phases := float64(m.phases)
	solo := float64(m.enrolled()) * (o.look + 2)
	search := float64(o.looks/m.phases)*phases*(o.look+m.settle+0.5) + finalists*phases*(o.look+m.settle+0.5)
	var each float64
	for _, name := range o.variants() {
		each += m.settle + 2 + phases*o.length(name)
	}
	return seconds(solo + search + float64(o.repeats)*each)
}

// variants are all that is run each time, policies and rivals with both allocations.
func (o options) variants() []string { return append([]string{nameStatic, nameBest}, o.policies...) }

// length of a phase of a run.
func (o options) length(name string) float64 {
	if atOnce(name) {
		return o.measure + 3
	}
	return o.seconds
}

// measureMix does all of one mix.
func measureMix(ctx context.Context, o options, m mix) (s *session, err error) {
	s = &session{o: o, mix: m}
	s.say("%d jobs; starting them (then about %.0f min)", len(m.jobs), o.takes(m).Minutes())
	if s.bed, err = startBed(ctx, m); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, s.bed.close()) }()
	if err := s.measureAlone(ctx); err != nil {
		return s, err
	}
	if err := s.findBest(ctx); err != nil {
		return s, err
	}
	skip := map[string]bool{}
	for repeat := range o.repeats {
		all := o.variants()
		for k := range all {
			name := all[(k+repeat*3)%len(all)] // another order each time
			if skip[name] {
				continue
			}
			r, err := s.run(ctx, name, repeat)
			if errors.Is(err, errUnknownPolicy) {
				s.say("%v: left out", err)
				skip[name] = true
				continue
			}
			if err != nil {
				return s, err
			}
			s.runs = append(s.runs, r)
			sum, least := sumMin(m, normal(r.Steady.Rates, s.alone))
			s.say("run %d of %-12s sum %.2f, least %.2f, %d changes", repeat+1, name, sum, least, r.Changes)
			if o.verbose && r.Told != "" {
				fmt.Fprint(os.Stderr, r.Told)
			}
		}
	}
	return s, nil
}

// measureAlone gives each job the machine, without limits.
func (s *session) measureAlone(ctx context.Context) error {
	wide := starts(s.mix, s.bed.owner)
	if err := s.bed.set(ctx, wide[len(wide)-1].alloc); err != nil {
		return err
	}
	s.alone = make([]float64, len(s.mix.jobs))
	for i := range s.mix.jobs {
		err := s.bed.alone(i, func() error {
			if err := s.bed.sleep(ctx, seconds(s.mix.settle)); err != nil {
				return err
			}
			got, err := s.bed.watch(ctx, seconds(s.o.look))
			if err == nil {
				s.alone[i] = got.Rates[i]
			}
			return err
		})
		if err != nil {
			return err
		}
		if s.alone[i] <= 0 {
			return fmt.Errorf("container %q made no step alone", s.bed.jobs[i].Name)
		}
	}
	s.say("alone, steps/s: %s", s.perJob(s.alone, "%.1f"))
	return s.bed.reset(ctx)
}

func (s *session) perJob(xs []float64, format string) (text string) {
	for i, j := range s.mix.jobs {
		text += fmt.Sprintf("%s "+format+"  ", j.name, xs[i])
	}
	return text
}

// findBest searches; what it finds is measured again with the policies.
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
	best, looks, err := search(s.mix, s.o.looks/s.mix.phases, starts(s.mix, s.bed.owner), eval)
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

// run is one variant from the owner's limits on.
func (s *session) run(ctx context.Context, name string, repeat int) (r run, err error) {
	r = run{Policy: name, Repeat: repeat + 1}
	if err := s.bed.reset(ctx); err != nil {
		return r, err
	}
	if name == nameBest {
		if err := s.bed.set(ctx, s.best.alloc); err != nil {
			return r, err
		}
	}
	if err := s.bed.sleep(ctx, seconds(s.mix.settle+1)); err != nil {
		return r, err
	}
	stop, err := s.start(ctx, name)
	if err != nil {
		return r, err
	}
	stopped := false
	defer func() {
		if !stopped {
			_, _, errStop := stop()
			err = errors.Join(err, errStop)
		}
		err = errors.Join(err, s.bed.phase(context.WithoutCancel(ctx), 0))
	}()
	if err := s.phases(ctx, name, &r); err != nil {
		return r, err
	}
	stopped = true
	r.Changes, r.Told, err = stop()
	return r, err
}

// phases lets a variant work and measures the end of each phase.
func (s *session) phases(ctx context.Context, name string, r *run) error {
	start := workload.Now()
	var endRates, endCPUs, allRates, allCPUs [][]float64
	length, measure := seconds(s.o.length(name)), seconds(s.o.measure)
	for phase := range s.mix.phases {
		if err := s.bed.phase(ctx, phase); err != nil {
			return err
		}
		begin := workload.Now()
		first, err := s.bed.watch(ctx, max(length-measure, 0))
		if err != nil {
			return err
		}
		end, err := s.bed.watch(ctx, measure)
		if err != nil {
			return err
		}
		r.Steady.From, r.Steady.To = end.From, end.To
		r.lastEnd = end.Rates
		r.rolling = s.bed.rolling(begin, end.To)
		endRates, endCPUs = append(endRates, end.Rates), append(endCPUs, end.CPUs)
		a, b := (first.To - first.From).Seconds(), (end.To - end.From).Seconds()
		rates, used := make([]float64, len(end.Rates)), make([]float64, len(end.Rates))
		for i := range rates {
			rates[i], _ = s.bed.jobs[i].Rate(begin, end.To)
			used[i] = (first.CPUs[i]*a + end.CPUs[i]*b) / (a + b)
		}
		allRates, allCPUs = append(allRates, rates), append(allCPUs, used)
	}
	r.Steady.Rates, r.Steady.CPUs = average(endRates), average(endCPUs)
	r.Whole = stretch{From: start, To: workload.Now(), Rates: average(allRates), CPUs: average(allCPUs)}
	return nil
}
