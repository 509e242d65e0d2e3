package policies

// Staging is what a trainer's asynchronous copies to its device cost it, those of more than 64 KiB. From
// memory that is not pinned they block. The zero value: none were seen, or the device tells no duty.
type Staging struct {
	Calls uint64 `json:"calls"` // in the window
	// CallSeconds and MiBSeconds are inside one of them, and inside them for each MiB.
	CallSeconds float64 `json:"callSeconds"`
	MiBSeconds  float64 `json:"mibSeconds"`
	// Share is of the trainer's time; Idle that of the time in which its device ran no kernel.
	Share float64 `json:"share"`
	Idle  float64 `json:"idle"`
}
