package placement

import (
	"maps"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/lab/tables"
	"github.com/trimtab/trimtab/tuner/devices"
	"github.com/trimtab/trimtab/tuner/profiles"
)

// nominal are the kinds' single-precision TFLOPS by NVIDIA's data sheets: half a K80
// board, P100 and V100 with SXM2.
func nominal() (out []float64) {
	for _, name := range tables.Devices() {
		sheet, _ := devices.Of(name)
		out = append(out, sheet.FP32)
	}
	return out
}

// believer guesses rates from the job's own on one kind, the probe's, on which its
// first steps were seen, and from other jobs.
type believer struct {
	table []tables.GPUJob
	probe int
}

// own is the rate on the probe's kind, times a believed ratio.
func (b believer) own(config int) float64 { return b.table[config].Alone[b.probe] }

// byNominal scales by the kinds' nominal speeds.
func (b believer) byNominal(config, kind int) float64 {
	return b.own(config) * nominal()[kind] / nominal()[b.probe]
}

// strange reports whether one configuration may know of another: never of itself, and of
// its own model's other batch sizes only where family says so.
func (b believer) strange(config, other int, family bool) bool {
	return other != config && (family || b.table[other].Model != b.table[config].Model)
}

// byAverage scales by the mean ratio over all jobs of other models: what knowing
// other jobs gives without asking which are alike.
func (b believer) byAverage(config, kind int) float64 {
	var sum, n float64
	for i, known := range b.table {
		if b.strange(config, i, false) {
			sum += math.Log(known.Alone[kind] / known.Alone[b.probe])
			n++
		}
	}
	return b.own(config) * math.Exp(sum/n)
}

// inHindsight scales by the median ratio over all jobs, the job itself among them: no one ratio for each
// pair of kinds is nearer in the mean of logarithms. It says how far one can come without asking what
// a job is like.
func (b believer) inHindsight(config, kind int) float64 {
	var ratios []float64
	for _, job := range b.table {
		ratios = append(ratios, job.Alone[kind]/job.Alone[b.probe])
	}
	slices.Sort(ratios)
	return b.own(config) * math.Sqrt(ratios[(len(ratios)-1)/2]*ratios[len(ratios)/2])
}

// byLikeness scales by the ratio of the one job that is the most alike, and by nominal speed where
// none is within reach: likeness alone, as the daemon guessed before it knew data sheets.
func (b believer) byLikeness(config, kind int) float64 {
	prints := make([]profiles.Print, len(b.table))
	var known []*profiles.Print
	for i := range b.table {
		if prints[i] = b.print(i); b.strange(config, i, false) {
			known = append(known, &prints[i])
		}
	}
	nearest, least, ranges := -1, profiles.NearAt, profiles.RangesOf(known...)
	for i := range b.table {
		if d := profiles.Compare(prints[config], prints[i], ranges).Distance; b.strange(config, i, false) && d < least {
			nearest, least = i, d
		}
	}
	if nearest < 0 {
		return b.byNominal(config, kind)
	}
	return b.own(config) * b.table[nearest].Alone[kind] / b.table[nearest].Alone[b.probe]
}

// predicted is what the daemon's own code predicts, by configuration and kind: of the probe's kind the
// rate that was seen there.
type predicted [][]profiles.Speed

func (p predicted) rate(config, kind int) float64 { return p[config][kind].PerSecond }

// belief of a prediction: with the interval that the daemon tells.
func (p predicted) belief() belief {
	return belief{p.rate, func(config, kind int) float64 { return p[config][kind].Low }}
}

// predict asks the daemon's code for all configurations, each from known jobs of the configurations
// that it may know.
func (b believer) predict(mayKnow func(config, other int) bool) predicted {
	return b.predictWith(func(int) profiles.Weights { return profiles.EqualWeights() }, mayKnow)
}

func (b believer) predictWith(weights func(config int) profiles.Weights, mayKnow func(config, other int) bool) predicted {
	out := make(predicted, len(b.table))
	for config := range b.table {
		var known []profiles.Known
		for i := range b.table {
			if mayKnow(config, i) {
				known = append(known, b.known(i))
			}
		}
		own := b.own(config)
		out[config] = make([]profiles.Speed, len(tables.Devices()))
		out[config][b.probe] = profiles.Speed{Device: tables.Devices()[b.probe], PerSecond: own, Low: own, High: own}
		asked := profiles.Running{Print: b.known(config).Print, Cost: b.cost(config, b.probe), CPUs: 1}
		p := profiles.NewPredictor(known)
		p.Weights = weights(config)
		for _, s := range p.Predict(asked, tables.Devices()) {
			out[config][slices.Index(tables.Devices(), s.Device)] = s
		}
	}
	return out
}

