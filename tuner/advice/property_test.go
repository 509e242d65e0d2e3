package advice

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

func hostileTexts() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"train", "", "-rf", "a b", "$(reboot)", "`id`", "'; rm -rf / #", "\"", "a\nb", "x: {y}", "\x1b]0;x\a", "\u202eevil", "<script>", "\U0001f600", strings.Repeat("x", 4096)}))
}

// exchanging is a job on an A100 that an H100 would run twice as fast, and one on that which it would not.
func exchanging(edit func(*state.Snapshot)) *state.Snapshot {
	s := host(state.Container{Key: "k", Name: "train", Devices: []state.DeviceSpeed{{Model: "H100", PerSecond: 8, Low: 5, High: 12, Ratio: 2}}},
		state.Container{Key: "o", Name: "other", Devices: []state.DeviceSpeed{{Model: "A100", PerSecond: 10, Low: 9.8, High: 10.1, Ratio: 0.99, HostBound: true}}})
	s.Devices = []state.Device{{UUID: "GPU-a", Name: "A100", MemTotal: 80 << 30, Holders: []state.Holder{holder("k", 0)}},
		{UUID: "GPU-h", Name: "H100", MemTotal: 80 << 30, Holders: []state.Holder{holder("o", 0)}}, {UUID: "GPU-b", Name: "A100", MemTotal: 80 << 30}}
	if edit != nil {
		edit(s)
	}
	return s
}

// evidence are containers of which something is advised.
func evidence() []state.Container {
	evicted := starved()
	evicted.Verdict.Cause, evicted.MemoryUse, evicted.Enrolment = policies.CauseReclaim, policies.MemoryUse{Read: true}, tuned("cpu")
	remote := starved()
	remote.NetworkMount = "/mnt/data"
	remote.Verdict.Cause, remote.Breakdown.WallNs, remote.Breakdown.Ns = policies.CauseRemote, 100, [policies.NumParts]int64{policies.PartInputRemote: 40}
	spare := state.Container{Key: "k", Name: "web", Original: quota(4), Now: quota(4), Entitled: 4, PeakCPUs: 0.8, PeakSinceUnixNs: now - 7*24*hour}
	faster := state.Container{Key: "k", Name: "train", Devices: []state.DeviceSpeed{{Model: "H100", PerSecond: 8, Low: 5, High: 12, Ratio: 2}}}
	slower := state.Container{Key: "k", Name: "train", LastRuns: &profiles.Shown{Runs: 8, PerSecond: 100, Low: 98, High: 102, Slower: 0.15, SlowerWhy: "15 % below its last 8 runs, since the driver changed (550, before 535)"}}
	return []state.Container{lent(), starved(), loading(), crowded(), filled(), paging(), evicted, remote, spare, faster, slower, saving(), copying()}
}

