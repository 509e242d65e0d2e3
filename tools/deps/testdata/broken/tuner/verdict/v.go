// Package verdict is pure by name and looks at the clock, the network and the log.
package verdict

import (
	"context"
	"log/slog"
	"net/http"
	clock "time"
)

// Late mentions the clock without calling it.
func Late() func() clock.Time { return clock.Now }

// Wait sleeps.
func Wait(ctx context.Context) {
	_, cancel := context.WithTimeout(ctx, clock.Second)
	cancel()
	slog.Info(http.MethodGet)
}

// Tick is fine: a duration is plain data.
func Tick() clock.Duration { return clock.Second }
