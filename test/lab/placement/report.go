package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/trimtab/trimtab/test/lab/tables"
	"github.com/trimtab/trimtab/tuner/place"
)

// Setup is what is simulated; it is printed with the figures.
type Setup struct {
	EachKind int    `json:"eachKind"` // GPUs of each kind
	Jobs     int    `json:"jobs"`
	Probe    string `json:"probe"` // the kind on which each job's first steps are seen
	// A job would run for so long on the fastest kind by name (V100): log-uniform between.
	ShortS float64 `json:"shortS"`
	LongS  float64 `json:"longS"`
	Seeds  int     `json:"seeds"`
}

// DefaultSetup returns the set-up that docs/results.md reports.
func DefaultSetup() Setup {
	return Setup{EachKind: 4, Jobs: 60, Probe: "p100", ShortS: 1800, LongS: 60000, Seeds: 20}
}

// Batches are the parts in which batch sizes are reported.
func Batches() []string { return []string{"small", "middle", "large", "all"} }

// Rules are the ways of placing, oracle last. nominal and the rules below it to predicted+ differ in
// what they believe, and not in how they place by it.
func Rules() []string {
	return []string{"first-come", "fastest-first", "nominal", "average", "likeness", "sheets", "learned", "predicted", "learning", "predicted+", "true rates", "oracle"}
}

// Spread is a figure over the seeds.
type Spread struct {
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
}

// Row is one rule for one part of the batch sizes, with first steps seen on one kind.
type Row struct {
	Probe    string `json:"probe"`
	Batch    string `json:"batch"`
	Rule     string `json:"rule"`
	Makespan Spread `json:"makespanS"`
	// OfOracle and OfBound are the makespan over the oracle's and over what none can be below, minus one.
	OfOracle Spread `json:"ofOracle"`
	OfBound  Spread `json:"ofBound"`
	// AgainstNominal is this rule's makespan over nominal's on the same jobs, minus one, and Ahead the
	// seeds in which this rule's was shorter. Near are the seeds in which it was within Nearby of the
	// oracle's.
	AgainstNominal Spread `json:"againstNominal"`
	Ahead          int    `json:"ahead"`
	Near           int    `json:"near"`
	// AheadOfSheets are the seeds in which it was shorter than that of sheets: the same rule and
	// interval, and no known jobs.
	AheadOfSheets int `json:"aheadOfSheets"`
}

// Nearby is how far above the oracle's a makespan is near to it.
const Nearby = 0.05

// Error is how far a rule's believed rates on the other kinds are off.
type Error struct {
	Probe string `json:"probe"`
	Batch string `json:"batch"`
	Rule  string `json:"rule"`
	// Median and Worst of max(believed/true, true/believed) − 1.
	Median   float64 `json:"median"`
	Worst    float64 `json:"worst"`
	WorstJob string  `json:"worstJob"`
	// Inside of Rates: the true rates that the rule's interval holds; it is Width wide in the median,
	// as a factor from the middle. 0: the rule has none.
	Inside int     `json:"inside,omitempty"`
	Rates  int     `json:"rates"`
	Width  float64 `json:"width,omitempty"`
}

// Report is a simulation's answer.
type Report struct {
	Setup   Setup   `json:"setup"`
	Rows    []Row   `json:"rows"`
	Errors  []Error `json:"errors"`
	Configs int     `json:"configs"`
}

// Row of a rule; the zero Row if there is none.
func (r Report) Row(probe, batch, rule string) Row {
	i := slices.IndexFunc(r.Rows, func(x Row) bool { return x.Probe == probe && x.Batch == batch && x.Rule == rule })
	if i < 0 {
		return Row{}
	}
	return r.Rows[i]
}

// Error of a rule; the zero Error if there is none.
func (r Report) Error(probe, batch, rule string) Error {
	i := slices.IndexFunc(r.Errors, func(x Error) bool { return x.Probe == probe && x.Batch == batch && x.Rule == rule })
	if i < 0 {
		return Error{}
	}
	return r.Errors[i]
}

// Simulate places the same jobs by every rule, with first steps seen on each kind in turn.
func Simulate(s Setup) (Report, error) {
	table, err := tables.GPUJobs()
	if err != nil {
		return Report{}, err
	}
	if !slices.Contains(tables.Devices(), s.Probe) || s.EachKind < 1 || s.Jobs < 1 || s.Seeds < 1 || !(s.ShortS > 0 && s.ShortS <= s.LongS) {
		return Report{}, fmt.Errorf("%d GPUs of each kind, %d jobs of %g to %g s, %d seeds, probe %q (allowed: %v): cannot be simulated",
			s.EachKind, s.Jobs, s.ShortS, s.LongS, s.Seeds, s.Probe, tables.Devices())
	}
	report := Report{Setup: s, Configs: len(table)}
	for probe, name := range tables.Devices() {
		b := believer{table, probe}
		beliefs, hindsight := b.beliefs(), belief{expected: b.written(b.inHindsight)}
		for part, batch := range Batches() {
			configs := inPart(table, batch)
			makespans := map[string][]float64{}
			for seed := range uint64(s.Seeds) {
				draw := rand.New(rand.NewPCG(seed+1, uint64(part)))
				s.play(table, s.draw(table, configs, draw), beliefs, makespans)
			}
			for _, rule := range Rules() {
				report.Rows = append(report.Rows, row(name, batch, rule, makespans))
				if held, ok := beliefs[rule]; ok && rule != "learning" {
					report.Errors = append(report.Errors, errors(b, batch, rule, configs, held))
				}
			}
			report.Errors = append(report.Errors, errors(b, batch, "hindsight", configs, hindsight))
		}
	}
	return report, nil
}

