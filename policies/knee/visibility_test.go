package knee

import (
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
)

// leftAlone is a job that works on one of its two devices, beside one that is bound by the other.
func leftAlone() policies.Job {
	bound := policies.Verdict{Class: policies.ClassCompute, Cause: policies.CauseDevice, Confidence: 0.9}
	return policies.Job{Key: "a", Name: "a", May: true, Elastic: true, Enrolment: policies.Enrolment{Mode: policies.ModeTune, Knobs: []string{"gpu"}},
		Now: runtime.Values{}, Original: runtime.Values{}, Rate: policies.Rate{PerSecond: 10}, Correction: 1,
		Verdict: policies.Verdict{Class: policies.ClassInput, Cause: policies.CauseRemote, Confidence: 0.9},
		Devices: []policies.Device{{Device: "GPU-aaaaaaaa-1", Visible: true}, {Device: "GPU-bbbbbbbb-2", Visible: true, UnusedSeconds: 700,
			Others: []policies.Holder{{Key: "b", Name: "needs", Enrolled: true, Verdict: bound}}}}}
}

// TestVisibility: which device is hidden, and when none is.
func TestVisibility(t *testing.T) {
	withDevices := func(edit func(j *policies.Job, unused *policies.Device)) policies.Job {
		return with(leftAlone(), func(j *policies.Job) {
			j.Devices = slices.Clone(j.Devices)
			j.Devices[1].Others = slices.Clone(j.Devices[1].Others)
			edit(j, &j.Devices[1])
		})
	}
	type edit = func(j *policies.Job, unused *policies.Device)
	for name, c := range map[string]struct {
		edit   edit
		device string // "": none
		hide   bool
		advice string
	}{
		"left alone":                       {nil, "GPU-bbbbbbbb-2", true, ""},
		"not for long enough":              {func(_ *policies.Job, d *policies.Device) { d.UnusedSeconds = 500 }, "", false, ""},
		"nobody is on it":                  {func(_ *policies.Job, d *policies.Device) { d.Others = nil }, "", false, ""},
		"whoever is on it is not enrolled": {func(_ *policies.Job, d *policies.Device) { d.Others[0].Enrolled = false }, "", false, ""},
		"whoever is on it is not bound":    {func(_ *policies.Job, d *policies.Device) { d.Others[0].Verdict.Cause = policies.CauseHost }, "", false, ""},
		"that is a guess":                  {func(_ *policies.Job, d *policies.Device) { d.Others[0].Verdict.Confidence = 0.2 }, "", false, ""},
		"it is shared already":             {func(_ *policies.Job, d *policies.Device) { d.Others[0].Verdict.Cause = policies.CauseShared }, "GPU-bbbbbbbb-2", true, ""},
		"it is short of devices itself": {func(j *policies.Job, _ *policies.Device) {
			j.Verdict.Class, j.Verdict.Cause = policies.ClassCompute, policies.CauseDevice
		}, "", false, ""},
		"it is idle":               {func(j *policies.Job, _ *policies.Device) { j.Verdict.Class, j.Verdict.Cause = policies.ClassIdle, "" }, "", false, ""},
		"it works on none of them": {func(j *policies.Job, _ *policies.Device) { j.Devices[0].UnusedSeconds = 10 }, "", false, ""},
		"the other is not visible": {func(j *policies.Job, _ *policies.Device) { j.Devices[0].Visible = false }, "", false, ""},
		"a person hid one of its devices": {func(j *policies.Job, _ *policies.Device) {
			j.Devices = append(j.Devices, policies.Device{Device: "GPU-c", Hidden: policies.HiddenByPerson})
		}, "", false, ""},
		"its devices are not known":   {func(j *policies.Job, _ *policies.Device) { j.Devices = nil }, "", false, ""},
		"without a signal it is told": {func(j *policies.Job, _ *policies.Device) { j.Elastic = false }, "", false, "trimtab.gpu.signal"},
		"without the knob it is told": {func(j *policies.Job, _ *policies.Device) { j.Enrolment.Knobs = []string{"cpu"} }, "", false, "trimtab gpu hide"},
		"hidden, and free for long": {func(_ *policies.Job, d *policies.Device) {
			d.Visible, d.Hidden, d.FreeSeconds = false, policies.HiddenByPolicy, 300
		}, "GPU-bbbbbbbb-2", false, ""},
		"hidden, and in use by others": {func(_ *policies.Job, d *policies.Device) {
			d.Visible, d.Hidden, d.FreeSeconds = false, policies.HiddenByPolicy, 10
		}, "", false, ""},
		"hidden by a person, free for long": {func(_ *policies.Job, d *policies.Device) {
			d.Visible, d.Hidden, d.FreeSeconds = false, policies.HiddenByPerson, 9e9
		}, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := leftAlone()
			if c.edit != nil {
				j = withDevices(c.edit)
			}
			p := policy().Propose(eightCPUs, []policies.Job{j})
			if len(p.Plans) > 0 || len(p.GPUVisibility) > 1 || (len(p.GPUVisibility) == 1) != (c.device != "") {
				t.Fatalf("%+v", p)
			}
			if c.device != "" && (p.GPUVisibility[0].Device != c.device || p.GPUVisibility[0].Hide != c.hide || p.GPUVisibility[0].Reason == "") {
				t.Errorf("%+v", p.GPUVisibility[0])
			}
			told := slices.ContainsFunc(p.Advice, func(a policies.Advice) bool {
				return strings.Contains(a.Text, "GPU-bbbbbbbb could be hidden") && strings.Contains(a.Text, c.advice)
			})
			if told != (c.advice != "") {
				t.Errorf("advice %+v", p.Advice)
			}
		})
	}
}
