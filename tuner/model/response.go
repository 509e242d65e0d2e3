// Package model learns a job's rate by the CPUs that it has, and by the memory that it
// may use. What one step costs gives the shape before anything else was tried (policies.Cost,
// policies.Paging); readings correct the level, then the shape near where they were
// made, and narrow its bounds. It is pure, and a Learner is plain data, so that what
// was learnt can outlive the container.
//
// The trap is that readings come from jobs, which restart, hang, change what they do
// and may lie. What does not fit is refused until it repeats; what repeats begins
// anew. And since only a job's rate over its own best is ever compared, and no more
// gain is believed than in proportion to what is given, a lie buys no more than
// being a job that always needs more.
package model

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
)

// Seen is one reading: a rate, on so many CPUs or bytes.
type Seen struct {
	// X is how much the job had: its quota, what it used where others stood before it, or
	// what was free to it where nothing held it back; of memory its limit, or what it used
	// where that was enough.
	X      float64
	Rate   float64
	Source string
	Cost   policies.Cost   // of a tick of this rate, by CPUs; zero: not known
	Paging policies.Paging // of a tick of this rate, by memory, which it makes a reading of
}

// Answer is what became of a reading.
type Answer string

// Answers. NewPhase: what was learnt before was dropped, and this is the first of anew.
const (
	Taken    Answer = "taken"
	NoRate   Answer = "refused: no rate"
	Foreign  Answer = "refused: of another source"
	Unlikely Answer = "refused: far from all before"
	NewPhase Answer = "taken: the job does something else now"
)

// Numbers of the learner.
const (
	version = 1
	// cellWidth is the ratio between the middles of two cells.
	cellWidth = 1.1
	maxCells  = 48
	// maxWeight lets a cell forget: a new reading counts at least one in so many.
	maxWeight = 24.0
	// unlikelyRatio of a rate to the expected one needs more than one witness.
	unlikelyRatio = 3.0
	// phaseRatio of a tick's cost to the cost before is another kind of work: throttling alone
	// moves it by about a tenth [measured by the demo: 68 ms against 61 ms].
	phaseRatio = 1.5
	// witnesses are the readings in a row that turn what is refused into a new phase.
	witnesses = 3
	// costShare is how far a tick's cost follows each reading.
	costShare = 0.3
)

// Learner learns one curve. The zero value knows nothing.
type Learner struct {
	Version int           `json:"version,omitempty"`
	Source  string        `json:"source,omitempty"`
	Cost    policies.Cost `json:"cost,omitzero"`
	// Paging is there of a curve by memory, and there alone.
	Paging  policies.Paging `json:"paging,omitzero"`
	Cells   []Cell          `json:"cells,omitempty"` // ascending
	Phases  int             `json:"phases,omitempty"`
	Refused int             `json:"refused,omitempty"`

	odd  int    // readings in a row that were refused, or cost something else
	oddS string // their source
}

// Cell holds the readings around one amount.
type Cell struct {
	X      float64 `json:"x"`      // their mean
	Log    float64 `json:"log"`    // mean logarithm of their rates
	Weight float64 `json:"weight"` // how many they count for
}

// Learn takes in a reading.
func (l *Learner) Learn(s Seen) Answer {
	if !plausible(s.Rate) || !plausible(s.X) {
		l.Refused++
		return NoRate // a hang or a pause is no evidence of what an amount buys
	}
	if !sane(s.Cost) {
		s.Cost = policies.Cost{}
	}
	if !sanePaging(s.Paging) {
		s.Paging = policies.Paging{}
	}
	if l.Source == "" {
		l.begin(s)
		return Taken
	}
	why := l.doubt(s)
	if why == "" {
		l.odd = 0
		l.learn(s)
		return Taken
	}
	if l.odd == 0 || l.oddS == s.Source {
		l.odd++
	} else {
		l.odd = 1
	}
	l.oddS = s.Source
	if l.odd < witnesses {
		l.Refused++
		return why
	}
	l.begin(s)
	l.Phases++
	return NewPhase
}

// doubt says why a reading is not believed at once; "" if it is.
func (l *Learner) doubt(s Seen) Answer {
	if s.Source != l.Source {
		return Foreign
	}
	if apart(s.Cost.CPU(), l.Cost.CPU()) || apart(s.Cost.Floor(), l.Cost.Floor()) {
		return Unlikely
	}
	if l.ByMemory() {
		if l.steep(s) {
			return Unlikely
		}
		return ""
	}
	rate, _, _ := l.Curve(s.X).At(s.X)
	if rate > 0 && math.Abs(math.Log(s.Rate/rate)) > math.Log(unlikelyRatio) {
		return Unlikely
	}
	return ""
}

