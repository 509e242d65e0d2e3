// Package profiles tells jobs apart by what they do, and knows which known job a
// new one is most like. A print is what the probes see of a job's steps without its
// help; names and labels are no part of it. A Store holds the prints of jobs that
// were measured, with what was learned of each. Everything here is a pure function
// of plain data.
//
// The idea of placing a job by the jobs most like it, by a dissimilarity over
// attributes of mixed kinds, is that of Thanapol et al. (ACIIDS 2023); the
// attributes, the measure and what is taken over are ours.
//
// The trap: a job that starves spends more CPU on a step and more time in it than
// the same job with plenty. What starvation moves most weighs least here.
package profiles

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/observe"
)

// Attribute is one number of a print.
type Attribute uint8

// The attributes. Those per step are per tick of the rate that Print.Unit names.
const (
	TrainerCPU      Attribute = iota // s/step
	LoaderCPU                        // s/step
	OtherCPU                         // s/step
	DeviceWait                       // s/step
	Batch                            // s, one loader's own time for one batch
	StepTime                         // s
	Launches                         // /step
	BytesIn                          // B/step, to the device
	BytesOut                         // B/step, from the device
	Collectives                      // /step
	CollectiveBytes                  // B/step
	Activity                         // share of time in which the device works
	VRAM                             // B
	SyncShare                        // share of the trainer's time in blocking CUDA calls
	ReadBytes                        // B/step, from disk
	RxBytes                          // B/step, from the network
	Processes
	Threads
	Ranks
	Loaders
	SMs    // share of time in which the device's multiprocessors work; this and the next two where the device counts them
	DRAM   // share of time in which its memory's interface works
	Tensor // share of time in which its tensor cores work
	NumAttributes
)

// attribute says how one is compared.
type attribute struct {
	name   string
	weight float64 // 0: no part of likeness; speeds on other devices are predicted by it
	// floor is added before the logarithm is taken: below it a difference means nothing.
	floor float64
	// device: it depends on the device's model, and is left out between different ones.
	device bool
}

// attributes describes all of them. Weights: 2 for what decides how many CPUs a job
// can use, 1 for what else the program's text decides, less for what the machine,
// the cache or starvation move.
//
//trimtab:table only read
var attributes = &[NumAttributes]attribute{
	TrainerCPU: {"trainerCPU", 2, 1e-3, false}, LoaderCPU: {"loaderCPU", 2, 1e-3, false}, OtherCPU: {"otherCPU", 0.25, 5e-3, false},
	DeviceWait: {"deviceWait", 2, 2e-3, true}, Batch: {"batch", 0.5, 2e-3, false}, StepTime: {"stepTime", 0.25, 2e-3, true},
	Launches: {"launches", 1, 1, false}, BytesIn: {"bytesIn", 1, 4096, false}, BytesOut: {"bytesOut", 0.5, 4096, false},
	Collectives: {"collectives", 1, 0.1, false}, CollectiveBytes: {"collectiveBytes", 1, 4096, false},
	Activity: {"activity", 0.25, 0.05, true}, VRAM: {"vram", 1, 64 << 20, false}, SyncShare: {"syncShare", 0.25, 0.05, true},
	ReadBytes: {"readBytes", 0.25, 64 << 10, false}, RxBytes: {"rxBytes", 0.25, 64 << 10, false},
	Processes: {"processes", 0.5, 1, false}, Threads: {"threads", 0.25, 4, false}, Ranks: {"ranks", 1, 0.1, false}, Loaders: {"loaders", 1, 0.5, false},
	SMs: {"sms", 0, 0.05, true}, DRAM: {"dram", 0, 0.05, true}, Tensor: {"tensor", 0, 0.05, true},
}

// String returns the attribute's name.
func (a Attribute) String() string { return attributes[a].name }

// Print is what a job looks like. The zero Print is of no job.
type Print struct {
	// Unit is the source of the rate: what a step is. Prints in different units do not compare.
	Unit string
	// Image is the container's image: a name that anybody may give, so it weighs little.
	Image string
	// Device is the model of the devices that it holds; "": none.
	Device string
	// Steps is how many steps it rests on.
	Steps float64
	// 32 bits are more than any reading is good to.
	values [NumAttributes]float32
	logs   [NumAttributes]float32 // of value and floor: prints are compared far more often than made
	has    uint32
}

// imageWeight is the nominal attribute's.
const imageWeight = 0.5

// Value returns an attribute; ok is false where it is absent, which is not zero.
func (p Print) Value(a Attribute) (v float64, ok bool) {
	if p.has&(1<<a) == 0 {
		return 0, false
	}
	return float64(p.values[a]), true
}

// With returns the print with one attribute set; what is no finite number of at
// least 0 is absent.
func (p Print) With(a Attribute, v float64) Print {
	p.has &^= 1 << a
	p.values[a], p.logs[a] = 0, 0
	if v >= 0 && v <= maxValue {
		p.values[a] = float32(v)
		p.logs[a] = float32(math.Log(float64(p.values[a]) + attributes[a].floor))
		p.has |= 1 << a
	}
	return p
}

// maxValue is beyond anything that a step does: 1 EB.
const maxValue = 1e18

