package placement

import (
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/test/lab/tables"
	"github.com/trimtab/trimtab/tuner/profiles"
)

// nominal are the kinds' single-precision TFLOPS by NVIDIA's data sheets: half a K80
// board, P100 and V100 with SXM2.
func nominal() []float64 { return []float64{4.37, 10.6, 15.7} }

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

// bySimilarity asks the daemon's own store of known jobs, which holds all
// configurations of other models, with family also other batch sizes of its own.
// Kinds on which no job like it ran are scaled by nominal speed; told counts the
// configurations that need none of that.
func (b believer) bySimilarity(family bool) (believed guess, told int, err error) {
	rates := make([][]float64, len(b.table))
	for config := range b.table {
		if rates[config], err = b.ask(config, family); err != nil {
			return nil, 0, err
		}
		complete := true
		for kind, rate := range rates[config] {
			if rate == 0 {
				rates[config][kind], complete = b.byNominal(config, kind), false
			}
		}
		if complete {
			told++
		}
	}
	return truth(rates), told, nil
}

// ask returns the rates that the store predicts, 0 where it does not.
func (b believer) ask(config int, family bool) ([]float64, error) {
	var all []profiles.Known
	for i, known := range b.table {
		if !b.strange(config, i, family) {
			continue
		}
		learned := profiles.Learned{Cost: b.cost(i, b.probe), Correction: 1, Devices: map[string]policies.Cost{}}
		for kind, name := range tables.Devices() {
			learned.Devices[name] = b.cost(i, kind)
		}
		all = append(all, profiles.Known{ID: uint64(i + 1), Name: known.Name(), Print: b.print(i), Jobs: 1, Learned: learned})
	}
	book, err := profiles.Open(all, 0)
	if err != nil {
		return nil, fmt.Errorf("known jobs: %w", err)
	}
	rates := make([]float64, len(tables.Devices()))
	rates[b.probe] = b.own(config)
	for _, s := range book.Speeds(b.print(config), b.cost(config, b.probe), 1, tables.Devices()) {
		for kind, name := range tables.Devices() {
			if s.Device == name {
				rates[kind] = s.PerSecond
			}
		}
	}
	return rates, nil
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
	// Beside a job that is always active, another always active one keeps half its rate.
	activity := min(1, 2*took/max(1, others-refused))
	p := profiles.Print{Unit: "steps", Device: tables.Devices()[b.probe], Steps: 100}
	return p.With(profiles.DeviceWait, step).With(profiles.StepTime, step).With(profiles.Activity, activity).
		With(profiles.VRAM, refused/others*memoryBytes).With(profiles.Ranks, 1)
}

// memoryBytes of a P100: a job beside which nothing fits is taken to hold all of it.
const memoryBytes = 16 << 30
