package arbiter

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
)

// TestRaisedWeightsGoBack: a raised weight takes from whoever is there, also once the
// one that gave for it has gone.
func TestRaisedWeightsGoBack(t *testing.T) {
	raised := func(knee, weight float64) Claim {
		c := job("raised", knee)
		c.Weight = weight
		return c
	}
	taken := func(used float64) Claim { // behind others half of the time and more
		c := spinner("neighbour")
		c.Used, c.Waiting = used, 0.6
		return c
	}
	held := job("held", 3)
	held.Movable, held.Returnable, held.CPU, held.Used, held.Waiting = false, false, policies.Curve{}, 0.7, 0.7
	lowered := job("lowered", 3)
	lowered.Weight = 850
	donor := Claim{Key: "donor", Name: "donor", Active: true, OwnWeight: 1024, Weight: 1024, Used: 0.1}
	pinned := raised(3, 1900)
	pinned.Returnable = false
	for name, tc := range map[string]struct {
		claims  []Claim
		release bool
	}{
		"its counterpart ended, a neighbour nobody enrolled loses": {[]Claim{raised(3, 1900), taken(0.7)}, true},
		"its counterpart is held at its own weight":                {[]Claim{raised(3, 1900), held}, true},
		"its counterpart stands":                                   {[]Claim{raised(3, 1198), lowered, taken(0.63), donor}, false},
		"a neighbour that wants no more than is left":              {[]Claim{raised(3, 1900), {Key: "n", Name: "n", Active: true, OwnWeight: 1024, Weight: 1024, Used: 0.4}}, false},
		"raised for what it has a right to":                        {[]Claim{raised(0.9, 4096), taken(1)}, false},
		"the curve says it takes too much, and it does not":        {[]Claim{raised(1.2, 4096), taken(0.99)}, false},
		"in a trial, or not to be touched":                         {[]Claim{pinned, taken(0.7)}, false},
	} {
		p := Decide(Defaults(), policies.Node{CPUs: 2, MaxWeight: 10000}, tc.claims)
		if p.Release != tc.release || tc.release && p.Grants[0].Weight != 1024 {
			t.Errorf("%s: release %v, want %v: %+v", name, p.Release, tc.release, p)
		}
	}
}

func TestDemandOfUnknownWants(t *testing.T) {
	for _, tc := range []struct{ used, waiting, quota, want float64 }{
		{0.5, 0, 0, 0.5},
		{0.5, 0.06, 0, 0.53}, // a little waiting is no wish for the whole machine
		{0.5, 0.5, 0, 1},
		{0.5, 0.5, 0.8, 0.8},
		{0.1, 1, 0, 4},
		{0, 1, 0, 4},
		{3, 0.9, 0, 4},
	} {
		c := Claim{Used: tc.used, Waiting: tc.waiting}
		if got := c.demand(tc.quota, 4); !near(got, tc.want, 0.01) {
			t.Errorf("%+v: %.2f", tc, got)
		}
	}
}

// TestNoDealAtTheCostOfOneThatWaits: by max-min two would be dealt what a third has that
// cannot be moved at this moment, and is the worst off for its importance; once it can, it
// would be dealt back.
func TestNoDealAtTheCostOfOneThatWaits(t *testing.T) {
	waits, quota, low, donor := job("waits", 0.82), job("quota", 1.66), job("low", 1.92), job("donor", 0.35)
	waits.Weight, waits.Used, waits.Movable = 1351, 0.75, false
	low.Weight, low.Used, low.Importance = 697, 0.39, 1
	quota.OwnQuota, quota.Quota, quota.Want, quota.Used, quota.Importance = 0.3, 0.39, 0.57, 0.39, 1
	other := Claim{Key: "other", Name: "other", Active: true, OwnWeight: 1024, Weight: 1024, Used: 0.12}
	p := Defaults()
	p.Objective = policies.ObjectiveMaxMin
	node := policies.Node{CPUs: 2, MaxWeight: 10000}
	if got := Decide(p, node, []Claim{waits, quota, low, donor, other}); got.Move || got.Release {
		t.Errorf("dealt at its cost: %+v", got)
	}
	waits.CPU = policies.Curve{} // of what it makes of CPUs nothing is known: it has its right, no more
	if got := Decide(p, node, []Claim{waits, quota, low, donor, other}); !got.Move {
		t.Errorf("not dealt: %+v", got)
	}
}

// TestManyAreDealtInTurns: sixty jobs compete and ten may be changed at one time. Deal after
// deal moves no more than that, gains, and comes near to what one deal of all would make.
func TestManyAreDealtInTurns(t *testing.T) {
	node := policies.Node{CPUs: 50, MaxWeight: 262144}
	var claims []Claim
	for i := range 60 {
		knee := 6.0
		if i%2 == 0 {
			knee = 1 + float64(i)/200
		}
		c := job(fmt.Sprint("job", i), knee)
		c.Used = 50.0 / 80
		claims = append(claims, c)
	}
	for i := range 20 {
		claims = append(claims, job(fmt.Sprint("donor", i), 0.05))
	}
	p := Defaults()
	rates := func(plan Plan) (sum float64) {
		for _, g := range plan.Grants[:60] {
			sum += g.Rate
		}
		return sum
	}
	at := rates(Decide(p, policies.Node{CPUs: 50, MaxWeight: 262144, Reserve: 50}, claims))
	all := rates(Decide(p, node, claims))
	p.MaxChanges = 10
	turns := 0
	for ; turns < 20; turns++ {
		plan := Decide(p, node, claims)
		if plan.Release {
			t.Fatalf("turn %d is released: %s", turns, plan.Why)
		}
		if !plan.Move {
			break
		}
		changes, sum := 0, 0.0
		for i, g := range plan.Grants {
			if g.Weight != claims[i].Weight {
				changes++
			}
			if sum += g.Weight; i < 60 {
				claims[i].Used = g.CPUs
			}
			claims[i].Weight = g.Weight
		}
		if changes > 10 || !near(sum, 80*1024, 80) {
			t.Fatalf("turn %d: %d changes, weights of %.0f", turns, changes, sum)
		}
	}
	if last := rates(Decide(p, node, claims)); turns == 0 || turns == 20 || last < at+0.5*(all-at) {
		t.Errorf("%d turns: a sum of %.2f became %.2f, and in one deal %.2f", turns, at, last, all)
	}
}

// TestNoDealIsReleasedAtOnce: whatever stands, a deal leaves nobody so little that it
// would have to be undone at the next tick.
func TestNoDealIsReleasedAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node, claims := randomNode(t)
		for i := range claims { // what stands may be anything, and not all of it can be moved
			claims[i].Movable = claims[i].Movable && rapid.Bool().Draw(t, "movable")
		}
		p := Decide(Defaults(), node, claims)
		if !p.Move {
			return
		}
		after := slices.Clone(claims)
		for i, g := range p.Grants {
			after[i].Weight, after[i].Used = g.Weight, min(g.CPUs, after[i].Used)
		}
		if next := Decide(Defaults(), node, after); next.Release {
			t.Fatalf("%s: %+v", next.Why, p)
		}
	})
}
