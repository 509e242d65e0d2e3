package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/test/workload"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// clockName is the fault that sets the machine's clock: drawn with -clock only, in a guest.
const clockName = "clock is set"

// Bounds of a step of the clock: beyond all that trimtab remembers by date, which is 30 days.
const (
	leastStep = time.Hour
	mostStep  = 40 * 24 * time.Hour
	stepLasts = 5 * time.Second
)

// stepClock sets the clock forward or back, and after a while as much the other way.
func stepClock(ctx context.Context, w *world, r *rand.Rand) (what string, err error) {
	before, err := w.daemon.Client().History(ctx, api.HistoryQuery{})
	if err != nil {
		return "", fmt.Errorf("history before the step: %w", err)
	}
	by := leastStep + time.Duration(r.Int64N(int64(mostStep-leastStep)))
	if r.IntN(2) == 0 {
		by = -by
	}
	if err := w.setClock(by); err != nil {
		return "", err
	}
	for end := time.Now().Add(stepLasts); time.Now().Before(end) && ctx.Err() == nil; {
		_ = workload.Sleep(ctx, time.Second)
		w.look(int(w.step.Load()))
	}
	if err := w.setClock(-by); err != nil { // whatever became of ctx
		return "", err
	}
	_ = workload.Sleep(ctx, maxTickAge)
	after, err := w.daemon.Client().History(ctx, api.HistoryQuery{})
	if err != nil {
		return "", fmt.Errorf("history after the step: %w", err)
	}
	w.violate(int(w.step.Load()), judgeRecords(by, before, after))
	return fmt.Sprintf("by %s, and back; %d records before, %d after", by.Round(time.Minute), len(before), len(after)), nil
}

// setClock adds to CLOCK_REALTIME.
func (w *world) setClock(by time.Duration) error {
	const nanoseconds = 0x2000 // ADJ_NANO, linux/timex.h
	seconds := by / time.Second
	rest := by % time.Second
	if rest < 0 { // the kernel wants a positive part
		seconds, rest = seconds-1, rest+time.Second
	}
	t := unix.Timex{Modes: unix.ADJ_SETOFFSET | nanoseconds, Time: unix.NsecToTimeval(0)}
	t.Time.Sec, t.Time.Usec = int64(seconds), int64(rest)
	if _, err := unix.ClockAdjtime(unix.CLOCK_REALTIME, &t); err != nil {
		return fmt.Errorf("set the clock by %s: %w", by, err)
	}
	w.stepped.Store(w.now())
	w.hush()
	return nil
}

// judgeRecords holds that a step of the clock loses no record. The oldest may go meanwhile for
// their size: what counts is the latest.
func judgeRecords(by time.Duration, before, after []state.Record) []breach {
	if len(before) == 0 {
		return nil
	}
	latest := slices.MaxFunc(before, func(a, b state.Record) int { return int(a.UnixNs - b.UnixNs) })
	if slices.Contains(after, latest) {
		return nil
	}
	return []breach{{lawClock, "history", fmt.Sprintf("the clock was set by %s and back, and the latest record before is lost: %s %s %q", by, latest.Kind, latest.Name, latest.Text)}}
}