// anything is a snapshot of one of these, of which some numbers and texts are arbitrary ones.
func anything(t *rapid.T) *state.Snapshot {
	numbers := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 10), rapid.SampledFrom([]float64{0, 1, 0.5, 1e10, math.Inf(1), math.Inf(-1), math.NaN(), 5e-324, math.MaxFloat64}))
	some := func() bool { return rapid.IntRange(0, 9).Draw(t, "arbitrary") == 0 }
	c := rapid.SampledFrom(evidence()).Draw(t, "container")
	s := host(c)
	s.Devices = devices()
	h, m, e := &s.Devices[0].Holders[0], &c.MemoryUse, &c.Cost
	p := &c.Pauses
	g := &c.Staging
	fields := []*float64{&g.CallSeconds, &g.MiBSeconds, &g.Share, &g.Idle, &p.EverySeconds, &p.LostSeconds, &p.LowSeconds, &p.HighSeconds, &p.Bytes, &c.SharedBytes, &m.Shared, &c.Team.Wanted, &c.Team.Unrun, &c.Team.Behind, &c.Knee, &c.UsedCPUs, &c.Entitled, &c.Obtainable, &c.PeakCPUs, &c.Gain, &e.TrainerCPU, &e.LoaderCPU, &e.OtherCPU, &e.Device, &e.Batch, &e.Spin, &e.Queue, &c.Rate.PerSecond,
		&c.Paging.Base, &c.Paging.Lost, &c.Paging.Limit, &c.Paging.Set, &m.Limit, &m.Reread, &m.DiskRead, &m.CalmSeconds, &m.Loan.From, &m.Loan.Before, &m.Loan.After, &m.Loan.Seconds,
		&c.Verdict.Severity, &c.Verdict.Confidence, &h.QuietSeconds, &h.HeldSeconds, &h.IdleSeconds, &s.Node.CPUs, &s.Node.Idle, &s.Node.Memory, &s.Node.MemoryFree}
	if c.LastRuns != nil {
		r := *c.LastRuns
		c.LastRuns = &r
		fields = append(fields, &r.PerSecond, &r.Low, &r.High, &r.Slower)
	}
	if c.Loan != nil {
		l := *c.Loan
		c.Loan, c.HasGain, c.Work = &l, rapid.Bool().Draw(t, "counted"), &state.Work{Ratio: 2, CPUs: 2}
		fields = append(fields, &l.Own, &l.CPUs, &c.Work.Ratio, &c.Work.CPUs)
	}
	for i := range c.Devices {
		d := &c.Devices[i]
		fields = append(fields, &d.Ratio, &d.PerSecond, &d.Low, &d.High)
	}
	if rapid.Bool().Draw(t, "learned") {
		c.ByCPUs.Points = []policies.Point{{X: 0.5, Rate: 5, Low: 4, High: 6}, {X: 4, Rate: 20, Low: 10, High: 30}}
		at := &c.ByCPUs.Points[1]
		fields = append(fields, &at.X, &at.Rate, &at.Low, &at.High)
	}
	for _, f := range fields {
		if some() {
			*f = numbers.Draw(t, "number")
		}
	}
	for _, text := range []*string{&c.ID, &c.Name, &c.NetworkMount, &s.Devices[0].UUID, &s.Devices[1].UUID, &h.Evidence, &h.Name} {
		if some() {
			*text = hostileTexts().Draw(t, "text")
		}
	}
	for _, ns := range []*int64{&c.PeakSinceUnixNs, &c.VerdictSinceUnixNs, &s.UnixNs, &h.QuietUnixNs, &c.Breakdown.WallNs, &c.Breakdown.Ns[policies.PartInputRemote], &c.Breakdown.Ns[policies.PartThrottled]} {
		if some() {
			*ns = rapid.Int64().Draw(t, "ns")
		}
	}
	for _, n := range []*int{&c.Ranks, &c.Cost.Loaders, &c.Team.Threads} {
		if some() {
			*n = rapid.IntRange(-3, 1000).Draw(t, "count")
		}
	}
	if some() {
		c.Now = runtime.Values{runtime.KnobCPUQuota: runtime.Value(hostileTexts().Draw(t, "quota")), runtime.KnobMemoryLimit: "-5"}
		c.Enrolment.Knobs = append(c.Enrolment.Knobs, hostileTexts().Draw(t, "knob"))
	}
	s.Containers[0] = c
	if rapid.Bool().Draw(t, "another") {
		return with(exchanging(nil), func(s **state.Snapshot) {
			for i := range (*s).Containers {
				o := &(*s).Containers[i]
				for _, f := range []*float64{&o.Devices[0].Ratio, &o.Devices[0].PerSecond, &o.Devices[0].Low, &o.Devices[0].High} {
					if some() {
						*f = numbers.Draw(t, "number")
					}
				}
				for _, text := range []*string{&o.Name, &(*s).Devices[i].UUID} {
					if some() {
						*text = hostileTexts().Draw(t, "text")
					}
				}
			}
		})
	}
	return s
}

