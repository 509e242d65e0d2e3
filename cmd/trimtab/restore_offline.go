package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/runtime"
	"github.com/trimtab/trimtab/runtime/docker"
	"github.com/trimtab/trimtab/tuner/actuator"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/enrol"
	"github.com/trimtab/trimtab/tuner/loop"
	"github.com/trimtab/trimtab/tuner/view"
)

// offlineTimeout bounds how long the engine is waited for.
const offlineTimeout = 30 * time.Second

// restoreOffline puts originals back without a daemon, from the files on disk
// alone. It refuses while a daemon runs: that would do it better.
func restoreOffline(cmd *cobra.Command, names []string) ([]view.ActionResult, error) {
	cfg, _, err := config.Load(config.DefaultFile, config.DefaultDropDir)
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
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	engine, err := docker.New(docker.Options{Host: cfg.Docker.Host, ContainerdAddress: cfg.Docker.Containerd, Logger: log})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	running, err := listRunning(cmd.Context(), engine)
	if err != nil {
		return nil, err
	}
	a := newActuator(cfg, engine, log)
	if len(names) == 0 {
		results, err := a.Recover(cmd.Context(), actuator.Recovery{Running: running, Synced: []string{engine.Name()}})
		return loop.RestoreAnswers(results), err
	}
	var out []view.ActionResult
	for _, name := range names {
		picked, err := enrol.Select(view.EnableRequest{Name: name}, running)
		if err != nil {
			return out, err
		}
		out = append(out, loop.RestoreAnswers([]actuator.RestoreResult{a.Restore(cmd.Context(), picked[0], "asked for")})...)
	}
	return out, nil
}

// listRunning waits for one full listing.
func listRunning(ctx context.Context, engine runtime.Engine) ([]runtime.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, offlineTimeout)
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
	if !synced {
		return nil, fmt.Errorf("%s was not reached in %s: %s (%w)", engine.Name(), offlineTimeout, lost, err)
	}
	return running, nil
}
