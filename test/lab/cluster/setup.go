package cluster

import (
	"fmt"
	"math/rand/v2"

	"github.com/trimtab/trimtab/test/lab/tables"
)

// Setup is what is simulated. Everything that the figures depend on stands in it,
// and it is printed with them.
type Setup struct {
	Server  Server    `json:"server"`
	Servers int       `json:"servers"`
	Jobs    int       `json:"jobs"` // the trace, over and over
	Loads   []float64 `json:"loads"`
	// SpanS is the time over which jobs are submitted; durations are scaled to give the
	// load. 0: durations as in the trace, and the times of submission are scaled.
	SpanS float64 `json:"spanS,omitempty"`
	Seeds int     `json:"seeds"`
	// EpochS is how long a job takes to read once what it reads again and again; it was evicted before
	// only from then on.
	EpochS float64 `json:"epochS"`
	// Parts: memory between two steps of a table counts in proportion (tables.Curve).
	Parts bool `json:"parts,omitempty"`
}

// TraceSetup is the trace itself on four of Synergy's servers; DaySetup is a day of
// a larger cluster.
func TraceSetup() Setup {
	return Setup{Server: SynergyServer(), Servers: 4, Jobs: 60, Loads: []float64{0.5, 0.75, 1, 1.5, 2}, Seeds: 10, EpochS: 60}
}

// DaySetup is 1,000 jobs in 24 hours on 16 servers.
func DaySetup() Setup {
	s := TraceSetup()
	s.Servers, s.Jobs, s.SpanS, s.Loads, s.Seeds = 16, 1000, 86400, []float64{0.5, 0.75, 0.9, 1, 1.1}, 5
	return s
}

// Check says what cannot be simulated.
func (s Setup) Check() error {
	if s.Servers < 1 || s.Jobs < 1 || s.Seeds < 1 || len(s.Loads) == 0 || s.SpanS < 0 {
		return fmt.Errorf("%d servers, %d jobs, %d seeds, %d loads: there must be one of each", s.Servers, s.Jobs, s.Seeds, len(s.Loads))
	}
	for _, l := range s.Loads {
		if !(l > 0 && l <= 100) {
			return fmt.Errorf("load %g: allowed are numbers above 0 and up to 100", l)
		}
	}
	return nil
}

// stream keeps what models draw apart from other uses of a seed.
const stream = 0x73796e65726779

// Build makes a seed's jobs at a load: GPUs, order and gaps from the trace, models
// drawn evenly from all curves. Load is the GPU seconds that jobs ask for at the proportional share
// over those that the servers have while jobs are submitted.
func (s Setup) Build(trace []tables.TraceJob, curves []tables.Curve, load float64, seed uint64) []Job {
	draw := rand.New(rand.NewPCG(seed, stream))
	last := trace[len(trace)-1].SubmitS
	cycle := last * float64(len(trace)) / float64(len(trace)-1) // the mean gap follows the last job too
	jobs := make([]Job, s.Jobs)
	var work float64
	for i := range jobs {
		t := trace[i%len(trace)]
		jobs[i] = Job{ID: i, GPUs: t.GPUs, SubmitS: t.SubmitS + cycle*float64(i/len(trace)), WorkS: t.DurationS, Curve: &curves[draw.IntN(len(curves))]}
		work += float64(t.GPUs) * t.DurationS
	}
	span := cycle * float64(len(jobs)) / float64(len(trace))
	gpus := float64(s.Server.GPUs * s.Servers)
	stretch, dearer := work/(gpus*span)/load, 1.0
	if s.SpanS > 0 {
		stretch = s.SpanS / span
		dearer = load * gpus * s.SpanS / work
	}
	for i := range jobs {
		jobs[i].SubmitS *= stretch
		jobs[i].WorkS *= dearer
	}
	return jobs
}
