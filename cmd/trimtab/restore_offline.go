package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/containerd"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/enrolment"
	"github.com/trimtab/trimtab/tuner/originals"
	"github.com/trimtab/trimtab/tuner/state"
	"github.com/trimtab/trimtab/tuner/statefile"
)

// offlineTimeout bounds how long the engine is waited for.
const offlineTimeout = 30 * time.Second

// switchedOffTimeout bounds how long a start waits for an engine that it does not use.
const switchedOffTimeout = 5 * time.Second

// restoreOffline puts originals back without a daemon. It refuses while a daemon runs: that would do it better.
func restoreOffline(cmd *cobra.Command, names []string) ([]state.ActionResult, error) {
	cfg, _, err := config.Load(configFiles(cmd))
	if err != nil {
		// A config that cannot be read must not keep anybody's limits.
		fmt.Fprintf(cmd.ErrOrStderr(), "trimtab: the config is not valid, its defaults are used: %v\n", err)
		cfg = config.Default()
	}
	if dir, err := cmd.Flags().GetString("state-dir"); err == nil && dir != "" {
		cfg.StateDir = dir
	}
	lock, err := lockDir(cfg.StateDir)
	if err != nil {
		return nil, fmt.Errorf("%w; or ask it: `trimtab restore`", err)
	}
	defer lock.Close()
	stderr, stop := startProgress(cmd.ErrOrStderr(), originalsLeft(originalsDir(cfg)))
	defer stop()
	cmd.SetErr(stderr)
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	state, stateErr := statefile.Open(cfg.StateDir)
	if stateErr != nil { // limits do not wait for it
		results, err := limitsOffline(cmd, cfg, func(c runtime.Container) runtime.Container { return c }, names, log)
		return results, errors.Join(stateErr, err)
	}
	visibilities := newVisibility(state)
	results, err := limitsOffline(cmd, cfg, visibilities.Left, names, log)
	// Whatever became of the limits: GPUs need no engine, but reach into containers,
	// which may hang.
	shown, showErr := showOffline(cmd.Context(), visibilities, names, log)
	return append(results, shown...), errors.Join(err, showErr)
}

// originalsLeft says how many containers' originals are still on disk.
func originalsLeft(dir string) func(elapsed time.Duration) string {
	return func(elapsed time.Duration) string {
		files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // fails for a bad pattern alone
		return fmt.Sprintf("restoring: originals still on disk: %d, %d s", len(files), int(elapsed.Seconds()))
	}
}

// limitsOffline restores all but GPUs; left is what those are asked about.
func limitsOffline(cmd *cobra.Command, cfg config.Config, left func(runtime.Container) runtime.Container, names []string, log *slog.Logger) ([]state.ActionResult, error) {
	all, err := openEngines(withPending(cfg), log)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	return restoreThrough(cmd.Context(), cmd.ErrOrStderr(), all.list(), newActuator(cfg, all, left, log), names)
}

// settleSwitchedOff restores containers of engines that config switched off meanwhile: their
// loans stand, and nobody would call them in.
func settleSwitchedOff(ctx context.Context, cfg config.Config, left func(runtime.Container) runtime.Container, log *slog.Logger) error {
	pending := withPending(cfg)
	pending.Docker.Enabled, pending.Containerd.Enabled = pending.Docker.Enabled && !cfg.Docker.Enabled, pending.Containerd.Enabled && !cfg.Containerd.Enabled
	all, err := openEngines(pending, log)
	if err != nil || len(all) == 0 {
		return err
	}
	defer all.Close()
	listing, cancel := context.WithTimeout(ctx, switchedOffTimeout)
	defer cancel()
	listed := listAll(listing, all.list())
	results, err := newActuator(pending, all, left, log).Recover(ctx, actuator.Recovery{Running: listed.running, Synced: listed.synced})
	for _, r := range restoreAnswers(results) {
		log.Info("restored, for its engine is switched off", "container", r.Name, "outcome", r.Text)
	}
	return errors.Join(err, listed.err)
}

// restoreAnswers tells people what became of restores.
func restoreAnswers(results []actuator.RestoreResult) []state.ActionResult {
	out := []state.ActionResult{}
	for _, r := range results {
		out = append(out, state.ActionResult{Key: r.Key, Name: r.Name, OK: r.Outcome == actuator.Restored, Text: r.Text()})
	}
	return out
}

