package arbiter

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
)

// job is a movable claim whose rate grows in proportion to CPUs up to its knee.
func job(name string, knee float64) Claim {
	return Claim{Key: name, Name: name, Movable: true, Returnable: true, Enrolled: true, Active: true, OwnWeight: 1024, Weight: 1024, Used: knee,
		CPU: line(knee)}
}

func line(knee float64) policies.Curve {
	return policies.Curve{Source: "steps", Points: []policies.Point{{X: knee, Rate: 10, Low: 9, High: 11}, {X: knee + 64, Rate: 10, Low: 9, High: 11}}}
}

// spinner is a neighbour that nobody enrolled and that takes whatever it gets.
func spinner(name string) Claim {
	return Claim{Key: name, Name: name, Active: true, OwnWeight: 1024, Weight: 1024, Used: 1, Waiting: 1}
}

func near(a, b, within float64) bool { return math.Abs(a-b) <= within }

func cpus(p Plan) (out []float64) {
	for _, g := range p.Grants {
		out = append(out, math.Round(100*g.CPUs)/100)
	}
	return out
}

func TestDonorsLeaveTheRestWithoutAMove(t *testing.T) {
	p := Decide(Defaults(), policies.Node{CPUs: 2, MaxWeight: 10000}, []Claim{job("donor", 0.4), job("hungry", 3)})
	if p.Move || p.Release || !near(p.Grants[0].CPUs, 0.4, 0.01) || !near(p.Grants[1].CPUs, 1.6, 0.02) {
		t.Errorf("%v, %+v", cpus(p), p)
	}
	if p.Grants[0].Competes || !p.Grants[1].Competes || !strings.Contains(p.Grants[0].Why(), "left to others") {
		t.Errorf("%+v", p.Grants)
	}
}

// twoSizes: 4 CPUs; two small jobs, two that would take ten times as much, and a donor
// that leaves what they compete for.
func twoSizes() []Claim {
	return []Claim{job("big1", 9), job("big2", 9), job("donor", 0.1), job("small1", 1.0), job("small2", 1.0)}
}

func TestSumServesTheSmallFirst(t *testing.T) {
	node := policies.Node{CPUs: 4, MaxWeight: 262144}
	claims := twoSizes()
	claims[3].CPU, claims[4].CPU = line(1.3), line(1.3)
	p := Decide(Defaults(), node, claims)
	if !p.Move || p.Grants[3].CPUs < 1.05 || p.Grants[0].CPUs < p.Grants[0].Entitled {
		t.Errorf("%v of rights %.2f; %+v", cpus(p), p.Grants[0].Entitled, p)
	}
	if w := p.Grants[0].Weight + p.Grants[1].Weight + p.Grants[3].Weight + p.Grants[4].Weight; !near(w, 4096, 4) || p.Grants[2].Weight != 1024 {
		t.Errorf("the weights of those that compete sum to %v, want 4096", w)
	}
	params := Defaults()
	params.Objective = policies.ObjectiveMaxMin
	m := Decide(params, node, claims)
	if m.Grants[0].RateNow > 0.12 || !m.Move || m.Grants[0].Rate <= m.Grants[0].RateNow || m.Grants[3].CPUs < m.Grants[3].Entitled*0.99 {
		t.Errorf("max-min: %v %+v", cpus(m), m)
	}
}

func TestImportanceDecidesBetweenEquals(t *testing.T) {
	claims := []Claim{job("a", 3), job("b", 3), job("donor", 0.2)}
	claims[1].Importance = 10
	p := Decide(Defaults(), policies.Node{CPUs: 2, MaxWeight: 10000}, claims)
	if !p.Move || p.Grants[1].CPUs < 1.4*p.Grants[0].CPUs || p.Grants[0].CPUs < p.Grants[0].Entitled {
		t.Errorf("%v: %+v", cpus(p), p)
	}
	claims[1].Importance = 5
	if p := Decide(Defaults(), policies.Node{CPUs: 2, MaxWeight: 10000}, claims); p.Move || !near(p.Grants[0].CPUs, p.Grants[1].CPUs, 0.01) {
		t.Errorf("equals are told apart: %v %+v", cpus(p), p)
	}
}

// TestMemoryThatGoesWithCPUsCounts: of two alike, the one that is to have much of the node's
// memory besides is served after the other; memory of a smaller share than its CPUs changes nothing.
func TestMemoryThatGoesWithCPUsCounts(t *testing.T) {
	deal := func(beside float64) (one, other Grant) {
		claims := twoSizes()
		claims[3].CPU, claims[4].CPU = line(1.6), line(1.6)
		claims[3].Beside = beside
		p := Decide(Defaults(), policies.Node{CPUs: 4, MaxWeight: 262144}, claims)
		if !p.Move || p.Grants[3].CPUs < p.Grants[3].Entitled*0.99 {
			t.Errorf("%g beside: %v %+v", beside, cpus(p), p)
		}
		return p.Grants[3], p.Grants[4]
	}
	if one, other := deal(8); other.CPUs < 1.1*one.CPUs {
		t.Errorf("%.2f and %.2f CPUs, the first beside much memory", one.CPUs, other.CPUs)
	}
	first, second := deal(0)
	if one, other := deal(0.1); one.CPUs != first.CPUs || other.CPUs != second.CPUs {
		t.Errorf("%.2f and %.2f CPUs, the first beside little memory; %.2f and %.2f without", one.CPUs, other.CPUs, first.CPUs, second.CPUs)
	}
}

