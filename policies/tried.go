package policies

import "github.com/trimtab/trimtab/runtime"

// Tried is how an earlier change of a container ended: the memory of policies that
// go step by step. What ended without evidence is not among them.
type Tried struct {
	Policy string        `json:"policy"`
	Knob   runtime.Knob  `json:"knob"`
	From   runtime.Value `json:"from"`
	To     runtime.Value `json:"to"`
	Take   bool          `json:"take,omitempty"`
	Kept   bool          `json:"kept"`
	Ratio  float64       `json:"ratio,omitempty"` // rate after over before, measured; 0: not known
}
