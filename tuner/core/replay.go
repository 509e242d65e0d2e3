package core

import (
	"encoding/json"
	"fmt"
)

// Tick is one recorded tick: what came in, and what was decided, where the
// recording holds it.
type Tick struct {
	Input    Input
	Decision Decision
}

// Replay steps a core through recorded inputs, encoded as JSON.
func (c *Core) Replay(raw json.RawMessage) (Tick, error) {
	var t Tick
	if err := json.Unmarshal(raw, &t.Input); err != nil {
		return t, fmt.Errorf("tick: %w", err)
	}
	t.Decision = c.Step(t.Input)
	return t, nil
}
