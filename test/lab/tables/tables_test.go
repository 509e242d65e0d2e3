package tables

import (
	"math"
	"strings"
	"testing"
)

func curve(t *testing.T, model string) Curve {
	t.Helper()
	all, err := Curves()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 12 {
		t.Fatalf("%d models, want 12", len(all))
	}
	for _, c := range all {
		if c.Model == model {
			return c
		}
	}
	t.Fatalf("no %s", model)
	return Curve{}
}

func TestCurveByHand(t *testing.T) {
	alex, bert := curve(t, "AlexNet"), curve(t, "BERT")
	for _, c := range []struct {
		c                  Curve
		cpus, memory, want float64
	}{
		{alex, 3, 62.5, 1}, {alex, 12, 125, 2.94}, {alex, 12, 62.5, 2}, {alex, 100, 250, 2.94},
		{alex, 3.5, 62.5, 1.125}, // half way between 1 and 1.25
		{alex, 0.5, 62.5, 0.15},  // from zero to 0.3 at one CPU
		{alex, 12, 100, 2},       // between two steps of memory: the lower
		{alex, 3, 10, 0.1},       // below the table: its lowest
		{bert, 1, 20.83, 1}, {bert, 0.25, 62.5, 0.25}, {bert, 0, 62.5, 0}, {bert, 3, 0, 0},
	} {
		if got := c.c.At(c.cpus, c.memory); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s on %v CPUs and %v GB: %v, want %v", c.c.Model, c.cpus, c.memory, got, c.want)
		}
	}
	for model, want := range map[string][3]float64{"AlexNet": {12, 125, 9}, "BERT": {1, 20.83, 1}, "ResNet-50": {4, 62.5, 4}, "M5 (audio)": {6, 187.5, 6}} {
		c := curve(t, model)
		if cpus, memory := c.BestCase(); cpus != want[0] || memory != want[1] || c.Knee(62.5) != want[2] {
			t.Errorf("%s: best case %v CPUs, %v GB, knee at 62.5 GB %v; want %v", model, cpus, memory, c.Knee(62.5), want)
		}
	}
}

// TestCurvesAreMonotone: more of either never slows a job in the table, and the
// proportional share gives exactly 1.
func TestCurvesAreMonotone(t *testing.T) {
	all, err := Curves()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		for i := range c.CPUs {
			for m := range c.MemoryGB {
				if i > 0 && c.Rate[i][m] < c.Rate[i-1][m] || m > 0 && c.Rate[i][m] < c.Rate[i][m-1] {
					t.Errorf("%s falls at %v CPUs, %v GB", c.Model, c.CPUs[i], c.MemoryGB[m])
				}
			}
		}
		if c.At(3, 62.5) != 1 {
			t.Errorf("%s: %v at the proportional share", c.Model, c.At(3, 62.5))
		}
	}
}

// TestCurvesAreTwoBounds: each table is what its CPUs allow with memory in plenty, or what
// its memory allows with CPUs in plenty, whichever is less; so memory between two steps can
// be told from both, and at the steps nothing changes by it.
func TestCurvesAreTwoBounds(t *testing.T) {
	all, err := Curves()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		plenty := c.MemoryGB[len(c.MemoryGB)-1]
		for i, cpus := range c.CPUs {
			for m, gb := range c.MemoryGB {
				if want := min(c.At(cpus, plenty), c.Most(gb)); c.Rate[i][m] != want {
					t.Errorf("%s on %v CPUs and %v GB: %v, its bounds say %v", c.Model, cpus, gb, c.Rate[i][m], want)
				}
			}
		}
		parts := c
		parts.Parts = true
		for gb := 10.0; gb < 300; gb += 2.5 {
			for cpus := 0.5; cpus < 26; cpus += 0.5 {
				if parts.At(cpus, gb) < c.At(cpus, gb) || parts.At(cpus, gb) > parts.At(cpus, gb+2.5) {
					t.Errorf("%s on %v CPUs and %v GB: %v by parts, %v by steps", c.Model, cpus, gb, parts.At(cpus, gb), c.At(cpus, gb))
				}
			}
			if knee := parts.Knee(gb); parts.At(knee, gb) < parts.Most(gb)*(1-1e-9) || knee > c.CPUs[0] && parts.At(0.99*knee, gb) >= parts.Most(gb) {
				t.Errorf("%s: knee of %v CPUs at %v GB", c.Model, knee, gb)
			}
		}
	}
	alex := curve(t, "AlexNet")
	alex.Parts = true
	if got := alex.At(12, 93.75); math.Abs(got-2.47) > 1e-9 || alex.Cached() != 125 {
		t.Errorf("half way from 62.5 to 125 GB: %v, want half way from 2 to 2.94; cached with %v GB", got, alex.Cached())
	}
}

// TestSourcesNamesAll: each table's repository and commit, and the licenses' own words.
func TestSourcesNamesAll(t *testing.T) {
	for _, want := range []string{"msr-fiddle/synergy at 1bb2bed", "SymbioticLab/Tiresias at 959f9b0", "stanford-futuredata/gavel at c4fa400",
		"Copyright (c) 2020 Stanford Future Data Systems", "Apache License", "Permission is hereby granted"} {
		if !strings.Contains(Sources(), want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestTrace(t *testing.T) {
	jobs, err := Trace()
	if err != nil {
		t.Fatal(err)
	}
	var work float64
	for i, j := range jobs {
		work += float64(j.GPUs) * j.DurationS
		if j.GPUs < 1 || j.GPUs > 8 || i > 0 && j.SubmitS < jobs[i-1].SubmitS {
			t.Errorf("job %d: %+v", i, j)
		}
	}
	if len(jobs) != 60 || work != 26624 || jobs[59].SubmitS != 1779 {
		t.Errorf("%d jobs, %v GPU seconds, the last at %v s", len(jobs), work, jobs[59].SubmitS)
	}
}

func TestGPUJobs(t *testing.T) {
	jobs, err := GPUJobs()
	if err != nil {
		t.Fatal(err)
	}
	if len(jobs) != 26 {
		t.Fatalf("%d configurations, want 26", len(jobs))
	}
	for i, j := range jobs {
		for d := range Devices() {
			if j.Alone[d] <= 0 {
				t.Errorf("%s does not run on %s", j.Name(), Devices()[d])
			}
			if own, others := j.Pair[d], jobs[0].Pair[d]; (own[0] == 0) != (others[i] == 0) {
				t.Errorf("%s fits beside %s one way only", j.Name(), jobs[0].Name())
			}
		}
		// two figures of the source, looked up by hand
		if j.Name() == "ResNet-50 64" && (j.Alone[2] != 4.395 || j.Alone[0] != 0.619) || j.Name() == "A3C" && j.Alone[1] != 5.681 {
			t.Errorf("%s: %v", j.Name(), j.Alone)
		}
	}
}
