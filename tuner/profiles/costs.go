package profiles

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/policies"
)

// Costs holds what a step costs by the model of the device that it ran on, sorted by model; in JSON it is
// an object. Most jobs ran on one: a map of that takes 0.8 KB, and all else of a job as much again. What
// is held is not changed, With makes another.
type Costs []deviceCost

type deviceCost struct {
	model string
	cost  policies.Cost
}

// CostsOf are those of a map.
func CostsOf(byModel map[string]policies.Cost) Costs {
	out := make(Costs, 0, len(byModel))
	for _, model := range slices.Sorted(maps.Keys(byModel)) {
		out = append(out, deviceCost{model, byModel[model]})
	}
	return out
}

// On is the cost on a model; ok is false where it never ran there.
func (c Costs) On(model string) (cost policies.Cost, ok bool) {
	for _, on := range c {
		if on.model == model {
			return on.cost, true
		}
	}
	return policies.Cost{}, false
}

// With returns the costs with that on one model set.
func (c Costs) With(model string, cost policies.Cost) Costs {
	all := c.byModel()
	all[model] = cost
	return CostsOf(all)
}

func (c Costs) byModel() map[string]policies.Cost {
	all := make(map[string]policies.Cost, len(c))
	for _, on := range c {
		all[on.model] = on.cost
	}
	return all
}

// each returns the costs changed by f.
func (c Costs) each(f func(policies.Cost) policies.Cost) Costs {
	out := slices.Clone(c)
	for i := range out {
		out[i].cost = f(out[i].cost)
	}
	return out
}

// MarshalJSON implements json.Marshaler.
func (c Costs) MarshalJSON() ([]byte, error) { return json.Marshal(c.byModel()) }

// UnmarshalJSON implements json.Unmarshaler.
func (c *Costs) UnmarshalJSON(text []byte) error {
	var all map[string]policies.Cost
	err := json.Unmarshal(text, &all)
	*c = CostsOf(all)
	return err
}
