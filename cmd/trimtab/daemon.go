package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/oklog/run"
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/cmd/trimtab/internal/systemd"
	"github.com/trimtab/trimtab/tuner/agent"
	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/httpd"
	"github.com/trimtab/trimtab/tuner/metrics"
	"github.com/trimtab/trimtab/tuner/page"
	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

// shutdownTimeout bounds the restore at the end; systemd's own limit is longer.
const shutdownTimeout = 60 * time.Second

func daemonCommand() *cobra.Command {
	cmd := withConfig(&cobra.Command{
		Use:   "daemon",
		Short: "Run the daemon: watch, tune, prove, restore",
		Long: "Run the daemon until SIGTERM, which restores every original. Where systemd is about to start the daemon again,\n" +
			"what was proved or lent stands, and the next daemon takes over. SIGHUP reloads the config.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("socket") {
				return errors.New("the daemon listens at api.socket of its config: --socket is for the commands that talk to it")
			}
			if check, _ := cmd.Flags().GetBool("check"); check {
				return checkHost(cmd)
			}
			return runDaemon(cmd)
		},
	})
	cmd.Flags().Lookup("config").Usage += "; a missing default file means defaults"
	cmd.Flags().Bool("check", false, "load, attach, reach the engines, then exit, changing nothing: 0 if the host can be tuned")
	cmd.Flags().Bool("handover", false, "on SIGTERM leave what was proved or lent for the next daemon, as a restart by systemd does")
	return cmd
}

const (
	// heapPercent lets garbage grow to twice what lives: beside few containers a
	// collection costs more than the readings of the ticks between two, and the heap is
	// the smaller part of what is resident.
	heapPercent = 200
	// imageBytes of the budget are the binary's own pages and the rings shared with the
	// kernel, of which Go knows nothing.
	imageBytes = 24 << 20
)

// collectBy keeps resident memory within the budget: near it Go collects harder,
// before systemd's MemoryMax would kill.
func collectBy(budget int64) {
	debug.SetGCPercent(heapPercent)
	debug.SetMemoryLimit(max(budget-imageBytes, budget/2))
}

// runDaemon assembles the parts, runs them as a group, and ends them in order:
// restore, detach, close.
func runDaemon(cmd *cobra.Command) error {
	// Never stopped: a SIGHUP that comes before the group runs, or while the end restores, would kill it.
	asked := make(chan os.Signal, 4)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	cfg, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // the config is checked
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	collectBy(int64(cfg.Overhead.Memory))
	p, err := assemble(cmd.Context(), cfg, log)
	if err != nil {
		return err
	}
	defer p.close()
	notifier, err := systemd.NewNotifier(log)
	if err != nil {
		return err
	}
	p.loop = agent.New(p.options(notifier.Status))
	if p.recorder != nil {
		p.recorder.state.Epoch = p.loop.Epoch()
	}
	if p.receivers != nil {
		p.receivers.Start()
		defer func() { // what the end restores is told as well
			ctx, cancel := context.WithTimeout(context.Background(), tellLast)
			defer cancel()
			p.receivers.Close(ctx)
		}()
	}
	return errors.Join(runGroup(cmd, level, p, notifier, asked), shutDown(cmd, p, notifier))
}

// runGroup returns when the first part ends; a signal is the usual one.
func runGroup(cmd *cobra.Command, level *slog.LevelVar, p *components, n *systemd.Notifier, asked <-chan os.Signal) error {
	cfg, log := p.cfg, p.log
	listener, err := api.Listen(cfg.API.Socket, api.Groups{Read: cfg.API.ReadGroup, Write: cfg.API.WriteGroup})
	if err != nil {
		return err
	}
	listener.Meter = &p.taken[0]
	var g run.Group
	add := func(work func(context.Context) error) {
		ctx, cancel := context.WithCancel(cmd.Context())
		g.Add(func() error { return work(ctx) }, func(error) { cancel() })
	}
	add(p.loop.Run)
	add(func(ctx context.Context) error { return keepSeries(ctx, p.loop.Snapshot, p.series) })
	if p.receivers != nil {
		add(p.receivers.Run)
	}
	add(func(ctx context.Context) error {
		return watchBooks(ctx, cfg, p.loop, log.With("component", "books"))
	})
	server := api.NewServer(p.loop, log.With("component", "api"), time.Now)
	add(func(ctx context.Context) error { return server.Run(ctx, listener) })
	// Without metrics and page jobs are tuned all the same (law: each part alone).
	if c := cfg.Metrics; c.Listen != "" {
		own := log.With("component", "metrics")
		if err := addServer(add, &httpd.Server{Name: "metrics", Listens: c.Listen, Group: cfg.API.ReadGroup, WebConfig: c.WebConfig,
			Handler: metrics.Handler(version(), p.loop.Snapshot, p.alive, own), Logger: own, Meter: &p.taken[1]}); err != nil {
			log.Error("metrics are not served", "error", err)
		}
	}
	if c := cfg.Page; c.Listen != "" {
		if err := addServer(add, &httpd.Server{Name: "page", Listens: c.Listen, Group: cfg.API.ReadGroup, WebConfig: c.WebConfig,
			Handler: page.Handler(c.Listen, c.Hosts, p.loop.Snapshot, server.Looking()), Logger: log.With("component", "page"), Meter: &p.taken[2]}); err != nil {
			log.Error("the page is not served", "error", err)
		}
	}
	add(func(ctx context.Context) error { return n.RunWatchdog(ctx, p.alive) })
	add(func(ctx context.Context) error { return signals(ctx, cmd, level, p, n, asked) })
	n.Ready("started")
	log.Info("trimtab is up", "version", version(), "mode", string(cfg.Mode), "metrics", cfg.Metrics.Listen, "page", cfg.Page.Listen, "socket", cfg.API.Socket)
	err = g.Run()
	if errors.Is(err, errSignal) {
		return nil
	}
	return err
}

