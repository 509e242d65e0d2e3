package profiles

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/model"
	"pgregory.net/rapid"
)

const day = 24 * 3600 * int64(1e9)

// input is a job whose loaders decode images, as a probe would read it.
func input(loaderCPU float64) (Print, policies.Cost) {
	c := policies.Cost{TrainerCPU: 0.020, LoaderCPU: loaderCPU, OtherCPU: 0.002, Device: 0.055, Batch: loaderCPU, Loaders: 2, Ticks: 100}
	p := Print{Unit: "torch.backward", Image: "train:1", Steps: 100}.
		With(TrainerCPU, c.TrainerCPU).With(LoaderCPU, c.LoaderCPU).With(OtherCPU, c.OtherCPU).With(DeviceWait, c.Device).With(Batch, c.Batch).
		With(StepTime, c.Floor()).With(Processes, 3).With(Threads, 9).With(Ranks, 1).With(Loaders, 2).With(ReadBytes, 0)
	return p, c
}

// starve is what a hard quota does to a print: dearer steps, and much longer ones.
func starve(p Print) Print {
	for a, factor := range map[Attribute]float64{TrainerCPU: 1.12, LoaderCPU: 1.12, OtherCPU: 1.3, Batch: 1.2, StepTime: 4, DeviceWait: 1.05} {
		v, _ := p.Value(a)
		p = p.With(a, v*factor)
	}
	return p
}

func measurement(name string, p Print, c policies.Cost, at int64) Measurement {
	return Measurement{Name: name, UnixNs: at, Print: p, Cost: c}
}

func TestAbsentIsNotZero(t *testing.T) {
	a, _ := input(0.05)
	with := a.With(Launches, 0)
	if _, ok := a.Value(Launches); ok {
		t.Error("an attribute that nobody read has a value")
	}
	if v, ok := with.Value(Launches); !ok || v != 0 {
		t.Errorf("a zero that was read: %v %v", v, ok)
	}
	// One that only one of both has is left out, and lessens what was compared.
	same, less := Compare(a, a, RangesOf()), Compare(a, a.With(Launches, 5000), RangesOf())
	if less.Distance != 0 || same.Compared != 1 || less.Compared >= 1 {
		t.Errorf("alike %+v, and with launches on one side %+v", same, less)
	}
	if zero := Compare(with, a.With(Launches, 5000), RangesOf()); zero.Distance <= 0.05 {
		t.Errorf("no launches against 5000: %+v", zero)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1, 1e300} {
		if v, ok := a.With(Launches, bad).Value(Launches); ok {
			t.Errorf("%v became %v", bad, v)
		}
	}
}

func TestDistances(t *testing.T) {
	a, _ := input(0.05)
	twice, _ := input(0.10)
	starved := starve(a)
	image := a
	image.Image = "mine:latest"
	unit := a
	unit.Unit = "device waits"
	r := RangesOf()
	for _, c := range []struct {
		what      string
		b         Print
		low, high float64
	}{
		{"itself", a, 0, 0},
		{"itself, starved", starved, 0.01, MergeAt},
		{"the same under another image", image, 0.01, MergeAt},
		{"loaders that cost twice as much", twice, MergeAt, 1},
		{"steps counted by another source", unit, 1, 1},
	} {
		got := Compare(a, c.b, r)
		if got.Distance < c.low || got.Distance > c.high {
			t.Errorf("%s: %+v, want a distance of %.2f to %.2f", c.what, got, c.low, c.high)
		}
		if back := Compare(c.b, a, r); back != got {
			t.Errorf("%s: %+v one way, %+v the other", c.what, got, back)
		}
	}
}

