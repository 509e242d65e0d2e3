package workload

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// KneeShare is the share of the best rate that counts as all of it. The rate
// of a step is noisy by about 2 % from one window to the next.
const KneeShare = 0.98

// Point is the rate at one static quota.
type Point struct {
	CPUs float64 // the quota; 0: none
	Rate float64 // steps/s, as the job printed them
	N    int     // steps it rests on
	// UsedCPUs is the CPU that the container used, as its cgroup counts it; 0 if it was not read.
	UsedCPUs float64
}

// SweepOptions say what to try and for how long.
type SweepOptions struct {
	CPUs    []float64     // quotas, in this order; 0 is no quota
	Settle  time.Duration // after each change: longer than the prefetch that hides it
	Measure time.Duration
	// Usage reads the container's CPU time; nil leaves UsedCPUs at 0.
	Usage func() (time.Duration, error)
	// Each is called with every point as it comes; nil is allowed.
	Each func(Point)
}

// Sweep sets one quota after the other on a running job and measures the rate
// at each. It leaves the job without a quota.
func (j *Job) Sweep(ctx context.Context, o SweepOptions) (points []Point, err error) {
	defer func() {
		if errFree := j.SetQuota(context.WithoutCancel(ctx), 0); err == nil {
			err = errFree
		}
	}()
	for _, cpus := range o.CPUs {
		if err := j.SetQuota(ctx, cpus); err != nil {
			return points, fmt.Errorf("sweep of %s at %.2f CPUs: %w", j.Name, cpus, err)
		}
		if _, _, err := j.RateFor(ctx, o.Settle); err != nil {
			return points, err
		}
		p, err := j.measure(ctx, cpus, o)
		if err != nil {
			return points, err
		}
		points = append(points, p)
		if o.Each != nil {
			o.Each(p)
		}
	}
	return points, nil
}

func (j *Job) measure(ctx context.Context, cpus float64, o SweepOptions) (Point, error) {
	p := Point{CPUs: cpus}
	usage := func() (used, at time.Duration, err error) {
		if o.Usage != nil {
			used, err = o.Usage()
		}
		return used, Now(), err
	}
	before, from, err := usage()
	if err != nil {
		return p, err
	}
	if p.Rate, p.N, err = j.RateFor(ctx, o.Measure); err != nil {
		return p, err
	}
	after, to, err := usage()
	if err != nil {
		return p, err
	}
	p.UsedCPUs = (after - before).Seconds() / (to - from).Seconds()
	return p, nil
}

// Knee is the smallest quota that gives KneeShare of the best rate,
// interpolated between the points around it, and that best rate. More CPU never
// slows a job, so the rates are first fitted to a rising curve: the best is
// then a mean over the plateau, not its luckiest point, which would put the
// knee too high. A point without quota is the curve's end. ok is false if no
// quota reaches the share, or the smallest one already does: then the knee lies
// outside what was swept, and cpus is the nearest bound.
func Knee(points []Point) (cpus, best float64, ok bool) {
	curve := rising(points)
	if len(curve) == 0 {
		return 0, 0, false
	}
	best = curve[len(curve)-1].Rate
	enough := KneeShare * best
	nearest := 0.0
	for i, p := range curve {
		if p.CPUs == 0 || best == 0 {
			break
		}
		nearest = p.CPUs
		if p.Rate < enough {
			continue
		}
		if i == 0 {
			return p.CPUs, best, false
		}
		low := curve[i-1]
		return low.CPUs + (p.CPUs-low.CPUs)*(enough-low.Rate)/(p.Rate-low.Rate), best, true
	}
	return nearest, best, false
}

// rising sorts the points by quota, no quota last, and fits their rates to a
// curve that never falls, by pooling neighbours that do (isotonic regression,
// all points weighing the same: they were measured for the same time).
func rising(points []Point) []Point {
	curve := slices.Clone(points)
	slices.SortStableFunc(curve, func(a, b Point) int {
		if (a.CPUs == 0) != (b.CPUs == 0) {
			return cmp.Compare(b.CPUs, a.CPUs) // 0 is no quota: last
		}
		return cmp.Compare(a.CPUs, b.CPUs)
	})
	type pool struct {
		sum float64
		n   int
	}
	mean := func(p pool) float64 { return p.sum / float64(p.n) }
	var pools []pool
	for _, p := range curve {
		pools = append(pools, pool{p.Rate, 1})
		for k := len(pools) - 1; k > 0 && mean(pools[k-1]) > mean(pools[k]); k-- {
			pools[k-1] = pool{pools[k-1].sum + pools[k].sum, pools[k-1].n + pools[k].n}
			pools = pools[:k]
		}
	}
	i := 0
	for _, p := range pools {
		for range p.n {
			curve[i].Rate = mean(p)
			i++
		}
	}
	return curve
}
