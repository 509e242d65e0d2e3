package core

import (
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/trial"
)

const (
	// shownObs is how many observations the rate is the mean of.
	shownObs = 5
	// shownLeast is from how many on it is told by observations, not by one window.
	shownLeast = 3
)

// rateNow is the mean of the latest observations: what plans and trials begin from.
func (j *job) rateNow() float64 { return meanRate(last(j.obs, shownObs)) }

// ofNow puts it in the place of a single window's rate; pauses may lie between, so it
// names no time.
func (j *job) ofNow(r policies.Rate) policies.Rate {
	r.PerSecond, r.FromNs, r.ToNs = j.rateNow(), 0, 0
	return r
}

// newPace is how far, as a share, observations must lie from the latest two to be of
// another pace. Steps of uneven length differ by a third now and then [measured, on the
// recordings of test/accuracy]; a job that turns to another bottleneck by more.
const newPace = 0.5

// shownEvents is what the observations since a pause must hold to be shown: of fewer, one
// more or less at the ends is too much.
const shownEvents = 10

// shown are the observations of which people see the mean: those that follow one upon the
// other, up to the latest, or up to the latest pause where hardly any came since; and of the
// present pace alone once two tell it. Where those agree and what came before lies wholly on
// one side of them, the mean would hold for several observations more what is over.
func (j *job) shown() []trial.Obs {
	obs := last(unbroken(j.pace), shownObs)
	if before := j.pace[:len(j.pace)-len(obs)]; len(obs) < shownLeast && events(obs) < shownEvents && len(before) > 0 {
		if earlier := last(unbroken(before), shownObs); events(earlier) > events(obs) {
			obs = earlier
		}
	}
	if len(obs) <= 2 {
		return obs
	}
	pace := meanRate(last(obs, 2))
	side := func(o trial.Obs) int {
		if math.Abs(o.Rate-pace) <= newPace*pace {
			return 0
		}
		return int(math.Copysign(1, o.Rate-pace))
	}
	from := len(obs)
	for from > 0 && side(obs[from-1]) == 0 {
		from--
	}
	if len(obs)-from < 2 {
		return obs // the latest two differ: no pace yet
	}
	for _, o := range obs[:from] {
		if s := side(o); s == 0 || s != side(obs[0]) {
			return obs // to and fro: noise
		}
	}
	return obs[from:]
}

// ofShown puts what people see of a rate in the place of a single window's.
func (j *job) ofShown(r policies.Rate) policies.Rate {
	obs := j.shown()
	r.PerSecond, r.Ticks = meanRate(obs), events(obs)
	r.FromNs, _ = obs[0].Span()
	_, r.ToNs = obs[len(obs)-1].Span()
	return r
}

// unbroken are the observations at the end of which each begins where the one before ended.
func unbroken(obs []trial.Obs) []trial.Obs {
	for i := len(obs) - 1; i > 0; i-- {
		if obs[i-1].EndNs != obs[i].StartNs {
			return obs[i:]
		}
	}
	return obs
}

// events is how many events the observations counted.
func events(obs []trial.Obs) (n float64) {
	for _, o := range obs {
		from, to := o.Span()
		n += o.Rate * float64(to-from) / 1e9
	}
	return n
}
