package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// options are the command line's.
type options struct {
	binary   string
	policies []string
	repeats  int
	seconds  float64 // of a live run, for each phase
	slow     float64 // of one of what moves step by step
	measure  float64 // of its end, which is the steady state
	still    float64 // of a measurement of what stands still
	look     float64 // of one evaluation of the search
	looks    int     // that the search may take before its finals, in one phase
	minutes  float64 // for all mixes together; 0: no bound
	speed    float64
	verbose  bool
	record   string // folder for recordings; "": none
	began    time.Time
}

// session is one mix that is measured.
type session struct {
	o        options
	mix      mix
	bed      *bed
	deadline time.Time // from then on no further round is begun; zero: none
	alone    []float64 // each job's rate with the machine to itself and no limits
	needs    []float64 // CPUs that it used then
	best     candidate
	looks    int
	runs     []run
	stood    map[string][]alloc // what each left standing at the end of its live run's phases
	skip     map[string]bool
}

// run is one policy on one mix, once.
type run struct {
	Policy string `json:"policy"`
	Repeat int    `json:"repeat"`
	// Still: what the policy left at the end of its live run was measured standing still, or an
	// allocation that never moves. As names whose measurement it is, where two left the same.
	Still bool   `json:"still,omitempty"`
	As    string `json:"as,omitempty"`
	// Moving: limits still changed while the steady state was measured.
	Moving bool `json:"moving,omitempty"`
	// Steady is the end of each phase, averaged; Whole is from the start to the end.
	Steady  stretch     `json:"steady"`
	Whole   stretch     `json:"whole"`
	Changes int         `json:"changes"`
	Told    string      `json:"told,omitempty"`
	rolling [][]float64 // of the last phase
	lastEnd []float64   // steady rates of the last phase alone
	trace   *trace      // of a live run, from when it was up
	up      time.Duration
}

func (s *session) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%6.1f s] %s: %s\n", time.Since(s.o.began).Seconds(), s.mix.name, fmt.Sprintf(format, args...))
}

// measureMix does all of one mix.
func measureMix(ctx context.Context, o options, m mix, deadline time.Time) (s *session, err error) {
	s = &session{o: o, mix: m, deadline: deadline, stood: map[string][]alloc{}, skip: map[string]bool{}}
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
	for repeat := range o.repeats {
		if err := s.round(ctx, repeat, inTurn(o.variants(m), repeat)); err != nil {
			return s, err
		}
	}
	return s, nil
}

// foremost are the variants that the goals cannot do without: a round that its time cuts
// short has had them.
const foremost = 4

// inTurn is another order in each round: of the foremost, and of the others.
func inTurn(all []string, repeat int) []string {
	turn := func(xs []string) []string {
		if len(xs) == 0 {
			return nil
		}
		k := repeat * 3 % len(xs)
		return slices.Concat(xs[k:], xs[:k])
	}
	cut := min(foremost, len(all))
	return append(turn(all[:cut]), turn(all[cut:])...)
}

// round runs all variants once: the first time live; from then on what stands still is
// measured again, and only the default policy lives through it each time.
func (s *session) round(ctx context.Context, repeat int, order []string) error {
	for _, name := range order {
		if repeat > 0 && !s.deadline.IsZero() && time.Now().After(s.deadline) {
			s.say("its time is over in round %d", repeat+1)
			return nil
		}
		if s.skip[name] {
			continue
		}
		r, err := s.once(ctx, name, repeat)
		if err != nil {
			return err
		}
		s.runs = append(s.runs, r)
		s.told(r)
	}
	return nil
}

func (s *session) told(r run) {
	sum, least := sumMin(s.mix, normal(r.Steady.Rates, s.alone))
	kind := "live"
	if r.As != "" {
		kind = "as " + r.As
	} else if r.Still {
		kind = "still"
	}
	s.say("run %d of %-12s %-10s sum %.3f, least %.2f, %d changes, steal %.1f %%", r.Repeat, r.Policy, kind, sum, least, r.Changes, 100*r.Whole.Steal)
	s.say("  of alone: %s", s.perJob(normal(r.Steady.Rates, s.alone), "%.2f"))
	if s.o.verbose && r.Told != "" {
		fmt.Fprint(os.Stderr, r.Told)
	}
}

