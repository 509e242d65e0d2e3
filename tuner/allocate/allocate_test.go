package allocate

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
)

// party stands at its owner's values, wants so much, and uses what it may of it.
func party(name string, ownQuota, wants float64) Party {
	used := wants
	if ownQuota > 0 {
		used = min(used, ownQuota)
	}
	return Party{Key: name, Name: name, OwnQuota: ownQuota, OwnWeight: 1024, Used: used, Wants: wants, Most: math.Inf(1),
		Claim: policies.Claim{Weight: 1024, Quota: ownQuota, Demand: wants, Active: used >= policies.DefaultConstants().ActiveCPUs}}
}

// borrower has a loan, at the weight that goes with it, and uses all of it.
func borrower(name string, own, now float64) Party {
	p := party(name, own, now)
	p.Quota, p.Weight, p.Used = now, 256, now
	return p
}

// asleep uses nothing.
func asleep(p Party) Party {
	p.Used, p.Wants, p.Active = 0, 0, false
	return p
}

func asks(p Party, cpus float64) Party {
	p.Asks, p.Why = cpus, "its quota stops it"
	return p
}

// short waits half of the time.
func short(p Party, used float64) Party {
	p.Used, p.Waiting, p.Wants = used, 0.5, 2*used
	return p
}

var twoCPUs = policies.Node{CPUs: 2, MaxWeight: 262144}

func plan(node policies.Node, parties ...Party) []Grant {
	return RightsOf(node, parties).Plan(policies.DefaultConstants(), parties)
}

func idle(cpus float64) policies.Node {
	n := twoCPUs
	n.Idle = cpus
	return n
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.0101 }

func TestLends(t *testing.T) {
	for name, c := range map[string]struct {
		node    policies.Node
		parties []Party
		quotas  []float64
	}{
		"all that is idle":                {idle(1.6), []Party{asks(party("a", 0.4, 2), 2)}, []float64{2}},
		"half a CPU and more, in whole":   {idle(0.9), []Party{asks(party("a", 0.4, 2), 2)}, []float64{2}},
		"no more than it asks":            {idle(1.6), []Party{asks(party("a", 0.4, 2), 1)}, []float64{1}},
		"less the reserve":                {with(idle(1.6), func(n *policies.Node) { n.Reserve = 1.3 }), []Party{asks(party("a", 0.4, 2), 2)}, []float64{0.7}},
		"nothing where all is used":       {idle(0), []Party{asks(party("a", 0.4, 2), 2)}, []float64{0.4}},
		"by what each has a right to":     {idle(1.2), []Party{asks(party("a", 0.2, 2), 2), asks(party("b", 0.6, 2), 2)}, []float64{0.5, 2}},
		"what one leaves to the other":    {idle(1.2), []Party{asks(party("a", 0.2, 2), 0.3), asks(party("b", 0.6, 2), 2)}, []float64{0.3, 2}},
		"as much as neighbours bear":      {idle(1.6), []Party{bears(asks(party("a", 0.4, 2), 2), 0.9)}, []float64{0.9}},
		"not to one that is fixed":        {idle(1.6), []Party{fixed(asks(party("a", 0.4, 2), 2))}, []float64{0.4}},
		"nothing while somebody is short": {idle(0.5), []Party{asks(party("a", 0.4, 2), 2), short(party("b", 0, 2), 0.5)}, []float64{0.4, 0}},
	} {
		for i, g := range plan(c.node, c.parties...) {
			if !near(g.Quota, c.quotas[i]) {
				t.Errorf("%s: %s has %.2f CPUs, want %.2f: %+v", name, c.parties[i].Name, g.Quota, c.quotas[i], g)
			}
		}
	}
}

func with(n policies.Node, edit func(*policies.Node)) policies.Node { edit(&n); return n }
func bears(p Party, most float64) Party                             { p.Most = most; return p }
func fixed(p Party) Party                                           { p.Fixed = true; return p }

func TestLoanSaysWhoseItIs(t *testing.T) {
	g := plan(idle(1.6), asks(party("a", 0.4, 2), 2))[0]
	if !strings.Contains(g.Why, "lent 1.60 CPUs that nobody uses, 0.40 are its own") {
		t.Errorf("%q", g.Why)
	}
}

