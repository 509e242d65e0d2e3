package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/policies/knee"
	"github.com/trimtab/trimtab/policies/lend"
	"github.com/trimtab/trimtab/policies/share"
	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/recording"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/verdict"
)

// Window is one verdict that the daemon gave.
type Window struct {
	StartNs, EndNs int64            // CLOCK_MONOTONIC
	Verdict        policies.Verdict // the window's own
	Shown          policies.Verdict // what people see, after the windows before
	Breakdown      policies.Breakdown
	Rate           policies.Rate
	Used           float64 // CPUs
	Outside        float64 // CPUs that nothing in a container used, mean
	Stolen         float64 // share of the machine's CPU time that its hypervisor took
	Knee           float64 // CPUs; 0: none was told
}

// Proposal is a change that the policy called for at one tick, with the label it
// stood on.
type Proposal struct {
	AtNs  int64
	Label Label
	Knob  runtime.Knob
}

// Seen is what the daemon made of one container.
type Seen struct {
	AttachNs  int64 // first tick that read it
	LastNs    int64
	Windows   []Window
	Proposals []Proposal // sorted by time
	counted   uint64
}

// spy passes a policy's answers on and keeps what it would try: what is lent takes nothing
// from anybody, and is no action on a verdict.
type spy struct {
	policies.Policy
	tried *[]policies.Plan
}

// Propose implements policies.Policy.
func (s spy) Propose(n policies.Node, jobs []policies.Job) policies.Proposal {
	p := s.Policy.Propose(n, jobs)
	for _, plan := range p.Plans {
		if plan.Kind == policies.KindTrial {
			*s.tried = append(*s.tried, plan)
		}
	}
	return p
}

// replayFile runs a recording through today's code, from the samples to what the
// policy calls for. The thresholds are today's, not those of the recording.
func replayFile(path string, k *policies.Constants) (map[string]*Seen, error) {
	var tried []policies.Plan
	deciding := func(k *policies.Constants) []policies.Policy {
		return []policies.Policy{spy{lend.New(k), &tried}, spy{knee.New(k), &tried}, spy{share.New(k), &tried}}
	}
	configured := func(raw json.RawMessage) (control.Config, error) { return todaysConfig(raw, k) }
	out := map[string]*Seen{}
	var machine noise
	err := playFile(path, configured, deciding, func(c *control.Controller, t control.Tick) {
		machine.add(t.Input)
		take(out, c, t.Input, tried, &machine)
		tried = nil
	})
	return out, err
}

// playFile runs a recording under a config made of each that it holds.
func playFile(path string, configured func(json.RawMessage) (control.Config, error), deciding control.Policies, each func(*control.Controller, control.Tick)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := recording.NewReader(f)
	if err != nil {
		return err
	}
	defer r.Close()
	cfg, err := configured(r.Header().Config)
	if err != nil {
		return err
	}
	c := control.New(cfg, deciding, "accuracy")
	for {
		kind, raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch kind {
		case "config": // a reload
			if cfg, err = configured(raw); err != nil {
				return err
			}
			c.SetConfig(cfg)
		case "tick":
			t, err := c.Replay(raw)
			if err != nil {
				return err
			}
			each(c, t)
		}
	}
}

// todaysConfig has from a recording only what depends on its machine.
func todaysConfig(raw json.RawMessage, k *policies.Constants) (control.Config, error) {
	recorded, today := control.Defaults(), control.Defaults()
	if err := json.Unmarshal(raw, &recorded); err != nil {
		return today, fmt.Errorf("recording's config: %w", err)
	}
	today.ReserveCPUs, today.ReserveCPUShare, today.LeftCPUShare = recorded.ReserveCPUs, recorded.ReserveCPUShare, recorded.LeftCPUShare
	today.MaxTuned, today.ChangesPerMinute = recorded.MaxTuned, recorded.ChangesPerMinute
	today.Constants = *k
	return today, nil
}

// take reads what the core shows after a tick.
func take(out map[string]*Seen, c *control.Controller, in control.Input, plans []policies.Plan, machine *noise) {
	var shown state.Snapshot
	c.Show(&shown)
	now := in.Host.AtNs
	byKey := map[string]*Seen{}
	labels := map[string]Label{}
	for _, v := range shown.Containers {
		if !v.Watched {
			continue
		}
		s := out[v.Name]
		if s == nil {
			s = &Seen{AttachNs: now}
			out[v.Name] = s
		}
		s.LastNs = now
		byKey[v.Key], labels[v.Key] = s, labelOf(v.WindowVerdict)
		if v.Windows == s.counted {
			continue
		}
		s.counted = v.Windows
		start := s.start(v.WindowVerdict, now)
		s.Windows = append(s.Windows, Window{StartNs: start, EndNs: now, Verdict: v.WindowVerdict, Shown: v.Verdict, Breakdown: v.Breakdown, Rate: v.Rate,
			Used: v.UsedCPUs, Outside: machine.between(start, now), Stolen: evidence(v.WindowVerdict, verdict.Stolen), Knee: evidence(v.WindowVerdict, verdict.Knee)})
	}
	for _, plan := range plans {
		for _, ch := range plan.Changes {
			if s := byKey[ch.Key]; s != nil {
				s.Proposals = append(s.Proposals, Proposal{AtNs: now, Label: labels[ch.Key], Knob: ch.Knob})
			}
		}
	}
}

// evidence is what a verdict says under a name, 0 if nothing.
func evidence(v policies.Verdict, name string) float64 {
	for _, e := range v.Evidence {
		if e.Name == name {
			return e.Value
		}
	}
	return 0
}

// start of a window: by its own word, else the end of the one before.
func (s *Seen) start(v policies.Verdict, end int64) int64 {
	if seconds := evidence(v, "window"); seconds > 0 {
		return end - int64(seconds*1e9)
	}
	if n := len(s.Windows); n > 0 {
		return s.Windows[n-1].EndNs
	}
	return s.AttachNs
}
