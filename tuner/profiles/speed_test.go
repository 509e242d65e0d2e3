package profiles

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/policies"
)

const v100, a100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"

// moved is a known job of an image that waited so long for a V100, and for an A100 by so much more
// than data sheets say.
func moved(id uint64, image string, waitS, beyond float64) Known {
	p, c := onDevice(v100, waitS, 0.004)
	p.Image = image
	there := c
	there.Device *= beyond / sheetsSay
	return Known{ID: id, Print: p, Jobs: 1, Learned: Learned{Cost: c, Correction: 1, Devices: CostsOf(map[string]policies.Cost{v100: c, a100: there})}}
}

// sheetsSay is how much faster an A100 is: √(19.5/15.7 · 1555/900).
const sheetsSay = 1.46488

func predictOne(t *testing.T, known []Known, image string) (s Speed, waitS float64) {
	t.Helper()
	p, c := onDevice(v100, 0.040, 0.004)
	p.Image = image
	all := predict(known, Running{p, c, 4}, []string{v100, a100, "never seen"})
	if len(all) != 1 || all[0].Device != a100 {
		t.Fatalf("%+v, want one of an A100", all)
	}
	return all[0], 1/all[0].PerSecond - 0.004
}

// TestPredictsFromSheetsAndJobs: what the host does never scales; sheets alone are known to be off;
// jobs that agree pull the prediction to them and make it sure, and those that disagree do not.
func TestPredictsFromSheetsAndJobs(t *testing.T) {
	alone, wait := predictOne(t, nil, "new:1")
	if math.Abs(wait-0.040/sheetsSay) > 1e-5 || alone.Jobs != 0 || math.Abs(1/alone.Low-0.004-3*wait) > 1e-9 || math.Abs(1/alone.High-0.004-wait/3) > 1e-9 {
		t.Errorf("by sheets alone: %+v, a wait of %v", alone, wait)
	}
	var agree, differ, unlike []Known
	for i := range uint64(12) {
		agree = append(agree, moved(i+1, fmt.Sprint("job:", i), 0.040, 2))
		differ = append(differ, moved(i+1, fmt.Sprint("job:", i), 0.040, []float64{0.5, 2}[i%2]))
		unlike = append(unlike, moved(i+1, fmt.Sprint("job:", i), 40, 2))
	}
	sure, agreed := predictOne(t, agree, "new:1")
	if agreed < 1.9*wait || agreed > 2*wait || sure.High/sure.Low > 1.2 || sure.Jobs != 12 {
		t.Errorf("twelve jobs took twice as long: %+v, %.2f times the sheets' wait", sure, agreed/wait)
	}
	unsure, disagreed := predictOne(t, differ, "new:1")
	if math.Abs(disagreed/wait-1) > 0.01 || unsure.High/unsure.Low < 3 {
		t.Errorf("jobs that disagree: %+v, %.2f times the sheets' wait", unsure, disagreed/wait)
	}
	if _, far := predictOne(t, unlike, "new:1"); far/wait > 1.3 {
		t.Errorf("jobs with a thousand times the wait count as much as alike ones: %.2f", far/wait)
	}
	// One image at ten settings is one family, and no proof; the job's own image is.
	var one []Known
	for i := range uint64(10) {
		one = append(one, moved(i+1, "same:1", 0.040, 2))
	}
	_, other := predictOne(t, one, "new:1")
	_, own := predictOne(t, one, "same:1")
	if other/wait > 1.6 || own/wait < 1.9 {
		t.Errorf("ten settings of one image: %.2f times the sheets' wait for another, %.2f for its own", other/wait, own/wait)
	}
}

// TestForeignSpeedsAreOneVoice: however many and fresh the jobs of another host are, they say nothing where
// this host's tell, else count as one family, and make nothing surer.
func TestForeignSpeedsAreOneVoice(t *testing.T) {
	var own, lies []Known
	for i := range uint64(12) {
		own = append(own, moved(i+1, fmt.Sprint("job:", i), 0.040, 2))
	}
	for i := range uint64(maxCompared) {
		k := moved(foreignID+i, fmt.Sprint("lie:", i), 0.040, 100)
		k.Host, k.Shape, k.LastUnixNs = "gpu-7", i%2 == 0, day
		lies = append(lies, k)
	}
	want, _ := predictOne(t, own, "new:1")
	got, _ := predictOne(t, append(slices.Clone(lies), own...), "new:1")
	if got != want {
		t.Errorf("%d lies turned %+v into %+v", len(lies), want, got)
	}
	alone, _ := predictOne(t, nil, "new:1")
	if got, _ := predictOne(t, lies, "new:1"); got.High/got.Low < 4 || got.PerSecond < alone.PerSecond/maxOff {
		t.Errorf("lies alone: %+v, sheets alone: %+v", got, alone)
	}
}

// TestActivityScalesLess: of the wait in which nothing runs on the device, half stays.
func TestActivityScalesLess(t *testing.T) {
	p, c := onDevice(v100, 0.040, 0)
	c.OtherCPU, c.TrainerCPU = 0, 1e-6
	for active, want := range map[float64]float64{1: 1 / sheetsSay, 0.5: 0.25 + 0.75/sheetsSay, 0: 0.5 + 0.5/sheetsSay} {
		s := predict(nil, Running{p.With(Activity, active), c, 4}, []string{a100})
		if got := 1 / s[0].PerSecond / 0.040; math.Abs(got-want) > 1e-4 {
			t.Errorf("active for %v: %v of the time, want %v", active, got, want)
		}
	}
	bound := p.With(SMs, 0.9).With(DRAM, 0.9).With(Tensor, 0)
	tensor := p.With(SMs, 0.9).With(DRAM, 0).With(Tensor, 0.4)
	for name, c := range map[string]struct {
		print Print
		want  float64
	}{"bound by memory": {bound, 1555.0 / 900}, "by tensor cores": {tensor, 312.0 / 125}} {
		_, cost := onDevice(v100, 0.040, 0)
		cost.OtherCPU, cost.TrainerCPU = 0, 1e-6
		s := predict(nil, Running{c.print, cost, 4}, []string{a100})
		if got := 0.040 * s[0].PerSecond; math.Abs(got-c.want) > 0.01 {
			t.Errorf("%s: %v times as fast, want %v", name, got, c.want)
		}
	}
}

