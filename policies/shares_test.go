package policies

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(b)) }

// busy is a claim of a weight under a quota, that would use so many CPUs.
func busy(weight, quota, demand float64) Claim {
	return Claim{Weight: weight, Quota: quota, Demand: demand, Active: true, Tuned: true}
}

func TestRights(t *testing.T) {
	floor := func(c Claim, cpus float64) Claim { c.Floor = cpus; return c }
	gpus := func(c Claim, n float64) Claim { c.GPUs = n; return c }
	stranger := busy(1024, 0, 9)
	stranger.Tuned = false
	asleep := busy(1024, 0.4, 0)
	asleep.Active = false
	for name, c := range map[string]struct {
		cpus   float64
		claims []Claim
		want   []float64
	}{
		"by weight":                         {3, []Claim{busy(2048, 0, 9), busy(1024, 0, 9)}, []float64{2, 1}},
		"a quota leaves the rest to others": {2, []Claim{busy(1024, 0.4, 9), busy(1024, 1.8, 9)}, []float64{0.4, 1.6}},
		"who sleeps is as if alone":         {2, []Claim{asleep, busy(1024, 0, 9)}, []float64{0.4, 2}},
		"what a quota leaves":               {2, []Claim{busy(1024, 0.4, 9), busy(1024, 0, 9)}, []float64{0.4, 1.6}},
		"a proven quota takes of that":      {2, []Claim{proven(busy(1024, 0.4, 9), 0.8), busy(1024, 0, 9)}, []float64{0.4, 1.2}},
		"and no more than that":             {2, []Claim{proven(busy(1024, 0.4, 9), 1.8), busy(1024, 0, 9)}, []float64{0.4, 1}},
		"and nothing of a quota":            {2, []Claim{proven(busy(1024, 0.4, 9), 1.8), busy(1024, 1.8, 9)}, []float64{0.4, 1.6}},
		"floors first":                      {4, []Claim{floor(busy(1024, 0, 9), 3), busy(1024, 0, 9)}, []float64{3, 1}},
		"floors above the machine":          {2, []Claim{floor(busy(1024, 0, 9), 3), floor(busy(1024, 0, 9), 2)}, []float64{1, 1}},
		"by devices in use":                 {27, []Claim{gpus(busy(1024, 0, 20), 8), gpus(busy(1024, 0, 20), 1), stranger}, []float64{16, 2, 9}},
		"no machine":                        {0, []Claim{busy(1024, 0, 9)}, []float64{0}},
	} {
		got, _ := Rights(c.cpus, c.claims)
		if !slices.EqualFunc(got, c.want, near) {
			t.Errorf("%s: %.3f, want %v", name, got, c.want)
		}
	}
}

func drawClaims(t *rapid.T) (cpus float64, claims []Claim) {
	cpus = rapid.Float64Range(0.5, 64).Draw(t, "cpus")
	for range rapid.IntRange(1, 12).Draw(t, "claims") {
		claims = append(claims, Claim{Weight: float64(rapid.IntRange(2, 16384).Draw(t, "weight")), Quota: rapid.SampledFrom([]float64{0, 0.25, 1, 4}).Draw(t, "quota"),
			Floor: rapid.SampledFrom([]float64{0, 0, 0, 0.5, 100}).Draw(t, "floor"), Demand: rapid.Float64Range(0, 80).Draw(t, "demand"), Active: rapid.Bool().Draw(t, "active"),
			GPUs: float64(rapid.IntRange(0, 8).Draw(t, "gpus")), Tuned: rapid.Bool().Draw(t, "tuned")})
	}
	return cpus, claims
}

func proven(c Claim, cpus float64) Claim { c.Proven = cpus; return c }

