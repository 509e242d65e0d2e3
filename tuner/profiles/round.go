package profiles

import (
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/model"
)

// digits that a rounded number keeps: a part in 50,000, far below what any reading is good to.
const digits = 5

// round keeps the leading digits of a number, so that its text is short.
func round(x float64) float64 {
	out, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64) // what was formatted is a number
	return out
}

// Rounded is a known job with its numbers rounded to what they are worth: of 10,000 jobs the text
// is then a third as long.
func (k Known) Rounded() Known {
	for a := range NumAttributes {
		if v, ok := k.Print.Value(a); ok {
			k.Print = k.Print.With(a, round(v))
		}
	}
	k.Print.Steps = round(k.Print.Steps)
	l := &k.Learned
	l.Cost, l.Lost, l.Correction = roundCost(l.Cost), round(l.Lost), round(l.Correction)
	l.Devices = l.Devices.each(roundCost)
	l.Response, l.Memory = roundLearner(l.Response), roundLearner(l.Memory)
	return k
}

func roundCost(c policies.Cost) policies.Cost {
	return eachTime(c, round)
}

// eachTime applies f to all numbers of a cost but the loaders.
func eachTime(c policies.Cost, f func(float64) float64) policies.Cost {
	for _, v := range []*float64{&c.TrainerCPU, &c.LoaderCPU, &c.OtherCPU, &c.Device, &c.Batch, &c.Ticks, &c.Queue, &c.Spin} {
		*v = f(*v)
	}
	return c
}

func roundLearner(l *model.Learner) *model.Learner {
	out := eachCell(l, roundCost, func(c model.Cell) model.Cell {
		return model.Cell{X: round(c.X), Log: round(c.Log), Weight: round(c.Weight)}
	})
	if out != nil {
		out.Paging.Base, out.Paging.Lost = round(out.Paging.Base), round(out.Paging.Lost)
	}
	return out
}

// eachCell is a curve with its cost and its cells changed; of none it is none.
func eachCell(l *model.Learner, cost func(policies.Cost) policies.Cost, cell func(model.Cell) model.Cell) *model.Learner {
	if l == nil {
		return nil
	}
	out := *l
	out.Cost, out.Cells = cost(l.Cost), slices.Clone(l.Cells)
	for i, c := range out.Cells {
		out.Cells[i] = cell(c)
	}
	return &out
}
