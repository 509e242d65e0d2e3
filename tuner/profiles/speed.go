package profiles

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/devices"
)

const (
	// speedReach is the distance at which a known job counts for 1/e of one that is wholly like it.
	speedReach = 0.15
	// familySpread is by how much families that are wholly alike are taken to differ at the least, as the
	// standard deviation of logarithms: one alone proves little.
	familySpread = 0.5
	// otherFamilies is for how many wholly alike jobs of the same family all others count.
	otherFamilies = 0.1
	// Covered is the share of true rates that predicted intervals are made to hold.
	Covered = 0.9
	// maxOff is by what factor data sheets alone are taken to be off: they count as one family whose
	// rates were that far from predicted [143 of 156 on K80, P100 and V100 are nearer: docs/results.md].
	maxOff = 3.0
	// measuredOff is the half width of the interval, as a factor, of a rate that was measured and of which too few
	// runs tell how far they lie apart. It is assumed: published tables hold each rate once. Half of it
	// changes no advice, since 10 % are the least that is advised; twice of it asks for 20 %.
	measuredOff = 1.1
	// maxCompared known jobs at the most are compared for one prediction, the latest met first.
	maxCompared = 64
)

// Speed is a predicted rate on one model of device.
type Speed struct {
	Device string
	// PerSecond is the rate in the unit of the job's own: the median that is expected. The true one
	// lies from Low to High with probability Covered.
	PerSecond, Low, High float64
	// HostBound: another part of the step is what bounds it there, so a faster device
	// still would give no more.
	HostBound bool
	// Measured: this very job ran there. Jobs is how many known jobs that ran on both models tell
	// of it; 0: data sheets alone do.
	Measured bool
	Jobs     int
}

// Running is a job whose rate on other devices is asked for.
type Running struct {
	Print Print         // as on the device that it has
	Cost  policies.Cost // of a step there
	CPUs  float64       // that it may use
}

// Speeds tells a running job's rate on other models of device: as measured where the known job that it
// teaches ran, id, and elsewhere as predicted from what it does here.
func (b *Store) Speeds(id uint64, p Print, cost policies.Cost, cpus float64, models []string) []Speed {
	if p.Device == "" {
		return nil
	}
	k := Known{Jobs: 1}
	if own := b.find(id); own != nil {
		k.Jobs, k.Learned.Devices, k.Ends = own.Jobs, own.Learned.Devices, own.Ends
	}
	k.Print, k.Learned.Devices = p, k.Learned.Devices.With(p.Device, cost)
	return slices.DeleteFunc(NewPredictor(b.known).SpeedsOf(k, cpus, models), func(s Speed) bool { return s.Device == p.Device })
}

// speedAt is the rate at a cost whose wait for the device is known to within e^±off.
func speedAt(model string, c policies.Cost, cpus, off float64) Speed {
	rate := func(by float64) float64 {
		moved := c
		moved.Device *= by
		return 1 / moved.Step(cpus)
	}
	s := Speed{Device: model, PerSecond: rate(1), Low: rate(math.Exp(off)), High: rate(math.Exp(-off))}
	s.HostBound = rate(0) < s.PerSecond/0.95
	return s
}

// moves are the known jobs that ran on both of two models of device.
type moves struct {
	weights  Weights
	from, to string
	sheets   bool // both models' data sheets are known
	a, b     devices.Sheet
	jobs     []move
	ranges   Ranges
	widths   map[bool]float64 // half of the intervals', as far as they were asked for
}

// move is one job as it is on the first model, and what it was on the other.
type move struct {
	print   Print
	family  string  // jobs of one image are taken for one program at several settings
	sheet   float64 // what data sheets say that its wait for the device is multiplied by
	beyond  float64 // the logarithm of what it was multiplied by beyond that, where it is known
	foreign bool    // another host measured it
}

