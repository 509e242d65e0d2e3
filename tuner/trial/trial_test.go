package trial

import (
	"math"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/observe"
)

const second = int64(1e9)

// rates are readings of a second each, from an instant on.
func rates(from int64, perSecond ...float64) (out []observe.RateSample) {
	for i, r := range perSecond {
		out = append(out, observe.RateSample{StartNs: (from + int64(i)) * second, EndNs: (from + int64(i) + 1) * second, Rate: r})
	}
	return out
}

func level(n int, rate float64) (out []float64) {
	for i := range n {
		out = append(out, rate*(1+0.01*float64(i%3-1)))
	}
	return out
}

func TestGoesBackAndForth(t *testing.T) {
	k := policies.DefaultConstants()
	tr := New(Progress{}, rates(0, level(8, 10)...))
	if tr.Step(k, Evidence{NowNs: 9 * second}) != Wait {
		t.Error("judged before its change stands")
	}
	now := int64(8)
	var switches []bool
	for range 60 {
		tr.Switched(k, now*second)
		at, rate := now+1, 11.0
		if !tr.With() {
			rate = 10
		}
		var action Action
		for n := 1; n <= 10; n++ {
			action = tr.Step(k, Evidence{NowNs: (at + int64(n)) * second, Samples: rates(at, level(n, rate)...)})
			if action != Wait {
				now = at + int64(n)
				break
			}
		}
		if action == End {
			break
		}
		switches = append(switches, tr.With())
	}
	if r := tr.Result; r.Outcome != Better || r.Low > 1.1 || r.High < 1.1 || r.Low <= 1 || !strings.HasPrefix(r.Why, "gained +") {
		t.Errorf("%+v", r)
	}
	if len(switches) < 2 || switches[0] || !switches[1] {
		t.Errorf("with the change after each switch: %v, want without and with it by turns", switches)
	}
}

// TestAClearLossGoesBackAtOnce: not after a whole block.
func TestAClearLossGoesBackAtOnce(t *testing.T) {
	k := policies.DefaultConstants()
	tr := New(Progress{}, rates(0, level(12, 10)...))
	tr.Switched(k, 12*second)
	if got := tr.Step(k, Evidence{NowNs: 15 * second, Samples: rates(13, 5, 5.05)}); got != Switch {
		t.Errorf("%v after two readings at half the rate", got)
	}
}

// TestHarmEndsEveryTrial: whatever it is judged by, and however many blocks it has.
func TestHarmEndsEveryTrial(t *testing.T) {
	k := policies.DefaultConstants()
	for _, criterion := range []Criterion{Progress{}, Progress{Decrease: true}, NoHarm{}} {
		tr := New(criterion, rates(0, level(12, 10)...))
		tr.Switched(k, 12*second)
		if got := tr.Step(k, Evidence{NowNs: 15 * second, Samples: rates(13, 20, 20.05), Harm: "a neighbour is short"}); got != End || tr.Result.Outcome != Worse {
			t.Errorf("%T: %v, %+v", criterion, got, tr.Result)
		}
	}
}

// TestSilence: a rate that is not seen is no rate of zero, and is not waited for without end.
func TestSilence(t *testing.T) {
	k := policies.DefaultConstants()
	for name, c := range map[string]struct {
		baseline []observe.RateSample
		patience int64 // seconds
	}{
		"steps of a second":      {rates(0, level(8, 10)...), 30},
		"steps of thirty":        {slow(8, 30), 900},
		"without any before it":  {nil, 30},
		"with one reading alone": {rates(0, 10), 30},
		"an hour's stop in it":   {append(rates(0, level(4, 10)...), rates(3600, level(4, 10)...)...), 30},
	} {
		tr := New(Progress{}, c.baseline)
		tr.Switched(k, 0)
		if got := tr.Step(k, Evidence{NowNs: (c.patience - 1) * second}); got != Wait {
			t.Errorf("%s: %v within its time", name, got)
		}
		if got := tr.Step(k, Evidence{NowNs: (c.patience + 3) * second}); got != End || tr.Result.Outcome != Inconclusive {
			t.Errorf("%s: %v, %+v", name, got, tr.Result)
		}
		tr = New(Progress{}, c.baseline)
		tr.Switched(k, 0)
		tr.FrozenNs = 100 * c.patience * second
		if got := tr.Step(k, Evidence{NowNs: (c.patience + 3) * second}); got != Wait {
			t.Errorf("%s: time in which all was frozen counts", name)
		}
		tr.Switched(k, 0)
		if got := tr.Step(k, Evidence{NowNs: (c.patience + 3) * second}); got != End {
			t.Errorf("%s: time in which an earlier block was frozen counts for this one", name)
		}
	}
}

// slow are readings of so many seconds each.
func slow(n int, seconds int64) (out []observe.RateSample) {
	for i := range int64(n) {
		out = append(out, observe.RateSample{StartNs: i * seconds * second, EndNs: (i + 1) * seconds * second, Rate: 1 / float64(seconds)})
	}
	return out
}

