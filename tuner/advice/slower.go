package advice

import "github.com/trimtab/trimtab/tuner/state"

// jobSlower names what differs from the last runs of the same job, where it is slower than they were.
// What that costs is counted; the bounds are those between which a run was expected. No line undoes it: a
// driver or a neighbour is not this container's.
func (n node) jobSlower(c state.Container) (a Advice, ok bool) {
	r := c.LastRuns
	if r == nil || !(r.Slower > 0 && r.Slower < 1) || !(r.Low > 0) || !(r.PerSecond > 0) {
		return a, false
	}
	lost := func(usual float64) float64 { return min(max(0, 1-(1-r.Slower)*r.PerSecond/usual), 1) }
	return Advice{What: JobSlower, Text: r.SlowerWhy, Current: Setting{Text: "slower"}, Advised: Setting{Text: "as its last runs were"},
		Gives: gives(OfRunTime, 1, lost(r.Low), r.Slower, max(lost(r.High), r.Slower)), Confidence: countedSure,
		Evidence: []Number{number("usual rate", r.PerSecond, "/s", "its last runs on this host"), number("runs", float64(r.Runs), "", "the same")}}, true
}