func TestRecalls(t *testing.T) {
	small := borrower("small", 0.4, 0.8)
	for name, c := range map[string]struct {
		parties []Party
		quotas  []float64
		recalls []bool
	}{
		"what another is short of":       {[]Party{borrower("a", 0.4, 1.2), short(party("n", 0, 2), 0.8)}, []float64{0.4, 0}, []bool{true, false}},
		"no more than that":              {[]Party{borrower("a", 0.4, 1.2), short(party("n", 1, 2), 0.8)}, []float64{1.0, 1}, []bool{true, false}},
		"what is worth a write":          {[]Party{borrower("a", 0.4, 1.9), short(party("n", 0.6, 2), 0.55)}, []float64{1.8, 0.6}, []bool{true, false}},
		"the largest surplus first":      {[]Party{small, borrower("large", 0.4, 1.4), short(party("n", 0.6, 2), 0.3)}, []float64{0.8, 1.1, 0.6}, []bool{false, true, false}},
		"nothing from one without":       {[]Party{party("a", 0.4, 0.4), short(party("n", 0, 2), 0.8)}, []float64{0.4, 0}, []bool{false, false}},
		"nothing for one that is slow":   {[]Party{borrower("a", 0.4, 1.2), party("n", 0, 0.5)}, []float64{1.2, 0}, []bool{false, false}},
		"nothing from one that is fixed": {[]Party{fixed(borrower("a", 0.4, 1.2)), short(party("n", 0, 2), 0.8)}, []float64{1.2, 0}, []bool{false, false}},
		"nothing of one that is short":   {[]Party{short(borrower("a", 0.4, 1.2), 0.2), party("n", 0, 2)}, []float64{1.2, 0}, []bool{false, false}},
	} {
		for i, g := range plan(twoCPUs, c.parties...) {
			if !near(g.Quota, c.quotas[i]) || g.Recall != c.recalls[i] || g.Recall && !strings.Contains(g.Why, "has a right to") {
				t.Errorf("%s: %s has %.2f CPUs, recalled %v, want %.2f, %v: %s", name, c.parties[i].Name, g.Quota, g.Recall, c.quotas[i], c.recalls[i], g.Why)
			}
		}
	}
}

// TestOnlyARecallFollowsAtOnce: what was written a moment ago stands, but for what others are short
// of; with the last of a loan goes its weight.
func TestOnlyARecallFollowsAtOnce(t *testing.T) {
	recent := func(p Party) Party { p.Recent = true; return p }
	if g := plan(idle(1.6), recent(asks(party("a", 0.4, 2), 2)))[0]; !near(g.Quota, 0.4) {
		t.Errorf("lent to: %+v", g)
	}
	settles := recent(borrower("a", 0.4, 1.2))
	settles.Settles = 0.8
	if g := plan(idle(0.8), settles)[0]; !near(g.Quota, 1.2) || g.Weight != 256 {
		t.Errorf("settled: %+v", g)
	}
	if g := plan(twoCPUs, recent(borrower("a", 0.4, 1.2)), short(party("n", 0, 2), 0.8))[0]; !near(g.Quota, 0.4) || g.Weight != 1024 || !g.Recall {
		t.Errorf("called in: %+v", g)
	}
	if g := plan(twoCPUs, recent(short(borrower("a", 0.4, 1.2), 0.2)), party("n", 0, 2))[0]; g.Quota != 1.2 || g.Weight <= 512 {
		t.Errorf("far short itself: %+v", g)
	}
	if g := plan(twoCPUs, recent(short(borrower("a", 0.4, 1.2), 0.37)), party("n", 0, 2))[0]; g.Quota != 1.2 || g.Weight != 256 {
		t.Errorf("a little short itself: %+v", g)
	}
}

