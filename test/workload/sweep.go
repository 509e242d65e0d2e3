package workload

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

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

// Knee is where a job's rate stops growing with its quota, and the rate there:
// the rates are fitted by least squares with a line through the origin that
// breaks into a plateau, which is what the model of a starved job says they are.
// A fit, because one lucky window decides any rule of the kind "98 % of the
// best", and windows of a few seconds differ by more than 2 %. Points without a
// quota lie on the plateau. ok is false if all quotas lie on one side of the
// break: it is then outside what was swept, and cpus is the nearest bound.
func Knee(points []Point) (cpus, best float64, ok bool) {
	curve := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.CPUs == 0 })
	slices.SortStableFunc(curve, func(a, b Point) int { return cmp.Compare(a.CPUs, b.CPUs) })
	free := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.CPUs != 0 })
	if len(curve) == 0 {
		_, best, _ = fit(nil, free)
		return 0, best, false
	}
	bestFit := math.Inf(1)
	for below := range len(curve) + 1 {
		slope, plateau, misfit := fit(curve[:below], append(slices.Clone(curve[below:]), free...))
		if misfit >= bestFit || plateau <= 0 {
			continue
		}
		bestFit, best = misfit, plateau
		switch {
		case below == 0:
			cpus, ok = curve[0].CPUs, false
		case below == len(curve):
			cpus, ok = curve[below-1].CPUs, false
		default:
			cpus, ok = plateau/slope, true
		}
	}
	return cpus, best, ok
}

// fit gives the line through the origin of the one part, the mean of the other,
// and the sum of the squares that they miss.
func fit(line, flat []Point) (slope, plateau, misfit float64) {
	var cr, cc float64
	for _, p := range line {
		cr += p.CPUs * p.Rate
		cc += p.CPUs * p.CPUs
	}
	if cc > 0 {
		slope = cr / cc
	}
	for _, p := range flat {
		plateau += p.Rate / float64(len(flat))
	}
	for _, p := range line {
		misfit += (p.Rate - slope*p.CPUs) * (p.Rate - slope*p.CPUs)
	}
	for _, p := range flat {
		misfit += (p.Rate - plateau) * (p.Rate - plateau)
	}
	return slope, plateau, misfit
}
