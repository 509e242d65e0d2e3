package account

import "github.com/trimtab/trimtab/tuner/state"

// Column is one term of a report as people are shown it, wherever that is.
type Column struct {
	Key   string                        `json:"key"`   // in CSV, with its unit behind it
	Field string                        `json:"field"` // in the JSON of state.ReportUse; of AboveColumns, in that of state.ReportGroup
	Title string                        `json:"title"`
	Means string                        `json:"means"` // its formula in a line; docs/report.md has all of it
	Value func(state.ReportUse) float64 `json:"-"`     // seconds; nil of AboveColumns
}

// Columns are the terms that devices and CPUs have.
func Columns() []Column {
	return []Column{
		{"held", "held", "held", "devices, or CPUs, times the time that they were held", func(u state.ReportUse) float64 { return u.Held }},
		{"idle", "idle", "idle", "held, and neither used nor queued for", func(u state.ReportUse) float64 { return u.Idle }},
		{"stalled", "stalled", "stalled", "in use by a job that neither computed nor waited for its device", func(u state.ReportUse) float64 { return u.Stalled }},
		{"actionable", "actionable", "actionable", "the stalled part that trimtab or the owner could relieve", func(u state.ReportUse) float64 { return u.Actionable }},
		{"not_known", "notKnown", "unknown", "in use, and nothing tells for what", func(u state.ReportUse) float64 { return u.NotKnown }},
		{"saved", "saved", "saved", "in use under a proved change, times 1 − rate before / rate after, by the lower bound", func(u state.ReportUse) float64 { return u.Saved }},
		{"lost", "lost", "lost", "in trials that were not kept, times the share by which the rate was lower", func(u state.ReportUse) float64 { return u.Lost }},
	}
}

// AboveColumn is one of the terms that CPUs alone have, as groups have them.
type AboveColumn struct {
	Column
	Of func(state.ReportGroup) float64 `json:"-"` // seconds
}

// AboveColumns are the terms of what was used above owners' quotas: nothing of it is in the others.
func AboveColumns() []AboveColumn {
	return []AboveColumn{
		{Column{Key: LentName, Field: "lentCPUSeconds", Title: "lent", Means: "CPU time used above the owner's quota, of a loan: nobody else wanted it, and nothing of it is in the other columns"}, func(g state.ReportGroup) float64 { return g.LentCPUSeconds }},
		{Column{Key: GivenName, Field: "givenCPUSeconds", Title: "given", Means: "CPU time used above the owner's quota, of what a trial gave; nothing of it is in the other columns"}, func(g state.ReportGroup) float64 { return g.GivenCPUSeconds }},
	}
}
