package arbiter

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestReachIsSharesWithoutALimit: the fast way gives what the kernel's dealing gives.
func TestReachIsSharesWithoutALimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.Float64Range(0.5, 64).Draw(t, "cpus")
		var claims []Claim
		for range rapid.IntRange(1, 12).Draw(t, "jobs") {
			c := job("j", rapid.Float64Range(0, 8).Draw(t, "knee"))
			c.Weight = float64(rapid.IntRange(2, 16384).Draw(t, "weight"))
			c.Quota = rapid.SampledFrom([]float64{0, 0.25, 1, 4}).Draw(t, "quota")
			if rapid.Bool().Draw(t, "spins") {
				c = spinner("s")
			}
			claims = append(claims, c)
		}
		got := Reach(cpus, claims)
		for i := range claims {
			alone := append([]Claim(nil), claims...)
			alone[i] = spinner("all")
			alone[i].Weight = claims[i].Weight
			if want := Shares(cpus, alone)[i]; math.Abs(got[i]-want) > 1e-6*cpus {
				t.Fatalf("claim %d of %+v on %.3f CPUs: %.6f, want %.6f", i, claims, cpus, got[i], want)
			}
		}
	})
}

func TestReachBesideASpinner(t *testing.T) {
	claims := []Claim{job("hungry", 1.2), job("light", 0.1), spinner("stranger")}
	claims[0].Quota = 0.33
	if got := Reach(2, claims); !near(got[0], 0.95, 0.01) || !near(got[1], (2-0.33)/2, 0.01) {
		t.Errorf("%v: half of what the light one leaves is the hungry one's by weight", got)
	}
	if got := Reach(0, claims); got[0] != 0 {
		t.Errorf("%v of nothing", got)
	}
}
