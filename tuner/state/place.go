package state

// PlaceRequest asks which devices jobs that are to start should get.
type PlaceRequest struct {
	Jobs []PlaceJob `json:"jobs"`
	// Policy divides several jobs: similarity (the default), fastest-first or fifo.
	Policy string `json:"policy,omitempty"`
	// Hold keeps the chosen devices from other requests until the job starts on them, for a
	// minute at the most. One job alone can be held for.
	Hold bool `json:"hold,omitempty"`
	// Share: devices that others hold may be chosen too, if none is free.
	Share bool `json:"share,omitempty"`
}

// PlaceJob is a job that is to start.
type PlaceJob struct {
	Name  string   `json:"name,omitempty"`
	Image string   `json:"image"`
	Args  []string `json:"args,omitempty"` // what follows the image in `docker run`
	GPUs  int      `json:"gpus,omitempty"` // devices that it wants; 0: 1
	// Count is how many such jobs there are; 0: 1. Steps is how long each is, in the unit of its
	// rate, Seconds how long it takes on the device that suits it best; 0: not known. Both are of a
	// list of jobs alone.
	Count   int     `json:"count,omitempty"`
	Steps   float64 `json:"steps,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

// Placement answers a PlaceRequest.
type Placement struct {
	UnixNs int64       `json:"time"`
	Jobs   []PlacedJob `json:"jobs"`
	Plan   *PlacePlan  `json:"plan,omitempty"` // of several jobs
	// Why says why there are no devices, which is a normal state.
	Why string `json:"why,omitempty"`
}

// PlacedJob is a job with the devices that it could run on, the best first.
type PlacedJob struct {
	Job     PlaceJob      `json:"job"`
	Choices []PlaceChoice `json:"choices"`
	// Elsewhere are models that this host does not have, and on which such jobs ran.
	Elsewhere []PlaceElsewhere `json:"elsewhere,omitempty"`
	// Chosen are the UUIDs of the devices to use. None: Why says why.
	Chosen        []string `json:"chosen"`
	Why           string   `json:"why,omitempty"`
	HeldUntilUnix int64    `json:"heldUntil,omitempty"` // ns; 0: not held
	// CPUs and MemoryBytes are what such jobs had use for; 0: not known.
	CPUs        float64 `json:"cpus,omitempty"`
	MemoryBytes float64 `json:"memory,omitempty"`
	// Evidence is what the expectations rest on, the most alike first; none: the job is unknown.
	Evidence []PlaceEvidence `json:"evidence"`
}

// How a rate on a device is known.
const (
	RateMeasured  = "measured"  // such jobs ran on this model, on this host
	RatePredicted = "predicted" // they ran on another, or on another host, and it is scaled
	RateUnknown   = "unknown"   // nothing is known; by the data sheet at the most
)

// PlaceRate is a rate that is expected of a job on a model of device.
type PlaceRate struct {
	How string `json:"how"` // measured, predicted, unknown
	// PerSecond is expected, and from Low to High with probability profiles.Covered, in Unit, as
	// rates' sources are named.
	PerSecond float64 `json:"perSecond,omitempty"`
	Low       float64 `json:"low,omitempty"`
	High      float64 `json:"high,omitempty"`
	Unit      string  `json:"unit,omitempty"`
	// HostBound: the job's host is what bounds it there; a faster device would give no more.
	HostBound bool `json:"hostBound,omitempty"`
}

// PlaceChoice is one device of this host, as a job would have it.
type PlaceChoice struct {
	Device string `json:"device"` // UUID
	Label  string `json:"label"`  // as Device.Label
	Index  int    `json:"index"`
	Minor  int    `json:"minor"` // N of /dev/nvidiaN
	Slice  bool   `json:"slice,omitempty"`
	Model  string `json:"model,omitempty"`
	Memory uint64 `json:"memory,omitempty"` // bytes
	// Free: nobody holds it, nobody was given it, and no other job is about to start on it.
	Free    bool      `json:"free"`
	Holders []string  `json:"holders,omitempty"` // names of those who hold it or were given it
	Hold    *Hold     `json:"hold,omitempty"`    // another job is about to start on it
	Unfit   string    `json:"unfit,omitempty"`   // why it cannot be used at all
	Rate    PlaceRate `json:"rate"`
}

// PlaceElsewhere is a model of device on which such jobs ran, elsewhere.
type PlaceElsewhere struct {
	Model string `json:"model"`
	// Hosts are those whose books tell of it; none: this host had one.
	Hosts []string  `json:"hosts,omitempty"`
	Rate  PlaceRate `json:"rate"`
}

// PlaceEvidence is a known job that an expectation rests on.
type PlaceEvidence struct {
	ID    uint64 `json:"id"` // of the profile
	Name  string `json:"name"`
	Host  string `json:"host,omitempty"` // whose book it is from; "": this host's own
	Alike string `json:"alike"`          // by what it is alike: "same command", "same image"
	Jobs  int    `json:"jobs"`           // how many containers it was learned from
	// Models are the devices that it ran on; LastUnixNs is when it was last met.
	Models     []string `json:"models,omitempty"`
	LastUnixNs int64    `json:"last"`
}

// Hold keeps a device for a job that is about to start.
type Hold struct {
	For         string `json:"for"` // the job's name or image
	UntilUnixNs int64  `json:"until"`
}

// PlacePlan divides several jobs among devices.
type PlacePlan struct {
	Policy string `json:"policy"`
	// Seconds is until the last job ends, BoundSeconds the least that any division can take.
	Seconds      float64      `json:"seconds"`
	BoundSeconds float64      `json:"bound"`
	Starts       []PlaceStart `json:"starts"` // in the order of devices, then of time
	Notes        []string     `json:"notes,omitempty"`
}

// PlaceStart is one job's turn on a device.
type PlaceStart struct {
	Job     int     `json:"job"` // index into Jobs
	Device  string  `json:"device"`
	Label   string  `json:"label"`
	Model   string  `json:"model,omitempty"`
	Start   float64 `json:"start"` // seconds from now
	Seconds float64 `json:"seconds"`
}