// TestDistanceIsOne: symmetric, bounded, zero to itself, whatever the values.
func TestDistanceIsOne(t *testing.T) {
	draw := func(t *rapid.T, name string) Print {
		p := Print{Unit: "u", Image: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, name+" image"), Device: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, name+" device")}
		for a := range NumAttributes {
			if rapid.Bool().Draw(t, name+" has") {
				p = p.With(a, rapid.Float64Range(0, 1e15).Draw(t, name))
			}
		}
		return p
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		r := RangesOf(&a, &b)
		x, y := Compare(a, b, r), Compare(b, a, r)
		if x != y {
			t.Fatalf("%+v and %+v", x, y)
		}
		if !(x.Distance >= 0 && x.Distance <= 1) || !(x.Compared >= 0 && x.Compared <= 1) {
			t.Fatalf("out of range: %+v", x)
		}
		if self := Compare(a, a, r); self.Attributes >= minAttributes && self.Distance != 0 {
			t.Fatalf("%+v to itself", self)
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var back Print
		if err := json.Unmarshal(text, &back); err != nil || back != a {
			t.Fatalf("%v came back as %+v (%v)", a, back, err)
		}
	})
}

func TestSameJobIsOneEntry(t *testing.T) {
	b := NewStore()
	p, c := input(0.05)
	first := b.Update(0, measurement("mon", p, c, day))
	again := b.Update(0, measurement("tue", p, c, 2*day))
	if again != first || b.Len() != 1 {
		t.Fatalf("%d entries, %d and %d", b.Len(), first, again)
	}
	if k := b.All()[0]; k.Jobs != 2 || k.Name != "tue" || k.FirstUnixNs != day || k.LastUnixNs != 2*day {
		t.Errorf("%+v", k)
	}
	other, oc := input(0.10)
	if id := b.Update(0, measurement("other", other, oc, 2*day)); id == first {
		t.Error("loaders that cost twice as much were taken for the same job")
	}
}

// An odd first reading keeps a job from those of its kind only until its readings are like theirs.
func TestOddFirstReading(t *testing.T) {
	b := NewStore()
	p, c := input(0.05)
	first := b.Update(0, measurement("mon", p, c, day))
	odd, oc := input(0.10)
	own := b.Update(0, measurement("tue", odd, oc, 2*day))
	if own == first {
		t.Fatal("the odd reading is taken for the same job")
	}
	if again := b.Update(own, measurement("tue", p, c, 2*day)); again != first || b.Len() != 1 || b.All()[0].Jobs != 2 {
		t.Errorf("entry %d of %+v", again, b.All())
	}
	if again := b.Update(first, measurement("tue", p, c, 2*day)); again != first || b.All()[0].Jobs != 2 {
		t.Errorf("counted twice: %+v", b.All())
	}
}

// TestRunsOutliveAnOddReading: what was learned of runs stays, whatever entry the job goes to.
func TestRunsOutliveAnOddReading(t *testing.T) {
	s := startOf("train.py")
	b := NewStore()
	p, c := input(0.05)
	b.Update(0, measurement("mon", p, c, day))
	odd, oc := input(0.05 * 16)
	own := b.Update(0, measurement("tue", odd, oc, 2*day))
	own = b.End(own, s, "tue", endOf(s, "now", 1.2))
	for _, lies := range []float64{0.04, 0.045, 0.055, 0.06, 0.07} {
		q, qc := input(lies)
		own = b.Update(own, measurement("tue", q, qc, 2*day))
		if k := b.Identified(s.Identity); k != own || b.find(own).Ends.Len() != 1 {
			t.Fatalf("input of %g: entry %d, known by its identity as %d", lies, own, k)
		}
	}
}

func TestPlaceStarvedNewcomer(t *testing.T) {
	b := NewStore()
	p, c := input(0.05)
	b.Update(0, measurement("mon", p, c, day))
	far, fc := input(0.4)
	b.Update(0, measurement("far", far, fc, day))
	dearer := c
	dearer.LoaderCPU *= 1.12
	s, from, ok := b.Place(starve(p), dearer, 0)
	if !ok || s.Name != "mon" || len(from) != 1 {
		t.Fatalf("%+v from %v", s, from)
	}
	if s.Confidence < 0.5 || math.Abs(s.Knee-c.Knee()) > 1e-9 {
		t.Errorf("%+v, want the knee %.2f with confidence", s, c.Knee())
	}
	if _, _, ok := NewStore().Place(p, c, 0); ok {
		t.Error("an empty book placed a job")
	}
}

