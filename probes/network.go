package probes

// Network is what one container's network namespace holds at one instant. A
// container in the host's namespace has only what its own sockets tell.
type Network struct {
	AtNs    int64 `json:"at"`      // CLOCK_MONOTONIC
	Sockets int   `json:"sockets"` // established TCP
	// The TCP counters only grow: sockets that closed keep their share.
	RxBytes     uint64 `json:"rx"`
	TxBytes     uint64 `json:"tx"`
	LocalBytes  uint64 `json:"local,omitempty"` // between processes of the container over loopback, each byte once; in neither of the above
	Segments    uint64 `json:"segments"`        // sent with data
	Retransmits uint64 `json:"retrans"`
	// LimitedSockets moved data since the last reading and waited for the network
	// (congestion window), not for an application on either side.
	LimitedSockets int `json:"limited,omitempty"`
	// Links are the namespace's interfaces that are up, loopback aside; nil in the host's namespace.
	Links   []Link   `json:"links,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// Link is one network interface, or one RDMA port.
type Link struct {
	Name    string `json:"name"`
	RxBytes uint64 `json:"rx"` // since it was made
	TxBytes uint64 `json:"tx"`
	// MaxBps is what it gives in one direction, bytes/s: its speed, or the rate of a shaping
	// queue if that is lower; 0: not told.
	MaxBps float64 `json:"max,omitempty"`
	RDMA   bool    `json:"rdma,omitempty"`
}
