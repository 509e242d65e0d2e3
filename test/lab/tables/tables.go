// Package tables holds what others measured or published, for the simulators of
// test/lab: response curves, a trace, rates on several GPUs. Sources and licenses
// stand in data/README.md. The figures are read from embedded files and never changed.
package tables

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
)

//go:embed data/synergy.csv
var synergyCSV []byte

//go:embed data/tiresias.csv
var tiresiasCSV []byte

//go:embed data/gavel.csv
var gavelCSV []byte

//go:embed data/README.md
var readme string

//go:embed data/gavel.LICENSE
var gavelLicense string

//go:embed data/tiresias.LICENSE
var tiresiasLicense string

// Sources tells where the tables are from, with the licenses that go with them.
func Sources() string {
	return readme + "\n# License of gavel.csv\n\n" + gavelLicense + "\n# License of tiresias.csv\n\n" + tiresiasLicense
}

// TraceJob is one job of the Tiresias trace.
type TraceJob struct {
	GPUs      int
	SubmitS   float64
	DurationS float64
}

// Trace returns the 60 jobs in the order of submission. Their models are not
// taken: Synergy has no curves for them.
func Trace() ([]TraceJob, error) {
	rows, err := rows("tiresias.csv", tiresiasCSV, true)
	if err != nil {
		return nil, err
	}
	out := make([]TraceJob, 0, len(rows))
	for _, r := range rows {
		n, err := numbers(r, 1, 2, 5)
		if err != nil {
			return nil, fmt.Errorf("tiresias.csv: %w", err)
		}
		out = append(out, TraceJob{GPUs: int(n[0]), SubmitS: n[1], DurationS: n[2]})
	}
	return out, nil
}

// Curves returns Synergy's response curves by model, in the order of the file.
func Curves() ([]Curve, error) {
	rows, err := rows("synergy.csv", synergyCSV, true)
	if err != nil {
		return nil, err
	}
	var out []Curve
	for _, r := range rows {
		n, err := numbers(r, 1, 2, 3)
		if err != nil {
			return nil, fmt.Errorf("synergy.csv: %w", err)
		}
		if len(out) == 0 || out[len(out)-1].Model != r[0] {
			out = append(out, Curve{Model: r[0]})
		}
		if err := out[len(out)-1].add(n[0], n[1], n[2]); err != nil {
			return nil, fmt.Errorf("synergy.csv: %w", err)
		}
	}
	for _, c := range out {
		if !c.whole() {
			return nil, fmt.Errorf("synergy.csv: %s: the grid has holes", c.Model)
		}
	}
	return out, nil
}

// rows reads CSV of one width, without its heading.
func rows(name string, raw []byte, heading bool) ([][]string, error) {
	r := csv.NewReader(bytes.NewReader(raw))
	r.Comment = '#'
	all, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if heading && len(all) > 0 {
		all = all[1:]
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: nothing in it", name)
	}
	return all, nil
}

func numbers(row []string, columns ...int) ([]float64, error) {
	out := make([]float64, len(columns))
	for i, c := range columns {
		v, err := strconv.ParseFloat(row[c], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", row, err)
		}
		out[i] = v
	}
	return out, nil
}

// Curve is throughput by CPUs and memory of a one-GPU job.
type Curve struct {
	Model    string
	CPUs     []float64   // ascending
	MemoryGB []float64   // ascending
	Rate     [][]float64 // by CPUs, then memory
	// Parts: a cache is worth the part of what it lacks that it holds, so that memory
	// between two steps of the table counts in proportion. The table does not tell: else
	// it counts as the lower step.
	Parts bool
}

// add takes the points as the file lists them: by CPUs, then by memory.
func (c *Curve) add(cpus, memory, rate float64) error {
	if n := len(c.CPUs); n == 0 || c.CPUs[n-1] < cpus {
		c.CPUs, c.Rate = append(c.CPUs, cpus), append(c.Rate, nil)
	} else if c.CPUs[n-1] != cpus {
		return fmt.Errorf("%s: CPUs are not in order", c.Model)
	}
	if len(c.CPUs) == 1 {
		c.MemoryGB = append(c.MemoryGB, memory)
	}
	row := len(c.Rate) - 1
	at := len(c.Rate[row])
	if at >= len(c.MemoryGB) || c.MemoryGB[at] != memory {
		return fmt.Errorf("%s: another grid of memory at %v CPUs", c.Model, cpus)
	}
	c.Rate[row] = append(c.Rate[row], rate)
	return nil
}