// withPending switches on the engines whose containers have originals, whatever config
// says by now. Files that cannot be read are told by the restore itself.
func withPending(cfg config.Config) config.Config {
	files, _ := originals.New(originals.Options{Dir: originalsDir(cfg)}).List()
	for _, f := range files {
		cfg.Docker.Enabled = cfg.Docker.Enabled || f.ID.Engine == docker.EngineName
		cfg.Containerd.Enabled = cfg.Containerd.Enabled || f.ID.Engine == containerd.EngineName
	}
	return cfg
}

// restoreThrough restores what the engines list. For an engine that cannot list, or
// lists without one that runs, where nobody is named, the files alone do: with live-restore
// containers outlive dockerd, and containerd still takes their values.
func restoreThrough(ctx context.Context, stderr io.Writer, all []runtime.Engine, a *actuator.Actuator, names []string) ([]state.ActionResult, error) {
	listed := listAll(ctx, all)
	if ctx.Err() != nil {
		return nil, errors.Join(listed.err, ctx.Err())
	}
	if len(names) > 0 {
		return restoreNamed(ctx, a, names, listed)
	}
	var out []state.ActionResult
	var failed error
	if len(listed.synced) > 0 {
		results, err := a.Recover(ctx, actuator.Recovery{Running: listed.running, Synced: listed.synced})
		out = restoreAnswers(results)
		unlisted := errors.Is(err, actuator.ErrUnlisted)
		if listed.err == nil && !unlisted {
			return out, err
		}
		if listed.err = errors.Join(listed.err, err); !unlisted || errors.Is(err, originals.ErrCorrupt) {
			failed = err // the files do not tell it again: one that is corrupt is set aside by now
		}
	}
	rest, err := restoreFromFiles(ctx, stderr, a, listed.err)
	return append(out, rest...), errors.Join(err, failed)
}

// restoreNamed needs a listing: a name is looked up in it.
func restoreNamed(ctx context.Context, a *actuator.Actuator, names []string, listed listing) ([]state.ActionResult, error) {
	if len(listed.synced) == 0 {
		return nil, listed.err
	}
	var out []state.ActionResult
	for _, name := range names {
		picked, err := enrolment.Select(state.EnableRequest{Name: name}, listed.running)
		if err != nil {
			return out, errors.Join(err, listed.err)
		}
		out = append(out, restoreAnswers([]actuator.RestoreResult{a.Restore(ctx, picked[0], "asked for")})...)
	}
	return out, nil
}

// restoreFromFiles restores every container that has originals, whatever is
// listed. That listing failed is an error only if something else did: the files
// name all that trimtab ever changed.
func restoreFromFiles(ctx context.Context, stderr io.Writer, a *actuator.Actuator, listErr error) ([]state.ActionResult, error) {
	fmt.Fprintf(stderr, "trimtab: not all containers can be listed, so originals are put back from the files alone: %v\n", listErr)
	results, err := a.RestoreAll(ctx, nil, "offline")
	// As after a listing, a container that ended is no news.
	results = slices.DeleteFunc(results, func(r actuator.RestoreResult) bool { return r.Outcome == actuator.Gone && r.Err == nil })
	if err != nil {
		err = errors.Join(listErr, err)
	}
	return restoreAnswers(results), err
}

// listRunning waits for one full listing: ErrUnavailable where none came in time.
func listRunning(parent context.Context, engine runtime.Engine) ([]runtime.Container, error) {
	ctx, cancel := context.WithTimeout(parent, offlineTimeout)
	defer cancel()
	var running []runtime.Container
	lost, synced := "", false
	err := engine.Run(ctx, func(ev runtime.Event) {
		switch ev.Kind {
		case runtime.EventSeen:
			running = append(running, ev.Container)
		case runtime.EventLost:
			lost = ev.Reason
		case runtime.EventSynced:
			synced = true
			cancel()
		}
	})
	switch {
	case synced:
	case parent.Err() != nil:
		return nil, fmt.Errorf("%s was not reached: %s (%w)", engine.Name(), lost, err)
	default:
		return nil, fmt.Errorf("%s was not reached in %s: %s (%w, %w)", engine.Name(), offlineTimeout, lost, runtime.ErrUnavailable, err)
	}
	return running, nil
}
