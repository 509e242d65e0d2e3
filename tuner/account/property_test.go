package account

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// Held is the sum of its causes, so never less than idle and stalled; whatever a report is sorted
// by, its groups sum to the same.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b, now := NewBook(), noon
		names := []string{"a", "b", "c"}
		at := map[string]*state.Container{}
		holders := map[string]*state.Holder{}
		for range rapid.IntRange(5, 60).Draw(rt, "ticks") {
			s := &state.Snapshot{}
			elapsed := rapid.SampledFrom([]int64{second, second, 3 * second, 50 * second, 100 * second, 0, -second}).Draw(rt, "elapsed")
			now += elapsed + rapid.SampledFrom([]int64{0, 0, 0, 3600 * second, -7200 * second}).Draw(rt, "step")
			s.UnixNs = now
			var d state.Device
			for _, n := range names {
				if !rapid.Bool().Draw(rt, n) {
					continue
				}
				c := at[n]
				if c == nil {
					c = &state.Container{Key: n, Name: n, Image: "i" + n[:1], Watched: true, Now: runtime.Values{runtime.KnobCPUQuota: "200000 100000"},
						Enrolment: policies.Enrolment{Team: rapid.SampledFrom([]string{"", "x", "y"}).Draw(rt, "team")}}
					at[n], holders[n] = c, &state.Holder{Key: n}
				}
				c.UsedCPUs = rapid.Float64Range(0, 4).Draw(rt, "used")
				c.PartNs[rapid.IntRange(0, int(policies.NumParts)-1).Draw(rt, "part")] += rapid.Int64Range(0, 5*second).Draw(rt, "ns")
				c.Verdict = throttled
				drawQuota(rt, c)
				holders[n].HeldSeconds += rapid.Float64Range(0, 3).Draw(rt, "held")
				holders[n].IdleSeconds = min(holders[n].HeldSeconds, holders[n].IdleSeconds+rapid.Float64Range(0, 3).Draw(rt, "idle"))
				s.Containers = append(s.Containers, *c)
				d.Holders = append(d.Holders, *holders[n])
			}
			s.Devices = []state.Device{d}
			b.Step(s, elapsed)
		}
		hours := b.Take()
		var first state.ReportGroup
		for i, by := range []By{ByTeam, ByImage, ByContainer, ByCause} {
			tally := NewTally(by, 0, 1<<62)
			for _, h := range hours {
				tally.Add(h)
			}
			r := tally.Report()
			var sum state.ReportGroup
			for _, g := range r.Groups {
				for _, u := range []state.ReportUse{g.GPU, g.CPU} {
					if u.Held < u.Idle+u.Stalled-1e-6 || u.Stalled < u.Actionable-1e-6 || u.Proven < u.Saved || u.Tried < u.Lost {
						rt.Fatalf("by %s: %+v", by, u)
					}
				}
				sum.GPU.Held += g.GPU.Held
				sum.CPU.Held += g.CPU.Held
				sum.CPU.Stalled += g.CPU.Stalled
				sum.CPU.Actionable += g.CPU.Actionable
				sum.LentCPUSeconds += g.LentCPUSeconds
			}
			near := func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }
			if t := r.Total; !near(sum.GPU.Held, t.GPU.Held) || !near(sum.CPU.Held, t.CPU.Held) || !near(sum.CPU.Stalled, t.CPU.Stalled) ||
				!near(sum.CPU.Actionable, t.CPU.Actionable) || !near(sum.LentCPUSeconds, t.LentCPUSeconds) {
				rt.Fatalf("by %s: groups %+v, total %+v", by, sum, t)
			}
			if i == 0 {
				first = r.Total
			} else if d := cmp.Diff(first, r.Total); d != "" {
				rt.Fatalf("by %s: %s", by, d)
			}
		}
	})
}

// drawQuota changes a container's quota, or not, in a trial that was kept, or not.
func drawQuota(rt *rapid.T, c *state.Container) {
	if !rapid.Bool().Draw(rt, "changed") {
		return
	}
	cpus := func(n int) runtime.Value { return runtime.Value(fmt.Sprint(n, "00000 100000")) }
	from, to := c.Now[runtime.KnobCPUQuota], cpus(rapid.IntRange(1, 5).Draw(rt, "quota"))
	if rapid.Bool().Draw(rt, "kept") {
		plan := fmt.Sprint("p", len(c.Trials))
		c.Trials = append([]state.Trial{kept(plan, from, to, rapid.Float64Range(0.5, 3).Draw(rt, "low"))}, c.Trials...)
	}
	c.Original = runtime.Values{runtime.KnobCPUQuota: "200000 100000"}
	c.Now, c.Changed = runtime.Values{runtime.KnobCPUQuota: to}, []runtime.Knob{runtime.KnobCPUQuota}
	c.Breakdown = policies.Breakdown{WallNs: 100}
	c.Breakdown.Ns[policies.PartThrottled] = rapid.Int64Range(0, 10).Draw(rt, "throttled")
}

func BenchmarkStep(b *testing.B) {
	s := &state.Snapshot{UnixNs: noon}
	for i := range 1000 {
		s.Containers = append(s.Containers, state.Container{Key: fmt.Sprintf("docker-%064d", i), Name: fmt.Sprint("job-", i), Watched: true, UsedCPUs: 1,
			Now: runtime.Values{runtime.KnobCPUQuota: "200000 100000"}})
	}
	book := NewBook()
	for b.Loop() {
		for i := range s.Containers {
			s.Containers[i].PartNs[0] += second / 5
		}
		book.Step(s, second)
	}
}

// Sum is one term over all causes.
func (u Use) Sum(t Term) (sum int64) {
	for c := range u {
		sum += u[c][t]
	}
	return sum
}
