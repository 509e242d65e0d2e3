package main

import (
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/test/played"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/state"
)

// reading is one container at one instant.
type reading struct {
	at      float64 // seconds since the recording's first tick
	used    float64 // CPUs
	quota   float64 // CPUs; 0: none
	own     float64 // its owner's quota
	lent    float64
	rate    float64 // a second; 0: not known
	steps   bool
	stopped float64 // share of the slowest rank's time that its quota took, of the latest window
	values  runtime.Values
	owners  runtime.Values
	parts   policies.Breakdown
	windows uint64
}

// course is what a recording holds of one container.
type course struct {
	readings []reading
	trials   []state.Trial // that ended, the first first
	beganNs  int64
}

func read(recording, name string) (course, error) {
	var out course
	err := played.File(recording, nil, func(tick control.Tick, s *state.Snapshot) {
		if out.beganNs == 0 {
			out.beganNs = s.UnixNs
		}
		for i := range s.Containers {
			c := &s.Containers[i]
			if c.Name != name {
				continue
			}
			out.readings = append(out.readings, readingOf(c, out.seconds(s.UnixNs)))
			out.trials = nil
			for j := len(c.Trials) - 1; j >= 0; j-- {
				if c.Trials[j].Outcome != state.OutcomeWould {
					out.trials = append(out.trials, c.Trials[j])
				}
			}
		}
	})
	if err == nil && len(out.readings) == 0 {
		err = fmt.Errorf("%s has no container %s", recording, name)
	}
	return out, err
}

func (c *course) seconds(unixNs int64) float64 { return float64(unixNs-c.beganNs) / 1e9 }

func readingOf(c *state.Container, at float64) reading {
	r := reading{at: at, used: c.UsedCPUs, values: c.Now, owners: c.Original, parts: c.Breakdown, windows: c.Windows,
		stopped: c.Breakdown.Share(policies.PartThrottled) + c.Breakdown.Share(policies.PartInputThrottled)}
	if q, limited := c.Now[runtime.KnobCPUQuota].CPUs(); limited {
		r.quota, r.own = q, q
	}
	if own, limited := c.Original[runtime.KnobCPUQuota].CPUs(); limited {
		r.own = own
	}
	if c.Loan != nil {
		r.lent = c.Loan.CPUs
	}
	if c.RateWhy == "" {
		r.rate, r.steps = c.Rate.PerSecond, c.Rate.Steps
	}
	return r
}

// line is what a figure of the readings is over time; where it is not known the line is broken.
func (c *course) line(figure func(reading) (float64, bool)) (out []point) {
	for _, r := range c.readings {
		v, known := figure(r)
		out = append(out, point{r.at, v, known})
	}
	return out
}

// spans are the stretches in which something holds.
func (c *course) spans(holds func(reading) bool) (out []span) {
	open := false
	for _, r := range c.readings {
		switch h := holds(r); {
		case h && !open:
			out = append(out, span{r.at, r.at})
		case open:
			out[len(out)-1].to = r.at
		}
		open = holds(r)
	}
	return out
}

func (c *course) end() float64 { return c.readings[len(c.readings)-1].at }
