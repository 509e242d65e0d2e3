package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trimtab/trimtab/probes/child"
	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/metrics"
	"github.com/trimtab/trimtab/tuner/notify"
	"github.com/trimtab/trimtab/tuner/state"
)

// tellLast bounds how long the end waits for what is still to be told.
const tellLast = 5 * time.Second

// newReceivers makes those that the config names. What is wrong with one is said when it is told
// something, and by doctor.
func newReceivers(c config.Notify, latest func() *state.Snapshot, healthy func() error, log *slog.Logger) (*notify.Notifier, error) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.NewCollector(latest))
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return notify.New(notify.Options{Config: c, Host: host, Version: version(), Latest: latest, Healthy: healthy, Metrics: reg,
		Start: child.Start, Log: log.With("component", "notify")}), nil
}

// examineReceivers asks each that is told of decisions whether it could be.
func examineReceivers(ctx context.Context, cfg config.Config) (out []finding) {
	none := func() *state.Snapshot { return &state.Snapshot{} }
	n, err := newReceivers(cfg.Notify, none, func() error { return nil }, slog.New(slog.DiscardHandler))
	if err != nil {
		return []finding{grade("notify", err, levelDegraded, "", "")}
	}
	n.Check(ctx, func(name string, err error) {
		out = append(out, grade(name, err, levelDegraded, "can be told of decisions", "the rest goes on without it; docs/notify.md"))
	})
	return out
}