// addServer binds now and serves later. What it meets then ends nothing else.
func addServer(add func(func(context.Context) error), server *httpd.Server) error {
	if err := httpd.CheckWebConfig(server.WebConfig); err != nil {
		return fmt.Errorf("%s.webConfig %w", server.Name, err)
	}
	l, err := server.Listen(context.Background())
	if err != nil {
		return err
	}
	add(func(ctx context.Context) error {
		if err := server.Run(ctx, l); err != nil && ctx.Err() == nil {
			server.Logger.Error("not served any more", "error", err)
			<-ctx.Done()
		}
		return nil
	})
	return nil
}

// keepSeries adds snapshots until ctx ends. It reads what the loop published: the loop
// neither knows nor waits.
func keepSeries(ctx context.Context, latest func() *state.Snapshot, to *series.Store) error {
	ticks := time.Tick(time.Second) // most of what it offers is too soon, and not taken
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
			to.Add(latest())
		}
	}
}

// errSignal ends the group in the way that people ask for.
var errSignal = errors.New("asked to stop")

// signals reloads on SIGHUP and ends on SIGTERM and SIGINT.
func signals(ctx context.Context, cmd *cobra.Command, level *slog.LevelVar, p *components, n *systemd.Notifier, asked <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-asked:
			if s != syscall.SIGHUP {
				p.log.Info("stopping", "signal", s.String())
				return errSignal
			}
			n.Reloading()
			reload(ctx, cmd, level, p)
			n.Ready("reloaded")
		}
	}
}

// reload takes a new config, or keeps the old one and says why.
func reload(ctx context.Context, cmd *cobra.Command, level *slog.LevelVar, p *components) {
	cfg, err := loadConfig(cmd)
	if err != nil {
		p.log.Error("config rejected, the old one stays in force", "error", err)
		if err := p.loop.RejectConfig(ctx, err); err != nil {
			p.log.Error("reload", "error", err)
		}
		return
	}
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // the config is checked
	collectBy(int64(cfg.Overhead.Memory))
	for _, key := range config.NeedsRestart(p.cfg, cfg) {
		p.log.Warn("this key takes effect at the next start", "key", key)
	}
	if err := p.loop.Reload(ctx, settings(cfg)); err != nil {
		p.log.Error("reload", "error", err)
		return
	}
	p.log.Info("config reloaded", "mode", string(cfg.Mode), "rules", len(cfg.Match))
}

// shutDown restores everything, or hands over to the daemon that comes next.
func shutDown(cmd *cobra.Command, p *components, n *systemd.Notifier) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	handover, _ := cmd.Flags().GetBool("handover")
	if !handover {
		again, err := systemd.StopIsRestart(ctx)
		handover = again && err == nil
	}
	if handover {
		n.Stopping("handing over")
		// Marked last: a kill before that makes the next daemon restore.
		err := p.loop.Shutdown(ctx, true)
		if err == nil {
			err = p.markHandover()
		}
		if err == nil {
			p.log.Info("handed over: what was proved stands")
			return nil
		}
		p.log.Error("cannot hand over, restoring instead", "error", err)
	}
	n.Stopping("restoring")
	n.Extend(shutdownTimeout)
	ctx, cancelRestore := context.WithTimeout(context.Background(), shutdownTimeout) // the handover may have used up its own
	defer cancelRestore()
	err := p.loop.Shutdown(ctx, false)
	if err == nil {
		p.log.Info("every original is back")
	}
	return err
}

// loadConfig reads the files that withConfig's flags name; a missing default file is no error.
func loadConfig(cmd *cobra.Command) (config.Config, error) {
	cfg, warnings, err := config.Load(configFiles(cmd))
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "trimtab: config:", w)
	}
	return cfg, err
}