// TestMisleadingEntryIsDistrusted: an entry whose first allocations fail loses its say.
func TestMisleadingEntryIsDistrusted(t *testing.T) {
	b := NewStore()
	p, c := input(0.05)
	id := b.Update(0, measurement("liar", p, c, day))
	before, _, _ := b.Place(p, c, 0)
	b.Judge([]uint64{id}, false)
	after, _, _ := b.Place(p, c, 0)
	if before.Confidence < 0.9 || after.Confidence >= 0.5 {
		t.Errorf("confidence %.2f, after one failure %.2f: want it below what a policy acts on", before.Confidence, after.Confidence)
	}
	misled := measurement("misled", p, c, day)
	misled.Misled = true
	b.Update(0, misled)
	if still, _, _ := b.Place(p, c, 0); still.Confidence >= 0.5 {
		t.Errorf("confidence %.2f: the job that it misled cannot vouch for it", still.Confidence)
	}
	b.Update(0, measurement("another", p, c, day))
	if corrected, _, _ := b.Place(p, c, 0); corrected.Confidence < 0.5 {
		t.Errorf("confidence %.2f after another of its kind was measured to be so", corrected.Confidence)
	}
}

// TestOneOddJobDoesNotTurnAnEntry: what many taught, one moves a little.
func TestOneOddJobDoesNotTurnAnEntry(t *testing.T) {
	b := NewStore()
	p, c := input(0.05)
	for range 5 {
		b.Update(0, measurement("honest", p, c, day))
	}
	lied := c
	lied.Device *= 0.2 // claims a far larger knee
	b.Update(0, measurement("liar", p, lied, day))
	if got := b.All()[0].Learned.Cost.Knee(); got > 1.6*c.Knee() {
		t.Errorf("one job moved the knee from %.2f to %.2f, it claimed %.2f", c.Knee(), got, lied.Knee())
	}
}

func TestCostOfAStarvedJobGivesWay(t *testing.T) {
	b := NewStore()
	p, c := input(0.05)
	dear := c
	dear.LoaderCPU *= 1.2
	l := measurement("a", starve(p), dear, day)
	l.Lost = 0.5
	id := b.Update(0, l)
	b.Update(id, measurement("a", p, c, day))
	if got := b.All()[0].Learned; got.Cost != c || got.Lost != 0 {
		t.Errorf("%+v, want the cost of the free job", got)
	}
	b.Update(id, l) // starved once more
	if got := b.All()[0].Learned; got.Cost != c {
		t.Errorf("%+v: starving replaced what was measured free", got)
	}
}

func TestBounds(t *testing.T) {
	b := NewStore()
	const more = 200
	for i := range MaxKnown + more {
		p, c := input(0.05)
		p.Unit = fmt.Sprint(i) // each another job
		b.Update(0, measurement("x", p, c, day+int64(i)))
	}
	if b.Len() != MaxKnown {
		t.Fatalf("%d known, want %d", b.Len(), MaxKnown)
	}
	if oldest := b.All()[0]; oldest.FirstUnixNs != day+more {
		t.Errorf("the oldest that is left is of %d", oldest.FirstUnixNs-day)
	}
	b.Expire(day + MaxAgeNs + 10*int64(1e9))
	if b.Len() != 0 {
		t.Errorf("%d known after their time", b.Len())
	}
}

