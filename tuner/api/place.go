package api

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/trimtab/trimtab/tuner/place"
	"github.com/trimtab/trimtab/tuner/state"
)

// Bounds of a request to place jobs; the size of a body bounds their words.
const (
	maxPlaceJobs  = 1000 // counts included
	maxImageBytes = 4096
)

// place answers who may look, one at a time; who has devices held needs to be one who may act.
func (s *Server) place(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req state.PlaceRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if err := CheckPlace(req); err != nil {
		return nil, err
	}
	if req.Hold {
		if err := allowed(r, AccessWrite); err != nil {
			return nil, err
		}
	}
	if _, err := s.snapshot(); err != nil {
		return nil, err
	}
	if !req.Hold { // what is held is for one job alone, and does not wait for lists
		select {
		case s.placing <- struct{}{}:
			defer func() { <-s.placing }()
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	out, err := s.backend.Place(r.Context(), req)
	if err != nil {
		return nil, err
	}
	if len(out.Jobs) > 0 && len(out.Jobs[0].Choices) == 0 && out.Why == "" {
		out.Why = devicesOf(s.backend.Snapshot()).Why
	}
	return out, nil
}

// CheckPlace says what is wrong with a request; its errors are *Error.
func CheckPlace(req state.PlaceRequest) error {
	jobs := 0
	for i, j := range req.Jobs {
		switch {
		case j.Image == "" || len(j.Image) > maxImageBytes || len(j.Name) > maxImageBytes:
			return BadRequest(fmt.Sprintf("job %d: an image is needed, of at most %d bytes, as of its name", i+1, maxImageBytes), "")
		case j.Image[0] == '-': // a shell's line would hand it to its engine as an option
			return BadRequest(fmt.Sprintf("job %d: an image does not begin with -", i+1), "options of trimtab place come before it")
		case j.GPUs < 0 || j.GPUs > maxDevices:
			return BadRequest(fmt.Sprintf("job %d: %d GPUs: allowed are 1 to %d", i+1, j.GPUs, maxDevices), "")
		case j.Count < 0 || j.Count > maxPlaceJobs:
			return BadRequest(fmt.Sprintf("job %d: count %d: allowed are 1 to %d", i+1, j.Count, maxPlaceJobs), "")
		case !(j.Steps >= 0 && j.Steps <= 1e15) || !(j.Seconds >= 0 && j.Seconds <= 1e9):
			return BadRequest(fmt.Sprintf("job %d: steps and seconds are numbers from 0", i+1), "")
		}
		jobs += max(1, j.Count)
	}
	switch {
	case jobs == 0 || jobs > maxPlaceJobs:
		return BadRequest(fmt.Sprintf("%d jobs: allowed are 1 to %d", jobs, maxPlaceJobs), "")
	case req.Policy != "" && !slices.Contains(place.Policies(), req.Policy):
		return BadRequest(fmt.Sprintf("policy %q: allowed are %v", req.Policy, place.Policies()), "")
	case jobs > 1 && slices.ContainsFunc(req.Jobs, func(j state.PlaceJob) bool { return j.GPUs > 1 }):
		return BadRequest("a list divides jobs of one GPU each", "ask for a job of several by itself")
	case req.Hold && jobs > 1:
		return BadRequest("devices are held for one job alone", "leave hold out for a list: its later jobs start later")
	}
	return nil
}
