package knee

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// visibility asks for one change of what a job sees of its devices, or says what a person could
// do where trimtab may not. A device that it has not worked on for long is hidden while
// another enrolled job is short of exactly that one, so that the next worker to start does
// not come to share it; it is shown again once nobody has used it for a while.
func (p Policy) visibility(j policies.Job) (s *policies.GPUVisibility, advice string) {
	for _, d := range j.Devices {
		if d.Hidden == policies.HiddenByPolicy && d.FreeSeconds >= p.k.ShowFree {
			return &policies.GPUVisibility{Policy: Name, Key: j.Key, Name: j.Name, Device: d.Device,
				Reason: fmt.Sprintf("nobody has used it for %.0f s", d.FreeSeconds)}, ""
		}
	}
	d, other := p.unused(j)
	if d == nil {
		return nil, ""
	}
	reason := fmt.Sprintf("it has not used it for %.0f s, and %s, which works on it, is bound by it", d.UnusedSeconds, other.Name)
	device := runtime.Value(d.Device).GPUs()
	switch {
	case !j.Enrolment.Allows(runtime.KnobGPU):
		return nil, fmt.Sprintf("%s could be hidden from it (`trimtab gpu hide`, or allow the knob gpu in trimtab.knobs): %s", device, reason)
	case !j.Elastic:
		return nil, fmt.Sprintf("%s could be hidden from it (`trimtab gpu hide`); trimtab does so itself only where the job is told by a signal (label trimtab.gpu.signal, and gpu: {signal: true} in the config): %s", device, reason)
	}
	return &policies.GPUVisibility{Policy: Name, Key: j.Key, Name: j.Name, Device: d.Device, Hide: true, Reason: reason}, ""
}

// unused is the visible device that a job has not used for the longest time, and who else is
// bound by it. None: it is unsure, idle or short of devices itself, or works on no other.
func (p Policy) unused(j policies.Job) (most *policies.Device, by *policies.Holder) {
	if !p.sure(j.Verdict) || j.Verdict.WantsDevice() {
		return nil, nil
	}
	works := false
	for i, d := range j.Devices {
		switch {
		case d.Hidden == policies.HiddenByPerson:
			return nil, nil // the others are that person's choice as well
		case !d.Visible:
			continue
		case d.UnusedSeconds == 0:
			works = true
			continue
		}
		if other := p.bound(d); other != nil && d.UnusedSeconds >= p.k.HideUnused && (most == nil || d.UnusedSeconds > most.UnusedSeconds) {
			most, by = &j.Devices[i], other
		}
	}
	if !works {
		return nil, nil
	}
	return most, by
}

// bound is an enrolled job on a device that is short of it.
func (p Policy) bound(d policies.Device) *policies.Holder {
	for i, o := range d.Others {
		if o.Enrolled && o.Verdict.WantsDevice() && o.Verdict.Confidence >= p.k.MinConfidence {
			return &d.Others[i]
		}
	}
	return nil
}