// once measures one variant in one round.
func (s *session) once(ctx context.Context, name string, repeat int) (run, error) {
	switch {
	case name == nameStatic:
		return s.still(ctx, name, repeat, []alloc{nil})
	case name == nameBest:
		return s.still(ctx, name, repeat, []alloc{s.best.alloc})
	case name == defaultPolicy || repeat == 0:
		return s.live(ctx, name, repeat)
	}
	for _, r := range s.runs {
		if r.Repeat == repeat+1 && r.Still && s.alike(r.Policy, name) {
			as := r
			as.Policy, as.As = name, r.Policy
			return as, nil
		}
	}
	return s.still(ctx, name, repeat, s.stood[name])
}

// alike reports whether two variants left the same limits in every phase.
func (s *session) alike(a, b string) bool {
	x, y := s.stood[a], s.stood[b]
	return len(x) > 0 && slices.EqualFunc(x, y, alloc.same)
}

// still measures allocations that do not move, one for all phases or one for each.
func (s *session) still(ctx context.Context, name string, repeat int, all []alloc) (r run, err error) {
	r = run{Policy: name, Repeat: repeat + 1, Still: true}
	defer func() { err = errors.Join(err, s.bed.phase(context.WithoutCancel(ctx), 0)) }()
	var stood []alloc
	var rates, used [][]float64
	for phase := range s.mix.phases {
		if err := s.bed.phase(ctx, phase); err != nil {
			return r, err
		}
		if err := s.bed.set(ctx, all[min(phase, len(all)-1)]); err != nil {
			return r, err
		}
		if err := s.bed.sleep(ctx, seconds(s.mix.settle+0.5)); err != nil {
			return r, err
		}
		sampled, err := s.bed.trace(ctx)
		if err != nil {
			return r, err
		}
		got, err := s.bed.watch(ctx, seconds(s.o.still))
		r.trace = sampled()
		if err != nil {
			return r, err
		}
		stands, err := s.bed.stands(ctx)
		if err != nil {
			return r, err
		}
		stood = append(stood, stands)
		rates, used = append(rates, got.Rates), append(used, got.CPUs)
		r.Steady.From, r.Steady.To, r.lastEnd = got.From, got.To, got.Rates
		r.Whole.Steal += got.Steal / float64(s.mix.phases)
	}
	s.stood[name] = stood
	r.Steady.Rates, r.Steady.CPUs, r.Steady.Steal = average(rates), average(used), r.Whole.Steal
	r.Whole = r.Steady
	return r, nil
}

// live is one variant at work, from the owner's limits on.
func (s *session) live(ctx context.Context, name string, repeat int) (r run, err error) {
	r = run{Policy: name, Repeat: repeat + 1}
	if err := s.bed.reset(ctx); err != nil {
		return r, err
	}
	if err := s.bed.sleep(ctx, seconds(s.mix.settle+0.5)); err != nil {
		return r, err
	}
	stop, err := s.start(ctx, name, repeat)
	if err != nil {
		return r, err
	}
	r.up = workload.Now()
	sampled, err := s.bed.trace(ctx)
	if err != nil {
		return r, errors.Join(err, endOf(stop))
	}
	defer func() { r.trace = sampled() }()
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

func endOf(stop func() (int, string, error)) error {
	_, _, err := stop()
	return err
}

// phases lets a variant work and measures the end of each phase.
func (s *session) phases(ctx context.Context, name string, r *run) error {
	start := workload.Now()
	var stood []alloc
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
		before, err := s.bed.stands(ctx)
		if err != nil {
			return err
		}
		end, err := s.bed.watch(ctx, measure)
		if err != nil {
			return err
		}
		after, err := s.bed.stands(ctx)
		if err != nil {
			return err
		}
		stood = append(stood, after)
		r.Moving = r.Moving || !before.same(after)
		r.Steady.From, r.Steady.To = end.From, end.To
		r.lastEnd = end.Rates
		r.rolling = s.bed.rolling(begin, end.To)
		endRates, endCPUs = append(endRates, end.Rates), append(endCPUs, end.CPUs)
		whole := s.bed.joined(begin, first, end)
		allRates, allCPUs = append(allRates, whole.Rates), append(allCPUs, whole.CPUs)
		r.Steady.Steal += end.Steal / float64(s.mix.phases)
		r.Whole.Steal += whole.Steal / float64(s.mix.phases)
	}
	s.stood[name] = stood
	r.Steady.Rates, r.Steady.CPUs = average(endRates), average(endCPUs)
	r.Whole = stretch{From: start, To: workload.Now(), Rates: average(allRates), CPUs: average(allCPUs), Steal: r.Whole.Steal}
	return nil
}