// TestWeightComesBackFirst: a borrower whose low weight keeps what is its own from it, since
// something outside of all containers takes CPUs, gets as much weight as gives it that.
func TestWeightComesBackFirst(t *testing.T) {
	p := borrower("a", 0.4, 1.2)
	p.Used, p.Wants, p.Waiting = 0.2, 1.2, 0.8 // of one CPU: what 256 gives beside 1024
	n := party("n", 0, 0.8)
	for name, recent := range map[string]bool{"at rest": false, "just lent": true} {
		p.Recent = recent
		g := plan(twoCPUs, p, n)[0]
		if !near(g.Quota, 1.2) || g.Recall {
			t.Errorf("%s: its loan is called in: %+v", name, g)
		}
		if got := g.Weight / (g.Weight + n.Weight); math.Abs(got-0.4) > 0.01 {
			t.Errorf("%s: a weight of %.0f gives it %.2f of one CPU, want 0.4", name, g.Weight, got)
		}
	}
	if g := plan(twoCPUs, p, short(n, 0.8))[0]; !near(g.Quota, 0.4) || g.Weight != 1024 || !g.Recall {
		t.Errorf("another waits, whom a weight would take from: %+v", g)
	}
	p.Weight, p.Used, p.Recent = 683, 0.39, false
	if g := plan(twoCPUs, p, n)[0]; g.Weight != 683 {
		t.Errorf("it has what is its own and wants more: lowered to %.0f", g.Weight)
	}
	p.Weight, p.Used, n.Used = 310, 0.46, 1.54 // nothing intrudes any more
	if g := plan(twoCPUs, p, n)[0]; math.Abs(g.Weight-260) > 5 || g.Recall {
		t.Errorf("it has more than its own at a weight of %.0f, want 260: %+v", g.Weight, g)
	}
	p.Weight, p.Used, n.Used = 683, 0.39, 0.8
	p.Waiting = 0
	if g := plan(twoCPUs, p, n)[0]; g.Weight == 683 {
		t.Error("its weight stays though it waits no more")
	}
	busy := twoCPUs
	busy.HostCPUs = 1
	if g := plan(busy, p, n)[0]; math.Abs(g.Weight-683) > 2 {
		t.Errorf("a weight of %.0f where the host's own processes take one CPU of two, want 683", g.Weight)
	}
}

// TestWhatTheHostTakesIsNobodysLoan: a process outside of all containers has one CPU of two. Who has
// its part of the other is not short, whatever it has a right to of the whole machine.
func TestWhatTheHostTakesIsNobodysLoan(t *testing.T) {
	a, n := borrower("a", 0.25, 0.8), party("n", 0, 1)
	for name, c := range map[string]struct {
		used   float64 // by the borrower, of one CPU
		recall bool
	}{"it has its own": {0.25, false}, "it has what is the neighbour's": {0.5, true}} {
		a.Used, n.Used, n.Waiting = c.used, 1-c.used, 0.5
		g := plan(twoCPUs, a, n)
		if g[0].Recall != c.recall || !near(g[1].Right, 1.75) || !near(g[1].Due, 0.75) {
			t.Errorf("%s: %+v", name, g)
		}
	}
}

func TestSettles(t *testing.T) {
	p := borrower("a", 0.4, 1.8)
	p.Settles, p.Why = 1.3, "enough"
	if g := plan(twoCPUs, p)[0]; !near(g.Quota, 1.3) || g.Why != "enough" {
		t.Errorf("%+v", g)
	}
	p.Settles = 0.1
	if g := plan(twoCPUs, p)[0]; !near(g.Quota, 0.4) || g.Weight != 1024 {
		t.Errorf("below its owner's, or at a loan's weight: %+v", g)
	}
}

// TestWeightOfALoan: what the owner's quota is worth in weight, by who else is there.
// TestBearsLess: a loan that shrinks for a neighbour's sake says so, whatever its job asks for, and
// that is no number that is enough.
func TestBearsLess(t *testing.T) {
	p := borrower("a", 1, 4)
	p.Why, p.Most, p.MostWhy = "its quota stops it", 2, "its neighbours bear no more"
	if g := plan(policies.Node{CPUs: 8, MaxWeight: 262144, Idle: 4}, p)[0]; g.Quota != 2 || !g.Recall || !strings.Contains(g.Why, "bear") {
		t.Errorf("%+v", g)
	}
}

