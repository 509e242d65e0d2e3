package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/trimtab/trimtab/test/lab/tables"
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

// Rules are the ways of placing, oracle last. similarity knows nothing of a job's own
// model; similarity+ knows its other batch sizes; true rates tells what wrong beliefs cost.
func Rules() []string {
	return []string{"first-come", "random", "fastest-first", "nominal", "average", "similarity", "similarity+", "true rates", "oracle"}
}

// Spread is a figure over the seeds.
type Spread struct {
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
}

// Row is one rule for one part of the batch sizes.
type Row struct {
	Batch    string `json:"batch"`
	Rule     string `json:"rule"`
	Makespan Spread `json:"makespanS"`
	// OfOracle is the makespan over the oracle's, minus one.
	OfOracle Spread `json:"ofOracle"`
	// AgainstSimilarity is this rule's makespan over similarity's on the same jobs,
	// minus one, and Behind the seeds in which similarity's was shorter.
	AgainstSimilarity Spread `json:"againstSimilarity"`
	Behind            int    `json:"behind"`
}

// Error is how far a rule's believed rates on the other kinds are off.
type Error struct {
	Batch string `json:"batch"`
	Rule  string `json:"rule"`
	// Median and Worst of max(believed/true, true/believed) − 1.
	Median   float64 `json:"median"`
	Worst    float64 `json:"worst"`
	WorstJob string  `json:"worstJob"`
}

// Report is a simulation's answer.
type Report struct {
	Setup  Setup   `json:"setup"`
	Rows   []Row   `json:"rows"`
	Errors []Error `json:"errors"`
	// Told of Configs: those for which the store knew a job like it for both other kinds.
	Told    int `json:"told"`
	Configs int `json:"configs"`
}

// Simulate places the same jobs by every rule.
func Simulate(s Setup) (Report, error) {
	table, err := tables.GPUJobs()
	if err != nil {
		return Report{}, err
	}
	probe := slices.Index(tables.Devices(), s.Probe)
	if probe < 0 || s.EachKind < 1 || s.Jobs < 1 || s.Seeds < 1 || !(s.ShortS > 0 && s.ShortS <= s.LongS) {
		return Report{}, fmt.Errorf("%d GPUs of each kind, %d jobs of %g to %g s, %d seeds, probe %q (allowed: %v): cannot be simulated",
			s.EachKind, s.Jobs, s.ShortS, s.LongS, s.Seeds, s.Probe, tables.Devices())
	}
	b := believer{table, probe}
	similar, told, err := b.bySimilarity(false)
	if err != nil {
		return Report{}, err
	}
	family, _, err := b.bySimilarity(true)
	if err != nil {
		return Report{}, err
	}
	report := Report{Setup: s, Told: told, Configs: len(table)}
	believed := map[string]guess{"nominal": b.byNominal, "average": b.byAverage, "similarity": similar, "similarity+": family}
	for part, batch := range Batches() {
		configs := inPart(table, batch)
		makespans := map[string][]float64{}
		for seed := range uint64(s.Seeds) {
			draw := rand.New(rand.NewPCG(seed+1, uint64(part)))
			s.play(table, s.draw(table, configs, draw), believed, draw, makespans)
		}
		for _, rule := range Rules() {
			report.Rows = append(report.Rows, row(batch, rule, makespans))
		}
		for _, rule := range Rules() {
			if g := believed[rule]; g != nil {
				report.Errors = append(report.Errors, errors(b, batch, rule, configs, g))
			}
		}
	}
	return report, nil
}

// play adds one seed's makespans.
func (s Setup) play(table []tables.GPUJob, jobs []Job, believed map[string]guess, draw *rand.Rand, makespans map[string][]float64) {
	f := newFleet(s.EachKind, len(tables.Devices()))
	rates := make([][]float64, len(table))
	for i, j := range table {
		rates[i] = j.Alone
	}
	for _, rule := range Rules() {
		var choose chooser
		switch rule {
		case "first-come":
			choose = firstCome
		case "random":
			choose = random(draw)
		case "fastest-first":
			choose = fastestFirst(f, nominal())
		case "true rates":
			choose = earliest(f, jobs, truth(rates))
		case "oracle":
			makespans[rule] = append(makespans[rule], oracle(f, rates, jobs))
			continue
		default:
			choose = earliest(f, jobs, believed[rule])
		}
		makespans[rule] = append(makespans[rule], play(f, rates, jobs, choose).makespan())
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

func row(batch, rule string, makespans map[string][]float64) Row {
	own, oracle, similar := makespans[rule], makespans["oracle"], makespans["similarity"]
	r := Row{Batch: batch, Rule: rule, Makespan: spread(own, nil), OfOracle: spread(own, oracle), AgainstSimilarity: spread(own, similar)}
	for i := range own {
		if similar[i] < own[i]*(1-1e-9) {
			r.Behind++
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
func errors(b believer, batch, rule string, configs []int, believed guess) Error {
	out := Error{Batch: batch, Rule: rule}
	var all []float64
	for _, c := range configs {
		for kind, rate := range b.table[c].Alone {
			if kind == b.probe {
				continue
			}
			off := math.Exp(math.Abs(math.Log(believed(c, kind)/rate))) - 1
			if all = append(all, off); off > out.Worst {
				out.Worst, out.WorstJob = off, b.table[c].Name()+" on "+tables.Devices()[kind]
			}
		}
	}
	slices.Sort(all)
	out.Median = all[len(all)/2]
	return out
}