func newMoves(w Weights, known []Known, from, to string) *moves {
	m := &moves{weights: w, from: from, to: to, widths: map[bool]float64{}}
	var okA, okB bool
	m.a, okA = devices.Of(from)
	m.b, okB = devices.Of(to)
	m.sheets = okA && okB
	var prints []*Print
	for _, k := range latest(known, from, to) {
		here, _ := k.Learned.Devices.On(from)
		there, _ := k.Learned.Devices.On(to)
		j := m.of(k.ID, k.Print, here)
		j.beyond = math.Log(there.Device / here.Device / j.sheet)
		if j.foreign = k.Host != ""; j.foreign { // what a host says is one voice, and not believed beyond what sheets are off
			j.family = "\x01" + k.Host
			if m.sheets {
				j.beyond = min(max(j.beyond, -math.Log(maxOff)), math.Log(maxOff))
			}
		}
		m.jobs = append(m.jobs, j)
		prints = append(prints, &j.print)
	}
	m.ranges = RangesOf(prints...)
	return m
}

// latest are the known jobs that ran on both models, those met last first. Others' tell only where none of
// this host's does.
func latest(known []Known, from, to string) []*Known {
	var out, foreign []*Known
	for i := range known {
		here, _ := known[i].Learned.Devices.On(from)
		there, _ := known[i].Learned.Devices.On(to)
		switch {
		case !(here.Device > 0 && there.Device > 0):
		case known[i].Host == "":
			out = append(out, &known[i])
		default:
			foreign = append(foreign, &known[i])
		}
	}
	if len(out) == 0 {
		out = foreign
	}
	slices.SortFunc(out, func(x, y *Known) int {
		return cmp.Or(cmp.Compare(y.LastUnixNs, x.LastUnixNs), cmp.Compare(x.ID, y.ID))
	})
	return out[:min(len(out), maxCompared)]
}

// of is a job that costs so much on the first model.
func (m *moves) of(id uint64, p Print, here policies.Cost) move {
	there := p.Device == m.from
	p = p.on(m.from).With(DeviceWait, here.Device)
	if !there { // what depends on the device was read on another
		p = p.With(StepTime, here.Floor())
	}
	j := move{print: p, family: p.Image, sheet: 1}
	if j.family == "" {
		j.family = "\x00" + strconv.FormatUint(id, 10) // its own
	}
	if !m.sheets {
		return j
	}
	faster := devices.Faster(m.a, m.b, p.use())
	part := 1.0
	if active, ok := p.Value(Activity); ok && here.Device > 0 {
		// Of the wait in which nothing runs on the device, half is taken to be the host's, and half
		// to be the device's own: launches, copies and exchange.
		part = (1 + min(1, active*here.Floor()/here.Device)) / 2
	}
	j.sheet = 1 - part + part/faster
	return j
}

// on is the print without what was read on another device.
func (p Print) on(device string) Print {
	if p.Device == device {
		return p
	}
	for a, how := range attributes {
		if how.device {
			p = p.With(Attribute(a), math.NaN())
		}
	}
	p.Device = device
	return p
}

// use is what a job's work on its device consists of, as far as the device counts it.
func (p Print) use() devices.Use {
	u := devices.Use{Memory: math.NaN()}
	sms, ok := p.Value(SMs)
	if dram, _ := p.Value(DRAM); ok && sms > 0 {
		u.Memory = min(1, dram/sms)
	}
	tensor, _ := p.Value(Tensor)
	u.Tensor = tensor >= usesTensor
	return u
}

// usesTensor is the share of time beyond which a job is taken to use tensor cores.
const usesTensor = 0.02

// Weights are how much each attribute counts in how alike devices' work for two jobs is.
type Weights [NumAttributes]float64

// EqualWeights are those of the attributes that decide how a wait for the device scales. Weights
// that are learned do worse [docs/results.md].
func EqualWeights() (w Weights) {
	for _, a := range []Attribute{DeviceWait, Activity, SMs, DRAM, Tensor, Launches, BytesIn} {
		w[a] = 1
	}
	return w
}

