// Package play runs recordings through today's controller. It is what `trimtab replay` and the
// pages' pictures have in common: a recording's config, also of a reload, and the jobs that were known.
package play

import (
	"encoding/json"
	"fmt"

	"github.com/trimtab/trimtab/policies"
	"github.com/trimtab/trimtab/tuner/control"
	"github.com/trimtab/trimtab/tuner/profiles/disk"
	"github.com/trimtab/trimtab/tuner/recording"
)

// State is what a replay needs beside the ticks. A recording's header holds it.
type State struct {
	Epoch string `json:"epoch"` // of plan IDs
	// Known are the jobs that were known, as disk.Encode writes them.
	Known json.RawMessage `json:"known,omitempty"`
}

// Player is a controller as a recording describes it.
type Player struct {
	*control.Controller
	Config control.Config // that is in force
	reader *recording.Reader
}

// New makes the controller that a recording's header describes.
func New(r *recording.Reader, deciding func(*policies.Constants) []policies.Policy) (*Player, error) {
	h := r.Header()
	cfg, err := configOf(h.Config)
	if err != nil {
		return nil, err
	}
	var state State
	if err := json.Unmarshal(h.State, &state); err != nil {
		return nil, fmt.Errorf("recording's state: %w", err)
	}
	p := &Player{Controller: control.New(cfg, deciding, state.Epoch), Config: cfg, reader: r}
	if len(state.Known) > 0 {
		known, err := disk.Decode(state.Known, h.WallUnixNs)
		if err != nil {
			return nil, fmt.Errorf("recording's state: %w", err)
		}
		p.Remember(known)
	}
	return p, nil
}

func configOf(raw json.RawMessage) (control.Config, error) {
	cfg := control.Defaults() // of what an older recording does not have
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return cfg, fmt.Errorf("recording's config: %w", err)
	}
	return cfg, nil
}

// Next returns the next tick or decision; a config before it is in force then. It ends as the
// Reader does, which see.
func (p *Player) Next() (kind string, raw json.RawMessage, err error) {
	for {
		if kind, raw, err = p.reader.Next(); err != nil || kind != "config" {
			return kind, raw, err
		}
		cfg, err := configOf(raw)
		if err != nil {
			return "", nil, err
		}
		p.Config = cfg
		p.SetConfig(cfg)
	}
}
