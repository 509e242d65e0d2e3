package cluster

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/trimtab/trimtab/test/lab/tables"
)

// Spread is a figure over several seeds.
type Spread struct {
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
}

// Row is one mechanism at one load.
type Row struct {
	Load      float64 `json:"load"`
	Mechanism string  `json:"mechanism"`
	Knows     bool    `json:"knowsCurves"`
	// Times in seconds: each seed's mean or percentile.
	Completion    Spread `json:"completionS"`
	CompletionP50 Spread `json:"completionP50S"`
	CompletionP95 Spread `json:"completionP95S"`
	Queueing      Spread `json:"queueingS"`
	// Against proportional on the same jobs, minus one; null at a load at which nobody queues.
	CompletionRatio *Spread `json:"completionRatio,omitempty"`
	QueueingRatio   *Spread `json:"queueingRatio,omitempty"`
}

// Report is a simulation's answer.
type Report struct {
	Setup Setup `json:"setup"`
	Rows  []Row `json:"rows"`
}

// figures are one run's.
type figures struct{ mean, p50, p95, queue float64 }

// Simulate runs every mechanism at every load on the same jobs: the rivals, and trimtab.
func Simulate(s Setup) (Report, error) {
	if err := s.Check(); err != nil {
		return Report{}, err
	}
	trace, err := tables.Trace()
	if err != nil {
		return Report{}, err
	}
	curves, err := tables.Curves()
	if err != nil {
		return Report{}, err
	}
	for i := range curves {
		curves[i].Parts = s.Parts
	}
	mechanisms := append(Rivals(), Daemon(s.EpochS))
	report := Report{Setup: s}
	for _, load := range s.Loads {
		all, err := s.seeds(trace, curves, load, mechanisms)
		if err != nil {
			return Report{}, err
		}
		for i, m := range mechanisms {
			report.Rows = append(report.Rows, row(load, m, all[i], all[0]))
		}
	}
	return report, nil
}

// seeds runs each seed at one load, side by side; figures are by mechanism, then by seed.
func (s Setup) seeds(trace []tables.TraceJob, curves []tables.Curve, load float64, mechanisms []Mechanism) ([][]figures, error) {
	all := make([][]figures, len(mechanisms))
	for i := range all {
		all[i] = make([]figures, s.Seeds)
	}
	failed := make([]error, s.Seeds)
	var running sync.WaitGroup
	for n := range s.Seeds {
		running.Go(func() {
			seed := uint64(n + 1)
			jobs := s.Build(trace, curves, load, seed)
			for i, m := range mechanisms {
				done, err := Run(jobs, s.Servers, s.Server, m, seed)
				if err != nil {
					failed[n] = fmt.Errorf("load %g, seed %d: %w", load, seed, err)
					return
				}
				all[i][n] = summarise(done)
			}
		})
	}
	running.Wait()
	return all, errors.Join(failed...)
}

func summarise(done []Done) figures {
	completion := make([]float64, len(done))
	var f figures
	for i, d := range done {
		completion[i] = d.FinishS - d.SubmitS
		f.mean += completion[i] / float64(len(done))
		f.queue += (d.StartS - d.SubmitS) / float64(len(done))
	}
	slices.Sort(completion)
	f.p50, f.p95 = percentile(completion, 0.5), percentile(completion, 0.95)
	return f
}

// percentile of sorted values, by the nearest rank.
func percentile(sorted []float64, p float64) float64 {
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

func row(load float64, m Mechanism, own, against []figures) Row {
	return Row{
		Load: load, Mechanism: m.Name, Knows: m.Knows,
		Completion:      *spread(own, own, func(f, _ figures) (float64, bool) { return f.mean, true }),
		CompletionP50:   *spread(own, own, func(f, _ figures) (float64, bool) { return f.p50, true }),
		CompletionP95:   *spread(own, own, func(f, _ figures) (float64, bool) { return f.p95, true }),
		Queueing:        *spread(own, own, func(f, _ figures) (float64, bool) { return f.queue, true }),
		CompletionRatio: spread(own, against, func(f, p figures) (float64, bool) { return f.mean/p.mean - 1, true }),
		// A second of queueing is none: its ratios are of chance.
		QueueingRatio: spread(own, against, func(f, p figures) (float64, bool) { return f.queue/p.queue - 1, p.queue >= 1 }),
	}
}

// spread is over the seeds that have the figure; nil: one has not.
func spread(own, against []figures, of func(own, against figures) (float64, bool)) *Spread {
	out := &Spread{Min: math.Inf(1), Max: math.Inf(-1)}
	for i := range own {
		v, ok := of(own[i], against[i])
		if !ok {
			return nil
		}
		out.Mean += v / float64(len(own))
		out.Min, out.Max = min(out.Min, v), max(out.Max, v)
	}
	return out
}
