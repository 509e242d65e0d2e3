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
func Steady(obs []Obs) bool { return steady(obs, steadyMaxCV) }

func steady(obs []Obs, maxCV float64) bool {
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
	return math.Abs(slope*span) <= steadyMaxDrift && deviation <= maxCV
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

// Stretches over which the rate of a job that is busy by turns may be steady, where it is
// not from window to window. Longer ones would make a trial longer than it may take.
const (
	shortestTurnNs = 2 * secondNs
	// LongestTurnNs is the longest stretch that Turn tries.
	LongestTurnNs = 8 * secondNs
	// turnMaxCV is half of what windows may differ: whole turns differ by noise alone.
	turnMaxCV = steadyMaxCV / 2
)

// Turn is the shortest stretch over which windows, joined, are steady; ok is false where
// they are not over any. A job that works by turns is compared over whole ones, or nearly:
// within one its rate is what it happens to do.
func Turn(obs []Obs) (ns int64, ok bool) {
	for ns = shortestTurnNs; ns <= LongestTurnNs; ns += secondNs {
		if steady(Joined(obs, ns), turnMaxCV) {
			return ns, true
		}
	}
	return 0, false
}

// Joined makes windows of so long, to half of one of those that follow one another and make
// them; what is left at the end, and what a gap cuts off, is none. Without a length it changes
// nothing.
func Joined(obs []Obs, ns int64) []Obs {
	if ns <= 0 {
		return obs
	}
	var out []Obs
	var ticks, observed float64
	var from, end int64
	for _, o := range usable(obs) {
		if observed > 0 && o.StartNs-end > ns/2 { // a pause lies between
			ticks, observed = 0, 0
		}
		if end = o.EndNs; observed == 0 {
			from = o.StartNs
		}
		d := float64(o.EndNs - o.StartNs)
		ticks, observed = ticks+o.Rate*d, observed+d
		if observed >= float64(ns)-d/2 {
			out = append(out, Obs{StartNs: from, EndNs: o.EndNs, Rate: ticks / observed})
			ticks, observed = 0, 0
		}
	}
	return out
}
