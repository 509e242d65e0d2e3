package agent

import (
	"testing"
	"time"
)

// TestLateTick: the most by which a tick since the latest reading was late counts; jitter and the first tick do not.
func TestLateTick(t *testing.T) {
	l := &Agent{o: Options{Tick: time.Second}}
	at := time.Now()
	for _, step := range []struct{ after, want time.Duration }{
		{0, 0}, // the first
		{time.Second, 0},
		{1900 * time.Millisecond, 0},
		{5 * time.Second, 4 * time.Second},
		{100 * time.Millisecond, 4 * time.Second}, // a ticker makes up for what it missed
		{9 * time.Second, 8 * time.Second},
	} {
		at = at.Add(step.after)
		if l.noteLate(at); l.late != step.want {
			t.Errorf("%s after the one before: late by %s, want %s", step.after, l.late, step.want)
		}
	}
}
