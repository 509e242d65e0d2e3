package trial

import (
	"cmp"
	"math"
	"slices"
)

// point is one window on the logarithmic scale, where ratios are differences.
type point struct {
	midNs  float64 // middle of the window
	logged float64 // log of the rate
}

// Bounds of the robust outlier rule.
const (
	outlierSigmas = 3.0 // SIGNALS.md, steady state: step outliers beyond 3 σ
	// outlierShare is the most that may be called outliers. More of them are how the job
	// runs: dropping them could hide stalls that the change itself brought.
	outlierShare = 0.10
	madToSigma   = 1.4826 // MAD of a normal distribution to its standard deviation
	// outlierMinWindows: below it a median absolute deviation says nothing.
	outlierMinWindows = 5
	// stalledShare of the reference stands in for a rate of zero, which has no logarithm.
	stalledShare = 0.01
	maxRho       = 0.97
)

// usable returns the windows with a readable rate, sorted by time.
func usable(obs []Obs) []Obs {
	out := make([]Obs, 0, len(obs))
	for _, o := range obs {
		if o.Rate >= 0 && !math.IsInf(o.Rate, 1) && o.EndNs > o.StartNs {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b Obs) int {
		return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.EndNs, b.EndNs), cmp.Compare(a.Rate, b.Rate))
	})
	return out
}

// points takes logarithms; a rate below stalledShare of reference counts as that.
func points(obs []Obs, reference float64) []point {
	out := make([]point, len(obs))
	for i, o := range obs {
		mid := float64(o.StartNs)/2 + float64(o.EndNs)/2
		out[i] = point{mid, math.Log(max(o.Rate, reference*stalledShare))}
	}
	return out
}

// dropOutliers removes points beyond 3 robust σ of the median, where they are
// few enough to be accidents.
func dropOutliers(pts []point, priorCV float64) []point {
	if len(pts) < outlierMinWindows {
		return pts
	}
	values := logs(pts)
	mid := median(values)
	for i, v := range values {
		values[i] = math.Abs(v - mid)
	}
	// Autocorrelation makes short stretches look calmer than they are, hence the floor.
	sigma := max(madToSigma*median(values), priorCV)
	kept := make([]point, 0, len(pts))
	for _, p := range pts {
		if math.Abs(p.logged-mid) <= outlierSigmas*sigma {
			kept = append(kept, p)
		}
	}
	if allowed := max(1, int(outlierShare*float64(len(pts)))); len(pts)-len(kept) > allowed {
		return pts
	}
	return kept
}

func logs(pts []point) []float64 {
	out := make([]float64, len(pts))
	for i, p := range pts {
		out[i] = p.logged
	}
	return out
}

func rates(obs []Obs) []float64 {
	out := make([]float64, len(obs))
	for i, o := range obs {
		out[i] = o.Rate
	}
	return out
}

// median returns the middle value, 0 for none; it leaves v as it is.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return s[n/2-1]/2 + s[n/2]/2
	}
	return s[len(s)/2]
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// noise describes how rates wander around their mean: an AR(1) process,
// sampled where the windows are.
type noise struct {
	spacingNs float64 // from one window to the next, the median
	phi       float64 // correlation across one spacing
}

// between returns the correlation of two neighbouring points.
func (n noise) between(a, b point) float64 {
	gap := b.midNs - a.midNs
	if n.spacingNs <= 0 || gap <= 0 || gap == n.spacingNs {
		return n.phi
	}
	return math.Pow(n.phi, gap/n.spacingNs)
}

// rhoPriorWeight is how firmly the prior correlation is held, in the manner of a
// beta distribution with so many observations. Light, so that a rate that jumps
// to and fro (a starved job's few ticks in a window) is soon seen as such.
const rhoPriorWeight = 4.0

// rhoSteps is the grid over which the correlation is averaged.
const rhoSteps = 20

// calmVariance of a window, (0.01 %)², below which differences are rounding.
const calmVariance = 1e-8

// estimateNoise returns the posterior mean of the correlation: the restricted
// likelihood of all phases together, each around its own mean, times the prior.
// The mean is taken of Fisher's z, which weighs the high correlations more: they
// cost more to overlook.
func estimateNoise(p Params, phases ...[]point) noise {
	var gaps []float64
	for _, ph := range phases {
		for i := 1; i < len(ph); i++ {
			gaps = append(gaps, ph[i].midNs-ph[i-1].midNs)
		}
	}
	n := noise{spacingNs: median(gaps)}
	prior := p.PriorRho
	if n.spacingNs > 0 {
		prior = min(math.Pow(p.PriorRho, n.spacingNs/secondNs), maxRho)
	}
	weight := make([]float64, rhoSteps) // logarithmic
	best := math.Inf(-1)
	for i := range weight {
		n.phi = gridRho(i)
		weight[i] = n.likelihood(phases) + rhoPriorWeight*(prior*math.Log(n.phi)+(1-prior)*math.Log(1-n.phi))
		best = max(best, weight[i])
	}
	var sum, weights float64
	for i, l := range weight {
		w := math.Exp(l - best)
		sum += w * math.Atanh(gridRho(i))
		weights += w
	}
	n.phi = math.Tanh(sum / weights)
	return n
}

func gridRho(i int) float64 { return maxRho * (float64(i) + 0.5) / rhoSteps }

// likelihood is the restricted log likelihood of n's correlation, up to a constant.
func (n noise) likelihood(phases [][]point) float64 {
	var sum, rss, dof float64
	for _, ph := range phases {
		l := n.fit(ph)
		rss += l.rss
		dof += l.dof
		sum -= 0.5 * math.Log(l.effN)
		phi, logScale := 0.0, 0.0
		for i := 1; i < len(ph); i++ {
			if p := n.between(ph[i-1], ph[i]); p != phi {
				phi, logScale = p, 0.5*math.Log(1-p*p)
			}
			sum -= logScale
		}
	}
	return sum - 0.5*dof*math.Log(rss+dof*calmVariance)
}

// level is the mean of one phase, by generalised least squares.
type level struct {
	mean float64 // log rate
	effN float64 // independent windows that would tell as much
	rss  float64 // residual sum of squares, of the whitened residuals
	dof  float64
	mid  float64 // mean time, ns
}

// fit whitens a phase by its AR(1) correlation and takes the mean: residuals
// are then independent, so that Student's t applies.
func (n noise) fit(ph []point) level {
	origin := ph[0].logged // sums of squares stay small, and exact enough
	var cz, cc, zz, mid, phi float64
	scale := 1.0
	for i, pt := range ph {
		c, z := 1.0, pt.logged-origin
		if i > 0 {
			if p := n.between(ph[i-1], pt); p != phi {
				phi, scale = p, math.Sqrt(1-p*p)
			}
			c, z = (1-phi)/scale, (z-phi*(ph[i-1].logged-origin))/scale
		}
		cz += c * z
		cc += c * c
		zz += z * z
		mid += pt.midNs / float64(len(ph))
	}
	return level{mean: origin + cz/cc, effN: cc, rss: max(zz-cz*cz/cc, 0), dof: float64(len(ph) - 1), mid: mid}
}
