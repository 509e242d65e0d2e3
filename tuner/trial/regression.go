package trial

import (
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// The model of a trial's readings. On the logarithmic scale, where ratios are differences,
//
//	y(t) = level + slope·t + effect·with(t) + noise(t)
//
// with(t) is 1 while the change stands. The noise of neighbouring readings is correlated
// (AR(1)), and each side has its own variance (Welch). The slope is the job's own course; it
// is held near zero by a prior of TrialDrift. With one switch slope and effect can hardly be
// told apart, and the bounds say so; each further switch tells them apart.
//
// The trap: readings of one second resemble each other, so that n of them tell as much as
// n/9 independent ones at a correlation of 0.8. A plain t-test would call noise a gain.

// point is one reading on the logarithmic scale.
type point struct {
	atNs   float64 // its middle
	logged float64
	with   bool
}

// effect is the estimate of a trial's effect, on the logarithmic scale.
type effect struct {
	mean, sd float64
	dof      float64
	phi      float64 // correlation of readings one spacing apart
}

// rhoSteps is the grid over which the correlation is averaged, maxRho its end.
const (
	rhoSteps = 20
	maxRho   = 0.97
)

// estimate fits the model. The correlation is averaged over its posterior.
func estimate(k *policies.Constants, pts []point) effect {
	spacing := spacingOf(pts)
	prior := min(math.Pow(k.TrialCorrelation, spacing/1e9), maxRho)
	var fits [rhoSteps]effect
	var weight [rhoSteps]float64
	best := math.Inf(-1)
	for i := range fits {
		phi := maxRho * (float64(i) + 0.5) / rhoSteps
		var likelihood float64
		fits[i], likelihood = fitAt(k, pts, spacing, phi)
		// A beta prior, worth four readings.
		weight[i] = likelihood + 4*(prior*math.Log(phi)+(1-prior)*math.Log(1-phi))
		best = max(best, weight[i])
	}
	var out effect
	var sum, second float64
	for i, f := range fits {
		w := math.Exp(weight[i] - best)
		sum += w
		out.mean += w * f.mean
		out.phi += w * f.phi
		second += w * (f.sd*f.sd + f.mean*f.mean)
		out.dof = f.dof
	}
	out.mean, out.phi = out.mean/sum, out.phi/sum
	out.sd = math.Sqrt(max(second/sum-out.mean*out.mean, 0))
	return out
}

func spacingOf(pts []point) float64 {
	var gaps []float64
	for i := 1; i < len(pts); i++ {
		gaps = append(gaps, pts[i].atNs-pts[i-1].atNs)
	}
	return max(observe.Median(gaps), 1)
}

// design is one whitened row: level, slope, effect, and what was read.
type design struct {
	x [3]float64
	y float64
}

// fitAt fits the model at one correlation, and returns the likelihood of it, up to a constant.
func fitAt(k *policies.Constants, pts []point, spacing, phi float64) (effect, float64) {
	sigma := [2]float64{1, 1}
	var solved solution
	for range 3 { // variances and coefficients in turn
		rows, _ := whiten(pts, spacing, phi, sigma)
		solved = solve(rows, driftPrecision(k))
		sigma = variances(k, pts, spacing, phi, solved)
	}
	rows, logScale := whiten(pts, spacing, phi, sigma)
	solved = solve(rows, driftPrecision(k))
	n := len(pts)
	out := effect{mean: solved.beta[2], sd: math.Sqrt(max(solved.cov[2][2], 0)), dof: welch(pts), phi: phi}
	likelihood := -0.5*solved.rss - logScale - 0.5*math.Log(max(solved.det, 1e-300))
	if n < 4 {
		out.sd = math.Inf(1)
	}
	return out, likelihood
}

// driftPrecision is the prior's weight on the slope, per (log/ns)².
func driftPrecision(k *policies.Constants) float64 {
	perNs := k.TrialDrift / 1e9
	return 1 / (perNs * perNs)
}

// whiten makes rows whose errors are independent and of variance one.
func whiten(pts []point, spacing, phi float64, sigma [2]float64) (rows []design, logScale float64) {
	origin := pts[0].atNs
	row := func(p point) design {
		d := design{x: [3]float64{1, p.atNs - origin, 0}, y: p.logged}
		if p.with {
			d.x[2] = 1
		}
		return d
	}
	side := func(p point) float64 {
		if p.with {
			return sigma[1]
		}
		return sigma[0]
	}
	for i, p := range pts {
		d, s := row(p), side(p)
		for c := range d.x {
			d.x[c] /= s
		}
		d.y /= s
		logScale += math.Log(s)
		if i > 0 {
			r := math.Pow(phi, max(p.atNs-pts[i-1].atNs, 0)/spacing)
			before := row(pts[i-1])
			scale, s := math.Sqrt(1-r*r), side(pts[i-1])
			for c := range d.x {
				d.x[c] = (d.x[c] - r*before.x[c]/s) / scale
			}
			d.y = (d.y - r*before.y/s) / scale
			logScale += math.Log(scale)
		}
		rows = append(rows, d)
	}
	return rows, logScale
}

// solution is a generalised least squares fit.
type solution struct {
	beta [3]float64
	cov  [3][3]float64
	rss  float64
	det  float64
}

// solve fits rows with a prior precision on the slope.
func solve(rows []design, slopePrecision float64) solution {
	var a [3][3]float64
	var b [3]float64
	for _, r := range rows {
		for i := range 3 {
			b[i] += r.x[i] * r.y
			for j := range 3 {
				a[i][j] += r.x[i] * r.x[j]
			}
		}
	}
	a[1][1] += slopePrecision
	var s solution
	s.cov, s.det = inverse(a)
	for i := range 3 {
		for j := range 3 {
			s.beta[i] += s.cov[i][j] * b[j]
		}
	}
	for _, r := range rows {
		e := r.y
		for i := range 3 {
			e -= r.x[i] * s.beta[i]
		}
		s.rss += e * e
	}
	return s
}

// inverse of a symmetric 3×3 matrix, scaled so that times in ns do not spoil it.
func inverse(a [3][3]float64) (out [3][3]float64, det float64) {
	var d [3]float64
	for i := range 3 {
		d[i] = 1 / math.Sqrt(max(a[i][i], 1e-300))
	}
	var m [3][3]float64
	for i := range 3 {
		for j := range 3 {
			m[i][j] = a[i][j] * d[i] * d[j]
		}
		m[i][i] += 1e-9
	}
	minor := func(i, j int) float64 {
		i1, i2, j1, j2 := (i+1)%3, (i+2)%3, (j+1)%3, (j+2)%3
		return m[i1][j1]*m[i2][j2] - m[i1][j2]*m[i2][j1]
	}
	scaled := m[0][0]*minor(0, 0) + m[0][1]*minor(0, 1) + m[0][2]*minor(0, 2)
	scaled = max(scaled, 1e-18)
	for i := range 3 {
		for j := range 3 {
			out[i][j] = minor(j, i) / scaled * d[i] * d[j]
		}
	}
	return out, scaled / (d[0] * d[0] * d[1] * d[1] * d[2] * d[2])
}

// variances are each side's own, drawn lightly toward what a calm rate has. A side of few
// readings is not taken to be calmer than the other: three that agree prove nothing.
func variances(k *policies.Constants, pts []point, spacing, phi float64, s solution) (sigma [2]float64) {
	var rss, n [2]float64
	origin := pts[0].atNs
	residual := func(p point) float64 {
		e := p.logged - s.beta[0] - s.beta[1]*(p.atNs-origin)
		if p.with {
			e -= s.beta[2]
		}
		return e
	}
	for i, p := range pts {
		e, side := residual(p), 0
		if p.with {
			side = 1
		}
		if i > 0 && pts[i-1].with == p.with {
			r := math.Pow(phi, max(p.atNs-pts[i-1].atNs, 0)/spacing)
			e = (e - r*residual(pts[i-1])) / math.Sqrt(1-r*r)
		}
		rss[side] += e * e
		n[side]++
	}
	calm := k.TrialCalm * k.TrialCalm
	all := (rss[0] + rss[1]) / max(n[0]+n[1]-2, 1)
	for side := range sigma {
		// Four readings' worth of both sides together where it has few itself.
		few := max(0, 8-n[side])
		sigma[side] = math.Sqrt(max((rss[side]+few*all+calm)/max(n[side]+few-1, 1), calm))
	}
	return sigma
}

// welch is the degrees of freedom that the bounds rest on: those of the side that tells less.
func welch(pts []point) float64 {
	var n [2]float64
	for _, p := range pts {
		if p.with {
			n[1]++
		} else {
			n[0]++
		}
	}
	return max(min(n[0], n[1])-1, 1)
}