// Facts are what a reading does not hold.
type Facts struct {
	Image  string
	Device string
	VRAM   float64 // bytes; 0: not told
}

// MinSteps is the least that a print rests on: what a window's cost needs.
const MinSteps = 4

// Of reads a job's print from one window's reading; ok is false where the window
// holds too few steps.
func Of(r observe.Reading, f Facts) (p Print, ok bool) {
	w := r.Window
	if w == nil || !r.CostOK || r.Rate.PerSecond <= 0 {
		return Print{}, false
	}
	steps := r.Rate.PerSecond * w.Seconds()
	if steps < MinSteps {
		return Print{}, false
	}
	p = Print{Unit: r.Rate.Source, Image: clip(f.Image), Device: clip(f.Device), Steps: steps}
	set := func(a Attribute, v float64, known bool) {
		if known {
			p = p.With(a, v)
		}
	}
	c, t := r.Cost, totalsOf(w)
	for a, v := range map[Attribute]float64{ // each sets its own: the order does not matter
		TrainerCPU: c.TrainerCPU, LoaderCPU: c.LoaderCPU, OtherCPU: c.OtherCPU, DeviceWait: c.Device, StepTime: 1 / r.Rate.PerSecond,
		Processes: float64(t.Processes), Threads: float64(t.Threads), Ranks: float64(r.Ranks), Loaders: float64(r.Loaders),
		ReadBytes: float64(w.Block.ReadBytes) / steps,
	} {
		set(a, v, true)
	}
	set(Batch, c.Batch, r.Loaders > 0)
	set(RxBytes, t.RxBytes/steps, t.HasNetwork)
	set(Launches, t.Launches/steps, t.HasLaunches)
	set(BytesIn, t.InBytes/steps, t.HasCUDA)
	set(BytesOut, t.OutBytes/steps, t.HasCUDA)
	set(SyncShare, float64(r.SyncNs)/float64(max(1, r.Breakdown.WallNs)), t.HasCUDA)
	set(Collectives, t.Collectives/steps, t.HasNCCL)
	set(CollectiveBytes, t.CollectiveBytes/steps, t.HasNCCL)
	duty, told := busiestDuty(w)
	set(Activity, duty, told)
	if d := busiestSMs(w); d != nil {
		p = p.With(SMs, d.SM).With(DRAM, d.DRAM).With(Tensor, d.Tensor)
	}
	set(VRAM, f.VRAM, f.VRAM > 0)
	return p, true
}

// maxText bounds what a print keeps of names that others gave.
const maxText = 256

func clip(s string) string { return s[:min(len(s), maxText)] }

// printJSON is a print on disk: attributes by name, so that a later version may
// have more of them.
type printJSON struct {
	Unit   string             `json:"unit"`
	Image  string             `json:"image,omitempty"`
	Device string             `json:"device,omitempty"`
	Steps  float64            `json:"steps"`
	Values map[string]float32 `json:"values"`
}

// MarshalJSON implements json.Marshaler.
func (p Print) MarshalJSON() ([]byte, error) {
	out := printJSON{Unit: p.Unit, Image: p.Image, Device: p.Device, Steps: p.Steps, Values: map[string]float32{}}
	for a := range NumAttributes {
		if p.has&(1<<a) != 0 {
			out.Values[a.String()] = p.values[a]
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler. Attributes that this version does not
// know are left out.
func (p *Print) UnmarshalJSON(text []byte) error {
	var in printJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("fingerprint: %w", err)
	}
	*p = Print{Unit: in.Unit, Image: in.Image, Device: in.Device, Steps: in.Steps}
	for a := range NumAttributes {
		if v, ok := in.Values[a.String()]; ok {
			*p = p.With(a, float64(v))
		}
	}
	return nil
}

// blend moves a print towards what was measured of the same job later, by share.
// Attributes are joined on the logarithmic scale; one that only either has is kept.
func (p Print) blend(q Print, share float64) Print {
	out := q
	for a, how := range attributes {
		a := Attribute(a)
		was, had := p.Value(a)
		is, has := q.Value(a)
		switch {
		case had && has && how.device && p.Device != q.Device: // the later device's own
		case had && has:
			out = out.With(a, math.Exp((1-share)*math.Log(was+how.floor)+share*math.Log(is+how.floor))-how.floor)
			if _, ok := out.Value(a); !ok { // rounding took it below zero
				out = out.With(a, 0)
			}
		case had:
			out = out.With(a, was)
		}
	}
	out.Steps = max(p.Steps, q.Steps)
	return out
}

// valid says what is wrong with a cost that came from a file.
func validCost(c policies.Cost) error {
	for _, v := range []float64{c.TrainerCPU, c.LoaderCPU, c.OtherCPU, c.Device, c.Batch, c.Ticks, c.Queue, c.Spin} {
		if !(v >= 0 && v <= maxCost) {
			return fmt.Errorf("a cost of %g", v)
		}
	}
	if c.Loaders < 0 || c.Loaders > 1e6 {
		return fmt.Errorf("%d loaders", c.Loaders)
	}
	if c.Floor() <= 0 || c.CPU() <= 0 {
		return fmt.Errorf("a step that costs nothing")
	}
	return nil
}

// maxCost of one step, seconds, and of the steps that it was measured over.
const maxCost = 1e9
