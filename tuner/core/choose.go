package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/arbiter"
	"github.com/trimtab/trimtab/tuner/trial"
)

// choose is what the node's one plan is made of: what policies want and the weights
// dealt anew, where all of it may be. Else of the wants those that may be together, the
// largest gain first: one that may not does not keep the others waiting.
func (c *Core) choose(asked []policies.Change, claims []arbiter.Claim) []policies.Change {
	byGain := func(a, b policies.Change) int { return cmp.Compare(b.Gain, a.Gain) }
	if len(asked) == 0 && !c.deal.Move {
		return nil
	}
	guard := c.guard(claims)
	why := func(changes []policies.Change) string {
		if why := guard(changes); why != "" {
			return why
		}
		return c.unjoined(changes)
	}
	if dealt := c.withDeal(asked, claims); len(dealt) > 0 && len(c.fits(slices.Clone(dealt))) == len(dealt) && why(dealt) == "" {
		slices.SortStableFunc(dealt, byGain)
		return dealt
	}
	slices.SortStableFunc(asked, byGain)
	if all := c.fits(slices.Clone(asked)); why(all) == "" {
		return all
	}
	var kept []policies.Change
	for _, ch := range asked {
		if try := append(slices.Clip(kept), ch); len(kept) < c.left() {
			w := why(try)
			if w == "" {
				kept = try
			} else if less, ok := c.shrunk(ch, kept, claims, why); ok {
				kept = append(slices.Clip(kept), less)
			} else {
				c.jobs[ch.Key].whyNot = w
			}
		}
	}
	return c.fits(kept)
}

// withDeal adds the weights that the arbiter deals anew to what is asked for, in place
// of what a policy wants of the same weights; none if there is nothing to deal.
func (c *Core) withDeal(asked []policies.Change, claims []arbiter.Claim) []policies.Change {
	if !c.deal.Move {
		return nil
	}
	deal := c.steering(claims)
	if len(deal) == 0 {
		return nil
	}
	all := slices.DeleteFunc(slices.Clone(asked), func(ch policies.Change) bool {
		return ch.Knob == runtime.KnobCPUWeight && slices.ContainsFunc(deal, func(d policies.Change) bool { return d.Key == ch.Key })
	})
	return append(all, deal...)
}

// dealt reports whether a change is the arbiter's own, predicted by response curves.
func (c *Core) dealt(ch policies.Change) bool {
	g := c.grant(ch.Key)
	to, ok := ch.To.Int()
	return ok && c.deal.Move && g.Competes && ch.Knob == runtime.KnobCPUWeight && float64(to) == math.Round(min(g.Weight, c.node.MaxWeight))
}

// unjoined says why changes cannot be judged together: the containers that they give to
// were not seen at the same time for long enough. Each alone may well have been.
func (c *Core) unjoined(changes []policies.Change) string {
	t := openTrial{sides: c.sides(Order{Changes: changes})}
	if t.sides == nil || len(t.together(func(s *side) []trial.Obs { return s.before })) >= c.cfg.Before {
		return ""
	}
	return "measuring: its rate was not seen for long enough beside those of others that are helped first"
}

// alone reports whether a plan is of a container that is to be tried by itself.
func (c *Core) alone(p policies.Plan) bool {
	return slices.ContainsFunc(p.Changes, func(ch policies.Change) bool { return c.jobs[ch.Key].alone })
}

// onlyGives reports whether a trial's plan gave to several containers, and took nothing:
// where it fails, each may still be helped by itself.
func (t *openTrial) onlyGives() bool {
	return len(t.sides) > 1 && gives(policies.Plan{Changes: t.order.Changes})
}

// left is how many changes the node's limit of a minute leaves room for, one at least.
func (c *Core) left() int { return max(1, c.cfg.ChangesPerMinute-c.recent()) }

// fits keeps of the wants, the largest gain first, those that the ramp and the node's
// limit of changes leave room for; the others have their turn later.
func (c *Core) fits(changes []policies.Change) []policies.Change {
	room := math.MaxInt
	if c.cfg.Ramp > 0 {
		room = c.cfg.Ramp - c.tuned() - len(c.trials)
	}
	left := c.left()
	return slices.DeleteFunc(changes, func(ch policies.Change) bool {
		j := c.jobs[ch.Key]
		if left <= 0 {
			j.whyNot = "the node's limit of changes a minute is reached"
			return true
		}
		if !j.changed() {
			if room <= 0 {
				j.whyNot = fmt.Sprintf("ramp: %d containers are tuned already", c.cfg.Ramp)
				return true
			}
			room--
		}
		left--
		return false
	})
}

// guards says why a plan may not be: somebody would fall below what it gets of its
// entitlement. The arbiter sees to it; the guard looks for itself. What the host's own
// processes use is not laid at the plan's door.
func (c *Core) guards(p policies.Plan) string { return c.guard(c.claims())(p.Changes) }

// guard is guards for many plans of one tick, beside what stands.
func (c *Core) guard(stands []arbiter.Claim) func([]policies.Change) string {
	free := c.freeCPUs()
	now := arbiter.Shares(free, stands)
	owners := slices.Clone(stands)
	for i := range owners {
		owners[i].Weight, owners[i].Quota = owners[i].OwnWeight, owners[i].OwnQuota
	}
	own := arbiter.Shares(free, owners)
	return func(changes []policies.Change) string {
		after := c.sharesAfter(stands, changes)
		for i, cl := range stands {
			j := c.jobs[cl.Key]
			// By owners' values: the margin is one for all plans together, not one for each.
			due := min(max(now[i], own[i]), j.entitled*free/c.node.CPUs)
			if after[i] < due*(1-c.cfg.NeighbourMargin) && after[i] < now[i]*(1-1e-3) {
				return fmt.Sprintf("%s would be left with %.2f of the %.2f CPUs it is entitled to", j.c.Name, after[i], due)
			}
		}
		return ""
	}
}

// sharesAfter is the CPUs that each container gets, by what stands and the changes to it.
func (c *Core) sharesAfter(stands []arbiter.Claim, changes []policies.Change) []float64 {
	claims := slices.Clone(stands)
	for _, ch := range changes {
		if !ch.Take || ch.Knob != runtime.KnobCPUQuota { // what a lower quota frees is not counted on
			put(claims, ch, ch.To)
		}
	}
	return arbiter.Shares(c.freeCPUs(), claims)
}

// put has a change's quota or weight stand at a value, in the claims.
func put(claims []arbiter.Claim, ch policies.Change, v runtime.Value) {
	i, ok := claimOf(claims, ch.Key)
	if !ok {
		return
	}
	if w, ok := v.Int(); ok && ch.Knob == runtime.KnobCPUWeight {
		claims[i].Weight = float64(w)
	}
	if q, ok := v.CPUs(); ok && ch.Knob == runtime.KnobCPUQuota {
		claims[i].Quota = q
	}
}

// freeCPUs is what the host's own processes leave.
func (c *Core) freeCPUs() float64 { return max(0, c.node.CPUs-c.node.HostCPUs) }

func claimOf(claims []arbiter.Claim, key string) (i int, ok bool) {
	return slices.BinarySearchFunc(claims, key, func(cl arbiter.Claim, key string) int { return cmp.Compare(cl.Key, key) })
}
