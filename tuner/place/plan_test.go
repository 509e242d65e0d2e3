package place

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/profiles"
	"github.com/trimtab/trimtab/tuner/state"
)

// onModel costs a job such rates on two models.
func onModel(id uint64, image string, slow, fast float64) profiles.Known {
	k := known(id, image, int64(id), map[string]policies.Cost{"slow": {TrainerCPU: 0.001, Device: 1/slow - 0.001}, "fast": {TrainerCPU: 0.001, Device: 1/fast - 0.001}})
	k.Identities = []identity.Identity{hashed(image, nil)}
	return k
}

func TestPlanByPolicy(t *testing.T) {
	h := Host{Devices: []Device{gpu(0, "slow", 80*gib), gpu(1, "fast", 80*gib), gpu(2, "fast", 80*gib, "train")}}
	book := []profiles.Known{onModel(1, "device-bound", 1, 10), onModel(2, "host-bound", 1, 1)}
	jobs := []state.PlaceJob{{Image: "host-bound", Steps: 100}, {Image: "device-bound", Steps: 100, Count: 2}}
	for policy, want := range map[string]float64{"": 100, "similarity": 100, "fifo": 100, "fastest-first": 110} {
		got := answer(h, book, state.PlaceRequest{Jobs: jobs, Policy: policy}).Plan
		if got == nil || math.Abs(got.Seconds-want) > 0.5 || got.BoundSeconds > got.Seconds*1.000001 || math.Abs(got.BoundSeconds-100) > 0.5 || len(got.Starts) != 3 || len(got.Notes) != 0 {
			t.Errorf("%q: want %v s: %+v", policy, want, got)
			continue
		}
		ends := map[string]float64{}
		for _, s := range got.Starts {
			if s.Device == "GPU-0002-aa" || math.Abs(s.Start-ends[s.Device]) > 1e-6 {
				t.Errorf("%q: a start on a device in use, or too early: %+v", policy, s)
			}
			ends[s.Device] = s.Start + s.Seconds
		}
	}
	if got := answer(h, book, state.PlaceRequest{Jobs: jobs, Share: true}).Plan; !slices.ContainsFunc(got.Starts, func(s state.PlaceStart) bool { return s.Device == "GPU-0002-aa" }) {
		t.Errorf("shared: %+v", got)
	}
}

func TestPlanSaysWhatItAssumes(t *testing.T) {
	h := Host{Devices: []Device{gpu(0, "slow", 80*gib), gpu(1, "tiny", gib)}}
	book := []profiles.Known{onModel(1, "known", 1, 10)}
	for name, c := range map[string]struct {
		h       Host
		jobs    []state.PlaceJob
		seconds float64
		notes   []string
	}{
		"no length":       {h, []state.PlaceJob{{Image: "known", Seconds: 100}, {Image: "known"}}, 200, []string{"unknown length: 1; each is taken to be 100 s"}},
		"nothing known":   {h, []state.PlaceJob{{Image: "x"}, {Image: "y"}}, 3600, []string{"unknown length: 2; each is taken to be 3600 s", "unknown rate: 2"}},
		"steps of no use": {h, []state.PlaceJob{{Image: "x", Steps: 5, Count: 2}}, 3600, []string{"unknown length: 1", "unknown rate: 1"}},
		"no device":       {Host{}, []state.PlaceJob{{Image: "x", Count: 2}}, 0, []string{"no device is free"}},
		"does not fit":    {Host{Devices: []Device{gpu(1, "tiny", gib), gpu(2, "tiny", gib)}}, []state.PlaceJob{{Image: "known"}, {Image: "x"}}, 3600, []string{"length", "unknown rate", "fit no device here: 1"}},
	} {
		got := answer(c.h, book, state.PlaceRequest{Jobs: c.jobs}).Plan
		ok := math.Abs(got.Seconds-c.seconds) < 0.5 && len(got.Notes) == len(c.notes)
		for i := range got.Notes {
			ok = ok && strings.Contains(got.Notes[i], c.notes[i])
		}
		if !ok {
			t.Errorf("%s: want %v s and %q: %+v", name, c.seconds, c.notes, got)
		}
	}
}

// BenchmarkAnswer is a list of 1,000 jobs on 16 devices, with a full store.
func BenchmarkAnswer(b *testing.B) {
	var h Host
	for i := range 16 {
		h.Devices = append(h.Devices, gpu(i, []string{"slow", "fast"}[i%2], 80*gib))
	}
	var book []profiles.Known
	var req state.PlaceRequest
	for i := range 256 {
		image := fmt.Sprint("image", i)
		book = append(book, onModel(uint64(i+1), image, 1, 1+float64(i%10)))
		req.Jobs = append(req.Jobs, state.PlaceJob{Image: image, Steps: float64(100 + i*7%900), Count: 3})
	}
	for b.Loop() {
		answer(h, book, req)
	}
}

// BenchmarkWanted is what the daemon's loop waits for when a place is asked for, beside a full store of which
// every job ran on two models; then that answer.
func BenchmarkWanted(b *testing.B) {
	var known []profiles.Known
	for i := range profiles.MaxKnown {
		k := onModel(uint64(i+1), fmt.Sprint("image", i%50), 1, 1+float64(i%10))
		known = append(known, k)
	}
	jobs := []state.PlaceJob{{Image: "image7", Args: []string{"train.py", "--lr", "0.1"}}}
	h := Host{Devices: []Device{gpu(0, "slow", 80*gib), gpu(1, "fast", 80*gib), gpu(2, "NVIDIA H100", 80*gib)}}
	var wanted []profiles.Known
	b.Run("in the loop", func(b *testing.B) {
		for b.Loop() {
			fits := Wanted(jobs, hashed)
			wanted = wanted[:0]
			for i := range known {
				if fits(&known[i]) {
					wanted = append(wanted, known[i])
				}
			}
		}
	})
	b.Run("the answer", func(b *testing.B) {
		for b.Loop() {
			answer(h, wanted, state.PlaceRequest{Jobs: jobs})
		}
	})
}

// TestPlanKeepsFromDoubt: a device on which a job may take far longer than expected is not worth the little
// that it would save; the time that is told stays the expected one.
func TestPlanKeepsFromDoubt(t *testing.T) {
	choice := func(uuid string, rate, low float64) state.PlaceChoice {
		return state.PlaceChoice{Device: uuid, Free: true, Rate: state.PlaceRate{How: state.RatePredicted, PerSecond: rate, Low: low, High: 2 * rate}}
	}
	for low, want := range map[float64]float64{5.9: 100.0 / 6, 1: 20} {
		j := state.PlacedJob{Job: state.PlaceJob{Steps: 100, Count: 2}, Choices: []state.PlaceChoice{choice("GPU-a", 10, 9.9), choice("GPU-b", 6, low)}}
		got := plan([]state.PlacedJob{j}, "", false)
		if math.Abs(got.Seconds-want) > 0.01 || got.BoundSeconds > got.Seconds {
			t.Errorf("at least %v a second: %v s of %v, want %v", low, got.Seconds, got.BoundSeconds, want)
		}
	}
}