// TestRightsHold: they never sum above the machine, no quota is exceeded but by a floor, and
// what a container uses or would use moves nobody's right.
func TestRightsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus, claims := drawClaims(t)
		rights, _ := Rights(cpus, claims)
		sum := 0.0
		for i, c := range claims {
			if c.Active {
				sum += rights[i]
			}
			if c.Quota > 0 && rights[i] > max(c.Quota, c.Floor)*(1+1e-9) || rights[i] < 0 {
				t.Fatalf("a right of %.3f under a quota of %.3f and a floor of %.3f", rights[i], c.Quota, c.Floor)
			}
		}
		if sum > cpus*(1+1e-9) {
			t.Fatalf("rights of %.4f on %.4f CPUs", sum, cpus)
		}
		claims[rapid.IntRange(0, len(claims)-1).Draw(t, "player")].Demand = rapid.Float64Range(0, 1e6).Draw(t, "feigns")
		if after, _ := Rights(cpus, claims); !slices.Equal(rights, after) {
			t.Fatalf("rights of %v became %v by what one would use", rights, after)
		}
	})
}

// TestReachIsSharesWithoutALimit: the fast way gives what the kernel's dealing gives.
func TestReachIsSharesWithoutALimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus, claims := drawClaims(t)
		got := Reach(cpus, claims)
		for i := range claims {
			alone := slices.Clone(claims)
			alone[i].Quota, alone[i].Demand = 0, 2*cpus
			if want := Shares(cpus, alone)[i]; math.Abs(got[i]-want) > 1e-6*cpus {
				t.Fatalf("claim %d of %+v on %.3f CPUs: %.6f, want %.6f", i, claims, cpus, got[i], want)
			}
		}
	})
}

// TestSharesFillTheMachine: nobody gets more than it may, and while anybody lacks something,
// nothing is left.
func TestSharesFillTheMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus, claims := drawClaims(t)
		sum, lacks := 0.0, false
		for i, got := range Shares(cpus, claims) {
			most := min(claims[i].Demand, cpus)
			if claims[i].Quota > 0 {
				most = min(most, claims[i].Quota)
			}
			if got > most*(1+1e-9) {
				t.Fatalf("claim %d gets %.4f, and may %.4f", i, got, most)
			}
			sum += got
			lacks = lacks || got < most*(1-1e-6)
		}
		if sum > cpus*(1+1e-6) || lacks && sum < cpus*(1-1e-6) {
			t.Fatalf("%.6f of %.6f CPUs are dealt, and one lacks some: %v", sum, cpus, lacks)
		}
	})
}

// TestShares: by hand, by weight, and what one leaves the others share.
func TestShares(t *testing.T) {
	for _, c := range []struct{ weights, wants, want []float64 }{
		{[]float64{1, 1}, []float64{20, 20}, []float64{12, 12}},
		{[]float64{1, 1}, []float64{4, 30}, []float64{4, 20}},
		{[]float64{1, 2, 1}, []float64{30, 30, 2}, []float64{22.0 / 3, 44.0 / 3, 2}},
		{[]float64{1, 1}, []float64{3, 4}, []float64{3, 4}},
	} {
		claims := make([]Claim, len(c.wants))
		for i := range claims {
			claims[i] = Claim{Weight: c.weights[i], Demand: c.wants[i]}
		}
		for i, got := range Shares(24, claims) {
			if math.Abs(got-c.want[i]) > 1e-9 {
				t.Errorf("%v for %v: %v, want %v", c.weights, c.wants, got, c.want[i])
			}
		}
	}
}

func TestDemand(t *testing.T) {
	for _, c := range []struct{ used, waiting, lost, want float64 }{
		{0.5, 0, 0, 0.5}, {0.5, 0.06, 0, 0.53}, {0.5, 0.5, 0, 1}, {0.5, 0, 0.6, 1.25}, {0.1, 1, 0, 4}, {3, 0.9, 0, 4},
	} {
		j := Job{CPU: CPUUse{Used: c.used, Waiting: c.waiting, Lost: c.lost}}
		if got := j.Demand(4); math.Abs(got-c.want) > 0.01 {
			t.Errorf("%+v: %.2f", c, got)
		}
	}
	j := Job{CPU: CPUUse{Used: 0.1}, Curve: Curve{Source: "x", Points: []Point{{X: 2, Rate: 10, Low: 10, High: 10}, {X: 9, Rate: 10, Low: 10, High: 10}}}}
	if got := j.Demand(4); math.Abs(got-2) > 0.05 {
		t.Errorf("by its curve %.2f CPUs, want 2", got)
	}
}
