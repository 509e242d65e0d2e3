// Package devices holds what NVIDIA's data sheets say of models of GPU, and how much
// faster one should be than another by them, and what errors its driver reports mean. Data sheets
// tell peaks, not what a job reaches: package profiles corrects them by what jobs were measured to do.
package devices

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sheet is what a model can do at the most.
type Sheet struct {
	Model  string
	SMs    int
	MHz    int     // boost clock
	FP32   float64 // TFLOPS, single precision, without tensor cores
	Tensor float64 // TFLOPS of dense FP16 with tensor cores; of plain FP16 where it has none, and of FP32 where that has none
	GBs    float64 // GB/s of device memory
	GB     float64 // device memory
	Source string  // NVIDIA's document
	// Slices is into how many parts MIG divides its SMs; 0: it has no MIG.
	Slices int
	words  []string // all of which a name has
}

// sheets are sorted so that of two that fit a name the more special is first.
func sheets() []Sheet {
	return []Sheet{
		{"K80 (one of two)", 13, 875, 4.37, 4.37, 240, 12, "Tesla K80 data sheet", 0, []string{"k80"}},
		{"P100 PCIe 12GB", 56, 1303, 9.3, 18.7, 549, 12, "Tesla P100 PCIe data sheet", 0, []string{"p100", "pcie", "12gb"}},
		{"P100 PCIe", 56, 1303, 9.3, 18.7, 732, 16, "Tesla P100 PCIe data sheet", 0, []string{"p100", "pcie"}},
		{"P100 SXM2", 56, 1480, 10.6, 21.2, 732, 16, "Tesla P100 data sheet", 0, []string{"p100"}},
		{"V100S PCIe", 80, 1597, 16.4, 130, 1134, 32, "V100 data sheet", 0, []string{"v100s"}},
		{"V100 PCIe", 80, 1380, 14, 112, 900, 32, "V100 data sheet", 0, []string{"v100", "pcie"}},
		{"V100 SXM2", 80, 1530, 15.7, 125, 900, 32, "V100 data sheet", 0, []string{"v100"}},
		{"T4", 40, 1590, 8.1, 65, 320, 16, "T4 data sheet", 0, []string{"t4"}},
		{"A10", 72, 1695, 31.2, 125, 600, 24, "A10 data sheet", 0, []string{"a10"}},
		{"A30", 56, 1440, 10.3, 165, 933, 24, "A30 data sheet", 4, []string{"a30"}},
		{"A40", 84, 1740, 37.4, 149.7, 696, 48, "A40 data sheet", 0, []string{"a40"}},
		{"A100 PCIe 80GB", 108, 1410, 19.5, 312, 1935, 80, "A100 data sheet", 7, []string{"a100", "pcie", "80gb"}},
		{"A100 SXM4 80GB", 108, 1410, 19.5, 312, 2039, 80, "A100 data sheet", 7, []string{"a100", "80gb"}},
		{"A100 40GB", 108, 1410, 19.5, 312, 1555, 40, "A100 data sheet", 7, []string{"a100"}},
		{"L4", 58, 2040, 30.3, 121, 300, 24, "L4 data sheet", 0, []string{"l4"}},
		{"L40", 142, 2490, 90.5, 181, 864, 48, "L40 data sheet", 0, []string{"l40"}},
		{"L40S", 142, 2520, 91.6, 362, 864, 48, "L40S data sheet", 0, []string{"l40s"}},
		{"H100 PCIe", 114, 1755, 51.2, 756, 2000, 80, "H100 data sheet", 7, []string{"h100", "pcie"}},
		{"H100 NVL", 132, 1785, 60, 835, 3900, 94, "H100 data sheet", 7, []string{"h100", "nvl"}},
		{"H100 SXM", 132, 1980, 66.9, 989, 3350, 80, "H100 data sheet", 7, []string{"h100"}},
		{"GH200", 132, 1980, 67, 990, 4000, 96, "GH200 data sheet", 7, []string{"gh200"}},
		{"H200 NVL", 132, 1785, 60, 835, 4800, 141, "H200 data sheet", 7, []string{"h200", "nvl"}},
		{"H200 SXM", 132, 1980, 66.9, 989, 4800, 141, "H200 data sheet", 7, []string{"h200"}},
		{"B200", 148, 1965, 80, 2250, 8000, 180, "Blackwell architecture brief (HGX B200)", 7, []string{"b200"}},
		{"RTX 3090", 82, 1695, 35.6, 71, 936, 24, "GA102 architecture whitepaper", 0, []string{"rtx", "3090"}},
		{"RTX 4090", 128, 2520, 82.6, 165.2, 1008, 24, "Ada architecture whitepaper", 0, []string{"rtx", "4090"}},
		{"RTX 5090", 170, 2407, 104.8, 209.5, 1792, 32, "RTX Blackwell architecture whitepaper", 0, []string{"rtx", "5090"}},
		{"RTX A6000", 84, 1800, 38.7, 154.8, 768, 48, "RTX A6000 data sheet", 0, []string{"rtx", "a6000"}},
		{"RTX 6000 Ada", 142, 2505, 91.1, 364.2, 960, 48, "RTX 6000 Ada data sheet", 0, []string{"rtx", "6000", "ada"}},
	}
}