// apart reports whether two costs are those of different work. One that was not
// measured tells nothing.
func apart(a, b float64) bool {
	return positive(a) && positive(b) && math.Abs(math.Log(a/b)) > math.Log(phaseRatio)
}

// begin drops what was learnt.
func (l *Learner) begin(s Seen) {
	l.Version, l.Source, l.Cost, l.Paging, l.Cells, l.odd = version, s.Source, policies.Cost{}, policies.Paging{}, nil, 0
	l.learn(s)
}

func (l *Learner) learn(s Seen) {
	switch {
	case !plausible(s.Cost.Floor()) || !plausible(s.Cost.CPU()):
	case !positive(l.Cost.CPU()):
		l.Cost = s.Cost
	default:
		l.Cost = blend(l.Cost, s.Cost)
	}
	if plausible(s.Paging.Base) {
		l.Paging = paged(l.Paging, s.Paging)
	}
	i, found := slices.BinarySearchFunc(l.Cells, s.X, func(c Cell, x float64) int {
		if near(c.X, x) {
			return 0
		}
		if c.X < x {
			return -1
		}
		return 1
	})
	if !found {
		l.Cells = slices.Insert(l.Cells, i, Cell{X: s.X})
	}
	c := &l.Cells[i]
	c.Weight = min(c.Weight+1, maxWeight)
	c.X += (s.X - c.X) / c.Weight
	c.Log += (math.Log(s.Rate) - c.Log) / c.Weight
	if len(l.Cells) > maxCells {
		least := 0
		for k, c := range l.Cells {
			if c.Weight < l.Cells[least].Weight {
				least = k
			}
		}
		l.Cells = slices.Delete(l.Cells, least, least+1)
	}
	slices.SortStableFunc(l.Cells, func(a, b Cell) int {
		if a.X < b.X {
			return -1
		} else if a.X > b.X {
			return 1
		}
		return 0
	})
}

func near(a, b float64) bool { return math.Abs(math.Log(a/b)) < math.Log(cellWidth)/2 }

// blend moves a cost towards a later one.
func blend(a, b policies.Cost) policies.Cost {
	mix := func(u, v float64) float64 { return u + costShare*(v-u) }
	return policies.Cost{TrainerCPU: mix(a.TrainerCPU, b.TrainerCPU), LoaderCPU: mix(a.LoaderCPU, b.LoaderCPU), OtherCPU: mix(a.OtherCPU, b.OtherCPU),
		Device: mix(a.Device, b.Device), Batch: mix(a.Batch, b.Batch), Loaders: b.Loaders, Ticks: b.Ticks, Queue: mix(a.Queue, b.Queue), Spin: mix(a.Spin, b.Spin)}
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 1) }

// plausible holds rates, amounts and times within what a logarithm and its sums bear.
func plausible(v float64) bool { return v > 1e-20 && v < 1e20 }

// sane reports whether all of a cost are times.
func sane(c policies.Cost) bool {
	return !slices.ContainsFunc([]float64{c.TrainerCPU, c.LoaderCPU, c.OtherCPU, c.Device, c.Batch, c.Queue, c.Spin, float64(c.Loaders), c.Ticks},
		func(v float64) bool { return !(v >= 0 && v < 1e20) })
}

// Remembered is what a learner is worth to another container of the same kind: the
// same shape, held less firmly.
func (l Learner) Remembered() Learner {
	l.Cells = slices.Clone(l.Cells)
	for i := range l.Cells {
		l.Cells[i].Weight *= 0.25
	}
	l.odd, l.Refused, l.Phases = 0, 0, 0
	return l
}

// Validate says what of a learner that was stored cannot be true.
func (l Learner) Validate() error {
	if l.Version != version {
		return fmt.Errorf("response curve of version %d; this is %d", l.Version, version)
	}
	if l.Source == "" || len(l.Cells) > maxCells {
		return errors.New("response curve without a source, or of too many cells")
	}
	last := 0.0
	for _, c := range l.Cells {
		if !plausible(c.X) || c.X <= last || !(math.Abs(c.Log) < 50) || !(c.Weight > 0 && c.Weight <= maxWeight) {
			return fmt.Errorf("response curve: a cell of %+v", c)
		}
		last = c.X
	}
	if !sane(l.Cost) || !sanePaging(l.Paging) {
		return errors.New("response curve: a cost that is no time")
	}
	return nil
}