func TestWeightOfALoan(t *testing.T) {
	for name, c := range map[string]struct {
		parties []Party
		want    float64
	}{
		"beside one that has the rest": {[]Party{borrower("a", 0.4, 1.2), party("n", 1.8, 2)}, 256},
		"beside one without a quota":   {[]Party{borrower("a", 0.4, 1.2), party("n", 0, 2)}, 256},
		"with nobody yet":              {[]Party{borrower("a", 0.4, 1.2)}, 256},
		"beside two":                   {[]Party{borrower("a", 0.4, 1.2), party("n", 0, 2), party("m", 0, 2)}, 512},
		"while it sleeps":              {[]Party{asleep(borrower("a", 0.4, 1.2)), party("n", 0, 2)}, 256},
		"while all sleep":              {[]Party{asleep(borrower("a", 0.4, 1.2))}, 256},
	} {
		c.parties[0].Weight = 1024
		if g := plan(twoCPUs, c.parties...)[0]; math.Abs(g.Weight-c.want) > 2 {
			t.Errorf("%s: a weight of %.0f, want %.0f", name, g.Weight, c.want)
		}
	}
}

// TestADealtWeightStandsWhileItsReturnHelpsNobody: what a trial proved goes back for others, not
// for whom it was raised. A raised weight that is short by something else's doing stays raised.
func TestADealtWeightStandsWhileItsReturnHelpsNobody(t *testing.T) {
	dealt := func(p Party, weight float64) Party {
		p.Weight, p.Dealt = weight, true
		return p
	}
	for name, c := range map[string]struct {
		a, n Party
		want float64
	}{ // the third has the rest
		"raised, nobody is short":            {dealt(party("a", 0, 1), 4096), party("n", 0, 0.5), 4096},
		"raised, another is short":           {dealt(party("a", 0, 0.8), 4096), short(party("n", 0, 2), 0.4), 1024},
		"raised, it is short itself":         {dealt(short(party("a", 0, 2), 0.4), 4096), party("n", 0, 0.7), 4096},
		"raised, both are short":             {dealt(short(party("a", 0, 2), 0.4), 4096), short(party("n", 0, 2), 0.4), 1024},
		"lowered, another is short":          {dealt(party("a", 0, 0.8), 256), short(party("n", 0, 2), 0.4), 256},
		"lowered and lent, another is short": {dealt(borrower("a", 0.4, 1.2), 800), short(party("n", 0, 2), 0.4), 512},
		"lowered, it is short itself":        {dealt(short(party("a", 0, 2), 0.4), 256), party("n", 0, 0.7), 1024},
		"lowered, both are short":            {dealt(short(party("a", 0, 2), 0.4), 256), short(party("n", 0, 2), 0.4), 1024},
		"raised by nobody's trial, is short": {func() Party { p := short(party("a", 0, 2), 0.4); p.Weight = 4096; return p }(), party("n", 0, 0.7), 1024},
	} {
		if g := plan(twoCPUs, c.a, c.n, party("m", 0, 2-c.a.Used-c.n.Used))[0]; g.Weight != c.want {
			t.Errorf("%s: a weight of %.0f, want %.0f", name, g.Weight, c.want)
		}
	}
}