func TestNoHarm(t *testing.T) {
	k := policies.DefaultConstants()
	for name, c := range map[string]struct {
		h    NoHarm
		e    Evidence
		want Action
		as   Outcome
	}{
		"hurts":                           {NoHarm{}, Evidence{NowNs: 3 * second, Harm: "it reads again"}, End, Worse},
		"not watched for long enough":     {NoHarm{}, Evidence{NowNs: 20 * second}, Wait, Pending},
		"no harm":                         {NoHarm{}, Evidence{NowNs: 40 * second}, End, Better},
		"no harm, and nothing seen":       {NoHarm{Seen: true}, Evidence{NowNs: 40 * second}, End, Worse},
		"no harm, and nothing any more":   {NoHarm{Seen: true}, Evidence{NowNs: 40 * second, Samples: rates(10, level(20, 10)...)}, End, Worse},
		"no harm, and its rate is there":  {NoHarm{Seen: true}, Evidence{NowNs: 40 * second, Samples: rates(10, level(30, 10)...)}, End, Better},
		"seen under excess steal":         {NoHarm{Seen: true}, Evidence{NowNs: 40 * second, SeenNs: 39 * second}, Wait, Pending},
		"read in its first seconds alone": {NoHarm{Seen: true}, Evidence{NowNs: 40 * second, SeenNs: 39 * second, Samples: rates(1, level(4, 10)...)}, Wait, Pending},
		"excess steal without end":        {NoHarm{Seen: true}, Evidence{NowNs: 100 * second, SeenNs: 99 * second}, End, Inconclusive},
		"its rate fell by half":           {NoHarm{Seen: true}, Evidence{NowNs: 20 * second, Samples: rates(10, level(10, 5)...)}, End, Worse},
	} {
		tr := New(c.h, rates(-10, level(10, 10)...))
		tr.Switched(k, 0)
		if got := tr.Step(k, c.e); got != c.want || tr.Result.Outcome != c.as {
			t.Errorf("%s: %v, %+v", name, got, tr.Result)
		}
	}
}

// TestResultsAreFinite: whatever was read, a result can be written as JSON and said in words.
func TestResultsAreFinite(t *testing.T) {
	k := policies.DefaultConstants()
	for name, with := range map[string][]float64{
		"nothing":        {},
		"zeros":          {0, 0, 0},
		"nonsense":       {math.NaN(), math.Inf(1), -3, 10, 10},
		"from next to 0": {1e-300, 1e-300, 1e-300},
		"to enormous":    {1e300, 1e300, 1e300},
	} {
		r, ok := Compare(k, []Block{{Samples: rates(0, level(8, 10)...)}, {With: true, Samples: rates(9, with...)}}, 0.01)
		for _, v := range []float64{r.Ratio, r.Low, r.High} {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if ok && r.Spread() == "" {
			t.Errorf("%s says nothing", name)
		}
	}
}

func TestFailures(t *testing.T) {
	k := policies.DefaultConstants()
	var f Failures
	on := Conditions{Value: "40000 100000", Need: 1.2, Others: 2}
	if f.Blocks(k, runtime.KnobCPUQuota, false, on) {
		t.Error("blocked before anything failed")
	}
	f.Add(runtime.KnobCPUQuota, false, on)
	with := func(edit func(*Conditions)) Conditions { c := on; edit(&c); return c }
	for name, c := range map[string]struct {
		knob     runtime.Knob
		decrease bool
		now      Conditions
		blocks   bool
	}{
		"nothing moved":               {runtime.KnobCPUQuota, false, on, true},
		"a little":                    {runtime.KnobCPUQuota, false, with(func(c *Conditions) { c.Need = 1.4 }), true},
		"the other way round":         {runtime.KnobCPUQuota, true, on, false},
		"another knob":                {runtime.KnobCPUWeight, false, on, false},
		"it needs twice as much":      {runtime.KnobCPUQuota, false, with(func(c *Conditions) { c.Need = 2.4 }), false},
		"others take half as much":    {runtime.KnobCPUQuota, false, with(func(c *Conditions) { c.Others = 1 }), false},
		"its owner set another value": {runtime.KnobCPUQuota, false, with(func(c *Conditions) { c.Value = "60000 100000" }), false},
	} {
		if got := f.Blocks(k, c.knob, c.decrease, c.now); got != c.blocks {
			t.Errorf("%s: blocks %v", name, got)
		}
	}
	for i := range 3 * keptFailures {
		f.Add(runtime.KnobCPUWeight, false, Conditions{Need: float64(i)})
	}
	if len(f.all) > keptFailures {
		t.Errorf("%d are kept", len(f.all))
	}
}

func TestBears(t *testing.T) {
	var f Failures
	f.AddAgainst(runtime.KnobCPUQuota, "a", 2, 10)
	f.AddAgainst(runtime.KnobCPUQuota, "b", 1, 20)
	f.AddAgainst(runtime.KnobCPUQuota, "a", 1.2, 30) // less than was thought
	at := map[string]int64{"a": 30, "b": 20}
	there := func(keys ...string) func(string, int64) bool {
		return func(key string, atNs int64) bool {
			return strings.Contains(strings.Join(keys, " "), key) && atNs == at[key]
		}
	}
	for _, c := range []struct {
		there   func(string, int64) bool
		most    float64
		bounded bool
	}{{there("a"), 1.2, true}, {there("a", "b"), 1, true}, {there("c"), math.Inf(1), false}} {
		if most, bounded := f.Bears(runtime.KnobCPUQuota, c.there); most != c.most || bounded != c.bounded {
			t.Errorf("%.2f %v, want %.2f %v", most, bounded, c.most, c.bounded)
		}
	}
	if most, bounded := f.Bears(runtime.KnobCPUWeight, there("a")); bounded {
		t.Errorf("another knob is bounded by %.2f", most)
	}
}

func TestTogether(t *testing.T) {
	a, b := rates(0, 1, 1, 1, 1), slow(2, 2)
	for i := range b {
		b[i].Rate = 3
	}
	got := Together([][]observe.RateSample{a, b})
	if len(got) != 2 || got[0].Rate != 2 || got[1].EndNs != 4*second {
		t.Errorf("%+v, want two readings of 2", got)
	}
	if got := Together([][]observe.RateSample{a, nil}); len(got) != 0 {
		t.Errorf("%+v of one that says nothing", got)
	}
	if got := Together(nil); got != nil {
		t.Errorf("%+v of nobody", got)
	}
}