// TestOpenDropsWhatCannotBe: a poisoned store costs its poison.
func TestOpenDropsWhatCannotBe(t *testing.T) {
	p, c := input(0.05)
	good := Known{ID: 3, Name: "good", Print: p, Jobs: 1, FirstUnixNs: day, LastUnixNs: day, Learned: Learned{Cost: c, Correction: 1}}
	bad := []func(*Known){
		func(k *Known) { k.ID = 0 },
		func(k *Known) { k.Learned.Cost.LoaderCPU = math.NaN() },
		func(k *Known) { k.Learned.Cost.Device = -1 },
		func(k *Known) { k.Learned.Cost = policies.Cost{} },
		func(k *Known) { k.Learned.Correction = 40 },
		func(k *Known) { k.Learned.Lost = 7 },
		func(k *Known) { k.Jobs = 0 },
		func(k *Known) { k.Learned.Wrong = -5 },
		func(k *Known) { k.Host, k.LastUnixNs = "gpu-7", 100*day },
		func(k *Known) { k.Print = Print{Unit: "u"} },
		func(k *Known) { k.Print.Unit = "" },
		func(k *Known) { k.Learned.Response = &model.Learner{Source: "u", Cells: []model.Cell{{X: -4}}} },
		func(k *Known) {
			k.Learned.Memory = &model.Learner{Version: 1, Source: "u", Paging: policies.Paging{Base: 1, Limit: 2, Set: 1}}
		},
		func(k *Known) { k.Learned.Memory = &model.Learner{Version: 9, Source: "u"} },
		func(k *Known) { k.Learned.Memory = &model.Learner{Version: 1, Source: "u"} },
		func(k *Known) {
			k.Learned.Response = &model.Learner{Version: 1, Source: "u", Paging: policies.Paging{Base: 1}}
		},
		func(k *Known) { k.Learned.Devices = CostsOf(map[string]policies.Cost{"x": {Device: math.Inf(1)}}) },
	}
	all := []Known{good, good} // the second bears the same number
	for i, spoil := range bad {
		k := good
		k.ID = uint64(10 + i)
		spoil(&k)
		all = append(all, k)
	}
	b, err := Open(all, day)
	if b.Len() != 1 || err == nil {
		t.Fatalf("%d known, want the good one; %v", b.Len(), err)
	}
	if diff := cmp.Diff([]Known{good}, b.All(), cmp.AllowUnexported(Print{})); diff != "" {
		t.Error(diff)
	}
	if id := b.Update(0, measurement("new", another(p), c, day)); id <= 3 {
		t.Errorf("number %d was given again", id)
	}
}

// another is another job.
func another(p Print) Print { return p.With(LoaderCPU, 0.4).With(Loaders, 8).With(Ranks, 4) }

// TestAnotherUnitIsAnotherEntry: a rate source that changes makes steps incomparable.
func TestAnotherUnitIsAnotherEntry(t *testing.T) {
	b := NewStore()
	p, c := input(0.05)
	id := b.Update(0, measurement("a", p, c, day))
	changed := p
	changed.Unit = "device waits"
	if again := b.Update(id, measurement("a", changed, c, day)); again == id || b.Len() != 2 {
		t.Errorf("entry %d for %d, %d known", again, id, b.Len())
	}
	if k := b.All()[0]; k.Print.Unit != "torch.backward" {
		t.Errorf("%+v", k)
	}
}

// TestOwnEntryOfAJobThatChanged: a job whose work becomes another one leaves the
// entry of what it was.
func TestOwnEntryOfAJobThatChanged(t *testing.T) {
	b := NewStore()
	p, c := input(0.05)
	id := b.Update(0, measurement("a", p, c, day))
	q, d := input(0.4)
	if again := b.Update(id, measurement("a", q, d, day)); again == id || b.Len() != 2 {
		t.Errorf("entry %d for %d, %d known", again, id, b.Len())
	}
}

