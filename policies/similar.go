package policies

// Similar is what the known jobs most like one were found to need: from their
// fingerprints, which no label and no name is part of.
type Similar struct {
	Name     string  `json:"name"`     // of the nearest, as it was last met
	Jobs     int     `json:"jobs"`     // containers that this rests on
	Distance float64 `json:"distance"` // of the nearest, 0 (alike) to 1
	Compared float64 `json:"compared"` // share of the attributes, by weight, that could be compared
	// Confidence falls with distance, with what could not be compared, where they disagree,
	// and where allocations that were taken from them failed; 0 to 1.
	Confidence float64 `json:"confidence"`
	Knee       float64 `json:"knee"` // CPUs beyond which more bought them no speed
	Cost       Cost    `json:"cost"` // of a step of the nearest
	Correction float64 `json:"correction"`
}
