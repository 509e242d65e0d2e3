package profiles

import "math"

// Predictor predicts rates by the same known jobs as often as it is asked: what they tell of two models
// of device is worked out once. Used from one goroutine.
type Predictor struct {
	Weights Weights // EqualWeights but in package test/lab, which tries others
	known   []Known
	pairs   map[[2]string]*moves
}

// NewPredictor predicts by what is known, which must not change meanwhile.
func NewPredictor(known []Known) *Predictor {
	return &Predictor{EqualWeights(), known, map[[2]string]*moves{}}
}

func (p *Predictor) pair(from, to string) *moves {
	key := [2]string{from, to}
	if p.pairs[key] == nil {
		p.pairs[key] = newMoves(p.Weights, p.known, from, to)
	}
	return p.pairs[key]
}

// SpeedsOf tells the rates of a known job by models of device, its own among them: as measured
// where it ran, elsewhere as predicted from the device that it was last met on.
// Another host's rates are no measurement here, and none without calibration.
func (p *Predictor) SpeedsOf(k Known, cpus float64, models []string) []Speed {
	if k.Shape {
		return nil
	}
	off := measuredOff
	if k.Host != "" {
		off = sameDemand
	}
	var out []Speed
	var other []string
	for _, model := range models {
		cost, ran := k.Learned.Devices.On(model)
		if !ran || cost.Step(cpus) <= 0 {
			other = append(other, model)
			continue
		}
		s := speedAt(model, cost, cpus, math.Log(off))
		s.Measured, s.Jobs = k.Host == "", k.Jobs
		if usual, off, ok := k.apart(model); ok && math.Abs(usual-math.Log(s.PerSecond)) <= off { // else by other CPUs, or its cost is off
			s.Low, s.High = s.PerSecond*math.Exp(-off), s.PerSecond*math.Exp(off)
		}
		out = append(out, s)
	}
	return append(out, p.Predict(Running{k.Print, k.costOn(k.Print.Device), cpus}, other)...)
}

// apart is the usual rate of a job's runs on a model of device, and how far another one may be from it, of
// logarithms, with probability Covered. ok is false where too few runs tell.
func (k *Known) apart(model string) (usual, off float64, ok bool) {
	var logs []float64
	for _, e := range k.Ends.All() {
		if e.Device == model && e.Source == k.Print.Unit && e.Rate > 0 {
			logs = append(logs, e.log())
		}
	}
	if len(logs) < leastRuns {
		return 0, 0, false
	}
	usual, spread := oneMore(logs)
	return usual, student((1-Covered)/2, float64(len(logs)-1)) * spread, true
}

// Predict predicts a job's rate on other models of device. Only the time that it waits for its device
// is scaled: by data sheets, then by what known jobs that ran on both models needed beyond that,
// weighted by likeness. The rest of the step stays: what the host bounds, no device makes faster. The
// interval is conformal: as wide as the errors were when each known job was predicted from those of
// other families (Vovk et al. 2005; with one calibration error a family). A model of which
// neither sheets nor known jobs tell is left out.
func (p *Predictor) Predict(r Running, models []string) []Speed {
	if r.Print.Device == "" || r.Cost.Floor() <= 0 || r.Cost.Device <= 0 {
		return nil
	}
	var out []Speed
	for _, model := range models {
		if model == r.Print.Device {
			continue
		}
		m := p.pair(r.Print.Device, model)
		j := m.of(0, r.Print, r.Cost)
		mean, own, told := m.residual(&j, func(*move) bool { return true })
		if !told {
			continue
		}
		if _, asked := m.widths[own]; !asked {
			m.widths[own] = m.halfWidth(own)
		}
		moved := r.Cost
		moved.Device *= j.sheet * math.Exp(mean)
		s := speedAt(model, moved, r.CPUs, m.widths[own])
		s.Jobs = len(m.jobs)
		out = append(out, s)
	}
	return out
}
