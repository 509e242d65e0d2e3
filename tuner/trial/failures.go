package trial

import (
	"math"
	"slices"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// Conditions are what a change depended on: its knob, what its container needed, what others took.
type Conditions struct {
	Value  runtime.Value `json:"value"`            // of the knob, before
	Need   float64       `json:"need,omitempty"`   // what the container would use of what the knob bounds
	Others float64       `json:"others,omitempty"` // what others use of it
}

// moved reports whether something changed by more than noise.
func (c Conditions) moved(k *policies.Constants, now Conditions) bool {
	apart := func(a, b float64) bool { return math.Abs(a-b) > k.Moved*max(math.Abs(a), math.Abs(b)) }
	return c.Value != now.Value || apart(c.Need, now.Need) || apart(c.Others, now.Others)
}

// failure is one change that did not earn its place.
type failure struct {
	knob     runtime.Knob
	decrease bool
	against  string // the container that it harmed; "" for one that was of no use
	on       Conditions
	amount   float64 // what against bears
	atNs     int64   // likewise: found then
}

// Failures are what did not earn its place on one container: not to be tried again until
// something that it depended on has moved.
type Failures struct{ all []failure }

// keptFailures bounds what is remembered of one container.
const keptFailures = 16

// Add remembers a change that was of no use, or did harm to its own container.
func (f *Failures) Add(knob runtime.Knob, decrease bool, on Conditions) {
	f.all = append(f.all[max(0, len(f.all)+1-keptFailures):], failure{knob: knob, decrease: decrease, on: on})
}

// AddAgainst remembers how much of a knob a neighbour bears, after more of it did harm.
func (f *Failures) AddAgainst(knob runtime.Knob, neighbour string, amount float64, atNs int64) {
	f.all = slices.DeleteFunc(f.all, func(x failure) bool { return x.knob == knob && x.against == neighbour })
	f.all = append(f.all[max(0, len(f.all)+1-keptFailures):], failure{knob: knob, against: neighbour, amount: amount, atNs: atNs})
}

// Blocks reports whether a change failed and nothing that it depended on has moved since.
func (f *Failures) Blocks(k *policies.Constants, knob runtime.Knob, decrease bool, now Conditions) bool {
	return slices.ContainsFunc(f.all, func(x failure) bool {
		return x.against == "" && x.knob == knob && x.decrease == decrease && !x.on.moved(k, now)
	})
}

// Bears is the most of a knob that neighbours bear, as far as one that was harmed, at an instant, is there.
func (f *Failures) Bears(knob runtime.Knob, there func(neighbour string, atNs int64) bool) (most float64, bounded bool) {
	most = math.Inf(1)
	for _, x := range f.all {
		if x.knob == knob && x.against != "" && there(x.against, x.atNs) {
			most, bounded = min(most, x.amount), true
		}
	}
	return most, bounded
}
