package devices

import (
	"math"
	"strings"
	"testing"
)

// TestNames: names as NVML gives them, and those that no sheet is of.
func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"Tesla K80": "K80 (one of two)", "Tesla P100-SXM2-16GB": "P100 SXM2", "Tesla P100-PCIE-16GB": "P100 PCIe", "Tesla P100-PCIE-12GB": "P100 PCIe 12GB",
		"Tesla V100-SXM2-32GB": "V100 SXM2", "Tesla V100-PCIE-16GB": "V100 PCIe", "Tesla V100S-PCIE-32GB": "V100S PCIe", "Tesla T4": "T4",
		"NVIDIA A10": "A10", "NVIDIA A10G": "", "NVIDIA A30": "A30", "NVIDIA A40": "A40", "NVIDIA A100-PCIE-40GB": "A100 40GB", "NVIDIA A100-SXM4-40GB": "A100 40GB",
		"NVIDIA A100 80GB PCIe": "A100 PCIe 80GB", "NVIDIA A100-SXM4-80GB": "A100 SXM4 80GB", "NVIDIA L4": "L4", "NVIDIA L40": "L40", "NVIDIA L40S": "L40S",
		"NVIDIA H100 PCIe": "H100 PCIe", "NVIDIA H100 80GB HBM3": "H100 SXM", "NVIDIA H100 NVL": "H100 NVL", "NVIDIA GH200 480GB": "GH200", "NVIDIA H200": "H200 SXM",
		"NVIDIA H200 NVL": "H200 NVL", "NVIDIA B200": "B200", "NVIDIA GeForce RTX 3090": "RTX 3090", "NVIDIA GeForce RTX 3090 Ti": "", "NVIDIA GeForce RTX 4090": "RTX 4090",
		"NVIDIA GeForce RTX 4090 Laptop GPU": "", "NVIDIA GeForce RTX 4090 D": "", "NVIDIA RTX A6000": "RTX A6000", "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada", "GRID A100-4C": "",
		"NVIDIA A100-SXM4-40GB MIG 1g.5gb": "A100 40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me": "H100 SXM MIG 1g.10gb", "NVIDIA A30 MIG 2g.12gb": "A30 MIG 2g.12gb",
		"NVIDIA A100-SXM4-40GB MIG 8g.5gb": "", "NVIDIA A100-SXM4-40GB MIG ": "", "Tesla T4 MIG 1g.5gb": "", "NVIDIA A30 MIG -1g.6gb": "", "NVIDIA A30 MIG 1g.99999gb": "",
		"": "", "\x1b[31mK80": "", "📦": "", strings.Repeat("A100 ", 4096): "A100 40GB",
	} {
		got, ok := Of(name)
		if got.Model != want || ok != (want != "") {
			t.Errorf("%.60q: %q %v, want %q", name, got.Model, ok, want)
		}
	}
}

// TestSheetsArePlausible: peaks are what SMs and clocks give, so that no figure is off by a power
// of ten. 128 or 64 lanes of two operations in each SM, 192 of Kepler's.
func TestSheetsArePlausible(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sheets() {
		lanes := s.FP32 * 1e6 / float64(s.SMs*s.MHz*2)
		near := false
		for _, n := range []float64{64, 128, 192} {
			near = near || math.Abs(lanes/n-1) < 0.08
		}
		if !near || s.Tensor < s.FP32 || s.GBs < 200 || s.GBs > 10000 || s.GB < 12 || s.GB > 200 || s.Source == "" || seen[s.Model] {
			t.Errorf("%+v: %.0f lanes in each SM", s, lanes)
		}
		seen[s.Model] = true
	}
}

func TestFaster(t *testing.T) {
	k80, _ := Of("Tesla K80")
	v100, _ := Of("Tesla V100-SXM2-16GB")
	slice, ok := Of("NVIDIA A100-SXM4-40GB MIG 3g.20gb")
	a100, _ := Of("NVIDIA A100-SXM4-40GB")
	if !ok {
		t.Fatal("no slice")
	}
	for name, c := range map[string]struct {
		a, b Sheet
		use  Use
		want float64
	}{
		"compute":                   {k80, v100, Use{Memory: 0}, 15.7 / 4.37},
		"memory":                    {k80, v100, Use{Memory: 1}, 900.0 / 240},
		"not known":                 {k80, v100, Use{Memory: math.NaN()}, math.Sqrt(15.7 / 4.37 * 900 / 240)},
		"more than all of it":       {k80, v100, Use{Memory: 7}, 900.0 / 240},
		"tensor cores":              {v100, a100, Use{Tensor: true}, 312.0 / 125},
		"a slice, compute":          {a100, slice, Use{}, 3.0 / 7},
		"a slice, half the memory":  {a100, slice, Use{Memory: 1}, 0.5},
		"there and back is nothing": {a100, a100, Use{Memory: 0.3}, 1},
	} {
		if got := Faster(c.a, c.b, c.use); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestXIDs: what a program may have done itself is known as such, and each such number has words.
func TestXIDs(t *testing.T) {
	words := 0
	for number := range uint32(1000) {
		if XID(number) != "" {
			words++
		} else if ByProgram(number) {
			t.Errorf("XID %d is a program's own, and has no words", number)
		}
	}
	if words != 21 || XID(79) != "fell off the bus" || XID(0) != "" || XID(1<<31) != "" || ByProgram(48) || ByProgram(79) || !ByProgram(31) || !ByProgram(69) || !ByProgram(109) || ByProgram(0) {
		t.Errorf("%d numbers have words; 79 is %q", words, XID(79))
	}
}