// What a prediction may know of: nothing at all, jobs of other models, or those and its own model's
// other batch sizes.
func (b believer) nothing(int, int) bool             { return false }
func (b believer) models(config, other int) bool     { return b.strange(config, other, false) }
func (b believer) andBatches(config, other int) bool { return b.strange(config, other, true) }

// learnedWeights are, for each configuration, those weights of the two attributes that the table can
// stand for by which the other models are predicted best, each without itself: what learning weights
// from known jobs gives. A model's own rates on other kinds have no part in it.
func (b believer) learnedWeights() func(config int) profiles.Weights {
	best := map[string]profiles.Weights{}
	for _, held := range b.table {
		if _, done := best[held.Model]; done {
			continue
		}
		least := math.Inf(1)
		for _, shares := range [][2]float64{{1, 1}, {1, 0}, {0, 1}, {2, 1}, {1, 2}, {0, 0}} {
			var w profiles.Weights
			w[profiles.DeviceWait], w[profiles.Activity] = shares[0], shares[1]
			p := b.predictWith(func(int) profiles.Weights { return w }, func(config, other int) bool {
				return b.models(config, other) && b.table[other].Model != held.Model && b.table[config].Model != held.Model
			})
			if off := b.meanOff(p, held.Model); off < least {
				least, best[held.Model] = off, w
			}
		}
	}
	return func(config int) profiles.Weights { return best[b.table[config].Model] }
}

// meanOff is the mean over models but one of how far their rates are off, on the logarithmic scale.
func (b believer) meanOff(p predicted, but string) float64 {
	off, n := map[string]float64{}, map[string]float64{}
	for config, job := range b.table {
		for kind, rate := range job.Alone {
			if job.Model != but && kind != b.probe {
				off[job.Model] += math.Abs(math.Log(p.rate(config, kind) / rate))
				n[job.Model]++
			}
		}
	}
	sum := 0.0
	for _, model := range slices.Sorted(maps.Keys(off)) {
		sum += off[model] / n[model]
	}
	return sum
}

// known is a configuration as a known job that ran on all kinds. Its image stands for its model.
func (b believer) known(config int) profiles.Known {
	k := profiles.Known{ID: uint64(config + 1), Name: b.table[config].Name(), Print: b.print(config), Jobs: 1}
	k.Print.Image = b.table[config].Model
	k.Learned = profiles.Learned{Cost: b.cost(config, b.probe), Correction: 1}
	for kind, name := range tables.Devices() {
		k.Learned.Devices = k.Learned.Devices.With(name, b.cost(config, kind))
	}
	return k
}

// hostCPU is the CPU seconds of a step: the table tells nothing of the host, so all jobs
// have the same, too little to matter.
const hostCPU = 1e-6

// cost has all of a step as its device's.
func (b believer) cost(config, kind int) policies.Cost {
	return policies.Cost{TrainerCPU: hostCPU, Device: 1/b.table[config].Alone[kind] - hostCPU, Ticks: 100}
}

// print is what a fingerprint can hold of a configuration: its step on the probe's
// kind; and from its runs beside other models there, how busy it keeps the device and
// how much memory it takes, both by proxy.
func (b believer) print(config int) profiles.Print {
	var took, refused, others float64
	for i, other := range b.table {
		if other.Model == b.table[config].Model {
			continue
		}
		others++
		if beside := other.Pair[b.probe][config]; beside > 0 {
			took += 1 - min(1, beside/b.table[i].Alone[b.probe])
		} else {
			refused++
		}
	}
	step := 1 / b.own(config)
	// Beside a job that is always active, another always active one keeps half its rate. What ran
	// beside none tells nothing: 0/0 is no number, and so absent.
	activity := min(1, 2*took/(others-refused))
	p := profiles.Print{Unit: "steps", Device: tables.Devices()[b.probe], Steps: 100}
	return p.With(profiles.DeviceWait, step).With(profiles.StepTime, step).With(profiles.Activity, activity).
		With(profiles.VRAM, refused/others*memoryBytes).With(profiles.Ranks, 1)
}

// memoryBytes of a P100: a job beside which nothing fits is taken to hold all of it.
const memoryBytes = 16 << 30

// written is a guess as a table, asked once.
func (b believer) written(g guess) guess {
	rates := make([][]float64, len(b.table))
	for config := range rates {
		for kind := range tables.Devices() {
			rates[config] = append(rates[config], g(config, kind))
		}
	}
	return truth(rates)
}
