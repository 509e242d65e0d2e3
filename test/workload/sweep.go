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

// Knee is the smallest quota that gives KneeShare of the best rate among the
// points, interpolated between the points around it, and that best rate. A
// point without quota counts towards the best only. ok is false if no point
// with a quota reaches the share, or the smallest one already does: then the
// knee lies outside what was swept, and cpus is the nearest bound.
func Knee(points []Point) (cpus, best float64, ok bool) {
	var quotas []Point
	for _, p := range points {
		best = max(best, p.Rate)
		if p.CPUs > 0 {
			quotas = append(quotas, p)
		}
	}
	slices.SortFunc(quotas, func(a, b Point) int { return cmp.Compare(a.CPUs, b.CPUs) })
	if len(quotas) == 0 || best == 0 {
		return 0, best, false
	}
	enough := KneeShare * best
	for i, p := range quotas {
		if p.Rate < enough {
			continue
		}
		if i == 0 {
			return p.CPUs, best, false
		}
		low := quotas[i-1]
		return low.CPUs + (p.CPUs-low.CPUs)*(enough-low.Rate)/(p.Rate-low.Rate), best, true
	}
	return quotas[len(quotas)-1].CPUs, best, false
}