// onDevice is a job that waits for its device.
func onDevice(model string, device, host float64) (Print, policies.Cost) {
	c := policies.Cost{TrainerCPU: host, OtherCPU: 0.001, Device: device, Ticks: 100}
	return Print{Unit: "device synchronisations", Image: "train:1", Device: model, Steps: 100}.
		With(TrainerCPU, host).With(OtherCPU, 0.001).With(DeviceWait, device).With(StepTime, c.Floor()).With(Launches, 20).With(BytesIn, 0).
		With(BytesOut, 0).With(VRAM, 1<<30).With(Processes, 1).With(Threads, 4).With(Ranks, 1).With(Loaders, 0), c
}

func TestSpeedsOnOtherDevices(t *testing.T) {
	b := NewStore()
	slow, cs := onDevice("slow", 0.040, 0.004)
	fast, cf := onDevice("fast", 0.020, 0.004)
	id := b.Update(0, measurement("a", slow, cs, day))
	if again := b.Update(0, measurement("b", fast, cf, day)); again != id {
		t.Fatalf("the same job on another device is entry %d, not %d", again, id)
	}
	models := []string{"fast", "never seen", "slow"}
	got := b.Speeds(0, slow, cs, 4, models)
	if len(got) != 1 || got[0].Device != "fast" || got[0].HostBound || math.Abs(got[0].PerSecond-1/0.024) > 1 {
		t.Errorf("%+v, want %.1f on the fast one alone", got, 1/0.024)
	}
	// Where this very job ran, its rate is measured: the interval is narrow.
	if own := b.Speeds(id, slow, cs, 4, models); len(own) != 1 || !own[0].Measured || own[0].Low < 0.85*own[0].PerSecond || got[0].Low > own[0].Low {
		t.Errorf("of the known job itself %+v, predicted %+v", own, got)
	}
	// Bottleneck before speed: the same launches, but the trainer's own CPU is the step.
	busy, cb := onDevice("slow", 0.002, 0.042)
	for range 2 {
		b.Update(0, measurement("c", busy, cb, day))
	}
	hostFast, chf := onDevice("fast", 0.001, 0.042)
	b.Update(0, measurement("d", hostFast, chf, day))
	for _, s := range b.Speeds(0, busy, cb, 4, models) {
		if !s.HostBound || s.PerSecond > 1.05/cb.Floor() {
			t.Errorf("host-bound, and %+v is predicted for %.1f here", s, 1/cb.Floor())
		}
	}
}

// TestNextToNoDemandIsTheSameDemand: of a job that leaves all to its device, half as much
// CPU again is still none.
func TestNextToNoDemandIsTheSameDemand(t *testing.T) {
	job := func(model string, device, cpu float64) (Print, policies.Cost) {
		p, c := onDevice(model, device, cpu)
		c.OtherCPU = 0
		return p.With(OtherCPU, 0), c
	}
	for _, cpu := range []float64{0, 0.0002, 0.0007} {
		b := NewStore()
		slow, cs := job("slow", 0.040, 0.0004)
		b.Update(0, measurement("a", slow, cs, day))
		fast, cf := job("fast", 0.020, 0.0004)
		b.Update(0, measurement("b", fast, cf, day))
		p, c := job("slow", 0.040, cpu)
		if got := b.Speeds(0, p, c, 4, []string{"fast"}); len(got) != 1 || b.Len() != 1 {
			t.Errorf("%.1f ms of CPU a step of 40: %+v, %d entries", 1e3*cpu, got, b.Len())
		}
	}
}

// BenchmarkTeach is what one lesson costs beside a full book.
func BenchmarkTeach(b *testing.B) {
	book := NewStore()
	for i := range MaxKnown {
		p, c := input(0.05 * (1 + float64(i)))
		book.Update(0, measurement("x", p, c, day+int64(i)))
	}
	p, c := input(0.05)
	b.ResetTimer()
	for range b.N {
		book.Place(p, c, 0)
		book.Update(0, measurement("y", p, c, 2*day))
	}
}
