// Package cluster simulates servers on which training jobs share CPUs and memory,
// on tabulated response curves: what one way of dividing a server does to
// completion and queueing times, beside another. It is pure; equal seeds give
// equal figures, to the bit on one architecture.
//
// The one trap: a curve says what a job makes of what it gets, not what it is
// like to measure that. Ways that know the curve (an oracle's knowledge) stand
// beside ways that must measure; the report says which is which.
package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/trimtab/trimtab/test/lab/tables"
)

// Server is one of several equal servers.
type Server struct {
	GPUs     int     `json:"gpus"`
	CPUs     float64 `json:"cpus"`
	MemoryGB float64 `json:"memoryGB"`
}

// SynergyServer is the server of Synergy's tables.
func SynergyServer() Server { return Server{GPUs: 8, CPUs: 24, MemoryGB: 500} }

// share is what so many GPUs have a proportional right to.
func (s Server) share(gpus int) (cpus, memoryGB float64) {
	part := float64(gpus) / float64(s.GPUs)
	return s.CPUs * part, s.MemoryGB * part
}

// Job is one training job, all of it on one server.
type Job struct {
	ID      int
	GPUs    int
	SubmitS float64
	WorkS   float64 // seconds at rate 1, which the proportional share gives
	Curve   *tables.Curve
}

// Running is a job on a server.
type Running struct {
	*Job
	StartS   float64
	LeftS    float64 // of WorkS
	Have     float64 // CPUs
	MemoryGB float64
	rate     float64
	doneS    float64 // work done, counted up where LeftS counts down
}

// on is the rate on so many CPUs and so much memory, of all its GPUs together.
func (j *Job) on(cpus, memoryGB float64) float64 {
	n := float64(j.GPUs)
	return j.Curve.At(cpus/n, memoryGB/n)
}

// Strategy divides one server among its jobs, and remembers what it must from call to call.
type Strategy interface {
	// Divide sets Have and MemoryGB of every job. It is called when jobs came or went,
	// and at the instant that it answered; 0: not before jobs come or go. Jobs are
	// sorted by ID.
	Divide(nowS float64, s Server, jobs []*Running) (againS float64)
}

// fitter is a Strategy that has a say in where a job goes.
type fitter interface {
	Fits(s Server, jobs []*Running, j *Job) bool
}

// Mechanism is a way of dividing servers.
type Mechanism struct {
	Name string
	// Knows: it is given the curves; otherwise it must measure.
	Knows bool
	// New makes the strategy of one server; noise is that server's own.
	New func(noise *rand.Rand) Strategy
}

// Done is what became of one job.
type Done struct {
	SubmitS, StartS, FinishS float64
	WorkS, DoneS             float64 // asked for, and done
}

type server struct {
	jobs   []*Running
	free   int // GPUs
	div    Strategy
	atS    float64 // jobs are advanced up to here
	endS   float64 // the next job's end
	againS float64 // the strategy's next call; +Inf: none
}

type simulation struct {
	spec    Server
	servers []*server
	done    []Done
}

// maxEvents for each job ends a mechanism that never lets one finish.
const maxEvents = 100_000

// Run plays jobs, sorted by submission, on n servers: first come, first served,
// nobody overtakes; the head of the queue goes to the server that it leaves
// fullest. It fails where a mechanism grants more than there is, or starves all.
func Run(jobs []Job, n int, spec Server, m Mechanism, seed uint64) ([]Done, error) {
	sim := &simulation{spec: spec, done: make([]Done, len(jobs))}
	for i := range n {
		sim.servers = append(sim.servers, &server{free: spec.GPUs, div: m.New(rand.New(rand.NewPCG(seed, uint64(i)))), endS: math.Inf(1), againS: math.Inf(1)})
	}
	for i, j := range jobs {
		if j.ID != i || j.GPUs < 1 || j.GPUs > spec.GPUs || !(j.WorkS > 0) || i > 0 && j.SubmitS < jobs[i-1].SubmitS {
			return nil, fmt.Errorf("job %d: %d GPUs, %g s of work, submitted at %g s: cannot be run", j.ID, j.GPUs, j.WorkS, j.SubmitS)
		}
	}
	arrived, started, finished := 0, 0, 0
	for events := 0; finished < len(jobs); events++ {
		if events > maxEvents*(len(jobs)+1) {
			return nil, fmt.Errorf("%s: no end after %d events", m.Name, events)
		}
		now, s := sim.next()
		if arrived < len(jobs) && jobs[arrived].SubmitS <= now {
			now, s = jobs[arrived].SubmitS, nil
			arrived++
		}
		if math.IsInf(now, 1) {
			return nil, fmt.Errorf("%s: %d of %d jobs never finish", m.Name, len(jobs)-finished, len(jobs))
		}
		if s != nil {
			n := sim.end(s, now)
			finished += n
			if n > 0 || s.againS <= now {
				if err := sim.divide(s, now, m.Name); err != nil {
					return nil, err
				}
			}
		}
		for started < arrived {
			s := sim.place(&jobs[started])
			if s == nil {
				break
			}
			sim.advance(s, now)
			sim.start(s, &jobs[started], started, now)
			started++
			if err := sim.divide(s, now, m.Name); err != nil {
				return nil, err
			}
		}
	}
	return sim.done, nil
}