func TestEntitlementByGPUs(t *testing.T) {
	claims := []Claim{job("eight", 20), job("one", 20), spinner("other")}
	claims[0].GPUs, claims[1].GPUs = 8, 1
	rights, short, _ := Entitle(policies.Node{CPUs: 27}, claims)
	if short || !near(rights[0], 16, 1e-6) || !near(rights[1], 2, 1e-6) || !near(rights[2], 9, 1e-6) {
		t.Errorf("%v, want 16, 2 and the neighbour's own third of 9", rights)
	}
}

func TestMoreFloorsThanMachine(t *testing.T) {
	a, b := job("a", 3), job("b", 3)
	a.Floor, b.Floor = 3, 2
	p := Decide(Defaults(), policies.Node{CPUs: 2, MaxWeight: 10000}, []Claim{a, b})
	if !p.Short || p.Move || !near(p.Grants[0].Entitled, 1, 1e-6) || !near(p.Grants[1].Entitled, 1, 1e-6) || !strings.Contains(p.Grants[0].Why(), "50 % of its floor") {
		t.Errorf("%+v", p)
	}
	// Quotas alone are no floors that the machine must hold: weights decide.
	a.Floor, b.Floor, a.OwnQuota, b.OwnQuota, a.Quota, b.Quota = 0, 0, 1.5, 1.5, 1.5, 1.5
	if p := Decide(Defaults(), policies.Node{CPUs: 2, MaxWeight: 10000}, []Claim{a, b}); p.Short || !near(p.Grants[0].Entitled, 1, 1e-6) {
		t.Errorf("%+v", p)
	}
}

func TestNothingToDeal(t *testing.T) {
	p := Decide(Defaults(), policies.Node{}, []Claim{job("a", 1), spinner("b")})
	if !p.Short || p.Move || p.Release || p.Grants[0].CPUs != 0 || p.Why != "the node has no CPU to deal" {
		t.Errorf("%+v", p)
	}
	if p := Decide(Defaults(), policies.Node{CPUs: 4}, nil); p.Move || p.Short || len(p.Grants) != 0 {
		t.Errorf("%+v", p)
	}
	host := Decide(Defaults(), policies.Node{CPUs: 2, HostCPUs: 2}, []Claim{job("a", 1), job("b", 1)})
	if host.Move || host.Grants[0].CPUs != 0 {
		t.Errorf("the host uses all: %+v", host)
	}
}

// TestQuotasMaySumAboveTheMachine: both wants stand, and what each will get is told as
// weights decide it.
func TestQuotasMaySumAboveTheMachine(t *testing.T) {
	a, b := job("a", 1.5), job("b", 1.5)
	for _, c := range []*Claim{&a, &b} {
		c.OwnQuota, c.Quota, c.Used, c.Want = 0.5, 0.5, 0.5, 1.5
	}
	p := Decide(Defaults(), policies.Node{CPUs: 2, MaxWeight: 10000}, []Claim{a, b})
	if !near(p.Grants[0].Now, 0.5, 1e-6) || !near(p.Grants[0].CPUs, 1, 1e-6) || !near(p.Grants[1].CPUs, 1, 1e-6) {
		t.Errorf("%+v", p)
	}
}

func TestReleaseWhenADonorWakes(t *testing.T) {
	low, high := job("low", 2), job("high", 2)
	low.Weight, high.Weight = 256, 1792
	low.Used, high.Used = 0.25, 1.75
	p := Decide(Defaults(), policies.Node{CPUs: 2, MaxWeight: 10000}, []Claim{high, low})
	if !p.Release || p.Grants[0].Weight != 1024 || p.Grants[1].Weight != 1024 || !strings.Contains(p.Why, "low would get 0.25 of the 1.00") {
		t.Errorf("%+v", p)
	}
}

