package advice

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/tuner/checkpoint"
	"github.com/trimtab/trimtab/tuner/state"
)

// interrupted is how often a job is taken to be interrupted, s: once a day. How often it really is no reading
// tells. With twice that the best interval is 1.4 times as long.
const interrupted = 24 * 3600

// checkpoints is how often it should write its state: each time costs it steps, and seldom costs what is
// repeated after an interruption.
func (n node) checkpoints(c state.Container) (a Advice, ok bool) {
	p := c.Pauses
	if !c.Watched || p.Cycles == 0 || !(p.EverySeconds > 0) {
		return a, false
	}
	best := roundSeconds(checkpoint.Best(p.LostSeconds, interrupted))
	saves := func(lost float64) float64 {
		return max(0, min(1, checkpoint.Cost(p.EverySeconds, lost, interrupted)-checkpoint.Cost(best, lost, interrupted)))
	}
	a = Advice{What: JobCheckpoints, Text: fmt.Sprintf("what it writes each time stops its steps; with one interruption a day, less often costs less (each %.0f s is right if there are a hundred)", roundSeconds(checkpoint.Best(p.LostSeconds, interrupted/100))),
		Current: Setting{Value: roundSeconds(p.EverySeconds), Unit: "s apart"}, Advised: Setting{Value: best, Unit: "s apart"}, Gives: gives(OfRunTime, 1, saves(p.LowSeconds), saves(p.LostSeconds), saves(p.HighSeconds)), Confidence: predictedSure,
		Evidence: []Number{number("pauses in which it wrote", float64(p.Cycles), "", "the kernel's accounting of its threads"), number("from one to the next", p.EverySeconds, "s", "the same"),
			number("full speed that each takes", p.LostSeconds, "s", "its steps"), number("written in each", p.Bytes, "B", "the kernel's accounting of its threads")}}
	return a, best > p.EverySeconds
}

// roundSeconds leaves two digits.
func roundSeconds(s float64) float64 {
	if !(s > 0) || math.IsInf(s, 0) {
		return s
	}
	unit := math.Pow(10, math.Floor(math.Log10(s))-1)
	return math.Round(s/unit) * unit
}
