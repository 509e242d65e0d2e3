package actuator

import (
	"context"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/runtime"
)

// seenGPUs is a container that was granted some GPUs.
type seenGPUs struct {
	GPUVisibilities
	seen []runtime.GPUVisibility
	told *runtime.GPUView // what was asked to stand; nil: nothing
}

func (s *seenGPUs) See(context.Context, runtime.Container, runtime.GPUView) ([]runtime.GPUVisibility, error) {
	return s.seen, nil
}

func (s *seenGPUs) Hide(_ context.Context, _ runtime.Container, known runtime.GPUView) ([]string, error) {
	s.told = &known
	return nil, nil
}

// TestVisibility: a change moves the difference of its values, and no device in use, not the last
// one, and none that a person hid.
func TestVisibility(t *testing.T) {
	c := runtime.Container{ID: runtime.ID{Engine: "docker", Container: "c"}}
	a, b := runtime.GPUVisibility{Minor: 0, UUID: "GPU-a", Granted: true, Visible: true}, runtime.GPUVisibility{Minor: 1, UUID: "GPU-b", Granted: true, Visible: true}
	byPolicy := runtime.GPUVisibility{Minor: 1, UUID: "GPU-b", Granted: true, Hidden: true, ByPolicy: true}
	byPerson := runtime.GPUVisibility{Minor: 1, UUID: "GPU-b", Granted: true, Hidden: true}
	hide := policies.Change{Knob: runtime.KnobGPU, From: "GPU-a,GPU-b", To: "GPU-a", Take: true}
	last := policies.Change{Knob: runtime.KnobGPU, From: "GPU-a", To: "", Take: true}
	used := GPUs{{UUID: "GPU-b", Minor: 1, Processes: []probes.DeviceProcess{{PID: 7, Container: c.Key()}}}}
	for name, tc := range map[string]struct {
		seen    []runtime.GPUVisibility
		devices GPUs
		change  policies.Change
		undo    bool
		moved   []int
		hidden  []int // what stands after; nil: nothing is written
		fails   bool
	}{
		"hide":               {seen: []runtime.GPUVisibility{a, b}, change: hide, moved: []int{1}, hidden: []int{1}},
		"in use":             {seen: []runtime.GPUVisibility{a, b}, devices: used, change: hide, fails: true},
		"the last":           {seen: []runtime.GPUVisibility{a, {Minor: 1, UUID: "GPU-b", Granted: true}}, change: last, fails: true},
		"undo":               {seen: []runtime.GPUVisibility{a, byPolicy}, change: hide, undo: true, moved: []int{1}, hidden: []int{}},
		"a person's":         {seen: []runtime.GPUVisibility{a, byPerson}, change: hide, undo: true},
		"hidden by a person": {seen: []runtime.GPUVisibility{a, byPerson}, change: hide},
	} {
		s := &seenGPUs{seen: tc.seen}
		v := &Visibility{GPUVisibilities: s}
		did, err := v.Apply(t.Context(), c, tc.devices, tc.change, tc.undo)
		if (err != nil) != tc.fails || !slices.Equal(did.Minors, tc.moved) || (s.told == nil) != (tc.hidden == nil) || s.told != nil && !slices.Equal(s.told.Hidden, tc.hidden) {
			t.Errorf("%s: moved %v, wrote %+v, %v", name, did.Minors, s.told, err)
		}
	}
}

func TestUsers(t *testing.T) {
	g := GPUs{{Minor: 2, Processes: []probes.DeviceProcess{{PID: 7, Container: "k"}}}, {Minor: 2, Parent: "GPU-b", Processes: []probes.DeviceProcess{{PID: 7, Container: "k"}, {PID: 5, Container: "k"}, {PID: 6}}}}
	if got := g.Users("k", 2); !slices.Equal(got, []int32{5, 7}) {
		t.Errorf("users %v", got)
	}
}
