package state

import (
	"math"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/profiles"
)

// Similar is what the known jobs most like a container say, and what was taken over.
type Similar struct {
	policies.Similar
	Taken []string `json:"taken,omitempty"`
}

// DeviceSpeed is a predicted rate on another model of device of this node.
type DeviceSpeed struct {
	Model     string  `json:"model"`
	PerSecond float64 `json:"perSecond"`
	// The true rate lies from Low to High nine times in ten (profiles.Covered). Both are 0 where an
	// older daemon predicted.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	// Jobs is how many known jobs that ran on both models it rests on; 0: on data sheets alone.
	Jobs  int     `json:"jobs,omitempty"`
	Ratio float64 `json:"ratio"` // over the rate here
	// HostBound: something else than its device bounds the job, here or there, and a faster
	// device would wait for that.
	HostBound bool `json:"hostBound,omitempty"`
}

// SpeedsOf shows predicted speeds beside the rate here of a job with that verdict.
func SpeedsOf(speeds []profiles.Speed, here float64, v policies.Verdict) (out []DeviceSpeed) {
	deviceBound := v.Class == policies.ClassCompute && (v.Cause == policies.CauseDevice || v.Cause == policies.CauseShared || v.Cause == policies.CauseClocks)
	for _, speed := range speeds {
		out = append(out, DeviceSpeed{Model: speed.Device, PerSecond: speed.PerSecond, Low: speed.Low, High: speed.High, Jobs: speed.Jobs, Ratio: speed.PerSecond / here, HostBound: !deviceBound || speed.HostBound})
	}
	return out
}

// Ratios are the bounds of Ratio, as Low and High are of PerSecond; ok is false where no interval was
// predicted.
func (d DeviceSpeed) Ratios() (low, high float64, ok bool) {
	if !(d.Low > 0 && d.Low <= d.PerSecond && d.PerSecond <= d.High && d.High < math.Inf(1)) {
		return 0, 0, false
	}
	return d.Ratio * (d.Low / d.PerSecond), d.Ratio * (d.High / d.PerSecond), true
}

// Memory is the store of known jobs.
type Memory struct {
	Known int `json:"known"`
	// Lost says why it is not kept on disk; what is known serves until the daemon ends.
	Lost string `json:"lost,omitempty"`
	// Foreign of the known jobs are other hosts'. Books are where they come from.
	Foreign int    `json:"foreign,omitempty"`
	Books   []Book `json:"books,omitempty"`
}

// Book is what became of one book of other hosts' known jobs.
type Book struct {
	File string `json:"file"`
	Host string `json:"host,omitempty"`
	Jobs int    `json:"jobs"`
	// MadeUnixNs is by that host's clock, AheadNs how far that is ahead of the one here.
	MadeUnixNs int64 `json:"made,omitempty"`
	AheadNs    int64 `json:"ahead,omitempty"`
	// Shared jobs are known to both hosts; Ratio is the CPU time of their steps here over that
	// there. 0: of the book proportions alone are used.
	Shared int     `json:"shared,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"`
	// Refused entries of it cannot be true.
	Refused int `json:"refused,omitempty"`
	// Reason says in a word why it is not used, Text for people; "": it is.
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
}

// ForgetRequest names the known jobs to forget: one by its number, those last met
// under a name, those of another host with all that is remembered of its book, or all.
type ForgetRequest struct {
	ID   uint64 `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	Host string `json:"host,omitempty"`
	All  bool   `json:"all,omitempty"`
}

// Fingerprint is one known job.
type Fingerprint = profiles.Known
