package place

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/tuner/state"
)

// The ways to divide several jobs among devices.
const (
	PolicySimilarity   = "similarity"    // so that the last ends the soonest, by each job's own rates
	PolicyFastestFirst = "fastest-first" // the next job to the fastest device that is free
	PolicyFIFO         = "fifo"          // the next job to the next device that is free
)

// Policies are their names, the default first.
func Policies() []string { return []string{PolicySimilarity, PolicyFastestFirst, PolicyFIFO} }

// assumedSeconds is how long a job is taken to be if nothing tells of any.
const assumedSeconds = 3600

// plan divides jobs among the devices that may be used.
func plan(jobs []state.PlacedJob, policy string, share bool) *state.PlacePlan {
	out := &state.PlacePlan{Policy: cmp.Or(policy, PolicySimilarity), Starts: []state.PlaceStart{}}
	devices, numbers := planned(jobs, share)
	if len(devices) == 0 {
		out.Notes = append(out.Notes, "no device is free")
		return out
	}
	times, longest, notes := seconds(jobs, numbers, devices)
	ready := make([]float64, len(devices))
	var a Assignment
	switch out.Policy {
	case PolicyFIFO:
		a = FirstCome(times, ready)
	case PolicyFastestFirst:
		a = FastestFirst(times, ready, times.speeds(len(devices)))
	default:
		a = Shortest(Careful(times, longest), ready)
	}
	out.BoundSeconds, out.Notes = Bound(times, ready), notes
	for d, on := range a.Jobs {
		at := 0.0
		for _, j := range on {
			s := times.at(j, d)
			out.Starts = append(out.Starts, state.PlaceStart{Job: numbers[j], Device: devices[d].Device, Label: devices[d].Label, Model: devices[d].Model, Start: at, Seconds: s})
			at += s
		}
		out.Seconds = max(out.Seconds, at)
	}
	if left := len(times) - len(out.Starts); left > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("jobs that fit no device here: %d", left))
	}
	return out
}

// planned are the devices that some job may use, by their numbers, and each job's number as often as
// there are such jobs.
func planned(jobs []state.PlacedJob, share bool) (devices []state.PlaceChoice, numbers []int) {
	for n, j := range jobs {
		for range max(1, j.Job.Count) {
			numbers = append(numbers, n)
		}
		for _, c := range j.Choices {
			may := c.Unfit == "" && (c.Free || share && c.Hold == nil)
			if may && !slices.ContainsFunc(devices, func(d state.PlaceChoice) bool { return d.Device == c.Device }) {
				devices = append(devices, c)
			}
		}
	}
	slices.SortFunc(devices, func(a, b state.PlaceChoice) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Device, b.Device))
	})
	return devices, numbers
}

// seconds is how long each job takes on each device, by its own rates, and the longest that it is likely to. A job of unknown length is
// taken to be as long as the mean of the others; one of unknown rates to go as data sheets say.
func seconds(jobs []state.PlacedJob, numbers []int, devices []state.PlaceChoice) (times, longest Times, notes []string) {
	speeds := make([][]float64, len(jobs)) // of each job on each device, over the best
	lengths := make([]float64, len(jobs))
	sum, given, guessed, unknown := 0.0, 0, 0, 0
	for n, j := range jobs {
		var best float64
		speeds[n], best = relative(j, devices)
		if best == 0 {
			unknown++
		}
		switch lengths[n] = j.Job.Seconds; {
		case lengths[n] > 0:
		case j.Job.Steps > 0 && best > 0:
			lengths[n] = j.Job.Steps / best
		default:
			guessed++
			continue
		}
		sum, given = sum+lengths[n], given+1
	}
	mean := float64(assumedSeconds)
	if given > 0 {
		mean = sum / float64(given)
	}
	for _, n := range numbers {
		row, late := make([]float64, len(devices)), make([]float64, len(devices))
		for d, speed := range speeds[n] {
			row[d] = math.Inf(1)
			if speed > 0 {
				row[d] = cmp.Or(lengths[n], mean) / speed
			}
			late[d] = row[d] * slower(jobs[n], devices[d].Device)
		}
		times, longest = append(times, row), append(longest, late)
	}
	if guessed > 0 {
		notes = append(notes, fmt.Sprintf("jobs of unknown length: %d; each is taken to be %.0f s on the device that suits it best. Steps or seconds in the list tell", guessed, mean))
	}
	if unknown > 0 {
		notes = append(notes, fmt.Sprintf("jobs of unknown rate: %d; data sheets alone divide them", unknown))
	}
	return times, longest, notes
}

// slower is how many times as long as expected a job may take on a device; 1: it is not known, or sure.
func slower(j state.PlacedJob, device string) float64 {
	for _, c := range j.Choices {
		if c.Device == device && c.Rate.Low > 0 {
			return max(1, c.Rate.PerSecond/c.Rate.Low)
		}
	}
	return 1
}

// relative is a job's speed on each device over that on its best, and its rate there; 0: it cannot
// run there, or the rate is not known. Where some rates are known, the others go by data sheet from the best.
func relative(j state.PlacedJob, devices []state.PlaceChoice) (speeds []float64, best float64) {
	speeds = make([]float64, len(devices))
	fit := map[string]state.PlaceChoice{}
	for _, c := range j.Choices {
		if c.Unfit == "" {
			fit[c.Device] = c
		}
	}
	bestSheet, fastestSheet := 0.0, 0.0
	for _, d := range devices {
		c, ok := fit[d.Device]
		if ok && c.Rate.PerSecond > best {
			best, bestSheet = c.Rate.PerSecond, sheet(d.Model)
		}
		if ok {
			fastestSheet = max(fastestSheet, sheet(d.Model))
		}
	}
	for i, d := range devices {
		c, ok := fit[d.Device]
		switch s := sheet(d.Model); {
		case !ok:
		case c.Rate.PerSecond > 0:
			speeds[i] = c.Rate.PerSecond / best
		case best > 0 && bestSheet > 0 && s > 0:
			speeds[i] = min(1, s/bestSheet)
		case best == 0 && s > 0:
			speeds[i] = s
		case best == 0 && fastestSheet > 0:
			speeds[i] = fastestSheet // nothing tells that it is slower
		default:
			speeds[i] = 1
		}
	}
	if fastest := slices.Max(speeds); fastest > 0 {
		for i := range speeds {
			speeds[i] /= fastest
		}
	}
	return speeds, best
}

// speeds are the devices' over the fastest for each job, the mean of all jobs.
func (t Times) speeds(devices int) []float64 {
	out := make([]float64, devices)
	for j := range t {
		for d := range out {
			if s := t.at(j, d); !math.IsInf(s, 1) {
				out[d] += t.least(j) / s
			}
		}
	}
	return out
}
