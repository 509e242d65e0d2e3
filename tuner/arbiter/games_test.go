package arbiter

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
)

// steep is the curve of a job that goes slow on purpose whatever it has, as the learner
// lets it look at most: in proportion, to the end of the machine.
func steep(cpus float64) policies.Curve {
	return policies.Curve{Source: "log", Points: []policies.Point{{X: 0.1, Rate: 1, Low: 1, High: 1}, {X: cpus, Rate: 10 * cpus, Low: 10 * cpus, High: 10 * cpus}}}
}

// TestGamesGainNothing: what a job says or feigns beyond what the host allows counts as what
// the host allows, and none of it takes from anybody what he has a right to.
func TestGamesGainNothing(t *testing.T) {
	const cpus = 4
	node := policies.Node{CPUs: cpus, MaxWeight: 10000}
	for name, g := range map[string]struct {
		game   func(*Claim)
		honest func(*Claim) // who is to fare the same; nil: nobody
		floor  bool         // it asks for a floor, which the host may bound: the rest have a right to less
	}{
		"importance far out of range":      {func(c *Claim) { c.Importance = 1000 }, func(c *Claim) { c.Importance = 10 }, false},
		"importance below all":             {func(c *Claim) { c.Importance = -1000 }, func(c *Claim) { c.Importance = 5 }, false},
		"a floor larger than the machine":  {func(c *Claim) { c.Floor = 1000 }, func(c *Claim) { c.Floor = cpus }, true},
		"a floor above its own quota":      {func(c *Claim) { c.Floor, c.OwnQuota, c.Quota = 1000, 1, 1 }, func(c *Claim) { c.Floor, c.OwnQuota, c.Quota = cpus, 1, 1 }, true},
		"slow on purpose":                  {func(c *Claim) { c.CPU = steep(cpus) }, nil, false},
		"a rate a million times as large":  {func(c *Claim) { c.CPU = scaled(c.CPU, 1e6) }, func(*Claim) {}, false},
		"a rate a million times as small":  {func(c *Claim) { c.CPU = scaled(c.CPU, 1e-6) }, func(*Claim) {}, false},
		"a rate of which nothing is known": {func(c *Claim) { c.CPU, c.Movable, c.Waiting = policies.Curve{}, false, 1 }, nil, false},
		"ranks that spin":                  {func(c *Claim) { c.CPU, c.Movable, c.Used, c.Waiting = policies.Curve{}, false, 100, 0.99 }, nil, false},
		"a policy that wants everything":   {func(c *Claim) { c.OwnQuota, c.Quota, c.Want = 1, 1, 1e9 }, nil, false},
	} {
		for _, objective := range policies.Objectives() {
			p := Defaults()
			p.Objective = objective
			with := func(edit func(*Claim)) Plan {
				claims := []Claim{job("player", 3), job("other", 3), job("small", 1.2), job("donor", 0.4)}
				for i := range claims {
					claims[i].Used = min(claims[i].Used, 1.1)
				}
				edit(&claims[0])
				return Decide(p, node, claims)
			}
			got, fair := with(g.game), with(func(*Claim) {})
			if g.honest != nil {
				if want := with(g.honest); !slices.EqualFunc(granted(got), granted(want), func(a, b float64) bool { return near(a, b, 1e-6) }) {
					t.Errorf("%s, %s: %v, an honest one makes it %v", name, objective, granted(got), granted(want))
				}
			}
			for i, grant := range got.Grants[1:] {
				right := fair.Grants[i+1].Entitled
				if !g.floor && grant.Entitled < right*(1-1e-9) {
					t.Errorf("%s, %s: %s has a right to %.3f, and to %.3f without the game", name, objective, grant.Key, grant.Entitled, right)
				}
				if due := min(grant.Entitled, grant.Need); grant.CPUs < 0.97*due {
					t.Errorf("%s, %s: %s is left with %.3f of %.3f", name, objective, grant.Key, grant.CPUs, due)
				}
			}
		}
	}
}

func scaled(c policies.Curve, by float64) policies.Curve {
	c.Points = slices.Clone(c.Points)
	for i := range c.Points {
		p := &c.Points[i]
		p.Rate, p.Low, p.High = p.Rate*by, p.Low*by, p.High*by
	}
	return c
}

// granted is what each gets, unrounded.
func granted(p Plan) (out []float64) {
	for _, g := range p.Grants {
		out = append(out, g.CPUs)
	}
	return out
}

// TestNobodysRightHangsOnWhatOthersFeign: on any node a job's importance, rate, use and
// wants move nobody's right; only what owners and hosts set does.
func TestNobodysRightHangsOnWhatOthersFeign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node, claims := randomNode(t)
		before, _, _ := Entitle(node, claims)
		c := &claims[rapid.IntRange(0, len(claims)-1).Draw(t, "player")]
		c.Importance, c.Used, c.Waiting = rapid.IntRange(-1000, 1000).Draw(t, "says"), rapid.Float64Range(0, 1e6).Draw(t, "uses"), rapid.Float64Range(0, 1).Draw(t, "waits")
		c.Want, c.CPU = rapid.Float64Range(0, 1e6).Draw(t, "wants"), steep(rapid.Float64Range(0.2, 1e6).Draw(t, "feigns"))
		after, _, _ := Entitle(node, claims)
		if !slices.Equal(before, after) {
			t.Fatalf("rights of %v became %v", before, after)
		}
	})
}
