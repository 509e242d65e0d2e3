package state

// Report is what devices and CPUs were worth over a stretch. docs/report.md has the formulas.
type Report struct {
	// FromUnixNs begins a whole hour, or a whole day of UTC where it is old; SinceUnixNs is what was
	// asked for. 0: it begins there.
	FromUnixNs  int64  `json:"from"`
	SinceUnixNs int64  `json:"since,omitempty"`
	ToUnixNs    int64  `json:"to"`
	By          string `json:"by"`
	Source      string `json:"source"`          // history, prometheus
	Hosts       int    `json:"hosts,omitempty"` // of a fleet
	// ObservedSeconds were looked on, of all hosts; UnobservedSeconds were not, and nothing is
	// said of them.
	ObservedSeconds   float64       `json:"observedSeconds"`
	UnobservedSeconds float64       `json:"unobservedSeconds"`
	Gaps              []Gap         `json:"gaps,omitempty"` // of whole hours in which nothing was stored, the longest first, at most 100; of one host
	Groups            []ReportGroup `json:"groups"`         // the most held first
	Total             ReportGroup   `json:"total"`
}

// Early reports whether it begins noticeably before what was asked for: by more than a hundredth of that.
func (r Report) Early() bool {
	return r.SinceUnixNs > r.FromUnixNs && 100*(r.SinceUnixNs-r.FromUnixNs) > r.ToUnixNs-r.SinceUnixNs
}

// Gap is a time of which nothing is known, unix ns.
type Gap struct {
	FromUnixNs int64 `json:"from"`
	ToUnixNs   int64 `json:"to"`
}

// ReportGroup is one team, image, container or cause.
type ReportGroup struct {
	Name           string    `json:"name"`
	GPU            ReportUse `json:"gpu"`
	CPU            ReportUse `json:"cpu"`
	LentCPUSeconds float64   `json:"lentCPUSeconds"` // used above owners' quotas, of loans
	// GivenCPUSeconds were used above owners' quotas, of what trials gave, open or kept.
	GivenCPUSeconds float64 `json:"givenCPUSeconds"`
	// Of a container, the latest of its name: its key, team and image.
	Key   string `json:"key,omitempty"`
	Team  string `json:"team,omitempty"`
	Image string `json:"image,omitempty"`
}

// ReportUse is time of devices, or of CPUs, in seconds.
type ReportUse struct {
	Held       float64 `json:"held"`
	Idle       float64 `json:"idle"`
	Stalled    float64 `json:"stalled"`
	Actionable float64 `json:"actionable"` // of what is stalled
	NotKnown   float64 `json:"notKnown"`   // of what is held
	Proven     float64 `json:"proven"`     // in use under changes that a trial proved
	Saved      float64 `json:"saved"`      // of what is proven
	Tried      float64 `json:"tried"`      // in use in trials that were judged and not kept
	Lost       float64 `json:"lost"`       // of what is tried
	// Causes divide Held, by name; the others the terms that they are named after.
	Causes           map[string]float64 `json:"causes,omitempty"`
	ActionableCauses map[string]float64 `json:"actionableCauses,omitempty"`
	SavedCauses      map[string]float64 `json:"savedCauses,omitempty"`
	LostCauses       map[string]float64 `json:"lostCauses,omitempty"`
}

// TeamUse is counters of one team, resource (gpu, cpu) and cause, in seconds; see ReportUse.
type TeamUse struct {
	Team       string  `json:"team,omitempty"`
	Resource   string  `json:"resource"`
	Cause      string  `json:"cause"`
	Held       float64 `json:"held,omitempty"`
	Actionable float64 `json:"actionable,omitempty"`
	Proven     float64 `json:"proven,omitempty"`
	Saved      float64 `json:"saved,omitempty"`
	Tried      float64 `json:"tried,omitempty"`
	Lost       float64 `json:"lost,omitempty"`
}
