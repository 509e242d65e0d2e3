package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/test/workload"
)

// fault is one way to break something.
type fault struct {
	name   string
	weight int
	// run breaks it, and mends it. What it says is for people. An error is the harness's
	// own trouble, not a law broken.
	run func(ctx context.Context, w *world, r *rand.Rand) (what string, err error)
}

// faults lists all; a step draws one by its weight.
func faults() []fault {
	return []fault{
		{calmName, 3, calm},
		{"kill daemon", 3, killDaemon},
		{"stop daemon", 2, stopDaemon},
		{"kill daemon, restore --offline", 2, restoreOffline},
		{"kill restore --offline", 1, killRestore},
		{"kill child of the daemon", 2, killChild},
		{"kill dockerd", 2, killDockerd},
		{"kill containerd", 2, killContainerd},
		{"kill shim", 1, killShim},
		{"restart dockerd", 1, restartDockerd},
		{"restart dockerd and containerd", 1, restartBoth},
		{"kill daemon and containerd", 1, killDaemonAndContainerd},
		{"kill dockerd, stop daemon", 1, stopWithoutDockerd},
		{"kill dockerd and daemon, restore --offline", 1, restoreWithoutDockerd},
		{"foreign docker update", 3, foreignUpdate},
		{"foreign write to a control group", 2, foreignWrite},
		{"disk full", 2, diskFull},
		{"disk read-only", 2, diskReadOnly},
		{"disk slow to sync", 2, diskSlow},
		{"disk fails to sync", 2, diskSyncFails},
		{"memory pressure", 1, memoryPressure},
		{"fork bomb", 1, forkBomb},
		{"containers come and go", 1, churn},
		{"reload", 1, reload},
		{"pause and resume", 1, pauseResume},
		{"restore and resume", 1, restoreResume},
		{clockName, 2, stepClock},
	}
}

// calmName is a step in which nothing is broken.
const calmName = "nothing, for a while"

// calm is time for trials to end and loans to settle, and for the laws of ticks and rights,
// which wait after most faults.
func calm(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	for range 15 + r.IntN(10) {
		_ = workload.Sleep(ctx, time.Second)
		w.look(int(w.step.Load()))
	}
	return "", nil
}

// draw picks one by its weight.
func draw(all []fault, r *rand.Rand) fault {
	var sum int
	for _, f := range all {
		sum += f.weight
	}
	n := r.IntN(sum)
	for _, f := range all {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	return all[len(all)-1]
}

// pause waits for up to most.
func pause(ctx context.Context, r *rand.Rand, most time.Duration) time.Duration {
	d := time.Duration(r.Int64N(int64(most)))
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return d
}

// killed kills the daemon; one that had ended by itself breaks a law.
func (w *world) killed() error {
	w.down()
	if w.daemon.Ended() {
		return nil // lives has told
	}
	return w.daemon.Kill()
}

// lives holds that the daemon runs where it is to, and starts it again where it does not.
func (w *world) lives(ctx context.Context) error {
	if w.upSince.Load() == 0 || !w.daemon.Ended() {
		return nil
	}
	w.down()
	w.violate(int(w.step.Load()), []breach{{lawLives, "daemon", "it ended by itself: " + tail(w.daemon.Log())}})
	return w.start(ctx)
}

// start starts the daemon, which must answer.
func (w *world) start(ctx context.Context) error {
	err := w.daemon.Restart(ctx)
	if err == nil {
		w.up()
		return nil
	}
	if ctx.Err() != nil { // the end starts one of its own
		if !w.daemon.Ended() {
			return errors.Join(ctx.Err(), w.daemon.Kill())
		}
		return ctx.Err()
	}
	w.violate(int(w.step.Load()), []breach{{lawLives, "daemon", "it does not start: " + tail(err.Error())}})
	if !w.daemon.Ended() {
		return w.daemon.Kill()
	}
	return nil
}

// tail is the end of a text.
func tail(text string) string {
	const most = 1500
	return text[max(0, len(text)-most):]
}

func killDaemon(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	pid := w.daemon.PID()
	if err := w.killed(); err != nil {
		return "", err
	}
	down := pause(ctx, r, 3*time.Second)
	w.look(int(w.step.Load()))
	return fmt.Sprintf("process %d, down for %s", pid, down.Round(time.Millisecond)), w.start(ctx)
}

// stopDaemon ends it as systemd does: all must be the owner's then.
func stopDaemon(ctx context.Context, w *world, _ *rand.Rand) (string, error) {
	began := time.Now()
	w.down()
	err := w.daemon.Stop()
	took := time.Since(began)
	if err != nil {
		w.violate(int(w.step.Load()), []breach{{lawLives, "daemon", "its stop: " + tail(err.Error())}})
	}
	w.wantRestored(int(w.step.Load()), "a stop")
	return fmt.Sprintf("in %s", took.Round(time.Millisecond)), w.start(ctx)
}

// offline runs `trimtab restore --offline`.
func (w *world) offline(ctx context.Context) (string, error) {
	began := time.Now()
	said, err := w.daemon.Run(ctx, "restore", "--offline", "--config", w.configFile(), "--conf-dir", w.dir+"/none")
	if ctx.Err() == nil {
		w.restoreTook = time.Since(began)
	}
	return said, err
}

func restoreOffline(ctx context.Context, w *world, _ *rand.Rand) (string, error) {
	if err := w.killed(); err != nil {
		return "", err
	}
	said, err := w.offline(ctx)
	if err != nil {
		w.violate(int(w.step.Load()), []breach{{lawRestored, "restore --offline", err.Error()}})
	}
	w.wantRestored(int(w.step.Load()), "restore --offline")
	return fmt.Sprintf("%d bytes said", len(said)), w.start(ctx)
}

// killRestore kills the command in its middle; the daemon that comes then restores.
func killRestore(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	if err := w.killed(); err != nil {
		return "", err
	}
	within, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(w.restoreTook))))
	_, err := w.offline(within)
	cancel()
	what := "it had ended"
	if err != nil {
		what = "in its middle"
	}
	w.look(int(w.step.Load()))
	return what, w.start(ctx)
}