// TestWeightsKeepEverybodysRight: whatever is lent, if all want all they may, the kernel's
// dealing by the weights that stand gives everybody what the owners' values gave them.
func TestWeightsKeepEverybodysRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := policies.DefaultConstants()
		node := policies.Node{CPUs: float64(rapid.IntRange(1, 64).Draw(t, "cpus")), MaxWeight: 262144}
		node.Idle = rapid.Float64Range(0, node.CPUs).Draw(t, "idle")
		var parties []Party
		for i := range rapid.IntRange(1, 12).Draw(t, "parties") {
			p := party(string(rune('a'+i)), rapid.SampledFrom([]float64{0, 0.2, 0.5, 1, 3}).Draw(t, "quota"), rapid.Float64Range(0.1, 8).Draw(t, "wants"))
			p.OwnWeight = float64(rapid.IntRange(1000, 8000).Draw(t, "weight"))
			p.Weight = p.OwnWeight
			if p.OwnQuota > 0 && rapid.Bool().Draw(t, "asks") {
				p = asks(p, node.CPUs)
			}
			parties = append(parties, p)
		}
		grants := RightsOf(node, parties).Plan(k, parties)
		owners, now := make([]policies.Claim, len(parties)), make([]policies.Claim, len(parties))
		lent := 0.0
		for i, g := range grants {
			if more := g.Quota - parties[i].Quota; more >= k.Dominant { // rounded up by less than one
				lent += more - 1
			} else {
				lent += max(0, more)
			}
			owners[i] = policies.Claim{Weight: parties[i].OwnWeight, Quota: parties[i].OwnQuota, Demand: node.CPUs}
			now[i] = policies.Claim{Weight: g.Weight, Quota: g.Quota, Demand: node.CPUs}
		}
		if lent > node.Idle+1e-9 {
			t.Fatalf("%.3f CPUs are lent of %.3f that are idle", lent, node.Idle)
		}
		then := policies.Shares(node.CPUs, now)
		for i, right := range policies.Shares(node.CPUs, owners) {
			// A weight within a tenth of what it should be is not written again.
			if then[i] < right*(1-2*k.MinStep)-0.02 {
				t.Fatalf("%s gets %.3f of the %.3f CPUs that the owners' values gave it: %+v", parties[i].Name, then[i], right, grants)
			}
		}
	})
}

func TestMemory(t *testing.T) {
	const gib = 1 << 30
	grow := func(bytes float64) Raise { return Raise{Bytes: bytes, Protects: true} }
	cache := func(bytes, gain float64, importance int) Raise {
		return Raise{Bytes: bytes, Gain: gain, Importance: importance}
	}
	for name, c := range map[string]struct {
		free   float64
		raises []Raise
		want   []float64
	}{
		"enough for all":                   {9 * gib, []Raise{grow(1 * gib), cache(2*gib, 1, 5)}, []float64{1 * gib, 2 * gib}},
		"the larger gain first":            {3 * gib, []Raise{cache(2*gib, 0.1, 5), cache(2*gib, 1, 5)}, []float64{1 * gib, 2 * gib}},
		"the smaller of equal gains first": {3 * gib, []Raise{cache(2*gib, 0.5, 5), cache(1*gib, 0.5, 5)}, []float64{2 * gib, 1 * gib}},
		"importance between equals":        {1 * gib, []Raise{cache(1*gib, 0.5, 1), cache(1*gib, 0.5, 10)}, []float64{0, 1 * gib}},
		"what protects before a gain":      {1 * gib, []Raise{cache(1*gib, 9, 10), grow(1 * gib)}, []float64{0, 1 * gib}},
		"nothing free, and less than none": {-gib, []Raise{grow(1 * gib), cache(2*gib, 1, 5)}, []float64{0, 0}},
		"nobody asks":                      {gib, nil, nil},
	} {
		got := Memory(c.free, c.raises)
		for i := range c.want {
			if math.Abs(got[i]-c.want[i]) > 1 {
				t.Errorf("%s: %.2f GiB to %d, want %.2f", name, got[i]/gib, i, c.want[i]/gib)
			}
		}
	}
}

// TestMemoryIsGivenOnce: nobody gets more than it asks for, and all together no more than is free.
func TestMemoryIsGivenOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		free := rapid.Float64Range(-1e9, 64e9).Draw(t, "free")
		var raises []Raise
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			raises = append(raises, Raise{Bytes: rapid.Float64Range(0, 32e9).Draw(t, "bytes"), Protects: rapid.Bool().Draw(t, "protects"),
				Gain: rapid.Float64Range(-1, 9).Draw(t, "gain"), Importance: rapid.IntRange(0, 10).Draw(t, "importance")})
		}
		sum := 0.0
		for i, bytes := range Memory(free, raises) {
			if bytes < 0 || bytes > raises[i].Bytes {
				t.Fatalf("%v of %v", bytes, raises[i].Bytes)
			}
			sum += bytes
		}
		if sum > max(free, 0)*(1+1e-12) {
			t.Fatalf("%v of %v", sum, free)
		}
	})
}