// beliefs are those of the rules that have some.
func (b believer) beliefs() map[string]belief {
	predicted := b.predict(b.models).belief()
	return map[string]belief{
		"nominal": {expected: b.written(b.byNominal)}, "average": {expected: b.written(b.byAverage)}, "likeness": {expected: b.written(b.byLikeness)},
		"sheets": b.predict(b.nothing).belief(), "learned": b.predictWith(b.learnedWeights(), b.models).belief(),
		"predicted": predicted, "learning": predicted, "predicted+": b.predict(b.andBatches).belief(),
	}
}

// bound is the name under which makespans hold what none can be below.
const bound = "bound"

// play adds one seed's makespans.
func (s Setup) play(table []tables.GPUJob, jobs []Job, beliefs map[string]belief, makespans map[string][]float64) {
	f := newFleet(s.EachKind, len(tables.Devices()))
	rates := make([][]float64, len(table))
	for i, j := range table {
		rates[i] = j.Alone
	}
	times, ready := f.trueTimes(rates, jobs)
	speed := make([]float64, len(f.kinds))
	for d, kind := range f.kinds {
		speed[d] = nominal()[kind]
	}
	for _, rule := range Rules() {
		var ended float64
		switch rule {
		case "first-come":
			ended = place.FirstCome(times, ready).Makespan()
		case "fastest-first":
			ended = place.FastestFirst(times, ready, speed).Makespan()
		case "true rates":
			ended = play(f, rates, jobs, planned(f, jobs, belief{expected: truth(rates)})).makespan()
		case "learning":
			ended = play(f, rates, jobs, learning(f, jobs, rates, beliefs[rule])).makespan()
		case "oracle":
			var least float64
			ended, least = oracle(f, rates, jobs)
			makespans[bound] = append(makespans[bound], least)
		default:
			ended = play(f, rates, jobs, planned(f, jobs, beliefs[rule])).makespan()
		}
		makespans[rule] = append(makespans[rule], ended)
	}
}

// draw makes a seed's jobs: models evenly, then one of the model's configurations.
func (s Setup) draw(table []tables.GPUJob, configs []int, draw *rand.Rand) []Job {
	byModel := map[string][]int{}
	var models []string
	for _, c := range configs {
		m := table[c].Model
		if byModel[m] == nil {
			models = append(models, m)
		}
		byModel[m] = append(byModel[m], c)
	}
	jobs := make([]Job, s.Jobs)
	for i := range jobs {
		of := byModel[models[draw.IntN(len(models))]]
		config := of[draw.IntN(len(of))]
		seconds := math.Exp(math.Log(s.ShortS) + draw.Float64()*math.Log(s.LongS/s.ShortS))
		jobs[i] = Job{Config: config, Steps: seconds * table[config].Alone[len(tables.Devices())-1]}
	}
	return jobs
}

// inPart lists the configurations of a part: of each model its smallest, middle or
// largest batch size; models of one size are in each.
func inPart(table []tables.GPUJob, part string) []int {
	byModel := map[string][]int{}
	for i, j := range table {
		byModel[j.Model] = append(byModel[j.Model], i)
	}
	var out []int
	for i, j := range table {
		of := byModel[j.Model]
		at := map[string]int{"small": of[0], "middle": of[len(of)/2], "large": of[len(of)-1], "all": i}[part]
		if at == i {
			out = append(out, i)
		}
	}
	return out
}

func row(probe, batch, rule string, makespans map[string][]float64) Row {
	own, oracle, nominal := makespans[rule], makespans["oracle"], makespans["nominal"]
	r := Row{Probe: probe, Batch: batch, Rule: rule, Makespan: spread(own, nil), OfOracle: spread(own, oracle), OfBound: spread(own, makespans[bound]),
		AgainstNominal: spread(own, nominal)}
	for i := range own {
		if own[i] < nominal[i]*(1-1e-9) {
			r.Ahead++
		}
		if own[i] < makespans["sheets"][i]*(1-1e-9) {
			r.AheadOfSheets++
		}
		if own[i] <= oracle[i]*(1+Nearby) {
			r.Near++
		}
	}
	return r
}

// spread of own, or of own over against, minus one.
func spread(own, against []float64) Spread {
	out := Spread{Min: math.Inf(1), Max: math.Inf(-1)}
	for i, v := range own {
		if against != nil {
			v = v/against[i] - 1
		}
		out.Mean += v / float64(len(own))
		out.Min, out.Max = min(out.Min, v), max(out.Max, v)
	}
	return out
}

// errors compares what a rule believes of a part's configurations with the table.
func errors(b believer, batch, rule string, configs []int, believed belief) Error {
	out := Error{Probe: tables.Devices()[b.probe], Batch: batch, Rule: rule}
	var all, widths []float64
	for _, c := range configs {
		for kind, rate := range b.table[c].Alone {
			if kind == b.probe {
				continue
			}
			expected := believed.expected(c, kind)
			off := math.Exp(math.Abs(math.Log(expected/rate))) - 1
			if all = append(all, off); off > out.Worst {
				out.Worst, out.WorstJob = off, b.table[c].Name()+" on "+tables.Devices()[kind]
			}
			if believed.least == nil {
				continue
			}
			width := expected / believed.least(c, kind) // an interval is as wide on both sides, as a factor
			if widths = append(widths, width); off <= width-1 {
				out.Inside++
			}
		}
	}
	slices.Sort(all)
	slices.Sort(widths)
	out.Median, out.Rates = all[len(all)/2], len(all)
	if len(widths) > 0 {
		out.Width = widths[len(widths)/2]
	}
	return out
}