// next is the earliest end or call of a strategy.
func (sim *simulation) next() (atS float64, s *server) {
	atS = math.Inf(1)
	for _, candidate := range sim.servers {
		if t := min(candidate.endS, candidate.againS); t < atS {
			atS, s = t, candidate
		}
	}
	return atS, s
}

// place is the server that a job leaves fullest, before all those on which a
// mechanism that has a say wants it; nil: none has room.
func (sim *simulation) place(j *Job) *server {
	var best *server
	bestFits := false
	for _, s := range sim.servers {
		if s.free < j.GPUs {
			continue
		}
		fits := false
		if f, ok := s.div.(fitter); ok {
			fits = f.Fits(sim.spec, s.jobs, j)
		}
		if best == nil || fits && !bestFits || fits == bestFits && s.free < best.free {
			best, bestFits = s, fits
		}
	}
	return best
}

func (sim *simulation) start(s *server, j *Job, at int, now float64) {
	s.free -= j.GPUs
	s.jobs = append(s.jobs, &Running{Job: j, StartS: now, LeftS: j.WorkS}) // started in order of submission, so sorted
	sim.done[at] = Done{SubmitS: j.SubmitS, StartS: now, WorkS: j.WorkS}
}

// advance does the work up to now.
func (sim *simulation) advance(s *server, now float64) {
	dt := now - s.atS
	for _, r := range s.jobs {
		r.LeftS -= r.rate * dt
		r.doneS += r.rate * dt
	}
	s.atS = now
}

// end lets go of the jobs that are done.
func (sim *simulation) end(s *server, now float64) (n int) {
	sim.advance(s, now)
	left := s.jobs[:0]
	for _, r := range s.jobs {
		if r.LeftS > 1e-9*r.WorkS {
			left = append(left, r)
			continue
		}
		n++
		s.free += r.GPUs
		d := &sim.done[r.ID]
		d.FinishS, d.DoneS = now, r.doneS
	}
	clear(s.jobs[len(left):])
	s.jobs = left
	return n
}

// divide asks the mechanism, and holds it to what there is.
func (sim *simulation) divide(s *server, now float64, name string) error {
	s.endS, s.againS = math.Inf(1), math.Inf(1)
	if again := s.div.Divide(now, sim.spec, s.jobs); again > now {
		s.againS = again
	}
	var cpus, memory float64
	for _, r := range s.jobs {
		if r.Have < 0 || r.MemoryGB < 0 {
			return fmt.Errorf("%s grants job %d less than nothing", name, r.ID)
		}
		cpus, memory = cpus+r.Have, memory+r.MemoryGB
		if r.rate = r.on(r.Have, r.MemoryGB); r.rate > 0 {
			s.endS = min(s.endS, now+r.LeftS/r.rate)
		}
	}
	if cpus > sim.spec.CPUs*(1+1e-9) || memory > sim.spec.MemoryGB*(1+1e-9) {
		return fmt.Errorf("%s grants %.2f CPUs and %.1f GB of %.0f and %.0f", name, cpus, memory, sim.spec.CPUs, sim.spec.MemoryGB)
	}
	return nil
}