// Of is the data sheet of a device by the name that NVML gives it, as "NVIDIA
// A100-SXM4-80GB MIG 2g.20gb": of a MIG slice its share of the device's. ok is false where the
// name is of no model in the table, or of a part or variant of one.
func Of(name string) (s Sheet, ok bool) {
	whole, slice, sliced := strings.Cut(strings.ToLower(name), " mig ")
	words := strings.FieldsFunc(whole, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') })
	if slices.ContainsFunc(words, func(w string) bool { return slices.Contains([]string{"grid", "laptop", "ti", "super", "d", "q"}, w) }) {
		return Sheet{}, false
	}
	for _, s := range sheets() {
		if slices.ContainsFunc(s.words, func(w string) bool { return !slices.Contains(words, w) }) {
			continue
		}
		if sliced {
			return s.slice(slice)
		}
		return s, true
	}
	return Sheet{}, false
}

// memorySlices is into how many parts MIG divides an A100's memory and all later ones'; an A30's
// into as many as its SMs.
const memorySlices = 8

// slice is the share that a MIG profile such as 2g.20gb gives.
func (s Sheet) slice(profile string) (Sheet, bool) {
	parts, memory, ok := strings.Cut(profile, "g.")
	if ok {
		memory, _, ok = strings.Cut(memory, "gb")
	}
	g, err := strconv.Atoi(parts)
	gb, failed := strconv.Atoi(memory)
	if !ok || err != nil || failed != nil || g < 1 || g > s.Slices || gb < 1 || float64(gb) > s.GB {
		return Sheet{}, false
	}
	of := memorySlices
	if s.Slices < memorySlices-1 {
		of = s.Slices
	}
	compute := float64(g) / float64(s.Slices)
	bandwidth := min(1, max(1, math.Round(float64(gb)/s.GB*float64(of)))/float64(of))
	s.Model += " MIG " + parts + "g." + memory + "gb"
	s.SMs = int(compute * float64(s.SMs))
	s.FP32, s.Tensor, s.GBs, s.GB = s.FP32*compute, s.Tensor*compute, s.GBs*bandwidth, float64(gb)
	return s, true
}

// Use is what a job's work on a device consists of.
type Use struct {
	// Memory is how much of it is bound by the device's memory, 0..1; NaN: not known, which is taken
	// for one half.
	Memory float64
	// Tensor: it uses tensor cores.
	Tensor bool
}

// Faster is how many times as fast b should do that work as a: the geometric mean, weighted by
// use, of the ratio of their peaks and of that of their memories' bandwidths.
func Faster(a, b Sheet, u Use) float64 {
	memory := u.Memory
	if math.IsNaN(memory) {
		memory = 0.5
	}
	memory = min(max(memory, 0), 1)
	compute := b.FP32 / a.FP32
	if u.Tensor {
		compute = b.Tensor / a.Tensor
	}
	return math.Pow(compute, 1-memory) * math.Pow(b.GBs/a.GBs, memory)
}
