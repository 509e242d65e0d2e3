package trial

import (
	"errors"
	"fmt"
	"math"
)

// Params are the rules of one judgement. The zero value is not valid; start
// from DefaultParams.
type Params struct {
	// Take judges a plan that takes: it must be non-inferior instead of superior.
	Take bool
	// MinEffect is the least gain worth keeping, as a share of the rate before.
	MinEffect float64
	// Margin is the loss that a take may cost, as a share of the rate before.
	Margin float64
	// Alpha bounds the chance that a plan without merit is kept, over all looks together.
	Alpha float64
	// Regression is the loss that ends a trial at once, without waiting for a look.
	Regression float64
	// MinBefore and MinAfter are the windows needed on each side for a first look;
	// MaxAfter is the last look: no decision by then is Inconclusive. In A-B-A, MaxAfter
	// counts reverted windows.
	MinBefore, MinAfter, MaxAfter int
	// PriorRho is the correlation of rates one second apart that is assumed until
	// the windows tell; PriorCV is the coefficient of variation assumed likewise.
	PriorRho, PriorCV float64
}

// DefaultParams returns the rules for a plan that gives, or for one that takes.
//
//   - MinEffect 3 %: the loss of accuracy that DESIGN.md grants to a rate's
//     relative changes; a smaller gain cannot be told from the rate's own error.
//   - Margin 2 %: DESIGN.md, Trials.
//   - Regression 20 %: DLRover ("speed down ≥ 20 %: revert at once").
//   - PriorRho 0.8 and PriorCV 2 %: measured in 1 s windows (DESIGN.md, Trials).
//   - MinBefore and MinAfter 3 for a give: a starved job waits for help, and at
//     CV 2 % three windows a side tell +30 % apart. A take never hurries.
//   - MaxAfter: at the above noise a gain of 5 % needs about 60 windows a side,
//     and a margin of 2 % about 300 (simulation_test.go).
func DefaultParams(take bool) Params {
	p := Params{
		Take: take, MinEffect: 0.03, Margin: 0.02, Alpha: 0.05, Regression: 0.20,
		MinBefore: 3, MinAfter: 3, MaxAfter: 60, PriorRho: 0.8, PriorCV: 0.02,
	}
	if take {
		p.MinBefore, p.MinAfter, p.MaxAfter = 30, 10, 300
	}
	return p
}

// Validate returns all that is wrong with the parameters, joined.
func (p Params) Validate() error {
	var errs []error
	share := func(name string, v float64) {
		if !(v > 0 && v < 1) {
			errs = append(errs, fmt.Errorf("%s %v: want more than 0 and less than 1", name, v))
		}
	}
	share("MinEffect", p.MinEffect)
	share("Margin", p.Margin)
	share("Alpha", p.Alpha)
	share("Regression", p.Regression)
	share("PriorRho", p.PriorRho)
	share("PriorCV", p.PriorCV)
	if p.MinBefore < 2 || p.MinAfter < 2 || p.MaxAfter < p.MinAfter {
		errs = append(errs, fmt.Errorf("windows %d before, %d to %d after: want at least 2, 2, and no fewer at most than at least",
			p.MinBefore, p.MinAfter, p.MaxAfter))
	}
	return errors.Join(errs...)
}

// lookGrowth spaces the looks: each comes with 30 % more windows than the one
// before, so that information, not patience, decides how often one may look.
const lookGrowth = 1.3

// looks returns the counts of windows after the change (in A-B-A: after it was
// reverted) at which evidence is weighed; the last is MaxAfter.
func (p Params) looks() []int {
	var at []int
	for n := p.MinAfter; n < p.MaxAfter; n = max(n+1, int(math.Ceil(float64(n)*lookGrowth))) {
		at = append(at, n)
	}
	return append(at, p.MaxAfter)
}

// schedule says which is the latest look that so many windows allow (0: none yet) when the looks up
// to spent are gone, how many windows the next one needs, and the error
// probability that the look may use.
//
// Alpha is spent in proportion to the windows seen (Lan and DeMets' linear
// spending function); the sum over all looks is Alpha, so by the union bound the
// error over all looks is at most Alpha, whatever their dependence. Looks that
// were skipped leave their share to the one that is taken.
func (p Params) schedule(windows, spent int) (due, next int, alpha float64, last bool) {
	looks := p.looks()
	spent = min(max(spent, 0), len(looks))
	due = spent
	for due < len(looks) && looks[due] <= windows {
		due++
	}
	used := 0
	if spent > 0 {
		used = looks[spent-1]
	}
	if due < len(looks) {
		next = looks[due]
	}
	upTo := looks[min(max(due, spent+1), len(looks))-1] // none due: as the next would
	return due, next, p.Alpha * float64(max(upTo-used, 1)) / float64(p.MaxAfter), due == len(looks)
}
