package api

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/state"
)

// List answers GET /v1/list.
type List struct {
	UnixNs     int64    `json:"time"`
	Containers []Listed `json:"containers"`
}

// Listed is of a container what a list shows, under the names of state.Container: of many containers all
// that is known takes a browser a second to read. Texts that others chose are cut to maxListed bytes.
type Listed struct {
	Key       string             `json:"key"`
	Name      string             `json:"name"`
	Watched   bool               `json:"watched"`
	Enrolment ListedEnrolment    `json:"enrolment"`
	WhyNot    string             `json:"whyNot,omitempty"`
	Loan      bool               `json:"loan,omitempty"` // one stands
	Work      *state.Work        `json:"work,omitempty"`
	Rate      policies.Rate      `json:"rate"`
	RateWhy   string             `json:"rateWhy,omitempty"`
	Breakdown policies.Breakdown `json:"breakdown"`
	Verdict   ListedVerdict      `json:"verdict"`
	UsedCPUs  float64            `json:"usedCPUs"`
	Now       runtime.Values     `json:"now,omitempty"` // of the quota and of knobs that are changed
	Original  runtime.Values     `json:"original,omitempty"`
	Changed   []runtime.Knob     `json:"changed,omitempty"`
	Pending   string             `json:"owed,omitempty"`
	GPULost   string             `json:"gpuLost,omitempty"`
	Gain      float64            `json:"gain,omitempty"`
	HasGain   bool               `json:"hasGain,omitempty"`
	Doubt     bool               `json:"doubt,omitempty"`
	LastRuns  *ListedRuns        `json:"lastRuns,omitempty"`
	Trial     bool               `json:"trial,omitempty"`  // one is open
	Trials    []ListedTrial      `json:"trials,omitempty"` // the latest alone, and only where it would have been
}

// ListedEnrolment is of policies.Enrolment what a list shows.
type ListedEnrolment struct {
	Mode policies.Mode `json:"mode"`
	Team string        `json:"team,omitempty"`
}

// ListedVerdict is of policies.Verdict what a list shows.
type ListedVerdict struct {
	Class policies.Class `json:"class,omitempty"`
	Cause policies.Cause `json:"cause,omitempty"`
}

// ListedRuns is of profiles.Shown what a list shows.
type ListedRuns struct {
	PerSecond float64 `json:"perSecond,omitempty"`
	Slower    float64 `json:"slower,omitempty"`
	SlowerWhy string  `json:"slowerWhy,omitempty"`
}

// ListedTrial is of state.Trial what a list shows.
type ListedTrial struct {
	Changes   []ListedChange `json:"changes"`
	Outcome   state.Outcome  `json:"outcome"`
	Before    float64        `json:"before"`
	Predicted float64        `json:"predicted"`
}

// ListedChange is of policies.Change what a list shows.
type ListedChange struct {
	Gain float64 `json:"gain"`
}

// maxListed is room for any name that an engine allows; labels may be of 4 KB.
const maxListed = 256

func listed(snap *state.Snapshot) any {
	out := List{UnixNs: snap.UnixNs, Containers: make([]Listed, 0, len(snap.Containers))}
	for i := range snap.Containers {
		out.Containers = append(out.Containers, listedOf(&snap.Containers[i]))
	}
	return out
}

func listedOf(c *state.Container) Listed {
	l := Listed{Key: c.Key, Name: shortened(c.Name), Watched: c.Watched, Enrolment: ListedEnrolment{c.Enrolment.Mode, shortened(c.Enrolment.Team)}, WhyNot: shortened(c.WhyNot),
		Loan: c.Loan != nil, Work: c.Work, Rate: c.Rate, RateWhy: shortened(c.RateWhy), Breakdown: c.Breakdown, Verdict: ListedVerdict{c.Verdict.Class, c.Verdict.Cause}, UsedCPUs: c.UsedCPUs,
		Now: shownValues(c.Now, c.Changed), Original: shownValues(c.Original, c.Changed), Changed: c.Changed, Pending: shortened(c.Pending), GPULost: shortened(c.GPULost),
		Gain: c.Gain, HasGain: c.HasGain, Doubt: c.Doubt, Trial: c.Trial != nil}
	if r := c.LastRuns; r != nil {
		l.LastRuns = &ListedRuns{r.PerSecond, r.Slower, shortened(r.SlowerWhy)}
	}
	if len(c.Trials) > 0 && c.Trials[0].Outcome == state.OutcomeWould {
		t := c.Trials[0]
		one := ListedTrial{Outcome: t.Outcome, Before: t.Before, Predicted: t.Predicted}
		for _, ch := range t.Changes {
			one.Changes = append(one.Changes, ListedChange{ch.Gain})
		}
		l.Trials = []ListedTrial{one}
	}
	return l
}

// shownValues are those of the quota and of knobs that are changed.
func shownValues(all runtime.Values, changed []runtime.Knob) runtime.Values {
	out := runtime.Values{}
	for k, v := range all {
		if k == runtime.KnobCPUQuota || slices.Contains(changed, k) {
			out[k] = v
		}
	}
	return out
}

// shortened cuts a text in the middle: both ends tell names apart.
func shortened(text string) string {
	if len(text) <= maxListed {
		return text
	}
	return strings.ToValidUTF8(text[:maxListed/2], "") + "…" + strings.ToValidUTF8(text[len(text)-maxListed/2+len("…"):], "")
}
