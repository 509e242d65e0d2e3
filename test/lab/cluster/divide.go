package cluster

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/trimtab/trimtab/policies"
)

// static makes a mechanism of a function of the jobs alone.
func static(name string, knows bool, d Strategy) Mechanism {
	return Mechanism{Name: name, Knows: knows, New: func(*rand.Rand) Strategy { return d }}
}

// Rivals are the ways to compare with. Proportional comes first: all others are
// reported against it.
func Rivals() []Mechanism {
	return []Mechanism{
		static("proportional", false, proportional{}),
		static("no limits", false, free{}),
		static("optimus-like", true, optimus{}),
		static("synergy-tune", true, synergy{}),
		static("synergy, unplaced", true, unplaced{}),
	}
}

// proportional gives each GPU its share of the server, used or not.
type proportional struct{}

func (proportional) Divide(_ float64, s Server, jobs []*Running) float64 {
	for _, r := range jobs {
		r.Have, r.MemoryGB = s.share(r.GPUs)
	}
	return 0
}

// free is a server without quotas, all weights equal: the kernel shares CPUs among
// those that want them. Memory stays proportional: page caches do not share it by any rule.
type free struct{}

func (free) Divide(_ float64, s Server, jobs []*Running) float64 {
	claims := make([]policies.Claim, len(jobs))
	for i, r := range jobs {
		_, r.MemoryGB = s.share(r.GPUs)
		claims[i] = policies.Claim{Weight: 1, Demand: r.want(r.MemoryGB)}
	}
	for i, cpus := range policies.Shares(s.CPUs, claims) {
		jobs[i].Have = cpus
	}
	return 0
}

// want is the CPUs that a job would use if nothing held it.
func (j *Job) want(memoryGB float64) float64 {
	n := float64(j.GPUs)
	return n * j.Curve.Knee(memoryGB/n)
}

// optimus is a rule like Optimus's: each job begins with the least the table has,
// then the next step goes where it shortens the predicted remaining time most for its share of
// the server, until no step that fits shortens any.
type optimus struct{}

// optimusEveryS: remaining times change while nobody comes or goes.
const optimusEveryS = 600

func (optimus) Divide(now float64, s Server, jobs []*Running) float64 {
	cpus, memory := s.CPUs, s.MemoryGB
	for _, r := range jobs {
		n := float64(r.GPUs)
		r.Have, r.MemoryGB = n*r.Curve.CPUs[0], n*r.Curve.MemoryGB[0]
		cpus, memory = cpus-r.Have, memory-r.MemoryGB
	}
	for {
		var best *Running
		var bestGain, dc, dm float64
		consider := func(r *Running, toCPUs, toMemory float64) {
			c, m := toCPUs-r.Have, toMemory-r.MemoryGB
			share := max(c/s.CPUs, m/s.MemoryGB)
			if share <= 0 || c > cpus+1e-9 || m > memory+1e-9 {
				return
			}
			gain := (r.LeftS/r.on(r.Have, r.MemoryGB) - r.LeftS/r.on(toCPUs, toMemory)) / share
			if gain > bestGain*(1+1e-12) {
				best, bestGain, dc, dm = r, gain, c, m
			}
		}
		for _, r := range jobs {
			n := float64(r.GPUs)
			consider(r, n*above(r.Curve.CPUs, r.Have/n), r.MemoryGB)
			consider(r, r.Have, n*above(r.Curve.MemoryGB, r.MemoryGB/n))
		}
		if best == nil {
			return now + optimusEveryS
		}
		best.Have, best.MemoryGB = best.Have+dc, best.MemoryGB+dm
		cpus, memory = cpus-dc, memory-dm
	}
}

// above is the next point of a table; the last one itself.
func above(points []float64, v float64) float64 {
	for _, p := range points {
		if p > v+1e-9 {
			return p
		}
	}
	return points[len(points)-1]
}

// synergy is Synergy's tuning on one server: a job that wants less than its
// proportional share gives the rest; one that wants more gets its best case if the
// rest holds it, the largest first, and its proportional share otherwise. Jobs do
// not move between servers, as they do there each round.
type synergy struct{}

func (y synergy) Divide(_ float64, s Server, jobs []*Running) float64 {
	y.divide(s, jobs)
	return 0
}

// unplaced is synergy without its say in where a job goes, which no daemon of one node
// has either.
type unplaced struct{}

func (unplaced) Divide(now float64, s Server, jobs []*Running) float64 {
	return synergy{}.Divide(now, s, jobs)
}

// divide returns how many jobs have their best case.
func (synergy) divide(s Server, jobs []*Running) (best int) {
	cpus, memory := s.CPUs, s.MemoryGB
	for _, r := range jobs {
		shareCPUs, shareMemory := s.share(r.GPUs)
		wantCPUs, wantMemory := r.bestCase()
		r.Have, r.MemoryGB = min(wantCPUs, shareCPUs), min(wantMemory, shareMemory)
		cpus, memory = cpus-r.Have, memory-r.MemoryGB
	}
	largest := slices.Clone(jobs)
	slices.SortStableFunc(largest, func(a, b *Running) int {
		ac, am := a.bestCase()
		bc, bm := b.bestCase()
		return cmp.Or(-cmp.Compare(a.GPUs, b.GPUs), -cmp.Compare(ac, bc), -cmp.Compare(am, bm))
	})
	for _, r := range largest {
		wantCPUs, wantMemory := r.bestCase()
		dc, dm := wantCPUs-r.Have, wantMemory-r.MemoryGB
		if dc > cpus+1e-9 || dm > memory+1e-9 {
			continue
		}
		r.Have, r.MemoryGB = wantCPUs, wantMemory
		cpus, memory = cpus-dc, memory-dm
		best++
	}
	return best
}

func (j *Job) bestCase() (cpus, memoryGB float64) {
	cpus, memoryGB = j.Curve.BestCase()
	return cpus * float64(j.GPUs), memoryGB * float64(j.GPUs)
}

// Fits reports whether a job gets its best case there and takes nobody's.
func (y synergy) Fits(s Server, jobs []*Running, j *Job) bool {
	var with []*Running
	for _, r := range jobs {
		with = append(with, &Running{Job: r.Job})
	}
	before := y.divide(s, with)
	return y.divide(s, append(with, &Running{Job: j})) > before
}