// likeness is 1 for jobs that are wholly alike in what a device does for them, and near 0 for those
// that are not. Steps in other units do not compare.
func (m *moves) likeness(x, y *Print) float64 {
	sum, weights := 0.0, 0.0
	for a, w := range m.weights {
		if w <= 0 || x.Unit != y.Unit || x.has&y.has&(1<<a) == 0 {
			continue
		}
		sum += w * min(1, math.Abs(float64(x.logs[a]-y.logs[a]))/m.ranges[a])
		weights += w
	}
	if weights <= 0 {
		return 0
	}
	d := sum / weights / speedReach
	return math.Exp(-d * d)
}

// residual is what a job's wait is expected to be multiplied by beyond the data sheets, as a
// logarithm: the mean of other families, as far as they agree, drawn to jobs of its own family. own:
// those are most of it. It is told by those jobs that may tell; told is false where neither they nor sheets do.
func (m *moves) residual(j *move, may func(*move) bool) (mean float64, own, told bool) {
	families := map[string]*family{}
	var strange []*family // in the order of jobs: sums of floats depend on it
	for i := range m.jobs {
		known := &m.jobs[i]
		if !may(known) {
			continue
		}
		f := families[known.family]
		if f == nil {
			f = &family{}
			if families[known.family] = f; known.family != j.family {
				strange = append(strange, f)
			}
		}
		w := m.likeness(&j.print, &known.print)
		f.weight, f.sum, f.jobs = f.weight+w, f.sum+w*known.beyond, f.jobs+1
	}
	mean, told = m.pooled(strange)
	if f := families[j.family]; f != nil && f.weight > 0 {
		others := otherFamilies
		if !told {
			others = 0
		}
		return (others*mean + f.sum) / (others + f.weight), f.weight > otherFamilies, true
	}
	return mean, false, told
}

// family is what jobs of one image tell of another: the sum of their likenesses, of what they needed
// beyond the data sheets weighted by that, and how many they are.
type family struct{ weight, sum, jobs float64 }

// pooled is the mean of families weighted by likeness. Where data sheets are known it is drawn to
// them, to nothing beyond, by its standard error: m²/(m²+s²) of it is left [James and Stein 1961].
// told is false where nothing tells of other families.
func (m *moves) pooled(families []*family) (mean float64, told bool) {
	weight, sum, squares := 0.0, 0.0, 0.0
	for _, f := range families {
		if f.weight > 0 {
			w, mean := f.weight/f.jobs, f.sum/f.weight
			weight, sum, squares = weight+w, sum+w*mean, squares+w*mean*mean
		}
	}
	if weight <= 0 {
		return 0, m.sheets
	}
	mean = sum / weight
	if !m.sheets || mean == 0 {
		return mean, true
	}
	spread := max(0, squares/weight-mean*mean)
	return mean * mean * mean / (mean*mean + (spread+familySpread*familySpread)/weight), true
}

// halfWidth is half of the interval's width as a logarithm: the quantile of the known jobs' errors
// when each was predicted without its family or, with own, without itself. Jobs of other hosts make no
// prediction surer.
func (m *moves) halfWidth(own bool) float64 {
	type miss struct{ off, weight float64 }
	misses := []miss{{math.Log(maxOff), 1}}
	sizes := map[string]float64{}
	for _, j := range m.jobs {
		sizes[j.family]++
	}
	total := 1.0
	for i := range m.jobs {
		j := &m.jobs[i]
		if j.foreign || own && sizes[j.family] < 2 {
			continue
		}
		mean, _, _ := m.residual(j, func(other *move) bool { return other != j && (own || other.family != j.family) })
		misses = append(misses, miss{math.Abs(mean - j.beyond), 1 / sizes[j.family]})
		total += 1 / sizes[j.family]
	}
	slices.SortFunc(misses, func(x, y miss) int { return cmp.Compare(x.off, y.off) })
	sum := 0.0
	for _, e := range misses {
		if sum += e.weight; sum >= Covered*total {
			return e.off
		}
	}
	return misses[len(misses)-1].off
}
