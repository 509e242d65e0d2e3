package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/trimtab/trimtab/test/daemontest"
	"github.com/trimtab/trimtab/test/stats"
	"github.com/trimtab/trimtab/test/workload"
)

// stormTime is how long each storm lasts, stormDelay how long it waits first, so
// that the daemon has found its container.
const (
	stormTime  = 4 * time.Second
	stormDelay = 2500 * time.Millisecond
)

// storm is one condition of the comparison.
type storm struct {
	name, mode string
	daemon     bool
	nsEach     []float64
}

// measureStorm times context switches of two threads on one CPU that wake each
// other, in a container that is watched, not watched, and without a daemon.
func measureStorm(ctx context.Context, b *bench) (rows []Row, err error) {
	d, err := b.daemon(ctx, "")
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, d.Close)
	conditions := []*storm{{name: "without daemon", mode: "off"}, {name: "unwatched", mode: "off", daemon: true}, {name: "watched", mode: "observe", daemon: true}}
	running := true
	order := rand.New(rand.NewPCG(2, 2))
	for turn := range pick(b, 3, 2) {
		order.Shuffle(len(conditions), func(i, j int) { conditions[i], conditions[j] = conditions[j], conditions[i] })
		for _, c := range conditions {
			if err := switchTo(ctx, d, &running, c.daemon); err != nil {
				return nil, err
			}
			r, err := b.storm(ctx, c.mode)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			c.nsEach = append(c.nsEach, r.nsPerSwitch())
			b.say("  storm %d %s: %.0f ns a switch", turn+1, c.name, r.nsPerSwitch())
		}
	}
	return stormRows(conditions), nil
}

func switchTo(ctx context.Context, d *daemontest.Daemon, running *bool, want bool) error {
	if *running == want {
		return nil
	}
	*running = want
	if want {
		return d.Restart(ctx)
	}
	return d.Stop()
}

// storm runs one and returns what it counted.
func (b *bench) storm(ctx context.Context, mode string) (r stormResult, err error) {
	name := b.name("storm")
	args, err := childArgs(name, mode, childStorm, stormDelay.String(), stormTime.String())
	if err != nil {
		return r, err
	}
	defer joinClose(&err, func() error { return removeContainer(name) })
	out, err := workload.Docker(ctx, append([]string{"run"}, args...)...)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Switches == 0 {
		return r, fmt.Errorf("the storm said %q: %v", out, err)
	}
	return r, nil
}

func stormRows(conditions []*storm) (rows []Row) {
	find := func(name string) *storm {
		return conditions[slices.IndexFunc(conditions, func(c *storm) bool { return c.name == name })]
	}
	without := find("without daemon")
	base := stats.Median(without.nsEach)
	how := fmt.Sprintf("two threads on one CPU hand a byte to and fro through pipes, %d storms of %s each, conditions in drawn order; wall time over switches, so wake-ups, their programs and tracepoints count too", len(without.nsEach), stormTime)
	for _, name := range []string{"without daemon", "unwatched", "watched"} {
		c := find(name)
		perSecond := func(ns float64) float64 { return 1e9 / ns / 1000 }
		rows = append(rows, Row{What: "context-switch storm, " + name, Value: perSecond(stats.Median(c.nsEach)), Unit: "k switches/s",
			Low: perSecond(slices.Max(c.nsEach)), High: perSecond(slices.Min(c.nsEach)), Spread: "range", How: how}.reported())
		if c == without {
			continue
		}
		rows = append(rows, Row{What: "  a switch and its wake-up above that, " + name, Value: stats.Median(c.nsEach) - base, Unit: "ns",
			Low: slices.Min(c.nsEach) - base, High: slices.Max(c.nsEach) - base, Spread: "range", How: "median above the median without a daemon; range over storms"}.reported())
	}
	return rows
}
