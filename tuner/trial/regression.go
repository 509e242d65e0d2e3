package trial

import (
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack/lapack64"
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

// fitAt fits the model at one correlation, and returns the likelihood of it, up to a constant.
func fitAt(k *policies.Constants, pts []point, spacing, phi float64) (effect, float64) {
	sigma := [2]float64{1, 1}
	for range 3 { // variances and coefficients in turn
		rows, _ := whiten(pts, spacing, phi, sigma)
		sigma = variances(k, pts, spacing, phi, solve(k, rows).beta)
	}
	rows, logScale := whiten(pts, spacing, phi, sigma)
	solved := solve(k, rows)
	out := effect{mean: solved.beta[2], sd: math.Sqrt(solved.variance), dof: welch(pts), phi: phi}
	return out, -0.5*solved.rss - logScale - 0.5*solved.logDet
}

// side is 1 with the change, 0 without it.
func (p point) side() int {
	if p.with {
		return 1
	}
	return 0
}

// columns of a row: level, slope per second, effect, and what was read.
const columns = 4

func (p point) row(origin float64) [columns]float64 {
	return [columns]float64{1, (p.atNs - origin) / 1e9, float64(p.side()), p.logged}
}

// carried is how much of a reading's noise is left in the next.
func carried(pts []point, i int, spacing, phi float64) float64 {
	return math.Pow(phi, max(pts[i].atNs-pts[i-1].atNs, 0)/spacing)
}

// whiten makes rows whose errors are independent and of variance one.
func whiten(pts []point, spacing, phi float64, sigma [2]float64) (rows []float64, logScale float64) {
	rows = make([]float64, 0, len(pts)*columns)
	for i, p := range pts {
		d, scale := p.row(pts[0].atNs), sigma[p.side()]
		if i > 0 {
			r, last := carried(pts, i, spacing, phi), pts[i-1]
			for c, before := range last.row(pts[0].atNs) {
				d[c] -= r * before * scale / sigma[last.side()]
			}
			scale *= math.Sqrt(1 - r*r)
		}
		floats.Scale(1/scale, d[:])
		logScale += math.Log(scale)
		rows = append(rows, d[:]...)
	}
	return rows, logScale
}

// solution is a generalised least squares fit; variance is the effect's.
type solution struct {
	beta                  [columns - 1]float64
	variance, rss, logDet float64
}

// solve fits rows with a prior on the slope.
func solve(k *policies.Constants, rows []float64) (s solution) {
	const n = columns - 1
	x := blas64.General{Rows: len(rows) / columns, Cols: n, Stride: columns, Data: rows}
	y := blas64.Vector{N: x.Rows, Inc: columns, Data: rows[n:]}
	gram := blas64.Symmetric{N: n, Stride: n, Data: make([]float64, n*n), Uplo: blas.Upper}
	blas64.Syrk(blas.Trans, 1, x, 0, gram)
	gram.Data[n+1] += 1 / (k.TrialDrift * k.TrialDrift)
	root, ok := lapack64.Potrf(gram)
	if !ok { // two readings at one instant: nothing is told
		return solution{variance: math.Inf(1)}
	}
	solved := blas64.General{Rows: n, Cols: 2, Stride: 2, Data: []float64{0, 0, 0, 0, 0, 1}} // the coefficients, and the effect's variance
	beta := blas64.Vector{N: n, Inc: 2, Data: solved.Data}
	blas64.Gemv(blas.Trans, 1, x, y, 0, beta)
	lapack64.Potrs(root, solved)
	blas64.Copy(beta, blas64.Vector{N: n, Inc: 1, Data: s.beta[:]})
	for i := range n {
		s.logDet += 2 * math.Log(root.Data[i*n+i])
	}
	blas64.Gemv(blas.NoTrans, -1, x, beta, 1, y) // what is left of each
	s.variance, s.rss = solved.Data[2*n-1], blas64.Dot(y, y)
	return s
}

// variances are each side's own, drawn lightly toward what a calm rate has. A side of few
// readings is not taken to be calmer than the other: three that agree prove nothing.
func variances(k *policies.Constants, pts []point, spacing, phi float64, beta [columns - 1]float64) (sigma [2]float64) {
	var rss, n [2]float64
	residual := func(p point) float64 {
		d := p.row(pts[0].atNs)
		return d[columns-1] - floats.Dot(beta[:], d[:columns-1])
	}
	for i, p := range pts {
		e := residual(p)
		if i > 0 && pts[i-1].with == p.with {
			r := carried(pts, i, spacing, phi)
			e = (e - r*residual(pts[i-1])) / math.Sqrt(1-r*r)
		}
		rss[p.side()] += e * e
		n[p.side()]++
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
		n[p.side()]++
	}
	return max(min(n[0], n[1])-1, 1)
}