func reload(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	bad := r.IntN(2) == 0
	text := w.wholeConfig
	if bad {
		text += "thresholds: {severity: banana}\n"
	}
	if err := w.writeConfig(text); err != nil {
		return "", err
	}
	if err := w.daemon.Signal(syscall.SIGHUP); err != nil {
		return "", err
	}
	pause(ctx, r, 2*time.Second)
	if err := w.writeConfig(w.wholeConfig); err != nil {
		return "", err
	}
	return fmt.Sprintf("bad: %v", bad), w.daemon.Signal(syscall.SIGHUP)
}

func pauseResume(ctx context.Context, w *world, r *rand.Rand) (string, error) {
	if err := w.daemon.Client().Pause(ctx); err != nil {
		return "", err
	}
	w.hush()
	pause(ctx, r, 3*time.Second)
	w.look(int(w.step.Load()))
	_, err := w.daemon.Client().Resume(ctx, "")
	return "", err
}

// restoreResume restores by the daemon, beside its own work.
func restoreResume(ctx context.Context, w *world, _ *rand.Rand) (string, error) {
	results, err := w.daemon.Client().Restore(ctx, "")
	if err != nil {
		return "", err
	}
	w.wantRestored(int(w.step.Load()), "trimtab restore")
	_, err = w.daemon.Client().Resume(ctx, "")
	return fmt.Sprintf("%d restored", len(results)), err
}

// engineWithin is what an engine that came back is given, with containers that come and go meanwhile: no
// measure of speed.
const engineWithin = 2 * time.Minute

// engineUp waits until the engine answers, and its containerd answers it.
func (w *world) engineUp(ctx context.Context) error {
	for end := time.Now().Add(engineWithin); time.Now().Before(end) && ctx.Err() == nil; {
		if _, err := w.docker(ctx, "top", neighbourName); err == nil {
			return nil
		}
		_ = workload.Sleep(ctx, 200*time.Millisecond)
	}
	return errors.Join(ctx.Err(), fmt.Errorf("dockerd does not answer: %s", w.engine.Said()))
}

func (w *world) configFile() string { return filepath.Join(w.dir, "daemon", "trimtab.yaml") }

func (w *world) writeConfig(text string) error {
	return os.WriteFile(w.configFile(), []byte(text), 0o600)
}

// lastLine is the last line of a text that says something.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