// plainLine is every character that a line to paste may have, whatever containers are called.
var plainLine = regexp.MustCompile(`^[A-Za-z0-9 =:.,/_"'{}\[\]-]+$`)

// TestAdviceIsSound: whatever a snapshot holds, what is advised are finite numbers in order, within
// the host, and lines that a shell and YAML read as they are meant.
func TestAdviceIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anything(t)
		for _, a := range Of(policies.DefaultConstants(), s) {
			g := a.Gives
			for _, v := range []float64{g.Low, g.Share, g.High, g.LowHours, g.Hours, g.HighHours, a.Confidence, a.Current.Value, a.Advised.Value} {
				if !(v >= 0) || math.IsInf(v, 0) {
					t.Fatalf("%+v: %v is no number to show", a, v)
				}
			}
			if g.Low > g.Share || g.Share > g.High || g.High > 1 || g.LowHours > g.Hours || g.Hours > g.HighHours || a.Confidence <= 0 || a.Confidence > 1 || len(a.Evidence) == 0 {
				t.Fatalf("%+v", a)
			}
			if a.Advised.Unit == "CPUs" && a.Advised.Value > s.Node.CPUs || a.Advised.Unit == "B" && a.Advised.Value > s.Node.Memory || a.Advised.Unit == "workers" && a.Advised.Value > s.Node.CPUs || a.Advised.Unit == "threads" && a.Advised.Value > max(1, s.Node.CPUs) {
				t.Fatalf("%s: the host has %.2f CPUs", a, s.Node.CPUs)
			}
			for _, l := range a.Paste {
				checkLine(t, l)
			}
		}
	})
}

// TestAdviceOfOneIsThatOfAll: who asks for one container is told what all of the host's advice has of it.
func TestAdviceOfOneIsThatOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anything(t)
		all := Of(policies.DefaultConstants(), s)
		for _, c := range s.Containers {
			want := slices.DeleteFunc(slices.Clone(all), func(a Advice) bool { return a.Key != c.Key })
			got := OfContainer(policies.DefaultConstants(), s, c.Key)
			if d := cmp.Diff(want, got, cmpopts.EquateNaNs()); d != "" {
				t.Fatal(d)
			}
		}
	})
}

// TestEvidenceHoldsAllThatIsAdvised: what the property changes at random is advised on before.
func TestEvidenceHoldsAllThatIsAdvised(t *testing.T) {
	seen := map[What]bool{}
	for _, c := range evidence() {
		s := host(c)
		s.Devices = devices()
		for _, a := range append(Of(policies.DefaultConstants(), s), Of(policies.DefaultConstants(), exchanging(nil))...) {
			seen[a.What] = true
		}
	}
	for _, what := range []What{CPUQuota, CPUSpare, CPUThreads, MemoryLimit, MemoryAllow, MemoryShm, LoaderWorkers, LoaderPinned, DataLocal, GPUIdle, GPUModel, GPUExchange, JobCheckpoints, JobSlower} {
		if !seen[what] {
			t.Errorf("%s is not advised: the property says nothing of it", what)
		}
	}
}

// devices are one that the container holds idle, and a free one.
func devices() []state.Device {
	return []state.Device{{UUID: "GPU-a", Name: "A100", Holders: []state.Holder{holder("k", 49)}}, {UUID: "GPU-h", Name: "H100", MemTotal: 80 << 30}}
}

func checkLine(t *rapid.T, l Line) {
	if !plainLine.MatchString(l.Text) || len(l.Text) > 1000 {
		t.Fatalf("%s: %q", l.For, l.Text)
	}
	if l.For == "compose" {
		var v map[string]any
		if err := yaml.Unmarshal([]byte(l.Text), &v); err != nil || len(v) != 1 {
			t.Fatalf("%q is no YAML of one key: %v", l.Text, err)
		}
	}
}
