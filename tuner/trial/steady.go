package trial

import "math"

// What counts as steady.
const (
	steadyMinWindows = 3
	steadyMaxGapNs   = 10 * secondNs // SIGNALS.md, steady state: gaps > 10 s dropped
	// steadyMaxDrift is the most that the rate's trend may change over all windows. At
	// the measured noise (CV 2 %, lag-1 0.8) chance exceeds it in less than 1 % of cases.
	steadyMaxDrift = 0.10
	// steadyMaxCV is ten times the measured CV: beyond it no useful bound can be had.
	steadyMaxCV = 0.20
)

// Steady reports whether windows can serve as one side of a trial: at least
// three, a rate in all but accidents, no gap above 10 s, no trend, no wild spread.
func Steady(obs []Obs) bool {
	obs = usable(obs)
	reference := median(rates(obs))
	if len(obs) < steadyMinWindows || reference <= 0 {
		return false
	}
	for i := 1; i < len(obs); i++ {
		if obs[i].StartNs-obs[i-1].EndNs > steadyMaxGapNs {
			return false
		}
	}
	pts := dropOutliers(points(obs, reference), steadyMaxDrift/outlierSigmas)
	slope, deviation := trend(pts)
	span := pts[len(pts)-1].midNs - pts[0].midNs
	return math.Abs(slope*span) <= steadyMaxDrift && deviation <= steadyMaxCV
}

// trend fits a line: slope in log rate per ns, and the deviation around it.
func trend(pts []point) (slope, deviation float64) {
	n := float64(len(pts))
	m := mean(logs(pts))
	var at, tt, ty, yy float64
	for _, p := range pts {
		at += p.midNs / n
	}
	for _, p := range pts {
		t, y := p.midNs-at, p.logged-m
		tt += t * t
		ty += t * y
		yy += y * y
	}
	if tt <= 0 {
		return 0, math.Sqrt(yy / max(n-1, 1))
	}
	slope = ty / tt
	return slope, math.Sqrt(max(yy-slope*ty, 0) / max(n-2, 1))
}
