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
	if n.spacingNs <= 0 || gap <= 0 {
		return n.phi
	}
	return math.Pow(n.phi, gap/n.spacingNs)
}

// rhoPriorWindows weighs the prior correlation as so many windows would. The
// lag-1 estimate of n windows has a standard deviation of sqrt((1-ρ²)/n), 0.13 at n = 20.
const rhoPriorWindows = 20

// estimateNoise estimates the correlation from all phases together, corrected
// for its bias in short series (Kendall: -(1+4ρ)/n for each phase) and shrunk
// toward the prior.
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
	r, pairs, windows := lagOne(n.spacingNs, phases)
	bias := float64(len(phases)) / float64(max(windows, 1))
	if 4*bias >= 0.5 { // the correction would be larger than what it corrects
		n.phi = prior
		return n
	}
	corrected := min(max((r+bias)/(1-4*bias), 0), maxRho)
	w := float64(pairs) / float64(pairs+rhoPriorWindows)
	n.phi = w*corrected + (1-w)*prior
	return n
}

// lagOne returns the pooled lag-1 autocorrelation around each phase's mean,
// from pairs that are neighbours in time.
func lagOne(spacingNs float64, phases [][]point) (r float64, pairs, windows int) {
	var cross, square float64
	for _, ph := range phases {
		if len(ph) == 0 {
			continue
		}
		m := mean(logs(ph))
		for i, pt := range ph {
			e := pt.logged - m
			square += e * e
			if i > 0 && pt.midNs-ph[i-1].midNs <= 1.5*spacingNs {
				cross += e * (ph[i-1].logged - m)
				pairs++
			}
		}
		windows += len(ph)
	}
	if square <= 0 || pairs == 0 {
		return 0, 0, windows
	}
	return cross / square * float64(windows) / float64(pairs), pairs, windows
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
	var cz, cc, mid float64
	c := make([]float64, len(ph))
	z := make([]float64, len(ph))
	for i, pt := range ph {
		c[i], z[i] = 1, pt.logged
		if i > 0 {
			phi := n.between(ph[i-1], pt)
			scale := math.Sqrt(1 - phi*phi)
			c[i], z[i] = (1-phi)/scale, (pt.logged-phi*ph[i-1].logged)/scale
		}
		cz += c[i] * z[i]
		cc += c[i] * c[i]
		mid += pt.midNs / float64(len(ph))
	}
	l := level{mean: cz / cc, effN: cc, dof: float64(len(ph) - 1), mid: mid}
	for i := range ph {
		e := z[i] - c[i]*l.mean
		l.rss += e * e
	}
	return l
}