func randomNode(t *rapid.T) (policies.Node, []Claim) {
	node := policies.Node{CPUs: float64(rapid.IntRange(0, 32).Draw(t, "cpus")), MaxWeight: 262144}
	node.Reserve = rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "reserve") * node.CPUs
	node.HostCPUs = rapid.Float64Range(0, 1).Draw(t, "host")
	var claims []Claim
	for i := range rapid.IntRange(1, 12).Draw(t, "n") {
		c := job(fmt.Sprint("job", i), rapid.Float64Range(0.05, 12).Draw(t, "knee"))
		c.OwnWeight = rapid.SampledFrom([]float64{128, 1024, 1024, 1024, 4096}).Draw(t, "weight")
		c.Weight = c.OwnWeight
		if rapid.IntRange(0, 3).Draw(t, "steered") == 0 {
			c.Weight = math.Round(c.OwnWeight * rapid.Float64Range(0.1, 8).Draw(t, "by"))
		}
		if rapid.IntRange(0, 4).Draw(t, "fixed") == 0 {
			c.Movable, c.Returnable, c.Enrolled, c.CPU, c.Weight = false, false, rapid.Bool().Draw(t, "enrolled"), policies.Curve{}, c.OwnWeight
			c.Waiting = rapid.SampledFrom([]float64{0, 0.03, 0.5, 1}).Draw(t, "waiting")
		}
		if rapid.Bool().Draw(t, "quota") {
			c.OwnQuota = rapid.Float64Range(0.1, 4).Draw(t, "own")
			c.Quota = c.OwnQuota * rapid.Float64Range(1, 3).Draw(t, "given")
			c.Want = rapid.SampledFrom([]float64{0, c.Quota, 2 * c.Quota}).Draw(t, "want")
		}
		c.Beside = rapid.SampledFrom([]float64{0, 0, 0, 0.2, 30}).Draw(t, "beside")
		c.Floor = rapid.SampledFrom([]float64{0, 0, 0, 0.5, 4}).Draw(t, "floor")
		c.GPUs = rapid.SampledFrom([]float64{0, 1, 1, 8}).Draw(t, "gpus")
		c.Importance = rapid.IntRange(0, 10).Draw(t, "importance")
		c.Used = min(c.Used, node.CPUs)
		claims = append(claims, c)
	}
	return node, claims
}

// TestPlansHold: on any node, rights and grants stay within the machine, a move lowers
// nobody below its right, leaves the sum of the weights that compete as the owners
// made it, gains what it says, and is the same each time.
func TestPlansHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node, claims := randomNode(t)
		params := Defaults()
		params.Objective = rapid.SampledFrom(policies.Objectives()).Draw(t, "objective")
		params.MaxChanges = rapid.SampledFrom([]int{0, 2, 3, 5}).Draw(t, "changes")
		p := Decide(params, node, claims)
		if again := Decide(params, node, claims); !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v, then %+v", p, again)
		}
		free := max(0, node.CPUs-node.HostCPUs)
		wanted := shares(free, claims, Claim.weight, Claim.want) // what policies want may take too: the guard looks at it
		var rights, sum, own, dealt float64
		changes := 0
		for i, g := range p.Grants {
			for _, v := range []float64{g.Entitled, g.Need, g.Now, g.CPUs, g.Weight, g.Rate, g.RateNow} {
				if !(v >= 0) || math.IsInf(v, 0) {
					t.Fatalf("%+v", g)
				}
			}
			rights, sum = rights+g.Entitled, sum+g.CPUs
			if p.Move && g.Competes {
				own, dealt = own+claims[i].OwnWeight, dealt+g.Weight
				if g.Weight != claims[i].Weight {
					changes++
				}
			} else if !p.Release && g.Weight != claims[i].Weight {
				t.Fatalf("moves the weight of %+v", g)
			}
			if p.Move && g.CPUs < min(wanted[i], g.Entitled, g.Need)*0.99 {
				t.Fatalf("%+v falls below its right by a move, of %v", g, wanted[i])
			}
			if p.Release && claims[i].Returnable && g.Weight != claims[i].OwnWeight {
				t.Fatalf("%+v is not released", g)
			}
		}
		if params.MaxChanges > 0 && changes > params.MaxChanges {
			t.Fatalf("%d changes, %d are allowed: %+v", changes, params.MaxChanges, p)
		}
		if node.CPUs > 0 && rights > node.CPUs*(1+1e-6) || sum > node.CPUs*(1+1e-6) {
			t.Fatalf("rights of %v, grants of %v on %v CPUs", rights, sum, node.CPUs)
		}
		if p.Move && math.Abs(dealt-own) > 0.02*own+float64(len(claims))*2 {
			t.Fatalf("weights that compete sum to %v, and to %v by their owners", dealt, own)
		}
	})
}

func BenchmarkDecide1000(b *testing.B) {
	var claims []Claim
	for i := range 1000 {
		c := job(fmt.Sprint("job", i), 0.05+float64(i%97)/100)
		if i%5 == 0 {
			c.Movable, c.Enrolled, c.CPU = false, false, policies.Curve{}
		}
		if i%3 == 0 {
			c.OwnQuota, c.Quota = 0.5, 0.5
		}
		if c.CPU.Known() { // as many points as a learnt curve has
			cost := policies.Cost{TrainerCPU: c.CPU.Points[0].X, Device: 0.5}
			curve := policies.Curve{}
			for k := 1; k <= 20; k++ {
				x := float64(k) / 10
				curve.Points = append(curve.Points, policies.Point{X: x, Rate: 1 / cost.Step(x)})
			}
			c.CPU = curve
		}
		claims = append(claims, c)
	}
	node := policies.Node{CPUs: 128, Reserve: 12.8, MaxWeight: 10000}
	for b.Loop() {
		Decide(Defaults(), node, claims)
	}
}