// TestSpeedsOfAKnownJob: where it ran, its rate is told as it was measured.
func TestSpeedsOfAKnownJob(t *testing.T) {
	k := moved(1, "job:1", 0.040, 1.5)
	got := NewPredictor([]Known{k}).SpeedsOf(k, 4, []string{"NVIDIA H100 PCIe", a100, "never seen", v100})
	if len(got) != 3 || !got[0].Measured || got[0].Device != a100 || !got[1].Measured || got[2].Measured || got[2].Device != "NVIDIA H100 PCIe" {
		t.Fatalf("%+v", got)
	}
	if want := 1 / k.costOn(a100).Step(4); got[0].PerSecond != want || got[0].Low < want/1.11 || got[0].High > want*1.11 {
		t.Errorf("%+v, measured %v", got[0], want)
	}
}

// TestPredictIsSound: whatever is known, bounds are finite and in order, and the order in which jobs
// are known does not matter.
func TestPredictIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Float64Range(1e-6, 1e6)
		var known []Known
		for i := range uint64(rapid.IntRange(0, 8).Draw(t, "known")) {
			k := moved(i+1, rapid.SampledFrom([]string{"", "a", "b", "\x1b[2J"}).Draw(t, "image"), seconds.Draw(t, "wait"), seconds.Draw(t, "beyond"))
			k.Print = k.Print.With(Activity, rapid.Float64Range(-1, 2).Draw(t, "active"))
			known = append(known, k)
		}
		p, c := onDevice(rapid.SampledFrom([]string{v100, "other"}).Draw(t, "on"), seconds.Draw(t, "wait"), seconds.Draw(t, "host"))
		r := Running{p.With(Activity, rapid.Float64Range(0, 2).Draw(t, "active")), c, rapid.Float64Range(0.01, 64).Draw(t, "cpus")}
		models := []string{v100, a100, "other", ""}
		got := predict(known, r, models)
		for _, s := range got {
			if !(s.Low > 0 && s.Low <= s.PerSecond && s.PerSecond <= s.High) || math.IsInf(s.High, 1) || s.Device == p.Device {
				t.Fatalf("%+v", s)
			}
		}
		if diff := cmp.Diff(got, predict(rapid.Permutation(known).Draw(t, "order"), r, models)); diff != "" {
			t.Fatalf("another order of the same jobs:\n%s", diff)
		}
	})
}

// BenchmarkPredict is what one prediction costs beside as many jobs as are ever compared.
func BenchmarkPredict(b *testing.B) {
	var known []Known
	for i := range uint64(2 * maxCompared) {
		known = append(known, moved(i+1, fmt.Sprint("job:", i%16), 0.01*float64(i+1), 1.5))
	}
	p, c := onDevice(v100, 0.040, 0.004)
	for b.Loop() {
		predict(known, Running{p, c, 4}, []string{a100})
	}
}

func predict(known []Known, r Running, models []string) []Speed {
	return NewPredictor(known).Predict(r, models)
}

// The interval of a measured rate is that of its runs, where enough of them tell; else it is assumed.
func TestMeasuredIntervals(t *testing.T) {
	p, c := input(0.05)
	p.Device = "NVIDIA A100"
	k := Known{ID: 1, Print: p, Jobs: 1, Learned: Learned{Cost: c, Correction: 1, Devices: CostsOf(map[string]policies.Cost{p.Device: c})}}
	measured := float32(1 / c.Step(4))
	off := func(device, unit string, rates ...float32) float64 { // in tenths of what is measured
		var ends []End
		for i, r := range rates {
			ends = append(ends, End{Run: RunID(i + 1), Setting: Setting{Device: device, Source: unit}, Pace: Pace{Rate: measured * r / 10}})
		}
		k.Ends = EndsOf(ends...)
		s := NewPredictor([]Known{k}).SpeedsOf(k, 4, []string{p.Device})[0]
		if !s.Measured || s.Low > s.PerSecond || s.High < s.PerSecond {
			t.Errorf("%+v", s)
		}
		return math.Log(s.High / s.PerSecond)
	}
	assumed := off(p.Device, p.Unit, 10, 11, 12)
	for name, o := range map[string]float64{"elsewhere": off("another", p.Unit, 10, 10, 10, 10), "in another unit": off(p.Device, "passes", 10, 10, 10, 10), "at another rate": off(p.Device, p.Unit, 8, 8, 8, 8)} {
		if o != assumed {
			t.Errorf("%s: %v, want %v", name, o, assumed)
		}
	}
	// Student's distribution, 7 degrees of freedom, 95 %: 1.895; the least spread is 0.4 %.
	if o := off(p.Device, p.Unit, 10, 10, 10, 10, 10, 10, 10, 10); math.Abs(o-1.895*leastSpread*math.Sqrt(9./8)) > 1e-5 {
		t.Errorf("of equal runs %v", o)
	}
	if o := off(p.Device, p.Unit, 8, 12, 8, 12); !(o > 2*assumed) {
		t.Errorf("of runs far apart %v, assumed are %v", o, assumed)
	}
}
