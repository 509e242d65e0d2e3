package policies

// Team is the threads of OpenMP, or of BLAS, that compute side by side in a training process, its trainer
// among them. Shares are of the time in which they wanted a CPU.
type Team struct {
	Threads int     `json:"threads"` // below 2: there is none
	Wanted  float64 `json:"wanted"`  // CPUs
	// Unrun is the share in which they stood behind each other, or out of their quota; Behind the
	// one behind others.
	Unrun  float64 `json:"unrun"`
	Behind float64 `json:"behind,omitempty"`
}