func (c *Curve) whole() bool {
	return slices.IsSorted(c.MemoryGB) && !slices.ContainsFunc(c.Rate, func(r []float64) bool { return len(r) != len(c.MemoryGB) })
}

// At is the rate on so much of both: linear between the table's CPUs and from
// zero to the first. Between two steps of memory it is that of the lower, or, in Parts,
// what CPUs and memory each allow: so the whole table can be read (TestCurvesAreTwoBounds).
func (c *Curve) At(cpus, memoryGB float64) float64 {
	if cpus <= 0 || memoryGB <= 0 {
		return 0
	}
	m := c.step(memoryGB)
	if c.part(memoryGB) == 0 {
		return c.at(cpus, m)
	}
	return min(c.at(cpus, m+1), c.Most(memoryGB))
}

// at is the rate on so many CPUs at one step of memory.
func (c *Curve) at(cpus float64, m int) float64 {
	i, exact := slices.BinarySearch(c.CPUs, cpus)
	switch {
	case exact:
		return c.Rate[i][m]
	case i == 0:
		return c.Rate[0][m] * cpus / c.CPUs[0]
	case i == len(c.CPUs):
		return c.Rate[i-1][m]
	}
	share := (cpus - c.CPUs[i-1]) / (c.CPUs[i] - c.CPUs[i-1])
	return c.Rate[i-1][m] + share*(c.Rate[i][m]-c.Rate[i-1][m])
}

// step is the table's highest memory that memoryGB reaches; the lowest if none.
func (c *Curve) step(memoryGB float64) int {
	m := 0
	for m+1 < len(c.MemoryGB) && c.MemoryGB[m+1] <= memoryGB+1e-9 {
		m++
	}
	return m
}

// part is how far memory reaches from one step of the table to the next, if that counts.
func (c *Curve) part(memoryGB float64) float64 {
	m := c.step(memoryGB)
	if !c.Parts || m+1 == len(c.MemoryGB) {
		return 0
	}
	return max(0, (memoryGB-c.MemoryGB[m])/(c.MemoryGB[m+1]-c.MemoryGB[m]))
}

// Most is the rate with CPUs in plenty.
func (c *Curve) Most(memoryGB float64) float64 {
	m, top := c.step(memoryGB), c.Rate[len(c.Rate)-1]
	if part := c.part(memoryGB); part > 0 {
		return top[m] + part*(top[m+1]-top[m])
	}
	return top[m]
}

// Knee is the fewest CPUs beyond which more buy no speed; the table's own at its steps.
func (c *Curve) Knee(memoryGB float64) float64 {
	most := c.Most(memoryGB)
	for i, cpus := range c.CPUs {
		if c.At(cpus, memoryGB) < most {
			continue
		}
		if m := c.step(memoryGB); i > 0 && c.part(memoryGB) > 0 {
			below, above := c.Rate[i-1][m+1], c.Rate[i][m+1]
			return c.CPUs[i-1] + (most-below)/(above-below)*(cpus-c.CPUs[i-1])
		}
		return cpus
	}
	return c.CPUs[len(c.CPUs)-1]
}

// Cached is the table's least memory that more of, with CPUs in plenty, buys no speed.
func (c *Curve) Cached() float64 {
	top := c.Rate[len(c.Rate)-1]
	for m, gb := range c.MemoryGB {
		if top[m] >= top[len(top)-1] {
			return gb
		}
	}
	return c.MemoryGB[len(c.MemoryGB)-1]
}

// BestCase is the table's least demand that gives the highest rate there is:
// CPUs first, then memory, as Synergy profiles a job.
func (c *Curve) BestCase() (cpus, memoryGB float64) {
	most := c.Most(c.MemoryGB[len(c.MemoryGB)-1])
	for i, r := range c.Rate {
		for m, rate := range r {
			if rate >= most {
				return c.CPUs[i], c.MemoryGB[m]
			}
		}
	}
	return c.CPUs[len(c.CPUs)-1], c.MemoryGB[len(c.MemoryGB)-1]
}
