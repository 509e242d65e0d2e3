package core

import (
	"math"

	"github.com/trimtab/trimtab/tuner/trial"
)

// shownObs is how many observations the rate is the mean of.
const shownObs = 5

// rateNow is the mean of the latest observations: what plans and trials begin from.
func (j *job) rateNow() float64 { return meanRate(last(j.obs, shownObs)) }

// newPace is how far, as a share, observations must lie from the latest two to be of
// another pace. Steps of uneven length differ by a third now and then [measured, on the
// recordings of test/accuracy]; a job that turns to another bottleneck by more.
const newPace = 0.5

// rateShown is rateNow, but of the present pace alone once two observations tell it:
// where those agree and what came before lies wholly on one side of them, the mean
// would hold for several observations more what is over.
func (j *job) rateShown() float64 {
	obs := last(j.obs, shownObs)
	if len(obs) <= 2 {
		return meanRate(obs)
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
		return meanRate(obs) // the latest two differ: no pace yet
	}
	for _, o := range obs[:from] {
		if s := side(o); s == 0 || s != side(obs[0]) {
			return meanRate(obs) // to and fro: noise
		}
	}
	return meanRate(obs[from:])
}
